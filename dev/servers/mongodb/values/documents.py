"""BSON bytes to Python values and back, with nothing lost on the way.

The values are those of ``bson``; only what its own codec makes equal to something else has a class here: undefined, symbols, DBPointers, code,
regular expressions with their options as written. A document is a ``dict`` in its order, an array a ``list``, a 32-bit integer an ``int``.

>>> decode(encode({"a": Int64(1), "b": UNDEFINED}))
{'a': Int64(1), 'b': UNDEFINED}
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS

Document = dict[str, Any]

_UTF8 = ("utf-8", "surrogateescape")
"""The server stores bytes that are not UTF-8 as they come."""
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_STAMP = struct.Struct("<II")
INT32 = range(-(2**31), 2**31)


class Undefined:
    """The type 0x06, which is not null."""

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __deepcopy__(self, _memo: Any) -> Undefined:
        return self


UNDEFINED = Undefined()


@dataclass(frozen=True)
class Symbol:
    """The type 0x0E, which is ordered like a string."""

    text: str


@dataclass(frozen=True)
class DbPointer:
    """The type 0x0C."""

    ref: str
    id: ObjectId


@dataclass(frozen=True)
class Regex:
    """A regular expression with its options as they were written."""

    pattern: str
    options: str


@dataclass(frozen=True)
class Code:
    """JavaScript; ``scope`` is None for the type without one."""

    text: str
    scope: Document | None = None

    def __hash__(self) -> int:
        return hash(self.text)


def decode(data: bytes | memoryview) -> Document:
    """The document that ``data`` holds."""
    return _document(bytes(data), 0)[0]


def _document(data: bytes, start: int) -> tuple[Document, int]:
    out: Document = {}
    end = start + _INT.unpack_from(data, start)[0] - 1
    i = start + 4
    while i < end:
        kind = data[i]
        stop = data.index(0, i + 1)
        name = data[i + 1 : stop].decode(*_UTF8)
        out[name], i = _READERS[kind](data, stop + 1)
    return out, end + 1


def _array(data: bytes, start: int) -> tuple[list[Any], int]:
    document, end = _document_values(data, start)
    return document, end


def _document_values(data: bytes, start: int) -> tuple[list[Any], int]:
    out: list[Any] = []
    end = start + _INT.unpack_from(data, start)[0] - 1
    i = start + 4
    while i < end:
        kind = data[i]
        value, i = _READERS[kind](data, data.index(0, i + 1) + 1)
        out.append(value)
    return out, end + 1


def _text(data: bytes, i: int) -> tuple[str, int]:
    n = _INT.unpack_from(data, i)[0]
    return data[i + 4 : i + 3 + n].decode(*_UTF8), i + 4 + n


def _binary(data: bytes, i: int) -> tuple[Binary, int]:
    n, kind = _INT.unpack_from(data, i)[0], data[i + 4]
    return Binary(data[i + 5 : i + 5 + n], kind), i + 5 + n


def _regex(data: bytes, i: int) -> tuple[Regex, int]:
    middle = data.index(0, i)
    end = data.index(0, middle + 1)
    return Regex(data[i:middle].decode(), data[middle + 1 : end].decode()), end + 1


def _pointer(data: bytes, i: int) -> tuple[DbPointer, int]:
    ref, i = _text(data, i)
    return DbPointer(ref, ObjectId(data[i : i + 12])), i + 12


def _code(data: bytes, i: int) -> tuple[Code, int]:
    text, i = _text(data, i)
    return Code(text), i


def _symbol(data: bytes, i: int) -> tuple[Symbol, int]:
    text, i = _text(data, i)
    return Symbol(text), i


def _decode_scoped_code(data: bytes, i: int) -> tuple[Code, int]:
    text, middle = _text(data, i + 4)
    scope, end = _document(data, middle)
    return Code(text, scope), end


def _stamp(data: bytes, i: int) -> tuple[Timestamp, int]:
    increment, seconds = _STAMP.unpack_from(data, i)
    return Timestamp(seconds, increment), i + 8


_READERS: dict[int, Any] = {
    0x01: lambda data, i: (_DOUBLE.unpack_from(data, i)[0], i + 8),
    0x02: _text,
    0x03: _document,
    0x04: _array,
    0x05: _binary,
    0x06: lambda data, i: (UNDEFINED, i),
    0x07: lambda data, i: (ObjectId(data[i : i + 12]), i + 12),
    0x08: lambda data, i: (data[i] == 1, i + 1),
    0x09: lambda data, i: (DatetimeMS(_LONG.unpack_from(data, i)[0]), i + 8),
    0x0A: lambda data, i: (None, i),
    0x0B: _regex,
    0x0C: _pointer,
    0x0D: _code,
    0x0E: _symbol,
    0x0F: _decode_scoped_code,
    0x10: lambda data, i: (_INT.unpack_from(data, i)[0], i + 4),
    0x11: _stamp,
    0x12: lambda data, i: (Int64(_LONG.unpack_from(data, i)[0]), i + 8),
    0x13: lambda data, i: (Decimal128.from_bid(data[i : i + 16]), i + 16),
    0x7F: lambda data, i: (MaxKey(), i),
    0xFF: lambda data, i: (MinKey(), i),
}


def encode(document: Document) -> bytes:
    """The bytes of a document. A value that is :class:`RawDocument` is taken as it is."""
    if isinstance(document, RawDocument):
        return document.data
    body = b"".join([_element(name, value) for name, value in document.items()])
    return b"%b%b\0" % (_INT.pack(len(body) + 5), body)


class RawDocument(dict[str, Any]):
    """A document of which only the bytes matter, such as a prepared event."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


