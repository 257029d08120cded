"""Defaults of columns: literals, constants whose value the database is asked for (dates, times, intervals), and expressions.

>>> is_constant("TO_DATE('03.01.2021', 'DD.MM.YYYY')"), is_constant("INTERVAL '5' HOUR"), is_constant("SYSDATE + 1")
(True, True, False)
"""

from __future__ import annotations

import logging
import re
from typing import Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.sources.oracle.connect import fetch_scalar

log = logging.getLogger(__name__)

_QUOTED: Final = r"\s*'[^']*'\s*"
_PRECISION: Final = r"(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?"
_CONSTANT = re.compile(
    rf"""TO_(?:DATE|TIMESTAMP|TIMESTAMP_TZ)\s*\({_QUOTED},{_QUOTED}(?:,{_QUOTED})?\)
    |TO_(?:YM|DS)INTERVAL\s*\({_QUOTED}\)
    |NUMTO(?:YM|DS)INTERVAL\s*\(\s*[+-]?[\d.]+\s*,{_QUOTED}\)
    |INTERVAL{_QUOTED}[A-Z]+{_PRECISION}(?:\s+TO\s+[A-Z]+{_PRECISION})?""",
    re.IGNORECASE | re.VERBOSE,
)


_NUMBER = re.compile(r"[+-]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_TEXT = re.compile(r"[nN]?'((?:[^']|'')*)'")
_DATE = re.compile(r"(?:DATE|TIMESTAMP)\s*'\s*([0-9: .+-]+?)\s*'", re.IGNORECASE)


def is_constant(text: str) -> bool:
    """Check whether an expression has one value for ever."""
    return _CONSTANT.fullmatch(text.strip()) is not None


def evaluate_constant(connection: Connection, text: str) -> str | None:
    """Value of a constant, as the session writes it (``connect.SESSION``); ``None`` for other expressions.

    A constant that is not one, as the 31st of February, is no error: the database finds it when a row needs it.
    """
    if not is_constant(text):
        return None
    try:
        value = fetch_scalar(connection, f"SELECT TO_CHAR({text.strip()}) FROM DUAL")
    except oracledb.DatabaseError as e:
        if not connection.is_healthy():
            raise
        log.warning("The value of the default %s is unknown: %s", text.strip(), e)
        return None
    return None if value is None else str(value).strip()


def default_of(text: str | None) -> tuple[str | None, bool]:
    """Return the value that ``DATA_DEFAULT`` stands for, and whether it is an expression.

    An expression is given as it is.

    >>> default_of("'it''s' "), default_of("-1.50"), default_of("NULL"), default_of("SYSDATE")
    (("it's", False), ('-1.50', False), (None, False), ('SYSDATE', True))
    """
    bare = (text or "").strip()
    while bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:
        bare = bare[1:-1].strip()
    if not bare or bare.upper() == "NULL" or bare == "''":
        return None, False
    if match := _TEXT.fullmatch(bare):
        return match[1].replace("''", "'"), False
    if _NUMBER.fullmatch(bare):
        return bare.replace(" ", ""), False
    if match := _DATE.fullmatch(bare):
        return match[1], False
    return bare, True
