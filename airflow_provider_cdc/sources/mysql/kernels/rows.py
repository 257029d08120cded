"""Decodes row events into column buffers.

The format is that of ``WRITE_ROWS``, ``UPDATE_ROWS`` and ``DELETE_ROWS`` in "Binary Log Event" of the MySQL internals documentation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mysql.kernels.numbers import big, little, micros
from airflow_provider_cdc.sources.mysql.kernels.split import EV_LENGTH, EV_START, EV_TYPE, HEADER
from airflow_provider_cdc.sources.relational.kernels import days, is_date, store_decimal

# -- how a column's bytes are read: kind, with up to two parameters ----------------------------------------------------------
INT: Final = 0  # a = width in bytes, b = 1 if unsigned
FLOAT: Final = 1
DOUBLE: Final = 2
DECIMAL: Final = 3  # a = precision, b = scale; up to 18 digits
DECIMAL_WIDE: Final = 4  # a = precision, b = scale; up to 38 digits
DECIMAL_RAW: Final = 5  # a = precision, b = scale; more digits: the bytes as they are
DATE: Final = 6
DATETIME: Final = 7  # a = bytes of the fraction
TIMESTAMP: Final = 8  # a = bytes of the fraction
TIME: Final = 9  # a = bytes of the fraction
YEAR: Final = 10
BIG_ENDIAN: Final = 11  # a = width in bytes (BIT)
VAR: Final = 12  # a = width of the length in bytes
OLD_DATETIME: Final = 13
OLD_TIMESTAMP: Final = 14
OLD_TIME: Final = 15

FIRST_VARIABLE: Final = 100
STORE_FIXED: Final = 0
STORE_WIDE: Final = 1
STORE_VARIABLE: Final = 2

_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_POWERS = np.array([10**i for i in range(19)], np.int64)

OK: Final = 0
FULL: Final = 1  # the row buffers are full: call again
BAD_VALUE: Final = 2  # a value goes past the end of its event
BAD_IMAGE: Final = 3  # not all columns are in the row image

_RowImage = Any  # the five buffers of one row image: fixed, wide, offsets, data, filled


@jit
def _decimal_size(precision: int, scale: int) -> int:
    whole = precision - scale
    return (whole // 9) * 4 + _DIGIT_BYTES[whole % 9] + (scale // 9) * 4 + _DIGIT_BYTES[scale % 9]


@jit
def _decimal(buf: npt.NDArray[np.uint8], p: int, precision: int, scale: int, out: npt.NDArray[np.int64]) -> None:
    """An unscaled decimal of up to 38 digits as 128 bits in two's complement: ``out[0]`` low, ``out[1]`` high.

    Stored as groups of nine digits in four bytes, odd digits in fewer, before and after the point; the first bit is
    inverted, and all bits are if the number is negative.
    """
    negative = (buf[p] & 0x80) == 0
    flip = np.uint8(0xFF) if negative else np.uint8(0)
    # four limbs of 32 bits, so that multiplying by up to 10^9 stays within 64 bits
    w0 = np.uint64(0)
    w1 = np.uint64(0)
    w2 = np.uint64(0)
    w3 = np.uint64(0)
    whole = precision - scale
    first = True
    for part in range(2):
        digits = whole if part == 0 else scale
        odd = digits % 9
        groups = digits // 9
        for g in range(groups + 1):
            # before the point the odd digits come first, after it last
            is_odd = (g == 0) if part == 0 else (g == groups)
            count = odd if is_odd else 9
            if count == 0:
                continue
            width = _DIGIT_BYTES[count]
            x = np.uint64(0)
            for i in range(width):
                byte = buf[p + i] ^ flip
                if first:
                    byte = byte ^ np.uint8(0x80)
                    first = False
                x = (x << np.uint64(8)) | np.uint64(byte)
            p += width
            factor = np.uint64(_POWERS[count])
            mask = np.uint64(0xFFFFFFFF)
            t = w0 * factor + x
            w0 = t & mask
            t = w1 * factor + (t >> np.uint64(32))
            w1 = t & mask
            t = w2 * factor + (t >> np.uint64(32))
            w2 = t & mask
            t = w3 * factor + (t >> np.uint64(32))
            w3 = t & mask
    store_decimal(w0, w1, w2, w3, negative, out)


@jit
def _decimal_small(buf: npt.NDArray[np.uint8], p: int, precision: int, scale: int) -> int:
    """An unscaled decimal of up to 18 digits."""
    negative = (buf[p] & 0x80) == 0
    flip = np.int64(0xFF) if negative else np.int64(0)
    value = np.int64(0)
    whole = precision - scale
    first = np.int64(0x80)
    for part in range(2):
        digits = whole if part == 0 else scale
        odd = digits % 9
        groups = digits // 9
        for g in range(groups + 1):
            is_odd = (g == 0) if part == 0 else (g == groups)
            count = odd if is_odd else 9
            if count == 0:
                continue
            width = _DIGIT_BYTES[count]
            x = np.int64(0)
            for i in range(width):
                x = (x << 8) | (np.int64(buf[p + i]) ^ flip ^ first)
                first = np.int64(0)
            p += width
            value = value * _POWERS[count] + x
    return -value if negative else value


@jit
def _image(
    buf: npt.NDArray[np.uint8], p: int, end: int, row: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8], wide: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8], filled: npt.NDArray[np.int64],
) -> int:  # fmt: skip
    """Decode one row image at ``p`` into row ``row`` of the buffers.

    ``columns[c]`` is (kind, a, b, slot); ``slot`` is the column's number among the columns of its store.

    :return: offset after the image, or ``-1 - c`` if column ``c`` goes past ``end``
    """
    ncols = len(columns)
    nulls = p
    p += (ncols + 7) >> 3
    if p > end:
        return -1
    for c in range(ncols):
        kind, a, b, slot = columns[c, 0], columns[c, 1], columns[c, 2], columns[c, 3]
        if (buf[nulls + (c >> 3)] >> (c & 7)) & 1:
            valid[c, row] = 0
            if kind == VAR or kind == DECIMAL_RAW:
                offsets[slot, row + 1] = filled[slot]
            elif kind != DECIMAL_WIDE:
                fixed[slot, row] = 0
            continue
        valid[c, row] = 1
        if kind == INT:
            if p + a > end:
                return -1 - c
            v = little(buf, p, a)
            p += a
            if b == 0 and a < 8 and v >> (8 * a - 1):
                v -= np.int64(1) << (8 * a)
            fixed[slot, row] = v
        elif kind == VAR:
            if p + a > end:
                return -1 - c
            length = little(buf, p, a)
            p += a
            if p + length > end:
                return -1 - c
            at = filled[slot]
            data[slot, at : at + length] = buf[p : p + length]
            filled[slot] = at + length
            offsets[slot, row + 1] = at + length
            p += length
        elif kind == DATETIME:
            if p + 5 + a > end:
                return -1 - c
            v = big(buf, p, 5) - 0x8000000000
            ym = v >> 22
            year, month, day = ym // 13, ym % 13, (v >> 17) & 31
            if is_date(year, month, day):
                seconds = days(year, month, day) * 86400 + ((v >> 12) & 31) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
                fixed[slot, row] = seconds * 1000000 + micros(buf, p + 5, a)
            else:
                valid[c, row] = 2
            p += 5 + a
        elif kind == TIMESTAMP:
            if p + 4 + a > end:
                return -1 - c
            v = big(buf, p, 4)
            if v == 0 and micros(buf, p + 4, a) == 0:
                valid[c, row] = 2
            else:
                fixed[slot, row] = v * 1000000 + micros(buf, p + 4, a)
            p += 4 + a
        elif kind == DECIMAL:
            size = _decimal_size(a, b)
            if p + size > end:
                return -1 - c
            fixed[slot, row] = _decimal_small(buf, p, a, b)
            p += size
        elif kind == DOUBLE:
            if p + 8 > end:
                return -1 - c
            fixed[slot, row] = little(buf, p, 8)
            p += 8
        elif kind == FLOAT:
            if p + 4 > end:
                return -1 - c
            fixed[slot, row] = little(buf, p, 4)
            p += 4
        elif kind == DATE:
            if p + 3 > end:
                return -1 - c
            v = little(buf, p, 3)
            p += 3
            year, month, day = v >> 9, (v >> 5) & 15, v & 31
            if is_date(year, month, day):
                fixed[slot, row] = days(year, month, day)
            else:
                valid[c, row] = 2
        elif kind == TIME:
            if p + 3 + a > end:
                return -1 - c
            v = big(buf, p, 3 + a) - (np.int64(0x800000) << (8 * a))
            sign = np.int64(1)
            if v < 0:
                v = -v
                sign = np.int64(-1)
            fraction = v & ((np.int64(1) << (8 * a)) - 1)
            if a == 1:
                fraction *= 10000
            elif a == 2:
                fraction *= 100
            v >>= 8 * a
            seconds = ((v >> 12) & 1023) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
            fixed[slot, row] = sign * (seconds * 1000000 + fraction)
            p += 3 + a
        elif kind == DECIMAL_WIDE:
            size = _decimal_size(a, b)
            if p + size > end:
                return -1 - c
            _decimal(buf, p, a, b, wide[slot, row])
            p += size
        elif kind == DECIMAL_RAW:
            size = _decimal_size(a, b)
            if p + size > end:
                return -1 - c
            at = filled[slot]
            data[slot, at : at + size] = buf[p : p + size]
            filled[slot] = at + size
            offsets[slot, row + 1] = at + size
            p += size
        elif kind == YEAR:
            if p + 1 > end:
                return -1 - c
            v = np.int64(buf[p])
            fixed[slot, row] = v + 1900 if v else 0
            p += 1
        elif kind == BIG_ENDIAN:
            if p + a > end:
                return -1 - c
            fixed[slot, row] = big(buf, p, a)
            p += a
        elif kind == OLD_DATETIME:
            if p + 8 > end:
                return -1 - c
            v = little(buf, p, 8)
            p += 8
            d, t = v // 1000000, v % 1000000
            year, month, day = d // 10000, (d // 100) % 100, d % 100
            if is_date(year, month, day):
                seconds = days(year, month, day) * 86400 + (t // 10000) * 3600 + ((t // 100) % 100) * 60 + t % 100
                fixed[slot, row] = seconds * 1000000
            else:
                valid[c, row] = 2
        elif kind == OLD_TIMESTAMP:
            if p + 4 > end:
                return -1 - c
            v = little(buf, p, 4)
            p += 4
            if v == 0:
                valid[c, row] = 2
            else:
                fixed[slot, row] = v * 1000000
        else:  # OLD_TIME
            if p + 3 > end:
                return -1 - c
            v = little(buf, p, 3)
            p += 3
            if v >> 23:
                v -= np.int64(1) << 24
            sign = np.int64(1)
            if v < 0:
                v = -v
                sign = np.int64(-1)
            seconds = (v // 10000) * 3600 + ((v // 100) % 100) * 60 + v % 100
            fixed[slot, row] = sign * seconds * 1000000
    return p


@jit
def _absent(row: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8],
            offsets: npt.NDArray[np.int32], filled: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Write a row without this image: null in every column."""
    for c in range(len(columns)):
        valid[c, row] = 0
        slot = columns[c, 3]
        if columns[c, 0] == VAR or columns[c, 0] == DECIMAL_RAW:
            offsets[slot, row + 1] = filled[slot]
        elif columns[c, 0] != DECIMAL_WIDE:
            fixed[slot, row] = 0


