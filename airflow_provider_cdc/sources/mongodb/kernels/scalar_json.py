"""Text of a value of BSON that contains no others, as extended JSON in one of three forms.

The forms are those of MongoDB's Java library: ``JsonMode.STRICT``, ``RELAXED`` and ``EXTENDED``, the last of which is the canonical form of the
specification "Extended JSON".
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels import json_fragments as t
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import U, read_i32, read_i64, read_u32, read_u64
from airflow_provider_cdc.sources.mongodb.kernels.decimal128_text import put_decimal
from airflow_provider_cdc.sources.mongodb.kernels.double_text import put_digits, put_double, put_small
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE, OLD_BINARY
from airflow_provider_cdc.sources.mongodb.kernels.json_fragments import write_fragment
from airflow_provider_cdc.sources.mongodb.kernels.json_strings import HEX, put_name, put_text

_Bytes = npt.NDArray[np.uint8]

STRICT: Final = 0
RELAXED: Final = 1
CANONICAL: Final = 2

_QUOTE: Final = 34
_POSITIVE_INFINITY = np.uint64(0x7FF0000000000000)
_WITHOUT_SIGN = np.uint64(0x7FFFFFFFFFFFFFFF)
_LAST_MILLISECOND: Final = 253_402_300_799_999
"""The end of the year 9999."""
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


@jit
def _put_floating(bits: np.uint64, form: int, out: _Bytes, w: int) -> int:
    size = bits & _WITHOUT_SIGN
    odd = size >= _POSITIVE_INFINITY
    wrapped = form == CANONICAL or (form == RELAXED and odd)
    if wrapped:
        w = write_fragment(t.NUMBER_DOUBLE, out, w)
    if size > _POSITIVE_INFINITY:
        w = write_fragment(t.NAN, out, w)
    elif odd:
        if bits != size:
            out[w] = 45
            w += 1
        w = write_fragment(t.INFINITY, out, w)
    else:
        w = put_double(bits, out, w)
    return write_fragment(t.END_TEXT, out, w) if wrapped else w


@jit
def _put_padded(number: int, width: int, out: _Bytes, w: int) -> int:
    for i in range(width - 1, -1, -1):
        out[w + i] = 48 + number % 10
        number //= 10
    return w + width


@jit
def _put_date_text(value: int, out: _Bytes, w: int) -> int:
    """Write a date from 1970 to 9999 in ISO 8601, without zeros at the end of a fraction."""
    day, rest = value // 86_400_000, value % 86_400_000
    # years that begin in March, in eras of 400 of them
    z = day + 719_468
    era = z // 146_097
    of_era = z - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    year += era * 400 + (1 if month >= 10 else 0)
    w = _put_padded(year, 4, out, w)
    out[w] = 45
    w = _put_padded(month + 3 if month < 10 else month - 9, 2, out, w + 1)
    out[w] = 45
    w = _put_padded(of_year - (153 * month + 2) // 5 + 1, 2, out, w + 1)
    out[w] = 84
    w = _put_padded(rest // 3_600_000, 2, out, w + 1)
    out[w] = 58
    w = _put_padded(rest // 60_000 % 60, 2, out, w + 1)
    out[w] = 58
    w = _put_padded(rest // 1000 % 60, 2, out, w + 1)
    if rest % 1000:
        out[w] = 46
        w = _put_padded(rest % 1000, 3, out, w + 1)
        while out[w - 1] == 48:
            w -= 1
    out[w] = 90
    return w + 1


@force_inline_helper
def _put_date(value: int, form: int, out: _Bytes, w: int) -> int:
    if form == STRICT:
        return write_fragment(t.END_ONCE, out, put_small(value, out, write_fragment(t.DATE, out, w)))
    if form == RELAXED and 0 <= value <= _LAST_MILLISECOND:
        return write_fragment(t.END_TEXT, out, _put_date_text(value, out, write_fragment(t.DATE_TEXT, out, w)))
    return write_fragment(t.END_TEXT_TWICE, out, put_small(value, out, write_fragment(t.DATE_LONG, out, w)))


@force_inline_helper
def _put_whole(value: int, kind: int, form: int, out: _Bytes, w: int) -> int:
    if kind == k.INT32:
        if form != CANONICAL:
            return put_small(value, out, w)
        w = write_fragment(t.NUMBER_INT, out, w)
    else:
        if form == RELAXED:
            return put_small(value, out, w)
        w = write_fragment(t.NUMBER_LONG, out, w)
    return write_fragment(t.END_TEXT, out, put_small(value, out, w))


@jit
def _put_binary(buf: _Bytes, p: int, form: int, out: _Bytes, w: int) -> tuple[int, int]:
    size, kind = read_i32(buf, p), buf[p + 4]
    q, end = p + 5, p + 5 + size
    if kind == 2:  # the old form has its length once more, which is no part of the value
        if size < 4 or read_i32(buf, q) != size - 4:
            return w, OLD_BINARY
        q += 4
    w = write_fragment(t.BINARY if form == STRICT else t.BINARY_NEW, out, w)
    while q + 3 <= end:
        x = np.int64(buf[q]) << 16 | np.int64(buf[q + 1]) << 8 | np.int64(buf[q + 2])
        out[w] = _BASE64[x >> 18]
        out[w + 1] = _BASE64[(x >> 12) & 63]
        out[w + 2] = _BASE64[(x >> 6) & 63]
        out[w + 3] = _BASE64[x & 63]
        w += 4
        q += 3
    if q < end:
        x = np.int64(buf[q]) << 16 | (np.int64(buf[q + 1]) << 8 if q + 1 < end else 0)
        out[w] = _BASE64[x >> 18]
        out[w + 1] = _BASE64[(x >> 12) & 63]
        out[w + 2] = _BASE64[(x >> 6) & 63] if q + 1 < end else 61
        out[w + 3] = 61
        w += 4
    w = write_fragment(t.BINARY_TYPE if form == STRICT else t.BINARY_NEW_TYPE, out, w)
    out[w] = _UPPER[kind >> 4]
    out[w + 1] = _UPPER[kind & 15]
    return write_fragment(t.END_TEXT if form == STRICT else t.END_TEXT_TWICE, out, w + 2), FINE


@force_inline_helper
def _put_object_id(buf: _Bytes, p: int, out: _Bytes, w: int) -> int:
    w = write_fragment(t.OID, out, w)
    for i in range(12):
        byte = buf[U(p + i)]
        out[U(w)] = HEX[U(byte >> 4)]
        out[U(w + 1)] = HEX[U(byte & 15)]
        w += 2
    return write_fragment(t.END_TEXT, out, w)


@jit
def _put_regex(buf: _Bytes, p: int, end: int, form: int, out: _Bytes, w: int) -> tuple[int, int]:
    w = write_fragment(t.REGEX if form == STRICT else t.REGEX_NEW, out, w)
    w, next_p = put_name(buf, p, end, out, w)
    if next_p < 0:
        return w, next_p
    w = write_fragment(t.REGEX_OPTIONS if form == STRICT else t.REGEX_NEW_OPTIONS, out, w)
    w, next_p = put_name(buf, next_p, end, out, w)
    if next_p < 0:
        return w, next_p
    return write_fragment(t.END_ONCE if form == STRICT else t.END_TWICE, out, w), FINE


@jit
def _put_pointer(buf: _Bytes, p: int, end: int, form: int, out: _Bytes, w: int) -> tuple[int, int]:
    w = write_fragment(t.DB_POINTER if form == CANONICAL else t.REF, out, w)
    w, problem = put_text(buf, p + 4, end - 13, out, w)
    w = _put_object_id(buf, end - 12, out, write_fragment(t.REF_ID, out, w))
    return write_fragment(t.END_TWICE if form == CANONICAL else t.END_ONCE, out, w), problem


@jit
def _put_rare(buf: _Bytes, kind: int, p: int, end: int, form: int, out: _Bytes, w: int) -> tuple[int, int]:
    if kind == k.REGEX:
        return _put_regex(buf, p, end, form, out, w)
    if kind == k.DB_POINTER:
        return _put_pointer(buf, p, end, form, out, w)
    if kind == k.CODE or kind == k.SYMBOL:
        w, problem = put_text(buf, p + 4, end - 1, out, write_fragment(t.CODE if kind == k.CODE else t.SYMBOL, out, w))
        return write_fragment(t.END_ONCE, out, w), problem
    if kind == k.TIMESTAMP:
        w = put_digits(np.uint64(read_u32(buf, p + 4)), out, write_fragment(t.TIMESTAMP, out, w))
        w = put_digits(np.uint64(read_u32(buf, p)), out, write_fragment(t.TIMESTAMP_I, out, w))
        return write_fragment(t.END_TWICE, out, w), FINE
    if kind == k.UNDEFINED:
        return write_fragment(t.UNDEFINED, out, w), FINE
    return write_fragment(t.MIN_KEY if kind == k.MIN_KEY else t.MAX_KEY, out, w), FINE


@force_inline_helper
def put_scalar(buf: _Bytes, kind: int, p: int, end: int, form: int, out: _Bytes, w: int) -> tuple[int, int]:
    """Write the value from ``p`` to ``end``, whose lengths are checked; returns where its text ends, and a problem."""
    if kind == k.STRING:
        return put_text(buf, p + 4, end - 1, out, w)
    if kind == k.INT32:
        return _put_whole(read_i32(buf, p), kind, form, out, w), FINE
    if kind == k.INT64:
        return _put_whole(read_i64(buf, p), kind, form, out, w), FINE
    if kind == k.DOUBLE:
        return _put_floating(read_u64(buf, p), form, out, w), FINE
    if kind == k.OBJECT_ID:
        return _put_object_id(buf, p, out, w), FINE
    if kind == k.DATE:
        return _put_date(read_i64(buf, p), form, out, w), FINE
    if kind == k.BOOL:
        return write_fragment(t.TRUE if buf[p] else t.FALSE, out, w), FINE
    if kind == k.NULL:
        return write_fragment(t.NULL, out, w), FINE
    if kind == k.DECIMAL128:
        w = put_decimal(read_u64(buf, p), read_u64(buf, p + 8), out, write_fragment(t.NUMBER_DECIMAL, out, w))
        return write_fragment(t.END_TEXT, out, w), FINE
    if kind == k.BINARY:
        return _put_binary(buf, p, form, out, w)
    return _put_rare(buf, kind, p, end, form, out, w)
