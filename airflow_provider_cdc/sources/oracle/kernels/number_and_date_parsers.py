"""Numbers, dates and durations written as text.

Every reader here returns whether the text has the usual form, and leaves everything else to the plain path.
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: C901

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.relational.date_decimal_kernels import days_from_date, is_date, store_decimal

MINUS: Final = 45
PLUS: Final = 43
POINT: Final = 46
BLANK: Final = 32
COLON: Final = 58

_POWERS = np.array([10**i for i in range(19)], np.int64)
_MAX_DAYS: Final = 106_751_990
"""Days whose microseconds fit 63 bits."""


@jit
def parse_decimal(buf: npt.NDArray[np.uint8], p: int, end: int, digits: int, scale: int) -> tuple[bool, int]:
    """Parse a number of up to 18 ``digits``, ``scale`` of them decimals, as a whole number of its last decimal."""
    negative = False
    if p < end and buf[p] == MINUS:
        negative = True
        p += 1
    if p >= end or end - p > 40:
        return False, 0
    value = np.int64(0)
    whole = 0
    decimals = -1
    for i in range(p, end):
        c = buf[i]
        if c == POINT:
            if decimals >= 0 or i + 1 == end:
                return False, 0
            decimals = 0
            continue
        d = np.int64(c) - 48
        if d < 0 or d > 9:
            return False, 0
        if decimals >= 0:
            decimals += 1
            if decimals > scale:
                return False, 0
        elif whole > 0 or d > 0:
            whole += 1
            if whole > digits - scale:
                return False, 0
        value = value * 10 + d
    value *= _POWERS[scale - max(decimals, 0)]
    return True, -value if negative else value


@jit
def wide_decimal(
    buf: npt.NDArray[np.uint8], p: int, end: int, digits: int, scale: int, out: npt.NDArray[np.int64]
) -> bool:
    """Parse the same for up to 38 digits: 128 bits in two's complement, the low half in ``out[0]``."""
    negative = False
    if p < end and buf[p] == MINUS:
        negative = True
        p += 1
    if p >= end:
        return False
    mask = np.uint64(0xFFFFFFFF)
    ten = np.uint64(10)
    shift = np.uint64(32)
    # four limbs of 32 bits, the lowest first
    a = np.uint64(0)
    b = np.uint64(0)
    c = np.uint64(0)
    d = np.uint64(0)
    whole = 0
    decimals = -1
    i = p
    while i < end or max(decimals, 0) < scale:
        digit = np.uint64(0)
        if i < end:
            char = buf[i]
            i += 1
            if char == POINT:
                if decimals >= 0 or i == end:
                    return False
                decimals = 0
                continue
            if char < 48 or char > 57:
                return False
            digit = np.uint64(char - 48)
            if decimals >= 0:
                decimals += 1
                if decimals > scale:
                    return False
            elif whole > 0 or char > 48:
                whole += 1
                if whole > digits - scale:
                    return False
        else:
            decimals = max(decimals, 0) + 1
        t = a * ten + digit
        a = t & mask
        t = b * ten + (t >> shift)
        b = t & mask
        t = c * ten + (t >> shift)
        c = t & mask
        d = (d * ten + (t >> shift)) & mask
    store_decimal(a, b, c, d, negative, out)
    return True


@jit
def number_text(
    buf: npt.NDArray[np.uint8], p: int, end: int, digits: int, scale: int, out: npt.NDArray[np.uint8], at: int
) -> int:
    """Write a number in the one form that equal numbers have.

    Returns where it ends in ``out``, -1 for another shape.

    :param scale: how many decimals to write; -1 = as many as there are, without zeros at the end
    """
    q = at
    negative = p < end and buf[p] == MINUS
    if negative:
        p += 1
    point = end
    for i in range(p, end):
        if buf[i] == POINT and point == end:
            point = i
        elif buf[i] < 48 or buf[i] > 57:
            return -1
    last = end
    decimals = max(end - point - 1, 0)
    if point < end:
        if decimals == 0 or buf[end - 1] == 48:
            return -1
    elif point == p:
        return -1
    if point - p > 1 and buf[p] == 48:
        return -1
    zero = point - p == 1 and buf[p] == 48
    if zero and negative and point == end:
        return -1
    if scale >= 0:
        whole = 0 if zero else point - p
        if decimals > scale or whole > digits - scale:
            return -1
    if negative:
        out[q] = MINUS
        q += 1
    if point == p:
        out[q] = 48
        q += 1
    for i in range(p, last):
        out[q] = buf[i]
        q += 1
    if scale > decimals:
        if decimals == 0:
            out[q] = POINT
            q += 1
        for _ in range(scale - decimals):
            out[q] = 48
            q += 1
    return q


