"""Defaults of columns, as ``SYSCAT.COLUMNS.DEFAULT`` has them: literals, and expressions."""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_cdc.sources.db2.schema.type_mapping import BITS, Db2ColumnType

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_TEXT: Final = re.compile(r"(?:[GNU]&?)?'((?:[^']|'')*)'", re.IGNORECASE)
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)[- T](\d\d)[.:](\d\d)[.:](\d\d)(\.\d{1,12})?")
_TIME: Final = re.compile(r"(\d\d)[.:](\d\d)(?:[.:](\d\d))?")


def default_of(text: str | None, type_: Db2ColumnType) -> tuple[str | None, bool]:
    """Return the value of a default as a value of the change log is written, and whether it is an expression, given as it is.

    >>> default_of("'it''s'", Db2ColumnType("VARCHAR", 9)), default_of("CURRENT TIMESTAMP", Db2ColumnType("TIMESTAMP", 6))
    (("it's", False), ('CURRENT TIMESTAMP', True))
    >>> default_of("'2024-02-29-12.30.00.000000'", Db2ColumnType("TIMESTAMP", 6)), default_of("'00.01.00'", Db2ColumnType("TIME"))
    (('2024-02-29 12:30:00.000000', False), ('60000000', False))
    """
    bare = (text or "").strip()
    if not bare or bare.upper() == "NULL":
        return None, False
    if type_.base == "BOOLEAN" and bare.upper() in ("TRUE", "FALSE"):
        return str(int(bare.upper() == "TRUE")), False
    if _NUMBER.fullmatch(bare):
        return bare, False
    match = _TEXT.fullmatch(bare)
    if match is None or type_.base in BITS:
        return bare, True
    return _value(match[1].replace("''", "'"), type_), False


def _value(text: str, type_: Db2ColumnType) -> str:
    if type_.base == "TIMESTAMP" and (moment := _MOMENT.fullmatch(text)):
        return f"{moment[1]} {moment[2]}:{moment[3]}:{moment[4]}{moment[5] or ''}"
    if type_.base == "TIME" and (time := _TIME.fullmatch(text)):
        return str((int(time[1]) * 3600 + int(time[2]) * 60 + int(time[3] or 0)) * 1_000_000)
    return text