def _element(name: str, value: Any) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise TypeError(f"no BSON for a {type(value).__name__}: {name}")
    kind, payload = writer(value)
    return b"%c%b\0%b" % (kind, name.encode(*_UTF8), payload)


def _string(value: str) -> bytes:
    data = value.encode(*_UTF8)
    return b"%b%b\0" % (_INT.pack(len(data) + 1), data)


def _list(value: list[Any]) -> bytes:
    body = b"".join([_element(str(i), item) for i, item in enumerate(value)])
    return b"%b%b\0" % (_INT.pack(len(body) + 5), body)


def _integer(value: int) -> tuple[int, bytes]:
    return (0x10, _INT.pack(value)) if value in INT32 else (0x12, _LONG.pack(value))


def _encode_code(value: Code) -> tuple[int, bytes]:
    if value.scope is None:
        return 0x0D, _string(value.text)
    payload = _string(value.text) + encode(value.scope)
    return 0x0F, _INT.pack(len(payload) + 4) + payload


_WRITERS: dict[type, Any] = {
    float: lambda v: (0x01, _DOUBLE.pack(v)),
    str: lambda v: (0x02, _string(v)),
    dict: lambda v: (0x03, encode(v)),
    RawDocument: lambda v: (0x03, v.data),
    list: lambda v: (0x04, _list(v)),
    Binary: lambda v: (0x05, _INT.pack(len(v)) + bytes([v.subtype]) + bytes(v)),
    bytes: lambda v: (0x05, _INT.pack(len(v)) + b"\0" + v),
    Undefined: lambda v: (0x06, b""),
    ObjectId: lambda v: (0x07, v.binary),
    bool: lambda v: (0x08, b"\1" if v else b"\0"),
    DatetimeMS: lambda v: (0x09, _LONG.pack(int(v))),
    type(None): lambda v: (0x0A, b""),
    Regex: lambda v: (0x0B, v.pattern.encode() + b"\0" + v.options.encode() + b"\0"),
    DbPointer: lambda v: (0x0C, _string(v.ref) + v.id.binary),
    Code: _encode_code,
    Symbol: lambda v: (0x0E, _string(v.text)),
    int: _integer,
    Timestamp: lambda v: (0x11, _STAMP.pack(v.inc, v.time)),
    Int64: lambda v: (0x12, _LONG.pack(v)),
    Decimal128: lambda v: (0x13, v.bid),
    MaxKey: lambda v: (0x7F, b""),
    MinKey: lambda v: (0xFF, b""),
}


def are_identical(first: Any, other: Any) -> bool:
    """Check whether two values are the same bytes: type, width, order of fields and all."""
    return type(first) is type(other) and _WRITERS[type(first)](first) == _WRITERS[type(other)](other)


def copy(value: Any) -> Any:
    """A copy of documents and arrays down to the values, which never change."""
    if isinstance(value, dict):
        return {name: copy(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value
