"""Decodes rows of a binary result set into column buffers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import inline_helper, jit
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import read_big_endian, read_little_endian
from airflow_provider_cdc.sources.mysql.kernels.decimal_decoding import decimal_text, decimal_text_small
from airflow_provider_cdc.sources.relational.date_decimal_kernels import days_from_date, is_date

# how a column's bytes are read: kind, with up to two parameters a and b
R_INT: Final = 20  # a = width, b = 1 if unsigned
R_BITS: Final = 21  # 4 or 8 bytes of a floating point number; a = width
R_DATE: Final = 22
R_DATETIME: Final = 23
R_TIME: Final = 24
R_DECIMAL: Final = 25  # text; b = scale; up to 18 digits
R_DECIMAL_WIDE: Final = 26
R_BYTES: Final = 27
R_BIT: Final = 28  # big-endian bytes

ROWS_FULL: Final = 0
NEED_MORE: Final = 1
LAST_ROW: Final = 2
PROTOCOL: Final = 3
SPLIT: Final = 4


@jit
def read_lenenc(buf: npt.NDArray[np.uint8], p: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset after it."""
    first = np.int64(buf[p])
    if first < 251:
        return first, p + 1
    if first == 252:
        return read_little_endian(buf, p + 1, 2), p + 3
    if first == 253:
        return read_little_endian(buf, p + 1, 3), p + 4
    return read_little_endian(buf, p + 1, 8), p + 9


@jit
def decode_result(
    buf: npt.NDArray[np.uint8], start: int, end: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8], wide: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8],
    filled: npt.NDArray[np.int64],
) -> tuple[int, int, int]:  # fmt: skip
    """Decode rows until the bytes end, the buffers are full, or the result set ends.

    :param columns: ``int64[columns, 4]``: kind, a, b, and number of the buffer in its store
    :param fixed: output buffers, this and the following; see ``columns/column_buffers.py``
    :return: number of rows, offset of the first unused byte, and why it stopped
    """
    capacity, ncols = valid.shape[1], len(columns)
    row, p = 0, start
    while row < capacity:
        if end - p < 5:
            return row, p, NEED_MORE
        length = np.int64(buf[p]) | np.int64(buf[p + 1]) << 8 | np.int64(buf[p + 2]) << 16
        if length == 0xFFFFFF:
            return row, p, SPLIT
        if end - p < 4 + length:
            return row, p, NEED_MORE
        q, stop = p + 4, p + 4 + length
        if buf[q] == 0xFE and length < 9:
            return row, stop, LAST_ROW
        if buf[q] != 0:
            return row, p, PROTOCOL
        if not result_row(buf, q + 1, stop, row, columns, ncols, fixed, valid, wide, offsets, data, filled):
            return row, p, PROTOCOL
        row += 1
        p = stop
    return row, p, ROWS_FULL


@inline_helper
def _time_of_day(buf: npt.NDArray[np.uint8], q: int, length: int) -> int:
    """Read the time of a date of ``length`` bytes, in microseconds; zeros at its end are left out."""
    v = np.int64(0)
    if length >= 7:
        v = (np.int64(buf[q + 4]) * 3600 + np.int64(buf[q + 5]) * 60 + np.int64(buf[q + 6])) * 1_000_000
    if length >= 11:
        v += read_little_endian(buf, q + 7, 4)
    return v


@inline_helper
def _time(buf: npt.NDArray[np.uint8], q: int, length: int) -> int:
    """Read a ``TIME`` of ``length`` bytes, in microseconds.

    Its fields are sign, days, hours, minutes, seconds; zeros at its end are left out.
    """
    v = np.int64(0)
    if length >= 8:
        v = read_little_endian(buf, q + 1, 4) * 86400
        v += np.int64(buf[q + 5]) * 3600 + np.int64(buf[q + 6]) * 60 + np.int64(buf[q + 7])
        v *= 1_000_000
        if length >= 12:
            v += read_little_endian(buf, q + 8, 4)
        if buf[q]:
            v = -v
    return v


@jit
def result_row(
    buf: npt.NDArray[np.uint8], q: int, stop: int, row: int, columns: npt.NDArray[np.int64], ncols: int,
    fixed: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8], wide: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], filled: npt.NDArray[np.int64],
) -> bool:  # fmt: skip
    """Decode the row from ``q`` to ``stop`` into row ``row`` of the buffers; false if it does not end there."""
    nulls = q
    q += (ncols + 9) >> 3
    for c in range(ncols):
        kind, a, b, slot = columns[c, 0], columns[c, 1], columns[c, 2], columns[c, 3]
        bit = c + 2
        if (buf[nulls + (bit >> 3)] >> (bit & 7)) & 1:
            valid[c, row] = 0
            if kind == R_BYTES:
                offsets[slot, row + 1] = filled[slot]
            elif kind != R_DECIMAL_WIDE:
                fixed[slot, row] = 0
            continue
        valid[c, row] = 1
        if kind == R_INT or kind == R_BITS:
            if q + a > stop:
                return False
            v = read_little_endian(buf, q, a)
            if kind == R_INT and b == 0 and a < 8 and v >> (8 * a - 1):
                v -= np.int64(1) << (8 * a)
            fixed[slot, row] = v
            q += a
            continue
        if q >= stop:
            return False
        if kind == R_DATE or kind == R_DATETIME or kind == R_TIME:
            length = np.int64(buf[q])
            q += 1
            if q + length > stop:
                return False
            if kind == R_TIME:
                v = _time(buf, q, length)
            elif length < 4 or not is_date(read_little_endian(buf, q, 2), np.int64(buf[q + 2]), np.int64(buf[q + 3])):
                v = np.int64(0)
                valid[c, row] = 2
            else:
                day = days_from_date(read_little_endian(buf, q, 2), np.int64(buf[q + 2]), np.int64(buf[q + 3]))
                v = day if kind == R_DATE else day * 86_400_000_000 + _time_of_day(buf, q, length)
            fixed[slot, row] = v
        else:
            length, q = read_lenenc(buf, q)
            if q + length > stop:
                return False
            if kind == R_BYTES:
                at = filled[slot]
                data[slot, at : at + length] = buf[q : q + length]
                filled[slot] = at + length
                offsets[slot, row + 1] = at + length
            elif kind == R_DECIMAL:
                fixed[slot, row] = decimal_text_small(buf, q, q + length, b)
            elif kind == R_DECIMAL_WIDE:
                decimal_text(buf, q, q + length, b, wide[slot, row])
            else:
                fixed[slot, row] = read_big_endian(buf, q, length)
        q += length
    return q == stop
