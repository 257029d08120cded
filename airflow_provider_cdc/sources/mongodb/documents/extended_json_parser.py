"""Documents in Debezium's form of extended JSON (:attr:`.extended_json.JsonForm.STRICT`) as the BSON that they were.

The parsed document has the same text again. The bytes are those that the text was made of, except for values that look alike in it:

- a NaN of other bits than the usual one, and a decimal that is not in the usual form of its encoding;
- a pointer (``DBPointer``, which no driver writes any more) is read as the document ``{$ref, $id}``;
- a document that looks like a value of a type, such as one with the only field ``$date``, a whole number, is read as that value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.sources.mongodb.documents.bson_tree import text_value
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k

_OID: Final = re.compile(r"[0-9a-f]{24}")
_WHOLE: Final = re.compile(r"-?[0-9]+")
_SUBTYPE: Final = re.compile(r"[0-9A-F]{2}")
_DECIMAL: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:E([+-]?[0-9]+))?")
_NOT_FINITE: Final = {"NaN": 0x7C << 120, "Infinity": 0x78 << 120, "-Infinity": 0xF8 << 120}
_LOWEST_EXPONENT: Final = -6176


@dataclass(slots=True)
class _Object:
    """The content of braces: a document, or the value of a type.

    :ivar value: type and bytes, if it is one
    """

    pairs: list[tuple[str, Any]]
    value: tuple[int, bytes] | None = None


def parse_document(text: str) -> bytes:
    """Parse a document into its bytes.

    :raises ValueError: the text is no document
    """
    document = _DECODER.decode(text)
    if not isinstance(document, _Object):
        raise ValueError("it is not a document")
    return _document(document.pairs)


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    if pairs and pairs[0][0][:1] == "$":
        reader = _TYPES.get(tuple(name for name, _ in pairs))
        return _Object(pairs, None if reader is None else reader(*[value for _, value in pairs]))
    return _Object(pairs)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)


def _document(pairs: list[tuple[str, Any]]) -> bytes:
    return _wrapped([(name.encode(), value) for name, value in pairs])


def _wrapped(elements: list[tuple[bytes, Any]]) -> bytes:
    parts = []
    for name, value in elements:
        kind, raw = _value(value)
        parts.append(b"%c%b\0%b" % (kind, name, raw))
    body = b"".join(parts)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _value(value: Any) -> tuple[int, bytes]:
    """Type and bytes."""
    if isinstance(value, str):
        return k.STRING, text_value(value.encode())
    if isinstance(value, bool):
        return k.BOOL, b"\1" if value else b"\0"
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise ValueError("an integer of more than 32 bits does not declare its type")
        return k.INT32, struct.pack("<i", value)
    if isinstance(value, float):
        return k.DOUBLE, struct.pack("<d", value)
    if value is None:
        return k.NULL, b""
    if isinstance(value, list):
        return k.ARRAY, _wrapped([(b"%d" % i, item) for i, item in enumerate(value)])
    return value.value or (k.DOCUMENT, _document(value.pairs))


# -- values of a type; a value that is none after all is a document ---------------------------------------------------

_Read = tuple[int, bytes] | None


def _long(value: Any) -> _Read:
    if not (isinstance(value, str) and _WHOLE.fullmatch(value) and -(2**63) <= int(value) < 2**63):
        return None
    return k.INT64, struct.pack("<q", int(value))


def _date(value: Any) -> _Read:
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return (k.DATE, struct.pack("<q", value)) if whole else None


def _object_id(value: Any) -> _Read:
    return (k.OBJECT_ID, bytes.fromhex(value)) if isinstance(value, str) and _OID.fullmatch(value) else None


def _decimal(value: Any) -> _Read:
    if not isinstance(value, str):
        return None
    if value in _NOT_FINITE:
        return k.DECIMAL128, _NOT_FINITE[value].to_bytes(16, "little")
    if (match := _DECIMAL.fullmatch(value)) is None:
        return None
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    significand, biased = int(whole + fraction), exponent - len(fraction) - _LOWEST_EXPONENT
    if significand >= 10**34 or not 0 <= biased < 3 << 12:
        return None
    return k.DECIMAL128, (bool(sign) << 127 | biased << 113 | significand).to_bytes(16, "little")


def _binary(content: Any, subtype: Any) -> _Read:
    if not (isinstance(content, str) and isinstance(subtype, str) and _SUBTYPE.fullmatch(subtype)):
        return None
    try:
        raw = base64.b64decode(content, validate=True)
    except binascii.Error:
        return None
    if subtype == "02":  # the old form has its length once more
        raw = struct.pack("<i", len(raw)) + raw
    return k.BINARY, struct.pack("<i", len(raw)) + bytes.fromhex(subtype) + raw


def _timestamp(value: Any) -> _Read:
    if not isinstance(value, _Object) or [name for name, _ in value.pairs] != ["t", "i"]:
        return None
    numbers = [number for _, number in value.pairs]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**32 for n in numbers):
        return None
    return k.TIMESTAMP, struct.pack("<II", numbers[1], numbers[0])


def _regex(pattern: Any, options: Any) -> _Read:
    if not (isinstance(pattern, str) and isinstance(options, str)) or "\0" in pattern + options:
        return None
    return k.REGEX, pattern.encode() + b"\0" + options.encode() + b"\0"


def _code(code: Any) -> _Read:
    return (k.CODE, text_value(code.encode())) if isinstance(code, str) else None


def _scoped_code(code: Any, scope: Any) -> _Read:
    if not (isinstance(code, str) and isinstance(scope, _Object)):
        return None
    body = text_value(code.encode()) + _document(scope.pairs)
    return k.CODE_WITH_SCOPE, struct.pack("<i", len(body) + 4) + body


def _symbol(value: Any) -> _Read:
    return (k.SYMBOL, text_value(value.encode())) if isinstance(value, str) else None


def _mark(kind: int, expected: Any) -> Callable[[Any], _Read]:
    return lambda value: (kind, b"") if type(value) is type(expected) and value == expected else None


_TYPES: Final[dict[tuple[str, ...], Callable[..., _Read]]] = {
    ("$numberLong",): _long,
    ("$date",): _date,
    ("$oid",): _object_id,
    ("$numberDecimal",): _decimal,
    ("$binary", "$type"): _binary,
    ("$timestamp",): _timestamp,
    ("$regex", "$options"): _regex,
    ("$code",): _code,
    ("$code", "$scope"): _scoped_code,
    ("$symbol",): _symbol,
    ("$undefined",): _mark(k.UNDEFINED, True),
    ("$minKey",): _mark(k.MIN_KEY, 1),
    ("$maxKey",): _mark(k.MAX_KEY, 1),
}
"""Names of the fields of a value → function that reads it."""
