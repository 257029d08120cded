"""Values of BSON as bytes that are ordered as the values are, over all types: as MongoDB compares them, without a collation.

(MongoDB manual, "Comparison/Sort Order".) What the server takes for equal has the same bytes: 1, 1.0 and the decimal 1.00; the two zeros; a text and a symbol. Fields of documents are compared one after the other:
by type, then by name, then by value.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import parse_elements
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.decimal128_text import put_decimal

_NUMBERS: Final = (k.DOUBLE, k.INT32, k.INT64, k.DECIMAL128)
_TEXTS: Final = (k.STRING, k.SYMBOL, k.CODE)
# as the server ranks types; 0 ends a document and is less than all of them
_RANKS: Final = {
    k.MIN_KEY: 1, k.UNDEFINED: 2, k.NULL: 5, k.DOUBLE: 10, k.INT32: 10, k.INT64: 10, k.DECIMAL128: 10, k.STRING: 15, k.SYMBOL: 15, k.DOCUMENT: 20, k.ARRAY: 25, k.BINARY: 30,
    k.OBJECT_ID: 35, k.BOOL: 40, k.DATE: 45, k.TIMESTAMP: 47, k.REGEX: 50, k.DB_POINTER: 55, k.CODE: 60, k.CODE_WITH_SCOPE: 65, k.MAX_KEY: 127,
}  # fmt: skip
_NAN, _NEGATIVE, _ZERO, _POSITIVE = b"\1", b"\2", b"\3", b"\4"
_INFINITE: Final = 0xFFFF
_BIAS: Final = 0x4000
_INVERTED: Final = bytes(255 - i for i in range(256))


def order_key(kind: int, value: bytes) -> bytes:
    """Return the bytes that stand for a value: those of two values compare as the values do.

    :param kind: its BSON type
    :param value: its bytes in a document, after the name
    :raises DamagedDocument: it contains bytes that are not BSON
    """
    return bytes([_RANKS[kind]]) + _content(kind, value)


def order_keys(values: BsonValues) -> pa.LargeBinaryArray:
    """Return the same for many values; null where there is none."""
    keys = (order_key(kind, values.read_bytes(row)) if kind else None for row, kind in enumerate(values.kinds.tolist()))
    return pa.array(keys, pa.large_binary(), size=len(values))


def _content(kind: int, value: bytes) -> bytes:
    if kind in _NUMBERS:
        return _number(kind, value)
    if kind in _TEXTS:
        return _ended(value[4:-1])
    if kind in (k.DOCUMENT, k.ARRAY):
        return _fields(kind, value)
    if kind == k.BINARY:
        return value[3::-1] + value[4:]
    if kind == k.DATE:
        return struct.pack(">Q", struct.unpack("<q", value)[0] + 2**63)
    if kind == k.TIMESTAMP:
        return value[::-1]
    if kind == k.DB_POINTER:
        return struct.pack(">i", len(value)) + value
    if kind == k.CODE_WITH_SCOPE:
        end = 8 + struct.unpack_from("<i", value, 4)[0]
        return _ended(value[8 : end - 1]) + _fields(k.DOCUMENT, value[end:])
    return value  # an ObjectId, a boolean, the two texts of a regular expression, each with its zero byte; or nothing


def _fields(kind: int, value: bytes) -> bytes:
    parts = [
        bytes([_RANKS[e.kind]]) + (e.name + b"\0" if kind == k.DOCUMENT else b"") + _content(e.kind, e.encode_bson())
        for e in parse_elements(value)
    ]
    return b"".join(parts) + b"\0"


def _ended(content: bytes) -> bytes:
    """End a text so that it is less than all that begin with it, whatever comes behind it."""
    return content.replace(b"\0", b"\0\xff") + b"\0\0"


def _number(kind: int, value: bytes) -> bytes:
    if kind == k.INT32 or kind == k.INT64:
        number = Decimal(int.from_bytes(value, "little", signed=True))
    elif kind == k.DOUBLE:
        number = Decimal(struct.unpack("<d", value)[0])  # every digit that it has
    else:
        number = _decimal(value)
    if number.is_nan():
        return _NAN
    if not number:
        return _ZERO
    size = _size(number)
    return _NEGATIVE + size.translate(_INVERTED) if number.is_signed() else _POSITIVE + size


def _size(number: Decimal) -> bytes:
    """Return the size of a number, without its sign: the place of its first digit, and all digits but zeros at the end."""
    if number.is_infinite():
        return struct.pack(">H", _INFINITE)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0").encode()
    return struct.pack(">H", number.adjusted() + _BIAS) + digits + b"\0"


def _decimal(value: bytes) -> Decimal:
    out = np.empty(256, np.uint8)
    low, high = struct.unpack("<QQ", value)
    return Decimal(out[: put_decimal(np.uint64(low), np.uint64(high), out, 0)].tobytes().decode())