@jit
def decode_rows(
    buf: npt.NDArray[np.uint8], events: npt.NDArray[np.int64], picked: npt.NDArray[np.int64], resume: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64], before: _RowImage, after: _RowImage, both: bool, op: npt.NDArray[np.int8],
    event_of: npt.NDArray[np.int32], row_in_event: npt.NDArray[np.int32],
) -> tuple[int, int]:  # fmt: skip
    """Decode row events of one layout until the buffers are full.

    :param picked: indices of the events in ``events``
    :param resume: where to begin: index into ``picked``, offset in the buffer (0 = the beginning of the event), row in the event;
        updated for the next call
    :param before: buffers of the before images, as :func:`_image` takes them; unused if ``both`` is false
    :param both: whether any event has before images
    :param op: output: operation code of each row: 1 create, 2 update, 3 delete
    :param event_of: output: index of each row's event
    :param row_in_event: output: number of each row in its event
    :return: number of rows, and a status; after an error ``resume[1]`` is the event's index and ``resume[2]`` the column
    """
    capacity = len(op)
    ncols = len(columns)
    bitmap = (ncols + 7) >> 3
    row = 0
    while resume[0] < len(picked):
        e = picked[resume[0]]
        kind = events[e, EV_TYPE]
        start = events[e, EV_START]
        end = start + events[e, EV_LENGTH]
        is_update = kind == 24 or kind == 31
        is_delete = kind == 25 or kind == 32
        p = resume[1]
        if p == 0:
            p = start + HEADER + 8
            if kind >= 30:
                p += np.int64(buf[p]) | np.int64(buf[p + 1]) << 8
            # number of columns, one or more bytes; the caller has compared it with the layout's
            p += 1 if buf[p] < 0xFB else 3
            complete = p + (2 if is_update else 1) * bitmap <= end
            if complete:
                for i in range(2 if is_update else 1):
                    for c in range(ncols):
                        if not (buf[p + i * bitmap + (c >> 3)] >> (c & 7)) & 1:
                            complete = False
            if not complete:
                resume[1] = e
                return row, BAD_IMAGE
            p += (2 if is_update else 1) * bitmap
        while p < end:
            if row == capacity:
                resume[1] = p
                return row, FULL
            if is_update or is_delete:
                p = _image(buf, p, end, row, columns, before[0], before[1], before[2], before[3], before[4], before[5])
            elif both:
                _absent(row, columns, before[0], before[1], before[3], before[5])
            if p >= 0:
                if is_delete:
                    _absent(row, columns, after[0], after[1], after[3], after[5])
                else:
                    p = _image(buf, p, end, row, columns, after[0], after[1], after[2], after[3], after[4], after[5])
            if p < 0:
                resume[1] = e
                resume[2] = -1 - p
                return row, BAD_VALUE
            op[row] = 2 if is_update else (3 if is_delete else 1)
            event_of[row] = e
            row_in_event[row] = resume[2]
            resume[2] += 1
            row += 1
        resume[0] += 1
        resume[1] = 0
        resume[2] = 0
    return row, OK
