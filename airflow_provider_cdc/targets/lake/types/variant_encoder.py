"""Extended JSON as a variant: a value in the binary form of the Parquet format ("Variant Binary Encoding"), with the types that the text names.

| in the text | in the variant |
| --- | --- |
| ``5``; ``{"$numberLong": "5"}`` | integers of 32 and of 64 bits |
| ``5.0``, ``NaN`` | double |
| ``{"$numberDecimal": "1.50"}`` | decimal, with its scale, if it has at most 38 digits and places and no other exponent |
| ``{"$date": 0}`` | timestamp, of the years 1 to 9999 |
| ``{"$binary": "…", "$type": "00"}`` | binary |
| texts, ``true``, ``null``, arrays, objects | the same |

Everything else stays the object that its text is: ``{"$oid": "…"}``. A variant has no two fields of one name: a document that has is its own text.
"""

from __future__ import annotations

import json
import re
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, Final

LAST_DATE_MS: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970."""
FIRST_DATE_MS: Final = -62_135_596_800_000
"""The beginning of the year 1."""
_MOST_KNOWN: Final = 4096
"""Lists of names that are kept with their encoded forms."""
_DECIMAL = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:E([+-]?\d+))?")
_INT4, _INT8, _DOUBLE, _TIMESTAMP = Struct("<Bi"), Struct("<Bq"), Struct("<Bd"), Struct("<Bq")
_DECIMAL4, _DECIMAL8 = Struct("<BBi"), Struct("<BBq")
_LENGTH = Struct("<BI")
_SHORTEST_LONG = 64


def _header(primitive: int) -> int:
    return primitive << 2


class NotExtendedJson(ValueError):
    """A text that is no document in Extended JSON; its message does not show the text."""


class _DuplicateField(Exception):
    """A document has two fields of one name."""


class VariantEncoder:
    """Makes variants of documents, one after the other. It keeps the names that it has encoded, so that one is best used for many documents."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._orders: dict[tuple[str, ...], list[int] | None] = {}
        self._metadata: dict[tuple[str, ...], bytes] = {}
        self._parse = json.JSONDecoder(object_pairs_hook=self._object).decode

    def encode(self, text: str) -> tuple[bytes, bytes]:
        """Encode a document as a variant.

        :return: the variant's value and its metadata
        :raises NotExtendedJson: the text is none of a document
        """
        self._ids = {}
        try:
            value = _encoded(self._parse(text))
        except _DuplicateField:
            self._ids = {}
            value = _text(text)
        except UnicodeEncodeError as e:
            raise NotExtendedJson("A text in a document contains half of a character.") from e
        except (json.JSONDecodeError, RecursionError) as e:
            at = getattr(e, "pos", None)
            raise NotExtendedJson(f"The text of a document is not valid JSON: {type(e).__name__} at {at}.") from None
        return value, self._dictionary()

    def _dictionary(self) -> bytes:
        names = tuple(self._ids)
        encoded = self._metadata.get(names)
        if encoded is None:
            if len(self._metadata) >= _MOST_KNOWN:
                self._metadata.clear()
            encoded = self._metadata[names] = _metadata(names)
        return encoded

    def _object(self, pairs: list[tuple[str, Any]]) -> bytes:
        """Encode an object; the parser calls it with each one, from the innermost on."""
        if len(pairs) <= 2 and pairs and pairs[0][0][:1] == "$" and (special := _special(pairs)) is not None:
            return special
        names = tuple([name for name, _ in pairs])
        if names not in self._orders:
            if len(self._orders) >= _MOST_KNOWN:
                self._orders.clear()
            self._orders[names] = _order(names)
        order = self._orders[names]
        if order is None:
            raise _DuplicateField
        ids = self._ids
        for name in names:
            if name not in ids:
                ids[name] = len(ids)
        values = [_encoded(pairs[i][1]) for i in order]
        sizes, data = list(accumulate(map(len, values), initial=0)), b"".join(values)
        numbers = [ids[names[i]] for i in order]
        id_size, offset_size = _width(max(numbers, default=0)), _width(sizes[-1])
        large = len(names) > 255
        head = (((large << 4) | (id_size - 1) << 2 | (offset_size - 1)) << 2) | 2
        count = len(names).to_bytes(4 if large else 1, "little")
        return b"".join((bytes((head,)), count, _packed(numbers, id_size), _packed(sizes, offset_size), data))


