"""Documents taken apart into columns: which field of which document goes into which column, and the rest of each document."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: C901

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import (
    U,
    document_end,
    name_end,
    read_i32,
    read_i64,
    read_u64,
    value_end,
)
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import DEPTH, END, FINE

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int32]

LONG: Final = 1
DOUBLE: Final = 2
STRING: Final = 3
BOOL: Final = 4
DATE: Final = 5
OBJECT_ID: Final = 6
BINARY: Final = 7
UUID: Final = 8
DECIMAL: Final = 9
JSON: Final = 10
FORMS: Final = 11
"""How many forms of values there are, with 0, which is a null: it goes into no column."""
WITHIN: Final = 11
"""Instead of a form: a document whose fields are columns."""

REST: Final = -1
"""Instead of a column: there is none for such a value."""
NOWHERE: Final = -2
"""Instead of a column: the value is elsewhere."""
DEEPEST: Final = 16
"""How many levels of documents may be taken apart."""

NEW: Final = 1
"""Why a kernel stopped: it has come to a field, or to a form of one, for which there might be a column."""

_WITHOUT_SIGN = np.uint64(0x7FFFFFFFFFFFFFFF)
_INFINITE = np.uint64(0x7FF0000000000000)
_NEGATIVE_ZERO = np.uint64(0x8000000000000000)
FIRST_DATE: Final = -30_610_224_000_000
"""1000-01-01, in milliseconds since 1970: the first date that all targets can have."""
LAST_DATE: Final = 253_402_300_799_999
"""The end of the year 9999."""
_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


@jit
def form_of(buf: _Bytes, kind: int, p: int) -> int:
    """In which form a value that begins at ``p`` is in a column; 0 of a null."""
    if kind == k.STRING:
        return STRING
    if kind == k.INT32 or kind == k.INT64:
        return LONG
    if kind == k.OBJECT_ID:
        return OBJECT_ID
    if kind == k.BOOL:
        return BOOL
    if kind == k.DOUBLE:
        bits = read_u64(buf, p)
        return JSON if (bits & _WITHOUT_SIGN) >= _INFINITE or bits == _NEGATIVE_ZERO else DOUBLE
    if kind == k.DATE:
        return DATE if FIRST_DATE <= read_i64(buf, p) <= LAST_DATE else JSON
    if kind == k.NULL:
        return 0
    if kind == k.DECIMAL128:
        return DECIMAL
    if kind == k.BINARY:
        if buf[p + 4] == 0:
            return BINARY
        return UUID if buf[p + 4] == 4 and read_i32(buf, p) == 16 else JSON
    return JSON


@jit
def hash_of(parent: int, buf: _Bytes, p: int, end: int) -> int:
    """Compute a number of 32 bits for a field by its name and by the field that it is within (FNV-1a)."""
    h = np.int64(_BASIS ^ (parent + 1))
    for i in range(p, end):
        h = ((h ^ np.int64(buf[U(i)])) * _PRIME) & 0xFFFFFFFF
    return h


@jit
def enter_names(parents: _Numbers, names: _Bytes, begins: _Ints, table: _Numbers) -> None:
    """Make the table by which fields are found: empty places are -1. Its length is a power of two, more than the number of fields."""
    last = len(table) - 1
    for f in range(len(parents)):
        at = hash_of(parents[f], names, begins[f], begins[f + 1] - 1) & last
        while table[at] >= 0:
            at = (at + 1) & last
        table[at] = f


@jit
def _is_named(f: int, buf: _Bytes, p: int, names: _Bytes, begins: _Ints) -> int:
    """Find the end of the name at ``p``, behind its zero byte, if it is that of a field; else 0."""
    begin, end = begins[U(f)], begins[U(f + 1)]
    if p + end - begin > len(buf):
        return 0
    for i in range(end - begin):
        if buf[U(p + i)] != names[U(begin + i)]:
            return 0
    return p + end - begin


@jit
def _looked_up(
    parent: int, buf: _Bytes, p: int, end: int, parents: _Numbers, names: _Bytes, begins: _Ints, table: _Numbers
) -> int:
    """Find the field whose name is from ``p`` up to the zero byte before ``end``; -1: none."""
    last = len(table) - 1
    at = hash_of(parent, buf, p, end - 1) & last
    while table[at] >= 0:
        f = table[at]
        if parents[f] == parent and begins[f + 1] - begins[f] == end - p and _is_named(f, buf, p, names, begins):
            return f
        at = (at + 1) & last
    return -1


@jit
def _copied(buf: _Bytes, p: int, end: int, out: _Bytes, w: int) -> int:
    for i in range(end - p):
        out[U(w + i)] = buf[U(p + i)]
    return w + end - p


@jit
def _closed(out: _Bytes, begin: int, w: int) -> int:
    """End a document of the rest that begins at an offset; returns the offset behind it."""
    out[U(w)] = 0
    size = w + 1 - begin
    for i in range(4):
        out[U(begin + i)] = np.uint8((size >> (8 * i)) & 0xFF)
    return w + 1


@jit
def split_documents(
    buf: _Bytes, kinds: _Bytes, starts: _Ints, ends: _Ints, row: int,
    parents: _Numbers, names: _Bytes, begins: _Ints, table: _Numbers, opens: npt.NDArray[np.bool_],
    columns: npt.NDArray[np.int32], guess: _Numbers, room: bool, depth: int,
    value_kinds: npt.NDArray[np.uint8], value_starts: npt.NDArray[np.int64], value_ends: npt.NDArray[np.int64],
    rest: _Bytes, rest_ends: _Ints, new: _Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Find the values of columns in documents, from a row on. A field without a column stays in the rest, which is a document again.

    :param parents: field → the field that it is within, or -1
    :param names: names of fields, each with a zero byte behind; ``begins`` says where
    :param opens: field → whether the fields of a document in it are columns
    :param columns: ``int32[fields, FORMS]``: the column, ``REST`` or ``NOWHERE``
    :param guess: ``int32[fields + 1]``: field + 1 → the field that came after it in the document before; 0 stands for the beginning
    :param room: whether there may be more columns: then fields and forms that are not known end the loop
    :param value_kinds: ``uint8[columns, rows]``, all 0, and two like it for offsets, get the values
    :param rest: gets documents one after the other; ``rest_ends`` says where that of each row ends, those that have no field being no bytes
    :param depth: how many levels of documents are taken apart
    :param new: gets of a field that is not known: the field or -1, what it is within, where its name begins and ends, and the form
    :return: the row, why it stopped there, and an offset
    """
    limits = np.empty(DEEPEST, np.int64)
    within = np.empty(DEEPEST, np.int64)
    rest_begins = np.empty(DEEPEST, np.int64)
    marks = np.empty(DEEPEST, np.int64)
    touched = np.empty(DEEPEST, np.bool_)
    w = rest_ends[row - 1] if row > 0 else 0
    while row < len(kinds):
        if kinds[row] != k.DOCUMENT:
            rest_ends[row] = w
            row += 1
            continue
        p, limit = starts[row], ends[row]
        end = document_end(buf, p, limit)
        if end != limit:
            return row, (end if end < 0 else END), p
        level, last = 0, -1
        limits[0], within[0], marks[0], rest_begins[0], touched[0] = limit, -1, w, w, True
        p += 4
        w += 4
        while True:
            kind, at = buf[U(p)], p
            if kind == k.ABSENT:
                if p + 1 != limits[level]:
                    return row, END, at
                # a document all of whose fields are in columns is not in the rest; an empty one is
                if w == rest_begins[level] + 4 and touched[level]:
                    w = marks[level]
                else:
                    w = _closed(rest, rest_begins[level], w)
                p += 1
                if level == 0:
                    break
                last = within[level]
                level -= 1
                continue
            parent, stop = within[level], limits[level] - 1
            f = np.int64(guess[last + 1])
            q = 0
            if f >= 0 and parents[f] == parent:
                q = _is_named(f, buf, p + 1, names, begins)
            if q == 0:
                q = name_end(buf, p + 1, stop)
                if q < 0:
                    return row, q, at
                f = _looked_up(parent, buf, p + 1, q, parents, names, begins, table)
                if f >= 0:
                    guess[last + 1] = f
            elif q > stop:
                return row, END, at
            end = value_end(buf, kind, q, stop)
            if end < 0:
                return row, end, at
            p = end
            if f >= 0:
                last = f
            if kind == k.DOCUMENT and ((f >= 0 and opens[f]) or (f < 0 and level + 1 < depth)):
                if f < 0 and room:
                    new[0], new[1], new[2], new[3], new[4] = -1, parent, at + 1, q - 1, WITHIN
                    return row, NEW, at
                if f >= 0:
                    if level + 1 == DEEPEST:
                        return row, DEPTH, at
                    level += 1
                    marks[level] = w
                    w = _copied(buf, at, q, rest, w)
                    limits[level], within[level], rest_begins[level] = end, f, w
                    touched[level] = buf[U(q + 4)] != 0
                    w += 4
                    p = q + 4
                    continue
            form = form_of(buf, kind, q)
            column = np.int64(columns[f, form]) if f >= 0 else REST
            if column == REST and form != 0 and room:
                new[0], new[1], new[2], new[3], new[4] = f, parent, at + 1, q - 1, form
                return row, NEW, at
            if column == NOWHERE:
                continue
            if column == REST or value_kinds[column, row] != 0:  # a field may be there twice
                w = _copied(buf, at, end, rest, w)
                continue
            value_kinds[column, row] = kind
            value_starts[column, row] = q
            value_ends[column, row] = end
        rest_ends[row] = w
        row += 1
    return row, FINE, 0
