"""Resume tokens of change streams: a place in the stream as hexadecimal text, in KeyString's format, that orders as the places do.

A token holds: cluster time, version, kind (0: a high-water mark, 128: an event), place in the transaction, whether it was made for an ``invalidate``,
the collection's UUID, what the event is about, and the number of a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson import Timestamp
from bson.binary import Binary

from dev.servers.mongodb.storage.versioned_collections import Time
from dev.servers.mongodb.values import keystring
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

VERSION = 2
MARK, EVENT = 0, 128


@dataclass(frozen=True)
class Token:
    """A parsed token; ``data`` is its text."""

    data: str
    time: Time
    kind: int
    index: int
    invalidate: bool
    fragment: int | None


def mark(time: Time) -> Document:
    """The high-water mark of a time: no event is behind it."""
    return encode_token(time, MARK, 0, False, None, None)


def encode_token(
    time: Time, kind: int, index: int, invalidate: bool, uuid: Binary | None, about: Any, fragment: int | None = None
) -> Document:
    """A token."""
    values = [Timestamp(*time), VERSION, kind, index, invalidate, uuid]
    if kind == EVENT:
        values.append(about)
    if fragment is not None:
        values.append(fragment)
    data, bits = keystring.encode(values)
    return {"_data": data, "_typeBits": Binary(bits, 0)} if bits else {"_data": data}


def parse_token(token: Any, name: str = "resumeAfter") -> Token:
    """The parts of a token that a client gave. Raises :class:`MongoError` as the server does for one that is wrong."""
    if not isinstance(token, dict):
        from dev.servers.mongodb.values.errors import type_name

        raise MongoError(
            14, f"BSON field '$changeStream.{name}' is the wrong type '{type_name(token)}', expected type 'object'"
        )
    data = token.get("_data")
    if not isinstance(data, str):
        raise MongoError(40647, f"Bad resume token: _data of missing or of wrong type. Expected string, got {token}")
    try:
        raw = bytes.fromhex(data)
    except ValueError:
        raise MongoError(9, "resume token string was not a valid hex string") from None
    reader = _Reader(raw)
    stamp = reader.timestamp()
    version = reader.integer()
    kind = reader.integer()
    index = reader.integer()
    invalidate = reader.boolean()
    reader.skip()
    if kind == EVENT:
        reader.skip()
    fragment = reader.integer() if reader.peek() not in (keystring.END, None) else None
    reader.end()
    if version != VERSION:
        raise MongoError(50788, "Invalid resume token: expected version 2")
    return Token(data, stamp, kind, index, invalidate, fragment)


class _Reader:
    """Reads the values of a token; its errors are those of the server's KeyString."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def peek(self) -> int | None:
        return self._data[self._at] if self._at < len(self._data) else None

    def _take(self, count: int = 1) -> bytes:
        if self._at + count > len(self._data):
            raise MongoError(
                15,
                f"Invalid advance ({count}) past end of buffer[{max(len(self._data) - self._at, 0)}] at offset: {self._at}",
            )
        out = self._data[self._at : self._at + count]
        self._at += count
        return out

    def timestamp(self) -> Time:
        kind = self._take()[0]
        if kind != 130:
            raise MongoError(50811, f"KeyString format error: Unknown type: {kind}")
        raw = self._take(8)
        return int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big")

    def integer(self) -> int:
        kind = self._take()[0]
        if kind == keystring.ZERO:
            return 0
        size = kind - keystring.POSITIVE_SMALL
        if not 1 <= size <= 8:
            raise MongoError(50811, f"KeyString format error: Unknown type: {kind}")
        return int.from_bytes(self._take(size), "big") >> 1

    def boolean(self) -> bool:
        kind = self._take()[0]
        if kind not in (110, 111):
            raise MongoError(50811, f"KeyString format error: Unknown type: {kind}")
        return kind == 111

    def skip(self) -> None:
        self._skip(self._take()[0])

    def _string(self) -> None:
        while True:
            if self._take() == b"\0":
                if self.peek() != 0xFF:
                    return
                self._take()

    def _skip(self, kind: int) -> None:
        sizes = {
            20: 0,
            15: 0,
            10: 0,
            240: 0,
            110: 0,
            111: 0,
            41: 0,
            30: 0,
            100: 12,
            120: 8,
            130: 8,
            31: 8,
            51: 8,
            40: 8,
            42: 8,
        }
        if kind in sizes:
            self._take(sizes[kind])
        elif 32 <= kind <= 39 or 43 <= kind <= 50:
            self._number(kind)
        elif kind in (60, 160):
            self._string()
        elif kind == 140:
            self._string()
            self._string()
        elif kind == 90:
            size = self._take()[0]
            if size == 255:
                size = int.from_bytes(self._take(4), "big")
            self._take(size + 1)
        elif kind == 70:
            while self._take()[0]:
                self._string()
                self.skip()
        elif kind == 80:
            while inner := self._take()[0]:
                self._skip(inner)
        else:
            raise MongoError(50811, f"KeyString format error: Unknown type: {kind}")

    def _number(self, kind: int) -> None:
        negative = kind < keystring.ZERO
        size = keystring.NEGATIVE_SMALL - kind if negative else kind - keystring.POSITIVE_SMALL
        raw = self._take(size)
        if (raw[-1] ^ (255 if negative else 0)) & 1:
            self._take(max(8 - size, 1))

    def end(self) -> None:
        """Read the byte that must end the token."""
        self._take()
