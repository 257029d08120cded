"""Positions of fields in documents: the fields of change events, and fields of documents by name."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import (
    ABSENT,
    DOCUMENT,
    U,
    document_end,
    name_end,
    read_i64,
    value_end,
)
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import END, FINE, TWICE, UNEXPECTED

_Bytes = npt.NDArray[np.uint8]


@jit
def field_number(buf: _Bytes, p: int, size: int, names: _Bytes, begins: npt.NDArray[np.int64]) -> int:
    """Find the name that the ``size`` bytes from ``p`` are, of some names; -1 if none."""
    for f in range(len(begins) - 1):
        begin = begins[U(f)]
        if begins[U(f + 1)] - begin == size:
            i = 0
            while i < size and names[U(begin + i)] == buf[U(p + i)]:
                i += 1
            if i == size:
                return f
    return -1


@jit
def find_fields(
    buf: _Bytes, kinds: _Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], names: _Bytes, begins: npt.NDArray[np.int64],
    allowed: npt.NDArray[np.bool_], value_kinds: npt.NDArray[np.uint8], value_starts: npt.NDArray[np.int64], value_ends: npt.NDArray[np.int64],
    unknown: npt.NDArray[np.uint8],
) -> tuple[int, int, int]:  # fmt: skip
    """Find fields by name in documents; a value that is no document has none.

    :param names: the names of all fields, one after the other; ``begins`` says where each begins, and where the last ends
    :param allowed: ``bool[fields, 256]``: which types each field may have
    :param value_kinds: ``uint8[fields, rows]``, all 0, and two like it for offsets of values, which get the results
    :param unknown: gets the number of other fields, 255 at most
    :return: number of rows without a problem, the problem of the next, and its offset
    """
    for row in range(len(starts)):
        if kinds[row] != DOCUMENT:
            continue
        p, limit = starts[row], ends[row]
        end = document_end(buf, p, limit)
        if end != limit:
            return row, (end if end < 0 else END), p
        p += 4
        while buf[U(p)] != ABSENT:
            at = p
            name = p + 1
            p = name_end(buf, name, limit - 1)
            if p < 0:
                return row, p, at
            end = value_end(buf, buf[U(at)], p, limit - 1)
            if end < 0:
                return row, end, at
            f = field_number(buf, name, p - 1 - name, names, begins)
            if f < 0:
                if unknown[row] < 255:
                    unknown[row] += 1
            elif value_kinds[f, row] != ABSENT:
                return row, TWICE, at
            elif not allowed[f, buf[U(at)]]:
                return row, UNEXPECTED, at
            else:
                value_kinds[f, row] = buf[U(at)]
                value_starts[f, row] = p
                value_ends[f, row] = end
            p = end
        if p + 1 != limit:
            return row, END, p
    return len(starts), FINE, 0


@jit
def read_integers(
    buf: _Bytes, kinds: _Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], out: npt.NDArray[np.int64]
) -> None:
    """Read the little-endian numbers of up to eight bytes that are at some places.

    Those of absent values stay as they are in ``out``.

    Of fewer bytes than eight the last one has the sign.
    """
    for row in range(len(kinds)):
        if kinds[row] == ABSENT:
            continue
        p, size = starts[row], ends[row] - starts[row]
        if size == 8:
            out[row] = read_i64(buf, p)
        else:
            value = np.int64(0)
            for i in range(size):
                value |= np.int64(buf[p + i]) << (8 * i)
            if size > 1 and buf[p + size - 1] & 0x80:
                value -= np.int64(1) << (8 * size)
            out[row] = value


@jit
def gather_bytes(
    buf: _Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], out: _Bytes
) -> None:
    """Put the bytes from some places one after the other; where each begins, ``offsets`` says."""
    for row in range(len(starts)):
        p, w = starts[row], offsets[row]
        for i in range(ends[row] - p):
            out[U(w + i)] = buf[U(p + i)]


@jit
def find_texts(
    buf: _Bytes,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    texts: _Bytes,
    begins: npt.NDArray[np.int64],
    out: _Bytes,
) -> None:
    """Find the text that is at each place, of some texts, counted from 1; 0 if none."""
    for row in range(len(starts)):
        if ends[row] > starts[row]:
            out[row] = field_number(buf, starts[row], ends[row] - starts[row], texts, begins) + 1