@jit
def float_text(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a binary floating point number, ``1.5E+002``, ``Nan``, ``-Inf``.

    Returns where it ends in ``out``, -1 for another shape.
    """
    q = at
    i = p
    if i < end and (buf[i] == MINUS or buf[i] == PLUS):
        if buf[i] == MINUS:
            out[q] = MINUS
            q += 1
        i += 1
    if end - i == 3 and (buf[i] == 73 or buf[i] == 78):
        infinite = buf[i] == 73 and buf[i + 1] == 110 and buf[i + 2] == 102
        undefined = i == p and buf[i] == 78 and buf[i + 1] == 97 and (buf[i + 2] == 110 or buf[i + 2] == 78)
        if not infinite and not undefined:
            return -1
        for k in range(3):
            out[q] = buf[i + k] | 32
            q += 1
        return q
    digits = 0
    exponent = 0
    seen = 0  # 1 = the point, 2 = the exponent
    while i < end:
        c = buf[i]
        if c >= 48 and c <= 57:
            digits += 1
            if seen == 2:
                exponent = min(exponent * 10 + c - 48, 999)
        elif c == POINT and seen == 0:
            seen = 1
            if digits == 0:
                out[q] = 48
                q += 1
        elif (c == 69 or c == 101) and seen < 2 and digits > 0:
            seen = 2
            digits = 0
            out[q] = 69
            q += 1
            i += 1
            if i < end and (buf[i] == MINUS or buf[i] == PLUS):
                if buf[i] == MINUS:
                    out[q] = MINUS
                    q += 1
                i += 1
            continue
        else:
            return -1
        out[q] = c
        q += 1
        i += 1
    # beyond this a value may be too large or too small for its column: the plain path looks
    return q if digits > 0 and exponent < 30 else -1


# -- dates ------------------------------------------------------------------------------------------------------------------------


@jit
def parse_two_digits(buf: npt.NDArray[np.uint8], p: int) -> int:
    """Two digits; -1000 where one is none."""
    a = np.int64(buf[p]) - 48
    b = np.int64(buf[p + 1]) - 48
    if a < 0 or a > 9 or b < 0 or b > 9:
        return -1000
    return a * 10 + b


@jit
def parse_clock_time(buf: npt.NDArray[np.uint8], p: int) -> int:
    """Seconds of ``HH:MM:SS``, eight bytes; -1 where it is none."""
    hour, minute, second = parse_two_digits(buf, p), parse_two_digits(buf, p + 3), parse_two_digits(buf, p + 6)
    if buf[p + 2] != COLON or buf[p + 5] != COLON or hour < 0 or minute < 0 or second < 0:
        return -1
    if hour > 23 or minute > 59 or second > 59:
        return -1
    return (hour * 60 + minute) * 60 + second


@jit
def parse_date_time(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[bool, int, int]:
    """``YYYY-MM-DD HH:MM:SS``: seconds since the epoch, and where it ends. A blank stands before it where a sign could."""
    if p < end and buf[p] == BLANK:
        p += 1
    if end - p < 19 or buf[p + 4] != MINUS or buf[p + 7] != MINUS or buf[p + 10] != BLANK:
        return False, 0, p
    century, rest, month, day = (
        parse_two_digits(buf, p),
        parse_two_digits(buf, p + 2),
        parse_two_digits(buf, p + 5),
        parse_two_digits(buf, p + 8),
    )
    if century < 0 or rest < 0 or not is_date(century * 100 + rest, month, day):
        return False, 0, p
    second = parse_clock_time(buf, p + 11)
    if second < 0:
        return False, 0, p
    return True, days_from_date(century * 100 + rest, month, day) * 86400 + second, p + 19


@jit
def parse_fraction(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[bool, int, int]:
    """Nanoseconds of ``.123``, and where it ends; nothing at all and a point alone are zero."""
    if p >= end or buf[p] != POINT:
        return True, 0, p
    p += 1
    value = np.int64(0)
    count = 0
    while p < end and buf[p] >= 48 and buf[p] <= 57:
        value = value * 10 + np.int64(buf[p]) - 48
        count += 1
        p += 1
        if count > 9:
            return False, 0, p
    return True, value * _POWERS[9 - count], p


@jit
def parse_zone_offset(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[bool, int]:
    """Minutes east of Greenwich of ``+05:30``, which must be the rest; a blank may stand before it."""
    if p < end and buf[p] == BLANK:
        p += 1
    if end - p != 6 or (buf[p] != PLUS and buf[p] != MINUS) or buf[p + 3] != COLON:
        return False, 0
    hour, minute = parse_two_digits(buf, p + 1), parse_two_digits(buf, p + 4)
    if hour < 0 or minute < 0 or hour > 15 or minute > 59:
        return False, 0
    value = hour * 60 + minute
    return True, -value if buf[p] == MINUS else value


# -- durations --------------------------------------------------------------------------------------------------------------------


@jit
def parse_digits(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int]:
    """Parse a whole number of up to nine digits without a sign, and where it ends; -1 where there is none."""
    value = np.int64(0)
    q = p
    while q < end and buf[q] >= 48 and buf[q] <= 57:
        value = value * 10 + np.int64(buf[q]) - 48
        q += 1
        if q - p > 9:
            return -1, q
    return (value if q > p else -1), q


@jit
def _sign(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int]:
    if p < end and (buf[p] == PLUS or buf[p] == MINUS):
        return (-1 if buf[p] == MINUS else 1), p + 1
    return 1, p


@jit
def day_to_second(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[bool, int]:
    """Microseconds of ``-001 02:03:04.56``; finer decimals are cut off."""
    sign, p = _sign(buf, p, end)
    day, p = parse_digits(buf, p, end)
    if day < 0 or day > _MAX_DAYS or end - p < 9 or buf[p] != BLANK:
        return False, 0
    second = parse_clock_time(buf, p + 1)
    good, nanos, p = parse_fraction(buf, p + 9, end)
    if second < 0 or not good or p != end:
        return False, 0
    return True, sign * ((day * 86400 + second) * 1_000_000 + nanos // 1000)


@jit
def year_to_month(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[bool, int]:
    """Microseconds of ``-03-06``, a month being a twelfth of 365.25 days."""
    sign, p = _sign(buf, p, end)
    year, p = parse_digits(buf, p, end)
    if year < 0 or year > 99_999 or p >= end or buf[p] != MINUS:
        return False, 0
    first = p + 1
    month, p = parse_digits(buf, first, end)
    if month < 0 or month > 11 or p != end or p - first > 2:
        return False, 0
    return True, sign * (year * 12 + month) * 2_629_800_000_000
