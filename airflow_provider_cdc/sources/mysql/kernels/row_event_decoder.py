"""Decodes row events into column buffers.

The format is that of ``WRITE_ROWS``, ``UPDATE_ROWS`` and ``DELETE_ROWS`` in "Binary Log Event" of the MySQL internals documentation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import read_big_endian, read_little_endian
from airflow_provider_cdc.sources.mysql.kernels.decimal_decoding import decimal_small, decimal_wide
from airflow_provider_cdc.sources.mysql.kernels.event_array_layout import EV_LENGTH, EV_START, EV_TYPE, HEADER
from airflow_provider_cdc.sources.mysql.kernels.event_codes import (
    DELETE_ROWS,
    DELETE_ROWS_V1,
    UPDATE_ROWS,
    UPDATE_ROWS_V1,
    WRITE_ROWS,
)
from airflow_provider_cdc.sources.mysql.kernels.temporal_decoding import (
    NO_DATE,
    decode_date,
    decode_datetime,
    decode_time,
    decode_timestamp,
    decode_year,
    mariadb_datetime,
    mariadb_time,
    mariadb_timestamp,
    old_datetime,
    old_time,
    old_timestamp,
)

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
MARIADB_DATETIME: Final = 16  # a = width in bytes, b = microseconds of the last digit
MARIADB_TIMESTAMP: Final = 17  # the same
MARIADB_TIME: Final = 18  # the same

STORE_FIXED: Final = 0
STORE_WIDE: Final = 1
STORE_VARIABLE: Final = 2

OK: Final = 0
FULL: Final = 1  # the row buffers are full: call again
BAD_VALUE: Final = 2  # a value goes past the end of its event
BAD_IMAGE: Final = 3  # not all columns are in the row image

_RowImage = Any  # the five buffers of one row image: fixed, wide, offsets, data, filled


@jit
def _null(row: int, c: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8],
          offsets: npt.NDArray[np.int32], filled: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Column ``c`` of a row has no value."""
    kind, slot = columns[c, 0], columns[c, 3]
    valid[c, row] = 0
    if kind == VAR or kind == DECIMAL_RAW:
        offsets[slot, row + 1] = filled[slot]
    elif kind != DECIMAL_WIDE:
        fixed[slot, row] = 0


@jit
def _image(
    buf: npt.NDArray[np.uint8], p: int, end: int, row: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8], wide: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8], filled: npt.NDArray[np.int64],
) -> int:  # fmt: skip
    """Decode one row image at ``p`` into row ``row`` of the buffers.

    ``columns[c]`` is (kind, a, b, slot, size): ``slot`` is the column's number among the columns of its store, ``size`` the
    bytes of a value, or of its length.

    :return: offset after the image, or ``-1 - c`` if column ``c`` goes past ``end``
    """
    ncols = len(columns)
    nulls = p
    p += (ncols + 7) >> 3
    if p > end:
        return -1
    for c in range(ncols):
        if (buf[nulls + (c >> 3)] >> (c & 7)) & 1:
            _null(row, c, columns, fixed, valid, offsets, filled)
            continue
        kind, a, b, slot, size = columns[c, 0], columns[c, 1], columns[c, 2], columns[c, 3], columns[c, 4]
        if p + size > end:
            return -1 - c
        valid[c, row] = 1
        if kind == INT:
            v = read_little_endian(buf, p, a)
            if b == 0 and a < 8 and v >> (8 * a - 1):
                v -= np.int64(1) << (8 * a)
            fixed[slot, row] = v
        elif kind == VAR or kind == DECIMAL_RAW:
            length = size
            if kind == VAR:
                length = read_little_endian(buf, p, a)
                p += size
                if p + length > end:
                    return -1 - c
            at = filled[slot]
            for i in range(length):
                data[slot, np.uint64(at + i)] = buf[np.uint64(p + i)]
            filled[slot] = at + length
            offsets[slot, row + 1] = at + length
            p += length
            continue
        elif kind == DATETIME:
            fixed[slot, row] = v = decode_datetime(buf, p, a)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == TIMESTAMP:
            fixed[slot, row] = v = decode_timestamp(buf, p, a)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == DECIMAL:
            fixed[slot, row] = decimal_small(buf, p, a, b)
        elif kind == DOUBLE or kind == FLOAT:
            fixed[slot, row] = read_little_endian(buf, p, size)
        elif kind == DATE:
            fixed[slot, row] = v = decode_date(buf, p)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == TIME:
            fixed[slot, row] = decode_time(buf, p, a)
        elif kind == DECIMAL_WIDE:
            decimal_wide(buf, p, a, b, wide[slot, row])
        elif kind == YEAR:
            fixed[slot, row] = decode_year(buf, p)
        elif kind == BIG_ENDIAN:
            fixed[slot, row] = read_big_endian(buf, p, a)
        elif kind == OLD_DATETIME:
            fixed[slot, row] = v = old_datetime(buf, p)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == OLD_TIMESTAMP:
            fixed[slot, row] = v = old_timestamp(buf, p)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == OLD_TIME:
            fixed[slot, row] = old_time(buf, p)
        elif kind == MARIADB_DATETIME:
            fixed[slot, row] = v = mariadb_datetime(buf, p, a, b)
            valid[c, row] = 2 if v == NO_DATE else 1
        elif kind == MARIADB_TIMESTAMP:
            fixed[slot, row] = v = mariadb_timestamp(buf, p, a, b)
            valid[c, row] = 2 if v == NO_DATE else 1
        else:  # MARIADB_TIME
            fixed[slot, row] = mariadb_time(buf, p, a, b)
        p += size
    return p


