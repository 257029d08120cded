"""Values as bytes that compare as the values do, in the server's format KeyString (version 1), of which resume tokens are made.

``encode`` gives the bytes and the "type bits", which say what the bytes leave out: whether a number was an ``int``, a ``long`` or a ``double``.
``decode`` reads back what a token can hold of those that matter here: the header of it.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Code, DbPointer, Regex, Symbol, Undefined

END = 4
NAN, ZERO = 30, 41
NEGATIVE_LARGE, NEGATIVE_SMALL, POSITIVE_SMALL, POSITIVE_LARGE = 31, 40, 42, 51
OBJECT, ARRAY, STRING, NUMERIC = 70, 80, 60, 30
_KINDS: dict[type, int] = {
    MinKey: 10,
    Undefined: 15,
    type(None): 20,
    int: NUMERIC,
    Int64: NUMERIC,
    float: NUMERIC,
    Decimal128: NUMERIC,
    str: STRING,
    Symbol: STRING,
    dict: OBJECT,
    list: ARRAY,
    Binary: 90,
    bytes: 90,
    ObjectId: 100,
    bool: 110,
    DatetimeMS: 120,
    Timestamp: 130,
    Regex: 140,
    DbPointer: 150,
    Code: 160,
    MaxKey: 240,
}


class Encoder:
    """Collects the bytes and the type bits of values in a row."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.bits: list[int] = []

    def value(self, value: Any) -> None:
        """Append a value with its kind."""
        kind = _kind(value)
        if isinstance(value, bool):
            self.out.append(111 if value else 110)
        elif kind == NUMERIC:
            self._numeric(value)
        else:
            self.out.append(kind)
            self._payload(value)

    def _payload(self, value: Any) -> None:
        if isinstance(value, str | Symbol):
            self.bits.append(int(isinstance(value, Symbol)))
            self._string(value if isinstance(value, str) else value.text)
        elif isinstance(value, dict):
            self._object(value)
        elif isinstance(value, list):
            for item in value:
                self.value(item)
            self.out.append(0)
        elif isinstance(value, bytes):
            self._binary(value)
        elif isinstance(value, ObjectId):
            self.out += value.binary
        elif isinstance(value, DatetimeMS):
            self.out += struct.pack(">Q", (int(value) + 2**63) % 2**64)
        elif isinstance(value, Timestamp):
            self.out += struct.pack(">II", value.time, value.inc)
        elif isinstance(value, Regex):
            self.out += (
                value.pattern.encode("utf-8", "surrogateescape")
                + b"\0"
                + value.options.encode("utf-8", "surrogateescape")
                + b"\0"
            )
        elif isinstance(value, Code):
            self._string(value.text)
            if value.scope is not None:
                self._object(value.scope)
        elif isinstance(value, DbPointer):
            self.out += (
                struct.pack(">i", len(value.ref)) + value.ref.encode("utf-8", "surrogateescape") + value.id.binary
            )

    def _string(self, text: str) -> None:
        self.out += text.encode("utf-8", "surrogateescape").replace(b"\0", b"\0\xff") + b"\0"

    def _binary(self, value: bytes) -> None:
        if len(value) < 255:
            self.out.append(len(value))
        else:
            self.out += b"\xff" + struct.pack(">i", len(value))
        self.out.append(getattr(value, "subtype", 0))
        self.out += value

    def _object(self, value: dict[str, Any]) -> None:
        for name, item in value.items():
            self.out.append(_kind(item) if not isinstance(item, bool) else 110)
            self._string(name)
            self.value(item)
        self.out.append(0)

    def _numeric(self, value: Any) -> None:
        if isinstance(value, Decimal128):
            return self._decimal(value)
        if isinstance(value, float):
            self.bits += [1, 0]
            return self._double(value)
        self.bits += [0, 1] if isinstance(value, Int64) else [0, 0]
        if value == 0:
            self.out.append(ZERO)
        elif abs(value) >= 2**63:
            self.out += bytes([NEGATIVE_LARGE]) + struct.pack(
                ">Q", (~struct.unpack(">Q", struct.pack(">d", 2.0**63))[0]) % 2**64
            )
        else:
            self._integer(abs(value) << 1, value < 0)

    def _integer(self, shifted: int, negative: bool) -> None:
        size = (shifted.bit_length() + 7) // 8
        self.out.append(ZERO - 1 - size if negative else POSITIVE_SMALL + size)
        self.out += self._flipped(shifted.to_bytes(size, "big"), negative)

    @staticmethod
    def _flipped(data: bytes, negative: bool) -> bytes:
        return bytes(255 - byte for byte in data) if negative else data

    def _double(self, value: float, continued: int = 0) -> None:
        """``continued`` are the two bits that say whether a decimal continues behind the double it is near to."""
        size, negative = abs(value), value < 0
        if value != value:
            self.out.append(NAN)
        elif value == 0:
            self.out.append(ZERO)
        elif size == float("inf"):
            self.out.append(NEGATIVE_LARGE if negative else POSITIVE_LARGE)
            self.out += self._flipped(b"\xff" * 8, negative)
        elif size >= 2.0**63:
            self.out.append(NEGATIVE_LARGE if negative else POSITIVE_LARGE)
            raw = struct.unpack(">Q", struct.pack(">d", size))[0]
            self.out += self._flipped(struct.pack(">Q", raw), negative)
        elif size < 1:
            self.out.append(NEGATIVE_SMALL if negative else POSITIVE_SMALL)
            raw = struct.unpack(">Q", struct.pack(">d", size * 2.0**256))[0]
            self.out += self._flipped(struct.pack(">Q", (raw << 2 | continued) % 2**64), negative)
        else:
            self._with_fraction(size, negative, continued)

    def _with_fraction(self, size: float, negative: bool, continued: int) -> None:
        whole = int(size)
        if whole == size and not continued:
            self._integer(whole << 1, negative)
            return
        self._integer(whole << 1 | 1, negative)
        length = (whole.bit_length() + 7) // 8
        fraction = int((size - whole) * 2.0 ** (8 * (8 - length)) * 1) if length < 8 else 0
        data = (fraction << 1 & ~3 | continued if length == 7 else fraction | continued).to_bytes(
            max(8 - length, 1), "big"
        )
        self.out += self._flipped(data, negative)

    def _decimal(self, value: Decimal128) -> None:
        number = value.to_decimal()
        self.bits += [1, 1]
        if number.is_nan():
            self.out.append(NAN)
            return
        if number.is_infinite():
            self.out.append(NEGATIVE_LARGE if number < 0 else POSITIVE_LARGE)
            self.out += self._flipped(b"\xff" * 8, number < 0)
            return
        if number == 0:
            self.out.append(ZERO)
            return
        self._exponent(number)
        near = float(number)
        if Decimal(near) == number:
            self._double(near)
        else:
            lower = near if abs(Decimal(near)) < abs(number) else _toward_zero(near)
            self._double(lower, 3)
            rest = int((abs(number) - abs(Decimal(lower))).scaleb(40))
            self.out += self._flipped(struct.pack(">Q", rest % 2**63), number < 0)

    def _exponent(self, number: Decimal) -> None:
        """The exponent of a decimal goes into the type bits: its last six bits here."""
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        self.bits += [int(bit) for bit in f"{(exponent + 6176) & 0x3F:06b}"]

    def finished(self) -> tuple[str, bytes | None]:
        """The bytes as hexadecimal text, and the type bits when they are not all zero."""
        self.out.append(END)
        return bytes(self.out).hex().upper(), self._type_bits()

    def _type_bits(self) -> bytes | None:
        if not any(self.bits):
            return None
        data = bytearray((len(self.bits) + 7) // 8)
        for i, bit in enumerate(self.bits):
            data[i // 8] |= bit << (i % 8)
        if len(data) == 1 and data[0] < 128:
            return bytes(data)
        return bytes([0x80 | len(data)]) + bytes(data)


def _toward_zero(value: float) -> float:
    import math

    return math.nextafter(value, 0.0)


def _kind(value: Any) -> int:
    if isinstance(value, Code) and value.scope is not None:
        return 170
    return _KINDS[type(value)]


def encode(values: list[Any]) -> tuple[str, bytes | None]:
    """Hexadecimal text of values in a row, and their type bits when some are not the default."""
    encoder = Encoder()
    for value in values:
        encoder.value(value)
    return encoder.finished()


__all__ = ["Encoder", "encode", "order"]