def _order(names: Sequence[str]) -> list[int] | None:
    """Return the places of names in their order; ``None`` if one of them is there twice.

    Spark looks for a name by halves in Java's order of texts, and does not find it in that of the specification, by bytes of UTF-8. The two differ where a name with
    characters beyond U+FFFF meets one with some from U+E000 on.
    """
    if len(set(names)) < len(names):
        return None
    return sorted(range(len(names)), key=lambda i: names[i].encode("utf-16-be"))


def _array(items: list[Any]) -> bytes:
    values = [_encoded(item) for item in items]
    sizes = list(accumulate(map(len, values), initial=0))
    offset_size, large = _width(sizes[-1]), len(values) > 255
    head = (((large << 2) | (offset_size - 1)) << 2) | 3
    count = len(values).to_bytes(4 if large else 1, "little")
    return b"".join((bytes((head,)), count, _packed(sizes, offset_size), *values))


def _encoded(value: Any) -> bytes:
    return _PUT[type(value)](value)


def _text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) < _SHORTEST_LONG:
        return bytes((len(raw) << 2 | 1,)) + raw
    return _LENGTH.pack(_header(16), len(raw)) + raw


def _whole(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return _INT4.pack(_header(5), value)
    if -(2**63) <= value < 2**63:
        return _INT8.pack(_header(6), value)
    raise NotExtendedJson("An integer in a document has more than 64 bits.")


def _double(value: float) -> bytes:
    return _DOUBLE.pack(_header(7), value)


def _itself(value: bytes) -> bytes:
    return value


_PUT: dict[type, Callable[[Any], bytes]] = {
    str: _text, int: _whole, float: _double, bytes: _itself, list: _array,
    bool: lambda value: b"\x04" if value else b"\x08", type(None): lambda _: b"\x00",
}  # fmt: skip


def _special(pairs: list[tuple[str, Any]]) -> bytes | None:
    """Encode a value with a type, if an object is one."""
    (name, value), *more = pairs
    if more:
        return _binary(value) if name == "$binary" and more == [("$type", "00")] else None
    if name == "$numberLong" and type(value) is str:
        return _long(value)
    if name == "$date" and type(value) is int and FIRST_DATE_MS <= value <= LAST_DATE_MS:
        return _TIMESTAMP.pack(_header(12), value * 1000)
    if name == "$numberDecimal" and type(value) is str:
        return _decimal(value)
    return None


def _long(text: str) -> bytes | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return _INT8.pack(_header(6), value) if str(value) == text and -(2**63) <= value < 2**63 else None


def _decimal(text: str) -> bytes | None:
    """Encode a decimal whose digits and exponent a variant has room for.

    It has no exponents above 0, and no zero with a minus.
    """
    if (match := _DECIMAL.fullmatch(text)) is None:
        return None
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    digits, scale = int(whole + fraction), len(fraction) - exponent
    precision = len(str(digits))
    if scale < 0 or max(precision, scale) > 38 or (sign and not digits):
        return None
    value = -digits if sign else digits
    # a reader refuses a scale that is larger than the digits that the width has
    most = max(precision, scale)
    if most <= 9:
        return _DECIMAL4.pack(_header(8), scale, value)
    if most <= 18:
        return _DECIMAL8.pack(_header(9), scale, value)
    return bytes((_header(10), scale)) + value.to_bytes(16, "little", signed=True)


def _binary(text: Any) -> bytes | None:
    if type(text) is not str:
        return None
    try:
        data = a2b_base64(text, strict_mode=True)
    except (NotBase64, ValueError):
        return None
    if b2a_base64(data, newline=False).decode() != text:
        return None
    return _LENGTH.pack(_header(15), len(data)) + data


def _metadata(names: Sequence[str]) -> bytes:
    """Build the dictionary of a variant's names."""
    raw = [name.encode() for name in names]
    offsets = list(accumulate(map(len, raw), initial=0))
    size = _width(max(offsets[-1], len(raw)))
    head = bytes((1 | (size - 1) << 6,))
    return b"".join((head, len(raw).to_bytes(size, "little"), _packed(offsets, size), *raw))


def _width(largest: int) -> int:
    """Bytes of the numbers up to one.

    >>> _width(255), _width(256)
    (1, 2)
    """
    return max((largest.bit_length() + 7) // 8, 1)


def _packed(numbers: Sequence[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])
