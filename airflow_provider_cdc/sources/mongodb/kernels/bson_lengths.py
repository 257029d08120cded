"""The ends of values of BSON, and checks that their lengths are possible (bsonspec.org, version 1.1)."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: SIM109

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import BOOLEAN, END, LENGTH, TYPE

DOUBLE: Final = 0x01
STRING: Final = 0x02
DOCUMENT: Final = 0x03
ARRAY: Final = 0x04
BINARY: Final = 0x05
UNDEFINED: Final = 0x06
OBJECT_ID: Final = 0x07
BOOL: Final = 0x08
DATE: Final = 0x09
NULL: Final = 0x0A
REGEX: Final = 0x0B
DB_POINTER: Final = 0x0C
CODE: Final = 0x0D
SYMBOL: Final = 0x0E
CODE_WITH_SCOPE: Final = 0x0F
INT32: Final = 0x10
TIMESTAMP: Final = 0x11
INT64: Final = 0x12
DECIMAL128: Final = 0x13
MAX_KEY: Final = 0x7F
MIN_KEY: Final = 0xFF
ABSENT: Final = 0x00
"""The type of a missing value: in BSON, the end of a document."""

_SIZES = np.full(256, -1, np.int8)
_SIZES[[DOUBLE, DATE, TIMESTAMP, INT64]] = 8
_SIZES[[UNDEFINED, NULL, MAX_KEY, MIN_KEY]] = 0
_SIZES[[OBJECT_ID, BOOL, INT32, DECIMAL128]] = [12, 1, 4, 16]


# an index without a sign: the compiler then need not ask whether it counts from the end, which doubles the speed of short loops
U: Final = np.uintp


@force_inline_helper
def read_u32(buf: npt.NDArray[np.uint8], p: int) -> int:
    q = U(p)
    return (
        np.int64(buf[q]) | np.int64(buf[q + U(1)]) << 8 | np.int64(buf[q + U(2)]) << 16 | np.int64(buf[q + U(3)]) << 24
    )


@force_inline_helper
def read_i32(buf: npt.NDArray[np.uint8], p: int) -> int:
    return read_u32(buf, p) - (np.int64(buf[U(p + 3)] >> 7) << 32)


@force_inline_helper
def read_u64(buf: npt.NDArray[np.uint8], p: int) -> np.uint64:
    return np.uint64(read_u32(buf, p)) | np.uint64(read_u32(buf, p + 4)) << np.uint64(32)


@force_inline_helper
def read_i64(buf: npt.NDArray[np.uint8], p: int) -> int:
    return read_u32(buf, p) | read_i32(buf, p + 4) << 32


@force_inline_helper
def text_end(buf: npt.NDArray[np.uint8], p: int, limit: int) -> int:
    """Find the end of a text with its length in front, the zero byte after it included; or a problem."""
    if p + 5 > limit:
        return LENGTH
    size = read_i32(buf, p)
    if size < 1 or p + 4 + size > limit:
        return LENGTH
    return p + 4 + size if buf[U(p + 3 + size)] == 0 else END


@force_inline_helper
def name_end(buf: npt.NDArray[np.uint8], p: int, limit: int) -> int:
    """Return the offset after the zero byte that ends a name; or a problem."""
    while p < limit:
        if buf[U(p)] == 0:
            return p + 1
        p += 1
    return END


@force_inline_helper
def document_end(buf: npt.NDArray[np.uint8], p: int, limit: int) -> int:
    """Find the end of a document or array by its length; or a problem."""
    if p + 5 > limit:
        return LENGTH
    size = read_i32(buf, p)
    if size < 5 or p + size > limit:
        return LENGTH
    return p + size if buf[U(p + size - 1)] == 0 else END


@jit
def _odd_end(buf: npt.NDArray[np.uint8], kind: int, p: int, limit: int) -> int:
    """Find the end of a binary value, regular expression, pointer or code with scope."""
    if kind == BINARY:
        if p + 5 > limit:
            return LENGTH
        size = read_i32(buf, p)
        return p + 5 + size if size >= 0 and p + 5 + size <= limit else LENGTH
    if kind == REGEX:
        end = name_end(buf, p, limit)
        return name_end(buf, end, limit) if end > 0 else end
    if kind == DB_POINTER:
        end = text_end(buf, p, limit)
        if end < 0:
            return end
        return end + 12 if end + 12 <= limit else LENGTH
    if kind != CODE_WITH_SCOPE:
        return TYPE
    if p + 14 > limit:
        return LENGTH
    size = read_i32(buf, p)
    if size < 14 or p + size > limit:
        return LENGTH
    end = text_end(buf, p + 4, p + size)
    if end < 0:
        return end
    scope = document_end(buf, end, p + size)
    return scope if scope < 0 or scope == p + size else END


@force_inline_helper
def value_end(buf: npt.NDArray[np.uint8], kind: int, p: int, limit: int) -> int:
    """Find the end of a value of this type that begins at ``p``, at ``limit`` at the latest; or a problem.

    Does not look into documents.
    """
    size = np.int64(_SIZES[U(kind)])
    if size >= 0:
        if p + size > limit:
            return LENGTH
        if kind == BOOL and buf[p] > 1:
            return BOOLEAN
        return p + size
    if kind == STRING or kind == CODE or kind == SYMBOL:
        return text_end(buf, p, limit)
    if kind == DOCUMENT or kind == ARRAY:
        return document_end(buf, p, limit)
    return _odd_end(buf, kind, p, limit)


@jit
def split_documents(buf: npt.NDArray[np.uint8], p: int, limit: int, starts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Find the begins of documents that stand one after the other.

    Returns how many, and the offset after the last, or a problem.
    """
    count = 0
    while p < limit:
        end = document_end(buf, p, limit)
        if end < 0:
            return count, end
        starts[count] = p
        count += 1
        p = end
    return count, p


@jit
def split_array(buf: npt.NDArray[np.uint8], p: int, limit: int, starts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Find the begins of the documents of an array; return how many, and the offset after the array, or a problem."""
    end = document_end(buf, p, limit)
    if end < 0:
        return 0, end
    p += 4
    count = 0
    while buf[p] != 0:
        if buf[p] != DOCUMENT:
            return count, TYPE
        p = name_end(buf, p + 1, end - 1)
        if p < 0:
            return count, p
        starts[count] = p
        p = document_end(buf, p, end - 1)
        if p < 0:
            return count, p
        count += 1
    return count, p + 1 if p + 1 == end else END


@jit
def read_lengths(buf: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Read the lengths that documents begin with."""
    out = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        out[row] = read_i32(buf, starts[row])
    return out