@jit
def _absent(row: int, columns: npt.NDArray[np.int64], fixed: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8],
            offsets: npt.NDArray[np.int32], filled: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Write a row without this image: null in every column."""
    for c in range(len(columns)):
        _null(row, c, columns, fixed, valid, offsets, filled)


@jit
def _first_row(buf: npt.NDArray[np.uint8], start: int, end: int, kind: int, logged: npt.NDArray[np.uint8]) -> int:
    """Return the offset of the first row of an event, or -1 if its images do not match the logged columns.

    They match if they have all columns that are logged, and those only.

    Behind the header: table id and flags, extra data (since version 2), the number of columns, which the caller has compared with the
    layout's, and a bitmap of the columns of each image.
    """
    p = start + HEADER + 8
    if kind >= WRITE_ROWS:
        p += np.int64(buf[p]) | np.int64(buf[p + 1]) << 8
    p += 1 if buf[p] < 0xFB else 3
    bitmap = (len(logged) + 7) >> 3
    images = 2 if kind == UPDATE_ROWS_V1 or kind == UPDATE_ROWS else 1
    if p + images * bitmap > end:
        return -1
    for _ in range(images):
        for c in range(len(logged)):
            if (buf[p + (c >> 3)] >> (c & 7)) & 1 != logged[c]:
                return -1
        p += bitmap
    return p


@jit
def decode_rows(
    buf: npt.NDArray[np.uint8], events: npt.NDArray[np.int64], picked: npt.NDArray[np.int64], resume: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64], logged: npt.NDArray[np.uint8], before: _RowImage, after: _RowImage, both: bool, op: npt.NDArray[np.int8],
    event_of: npt.NDArray[np.int32], row_in_event: npt.NDArray[np.int32],
) -> tuple[int, int]:  # fmt: skip
    """Decode row events of one layout until the buffers are full.

    :param picked: indices of the events in ``events``
    :param resume: where to begin: index into ``picked``, offset in the buffer (0 = the beginning of the event), row in the event;
        updated for the next call
    :param logged: whether rows have each column of the table map
    :param before: buffers of the before images, as :func:`_image` takes them; unused if ``both`` is false
    :param both: whether any event has before images
    :param op: output: operation code of each row: 1 create, 2 update, 3 delete
    :param event_of: output: index of each row's event
    :param row_in_event: output: number of each row in its event
    :return: number of rows, and a status; after an error ``resume[1]`` is the event's index and ``resume[2]`` the column
    """
    capacity = len(op)
    row = 0
    while resume[0] < len(picked):
        e = picked[resume[0]]
        kind = events[e, EV_TYPE]
        start = events[e, EV_START]
        end = start + events[e, EV_LENGTH]
        is_update = kind == UPDATE_ROWS_V1 or kind == UPDATE_ROWS
        is_delete = kind == DELETE_ROWS_V1 or kind == DELETE_ROWS
        p = resume[1]
        if p == 0:
            p = _first_row(buf, start, end, kind, logged)
            if p < 0:
                resume[1] = e
                return row, BAD_IMAGE
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
