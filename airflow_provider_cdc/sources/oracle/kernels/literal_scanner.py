"""Finds SQL literals in the forms that LogMiner writes: kind, span of the text, end."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: C901, SIM110

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit

# -- kinds of literals; ABSENT stands for a column that the statement does not name ------------------------------------------
ABSENT: Final = 0
NULL: Final = 1
TEXT: Final = 2
TEXT_ESCAPED: Final = 3  # with doubled apostrophes
DATE: Final = 4
TIMESTAMP: Final = 5
TIMESTAMP_TZ: Final = 6
DAY_TO_SECOND: Final = 7
YEAR_TO_MONTH: Final = 8
HEX: Final = 9
UNICODE: Final = 10
EMPTY_BLOB: Final = 11
EMPTY_CLOB: Final = 12
UNSUPPORTED: Final = 13  # LogMiner cannot show the value
UNKNOWN: Final = 14

APOSTROPHE: Final = 39


def as_bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


_NULL = as_bytes("NULL")
_TO_DATE = as_bytes("TO_DATE('")
_TO_TIMESTAMP = as_bytes("TO_TIMESTAMP('")
_TO_TIMESTAMP_TZ = as_bytes("TO_TIMESTAMP_TZ('")
_TO_DSINTERVAL = as_bytes("TO_DSINTERVAL('")
_TO_YMINTERVAL = as_bytes("TO_YMINTERVAL('")
_HEXTORAW = as_bytes("HEXTORAW('")
_UNISTR = as_bytes("UNISTR('")
_EMPTY_BLOB = as_bytes("EMPTY_BLOB()")
_EMPTY_CLOB = as_bytes("EMPTY_CLOB()")
_UNSUPPORTED = as_bytes("Unsupported Type")
_FORMAT = as_bytes(", 'YYYY-MM-DD HH24:MI:SS'")
_SIGNED_FORMAT = as_bytes(", 'SYYYY-MM-DD HH24:MI:SS'")


@jit
def has_prefix(buf: npt.NDArray[np.uint8], p: int, end: int, pattern: npt.NDArray[np.uint8]) -> bool:
    """Check whether the text continues with the pattern."""
    n = len(pattern)
    if p + n > end:
        return False
    for i in range(n):
        if buf[p + i] != pattern[i]:
            return False
    return True


@jit
def find_closing_quote(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, bool]:
    """Offset of the closing apostrophe of the text at ``p`` (-1 = none), and whether the text has doubled apostrophes."""
    escaped = False
    while p < end:
        if buf[p] == APOSTROPHE:
            if p + 1 < end and buf[p + 1] == APOSTROPHE:
                escaped = True
                p += 2
                continue
            return p, escaped
        p += 1
    return -1, escaped


@jit
def scan_literal(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int, int, int]:
    """Find the literal at ``p``: kind, begin and end of its text, and the offset after the literal."""
    if p >= end:
        return UNKNOWN, p, p, p
    c = buf[p]
    if c == APOSTROPHE:
        q, escaped = find_closing_quote(buf, p + 1, end)
        if q < 0:
            return UNKNOWN, p, p, p
        return (TEXT_ESCAPED if escaped else TEXT), p + 1, q, q + 1
    if c == 78:  # N
        if has_prefix(buf, p, end, _NULL):
            return NULL, p, p, p + 4
        return UNKNOWN, p, p, p
    if c == 69:  # E
        if has_prefix(buf, p, end, _EMPTY_BLOB):
            return EMPTY_BLOB, p, p, p + 12
        if has_prefix(buf, p, end, _EMPTY_CLOB):
            return EMPTY_CLOB, p, p, p + 12
        return UNKNOWN, p, p, p
    if c == 85 and has_prefix(buf, p, end, _UNSUPPORTED):
        return UNSUPPORTED, p, p, p + len(_UNSUPPORTED)
    kind, begin = _call(buf, p, end)
    if kind == UNKNOWN:
        return UNKNOWN, p, p, p
    q, escaped = find_closing_quote(buf, begin, end)
    if q < 0 or (escaped and kind != UNICODE):
        return UNKNOWN, p, p, p
    r = q + 1
    if kind == DATE and r < end and buf[r] == 44:
        if has_prefix(buf, r, end, _FORMAT):
            r += len(_FORMAT)
        elif has_prefix(buf, r, end, _SIGNED_FORMAT):
            r += len(_SIGNED_FORMAT)
    if r >= end or buf[r] != 41:
        return UNKNOWN, p, p, p
    return kind, begin, q, r + 1


@jit
def _call(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int]:
    """Find the kind of the function call at ``p``, and the offset of its text."""
    c = buf[p]
    if c == 84:  # T
        if has_prefix(buf, p, end, _TO_DATE):
            return DATE, p + len(_TO_DATE)
        if has_prefix(buf, p, end, _TO_TIMESTAMP):
            return TIMESTAMP, p + len(_TO_TIMESTAMP)
        if has_prefix(buf, p, end, _TO_TIMESTAMP_TZ):
            return TIMESTAMP_TZ, p + len(_TO_TIMESTAMP_TZ)
        if has_prefix(buf, p, end, _TO_DSINTERVAL):
            return DAY_TO_SECOND, p + len(_TO_DSINTERVAL)
        if has_prefix(buf, p, end, _TO_YMINTERVAL):
            return YEAR_TO_MONTH, p + len(_TO_YMINTERVAL)
    elif c == 72 and has_prefix(buf, p, end, _HEXTORAW):
        return HEX, p + len(_HEXTORAW)
    elif c == 85 and has_prefix(buf, p, end, _UNISTR):
        return UNICODE, p + len(_UNISTR)
    return UNKNOWN, p
