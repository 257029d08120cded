"""Defaults that are constants, but not literals: dates, times and intervals, whose value the database is asked for.

>>> is_constant("TO_DATE('03.01.2021', 'DD.MM.YYYY')"), is_constant("INTERVAL '5' HOUR"), is_constant("SYSDATE + 1")
(True, True, False)
"""

from __future__ import annotations

import logging
import re
from typing import Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.sources.oracle.connect import scalar

log = logging.getLogger(__name__)

_TEXT: Final = r"\s*'[^']*'\s*"
_DIGITS: Final = r"(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?"
_CONSTANT = re.compile(
    rf"""TO_(?:DATE|TIMESTAMP|TIMESTAMP_TZ)\s*\({_TEXT},{_TEXT}(?:,{_TEXT})?\)
    |TO_(?:YM|DS)INTERVAL\s*\({_TEXT}\)
    |NUMTO(?:YM|DS)INTERVAL\s*\(\s*[+-]?[\d.]+\s*,{_TEXT}\)
    |INTERVAL{_TEXT}[A-Z]+{_DIGITS}(?:\s+TO\s+[A-Z]+{_DIGITS})?""",
    re.IGNORECASE | re.VERBOSE,
)


def is_constant(text: str) -> bool:
    """Whether an expression has one value for ever."""
    return _CONSTANT.fullmatch(text.strip()) is not None


def constant(connection: Connection, text: str) -> str | None:
    """Value of a constant, as the session writes it (``connect.SESSION``); ``None`` for other expressions.

    A constant that is not one, as the 31st of February, is no error: the database finds it when a row needs it.
    """
    if not is_constant(text):
        return None
    try:
        value = scalar(connection, f"SELECT TO_CHAR({text.strip()}) FROM DUAL")
    except oracledb.DatabaseError as e:
        if not connection.is_healthy():
            raise
        log.warning("The default %s has no value: %s", text.strip(), e)
        return None
    return None if value is None else str(value).strip()
