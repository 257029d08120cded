"""A variant as text: extended JSON that names the type of every value, with fields in the order of their names. Equal texts are equal values.

The result of :mod:`airflow_provider_cdc.targets.lake.types.variant_encoder` for a document reads as the document's own text, but for the order.
Types that it does not use have separate names:
``{"$int8": 5}``.
"""

from __future__ import annotations

import json
import math
from binascii import b2a_base64
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final

_INT4, _INT8, _DOUBLE, _FLOAT = Struct("<i"), Struct("<q"), Struct("<d"), Struct("<f")
_LENGTH = Struct("<I")
_CONSTANTS: Final = {0: "null", 1: "true", 2: "false"}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
_WHOLE: Final = {3: ("$int8", 1), 4: ("$int16", 2), 11: ("$day", 4), 13: ("$micros", 8), 18: ("$nanos", 8)}
"""Type → the name of its text, and its bytes."""


class DamagedVariant(ValueError):
    """Bytes that are no variant."""


def decode_variant(value: bytes, metadata: bytes) -> str:
    """Decode a variant to text.

    :raises DamagedVariant: these bytes are none
    """
    try:
        return _VariantReader(value, _names(metadata)).read_text(0)
    except (IndexError, UnicodeDecodeError, OverflowError, ValueError) as e:
        raise DamagedVariant(f"A value is not a valid variant: {type(e).__name__}.") from None
    except Exception as e:  # struct.error has no common class
        if type(e).__name__ != "error":
            raise
        raise DamagedVariant("A value is not a valid variant: it ends too early.") from None


def _names(metadata: bytes) -> list[str]:
    if metadata[0] & 0x0F != 1:
        raise DamagedVariant("A variant has an unknown version.")
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    first = 1 + size
    offsets = _numbers(metadata, first, count + 1, size)
    begin = first + (count + 1) * size
    return [metadata[begin + a : begin + b].decode() for a, b in pairwise(offsets)]


def _numbers(data: bytes, at: int, count: int, size: int) -> list[int]:
    if at + count * size > len(data):
        raise DamagedVariant("A value is not a valid variant: it ends too early.")
    return [int.from_bytes(data[p : p + size], "little") for p in range(at, at + count * size, size)]


def quote_json_text(name: str) -> str:
    """Format a text in quotes."""
    return json.dumps(name, ensure_ascii=False)


class _VariantReader:
    def __init__(self, value: bytes, names: list[str]) -> None:
        self._value, self._names = value, names

    def read_text(self, at: int) -> str:
        head = self._value[at]
        basic, info = head & 3, head >> 2
        if basic == 0:
            return self._primitive(info, at + 1)
        if basic == 1:
            return quote_json_text(self._value[at + 1 : at + 1 + info].decode())
        if basic == 2:
            fields = sorted(self._fields(info, at + 1))
            return "{" + ",".join(f"{quote_json_text(name)}: {self.read_text(p)}" for name, p in fields) + "}"
        return "[" + ",".join(self.read_text(p) for p in self._items(info, at + 1)) + "]"

    def _fields(self, info: int, at: int) -> Iterator[tuple[str, int]]:
        width, id_size, size = (4 if info >> 4 & 1 else 1), (info >> 2 & 3) + 1, (info & 3) + 1
        count = int.from_bytes(self._value[at : at + width], "little")
        ids = _numbers(self._value, at + width, count, id_size)
        first = at + width + count * id_size
        data = first + (count + 1) * size
        offsets = _numbers(self._value, first, count, size)
        for number, offset in zip(ids, offsets, strict=True):
            yield self._names[number], data + offset

    def _items(self, info: int, at: int) -> Iterator[int]:
        width, size = (4 if info >> 2 & 1 else 1), (info & 3) + 1
        count = int.from_bytes(self._value[at : at + width], "little")
        data = at + width + (count + 1) * size
        for offset in _numbers(self._value, at + width, count, size):
            yield data + offset

    def _primitive(self, kind: int, at: int) -> str:
        value = self._value
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == 5:
            return str(_INT4.unpack_from(value, at)[0])
        if kind == 6:
            return f'{{"$numberLong": "{_INT8.unpack_from(value, at)[0]}"}}'
        if kind in (7, 14):
            number = (_DOUBLE if kind == 7 else _FLOAT).unpack_from(value, at)[0]
            return _floating(number) if kind == 7 else f'{{"$float": {_floating(number)}}}'
        if kind in _DECIMALS:
            unscaled = int.from_bytes(value[at + 1 : at + 1 + _DECIMALS[kind]], "little", signed=True)
            return f'{{"$numberDecimal": "{unscaled}E-{value[at]}"}}'
        if kind == 12:
            micros = _INT8.unpack_from(value, at)[0]
            return f'{{"$date": {micros // 1000}}}' if micros % 1000 == 0 else f'{{"$date": {micros}, "$unit": "us"}}'
        if kind in (15, 16):
            length = _LENGTH.unpack_from(value, at)[0]
            data = value[at + 4 : at + 4 + length]
            if len(data) < length:
                raise DamagedVariant("A value is not a valid variant: it ends too early.")
            return quote_json_text(data.decode()) if kind == 16 else _binary(data)
        return self._other(kind, at)

    def _other(self, kind: int, at: int) -> str:
        """Decode a value of a type that no document has."""
        if kind in _WHOLE:
            name, size = _WHOLE[kind]
            return f'{{"{name}": {int.from_bytes(self._value[at : at + size], "little", signed=True)}}}'
        if kind == 20:
            return f'{{"$uuid": "{self._value[at : at + 16].hex()}"}}'
        raise DamagedVariant(f"A variant has an unknown type: {kind}.")


def _floating(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return repr(number)


def _binary(data: bytes) -> str:
    return f'{{"$binary": "{b2a_base64(data, newline=False).decode()}","$type": "00"}}'
