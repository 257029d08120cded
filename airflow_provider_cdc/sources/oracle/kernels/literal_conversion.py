"""Spans to columns: one loop per column type over the rows of a block.

A value goes to one of three stores: ``fixed`` (a 64-bit number a row), ``wide`` (128 bits) or ``variable`` (bytes with offsets).
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: SIM109

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.oracle.kernels import literal_scanner as li
from airflow_provider_cdc.sources.oracle.kernels.number_and_date_parsers import (
    day_to_second,
    float_text,
    number_text,
    parse_date_time,
    parse_decimal,
    parse_fraction,
    parse_zone_offset,
    wide_decimal,
    year_to_month,
)
from airflow_provider_cdc.sources.relational.utf8_kernel import store_utf8

# -- how a column's literals are read: kind, with up to three parameters -----------------------------------------------------
NUMBER: Final = 0  # a = digits, b = decimals; up to 18 digits
DATE: Final = 1  # a = 1: days instead of microseconds
TIMESTAMP: Final = 2  # a = decimals kept, 6 or 9; b = 1: cut off finer decimals
LOCAL_TIMESTAMP: Final = 3  # likewise
YEAR_TO_MONTH: Final = 4
DAY_TO_SECOND: Final = 5
NOT_READ: Final = 6  # never a value: a LOB without lob.enabled
NUMBER_WIDE: Final = 7  # like NUMBER, up to 38 digits
FIRST_VARIABLE: Final = 8
NUMBER_TEXT: Final = 8  # a = digits, b = decimals, -1 = any
FLOAT_TEXT: Final = 9
ZONED_TIMESTAMP: Final = 10  # a = decimals written
DURATION_TEXT: Final = 11  # a = kind of literal
BYTES: Final = 12  # a = 1: EMPTY_BLOB() is one, too
TEXT: Final = 13  # a = 1: EMPTY_CLOB() is one, too

NULL: Final = 0
VALUE: Final = 1
UNAVAILABLE: Final = 2

STORE_FIXED: Final = 0
STORE_WIDE: Final = 1
STORE_VARIABLE: Final = 2

FIRST_NANOSECOND: Final = -9_223_372_036
LAST_NANOSECOND: Final = 9_223_372_035
"""Seconds whose nanoseconds fit 63 bits: the years 1677 to 2262."""


@jit
def convert_rows(
    buf: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lo: int, hi: int, image: int,
    columns: npt.NDArray[np.int64], begin: npt.NDArray[np.int32], length: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8], fixed: npt.NDArray[np.int64], wide: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], filled: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8], left: npt.NDArray[np.uint8],
) -> None:  # fmt: skip
    """Convert the literals that ``split_rows`` found in one image of the rows ``lo`` to ``hi``.

    :param columns: ``int64[columns, 4]``: kind, a, b, and number of the buffer in its store
    :param ends: per variable column, end offset of each row's bytes; ``filled`` is that of the last row
    :param valid: per column and row ``NULL``, ``VALUE`` or ``UNAVAILABLE``
    :param left: output: 1 for rows with a literal that this kernel cannot convert
    """
    for c in range(len(columns)):
        how, a, b, slot = columns[c, 0], columns[c, 1], columns[c, 2], columns[c, 3]
        if how == NUMBER_WIDE:
            for row in range(lo, hi):
                good = True
                state = _state(kind[image, c, row - lo])
                if state == VALUE:
                    p = offsets[row] + begin[image, c, row - lo]
                    good = kind[image, c, row - lo] == li.TEXT
                    good = good and wide_decimal(buf, p, p + length[image, c, row - lo], a, b, wide[slot, row])
                _settle(good, state, c, row, valid, left)
        elif how >= FIRST_VARIABLE:
            at = filled[slot]
            for row in range(lo, hi):
                good = True
                state = _state(kind[image, c, row - lo])
                if state == VALUE:
                    p = offsets[row] + begin[image, c, row - lo]
                    k = kind[image, c, row - lo]
                    q = _variable(buf, p, p + length[image, c, row - lo], how, a, b, k, data[slot], at)
                    good = q >= 0
                    if good:
                        at = q
                ends[slot, row] = at
                _settle(good, state, c, row, valid, left)
            filled[slot] = at
        elif how == NOT_READ:
            for row in range(lo, hi):
                valid[c, row] = UNAVAILABLE
        else:
            for row in range(lo, hi):
                good = True
                state = _state(kind[image, c, row - lo])
                if state == VALUE:
                    p = offsets[row] + begin[image, c, row - lo]
                    k = kind[image, c, row - lo]
                    good, value = _fixed(buf, p, p + length[image, c, row - lo], how, a, b, k)
                    fixed[slot, row] = value
                else:
                    fixed[slot, row] = 0
                _settle(good, state, c, row, valid, left)


@jit
def _state(kind: int) -> int:
    if kind == li.NULL:
        return NULL
    return UNAVAILABLE if kind == li.ABSENT or kind == li.UNSUPPORTED else VALUE


@jit
def _settle(
    good: bool, state: int, c: int, row: int, valid: npt.NDArray[np.uint8], left: npt.NDArray[np.uint8]
) -> None:
    valid[c, row] = state
    if not good:
        valid[c, row] = NULL
        left[row] = 1


@jit
def _fixed(buf: npt.NDArray[np.uint8], p: int, end: int, how: int, a: int, b: int, kind: int) -> tuple[bool, int]:
    """Parse a value of 64 bits."""
    if how == NUMBER:
        if kind != li.TEXT:
            return False, 0
        return parse_decimal(buf, p, end, a, b)
    if how == DATE:
        if kind != li.DATE:
            return False, 0
        good, second, p = parse_date_time(buf, p, end)
        if not good or p != end:
            return False, 0
        return True, (second // 86400 if a == 1 else second * 1_000_000)
    if how == TIMESTAMP or how == LOCAL_TIMESTAMP:
        return _timestamp(buf, p, end, how, a, b, kind)
    if how == YEAR_TO_MONTH and kind == li.YEAR_TO_MONTH:
        return year_to_month(buf, p, end)
    if how == DAY_TO_SECOND and kind == li.DAY_TO_SECOND:
        return day_to_second(buf, p, end)
    return False, 0


@jit
def _timestamp(buf: npt.NDArray[np.uint8], p: int, end: int, how: int, a: int, b: int, kind: int) -> tuple[bool, int]:
    zoned = how == LOCAL_TIMESTAMP and kind == li.TIMESTAMP_TZ
    if kind != li.TIMESTAMP and not zoned:
        return False, 0
    good, second, p = parse_date_time(buf, p, end)
    if not good:
        return False, 0
    good, nanos, p = parse_fraction(buf, p, end)
    if not good:
        return False, 0
    if zoned:
        good, minutes = parse_zone_offset(buf, p, end)
        if not good:
            return False, 0
        second -= minutes * 60
    elif p != end:
        return False, 0
    if a == 9:
        if second < FIRST_NANOSECOND or second > LAST_NANOSECOND:
            return False, 0
        return True, second * 1_000_000_000 + nanos
    return b == 1 or nanos % 1000 == 0, second * 1_000_000 + nanos // 1000


@jit
def _variable(
    buf: npt.NDArray[np.uint8], p: int, end: int, how: int, a: int, b: int, kind: int, out: npt.NDArray[np.uint8], at: int
) -> int:  # fmt: skip
    """Write a value of variable length to ``out`` from ``at`` on; returns the offset after it, -1 for another form."""
    if how == TEXT:
        if kind == li.TEXT:
            n = end - p
            for i in range(n):
                out[at + i] = buf[p + i]
            return at + n if n > 0 else -1
        if kind == li.TEXT_ESCAPED:
            return _unescaped(buf, p, end, out, at)
        if kind == li.UNICODE:
            return _unicode(buf, p, end, out, at)
        return at if kind == li.EMPTY_CLOB and a == 1 else -1
    if how == BYTES:
        if kind == li.HEX:
            return _hex(buf, p, end, out, at)
        return at if kind == li.EMPTY_BLOB and a == 1 else -1
    if how == NUMBER_TEXT and kind == li.TEXT:
        return number_text(buf, p, end, a, b, out, at)
    if how == FLOAT_TEXT and kind == li.TEXT:
        return float_text(buf, p, end, out, at)
    if how == ZONED_TIMESTAMP and kind == li.TIMESTAMP_TZ:
        return _zoned(buf, p, end, a, out, at)
    if how == DURATION_TEXT and kind == a:
        good, _ = year_to_month(buf, p, end) if kind == li.YEAR_TO_MONTH else day_to_second(buf, p, end)
        if not good:
            return -1
        for i in range(p, end):
            out[at + i - p] = buf[i]
        return at + end - p
    return -1


@jit
def _unescaped(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    while p < end:
        out[at] = buf[p]
        at += 1
        p += 2 if buf[p] == li.APOSTROPHE else 1
    return at


@jit
def _hex_digit(c: int) -> int:
    if c >= 48 and c <= 57:
        return c - 48
    c |= 32
    return c - 87 if c >= 97 and c <= 102 else -1


@jit
def _hex(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    if (end - p) & 1 or end == p:
        return -1
    while p < end:
        high, low = _hex_digit(np.int64(buf[p])), _hex_digit(np.int64(buf[p + 1]))
        if high < 0 or low < 0:
            return -1
        out[at] = high * 16 + low
        at += 1
        p += 2
    return at


@jit
def _unit(buf: npt.NDArray[np.uint8], p: int, end: int) -> int:
    """Parse the UTF-16 unit of ``\\0041``; -1 where there is none."""
    if end - p < 5 or buf[p] != 92:
        return -1
    value = 0
    for i in range(p + 1, p + 5):
        digit = _hex_digit(np.int64(buf[i]))
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


@jit
def _unicode(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write the result of ``UNISTR`` for a text, in UTF-8."""
    if p == end:
        return -1
    while p < end:
        if buf[p] != 92:
            out[at] = buf[p]
            at += 1
            p += 2 if buf[p] == li.APOSTROPHE else 1
            continue
        if p + 1 < end and buf[p + 1] == 92:
            out[at] = 92
            at += 1
            p += 2
            continue
        code = _unit(buf, p, end)
        p += 5
        if code < 0:
            return -1
        if code >= 0xD800 and code <= 0xDFFF:
            low = _unit(buf, p, end)
            p += 5
            if code > 0xDBFF or low < 0xDC00 or low > 0xDFFF:
                return -1
            code = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00
        at = store_utf8(out, at, code)
    return at


@jit
def _zoned(buf: npt.NDArray[np.uint8], p: int, end: int, decimals: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """ISO 8601 with the offset that the value has."""
    good, _, q = parse_date_time(buf, p, end)
    if not good:
        return -1
    good, nanos, rest = parse_fraction(buf, q, end)
    if not good:
        return -1
    good, minutes = parse_zone_offset(buf, rest, end)
    if not good:
        return -1
    for i in range(19):
        out[at + i] = buf[q - 19 + i]
    out[at + 10] = 84  # T
    at += 19
    if decimals > 0:
        out[at] = 46
        unit = np.int64(100_000_000)
        for i in range(decimals):
            out[at + 1 + i] = 48 + nanos // unit
            nanos %= unit
            unit //= 10
        at += 1 + decimals
    if nanos > 0:
        return -1
    if minutes == 0:
        out[at] = 90  # Z
        return at + 1
    for i in range(6):
        out[at + i] = buf[end - 6 + i]
    return at + 6
