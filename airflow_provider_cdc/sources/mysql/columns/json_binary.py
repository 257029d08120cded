"""Converts MySQL's binary JSON to the text that the server prints for it.

Format: "JSON binary value" in MySQL's source documentation (``json_binary.h``): a type byte, then scalars in place, or objects
and arrays as a table of offsets, small (16 bits) or large (32 bits).
"""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal

from airflow_provider_cdc.sources.mysql.columns.binlog_value_texts import long_decimal_text

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", 11: "<d"}
_STRING, _OPAQUE = 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_PLAIN_DIGITS = 15
_LINE = 76
"""Characters of base64 after which the server begins a new line."""
_T_DECIMAL, _T_DATE, _T_TIME, _T_DATETIME, _T_TIMESTAMP = 246, 10, 11, 12, 7


def json_text(data: bytes) -> str:
    """Convert the document to text.

    An empty value, which a server without strict mode may store, is ``null``.

    :raises ValueError: a type is not known

    >>> json_text(bytes([5, 42, 0]))
    '42'
    """
    return _value(data[0], data, 1) if data else "null"


def _value(kind: int, data: bytes, at: int) -> str:
    """Convert the value of type ``kind`` that begins at ``at``."""
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        return _container(kind, data, at)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[kind], data, at)
        return _double(number) if kind == 11 else str(number)
    if kind == _STRING:
        length, at = _length(data, at)
        return _quoted(data[at : at + length].decode("utf-8"))
    if kind == _OPAQUE:
        length, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + length])
    raise ValueError(f"JSON type {kind} is unknown")


def _container(kind: int, data: bytes, at: int) -> str:
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    size = 4 if large else 2

    def number(p: int) -> int:
        return int.from_bytes(data[p : p + size], "little")

    count = number(at)
    keys_at = at + 2 * size
    values_at = keys_at + (count * (size + 2) if is_object else 0)
    parts = []
    for i in range(count):
        entry = values_at + i * (1 + size)
        kind_of_value = data[entry]
        inline = kind_of_value in (_LITERAL, 5, 6) or (large and kind_of_value in (7, 8))
        text = _value(kind_of_value, data, entry + 1 if inline else at + number(entry + 1))
        if is_object:
            key_entry = keys_at + i * (size + 2)
            key_at = at + number(key_entry)
            key_length = int.from_bytes(data[key_entry + size : key_entry + size + 2], "little")
            text = f"{_quoted(data[key_at : key_at + key_length].decode('utf-8'))}: {text}"
        parts.append(text)
    return ("{%s}" if is_object else "[%s]") % ", ".join(parts)


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a number stored in 7-bit groups, lowest first, and the offset after it."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return length, at
        shift += 7


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _double(value: float) -> str:
    """Format a number as the shortest text that gives the same number again.

    The form is that of MySQL's ``my_gcvt``: ``1.0``, ``0.00001``, ``1e15``, ``1.5e-17``.

    With an exponent from 1e15 on and below 1e-15, except for numbers of 16 digits that have a 17th behind the point.
    """
    sign, figures, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, figures)).lstrip("0")
    point, digits = len(digits) + exponent, digits.rstrip("0")
    if not digits:
        text = "0.0"
    elif -_PLAIN_DIGITS < point <= _PLAIN_DIGITS or (point == 16 and len(digits) == 17):
        whole = digits[:point].ljust(point, "0") if point > 0 else "0"
        text = f"{whole}.{'0' * -point}{digits[max(point, 0) :] or '0'}"
    else:
        text = f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"
    return f"-{text}" if sign else text


def _opaque(kind: int, data: bytes) -> str:
    """Convert a value of an SQL type inside a document."""
    if kind == _T_DECIMAL:
        return long_decimal_text(data[2:], data[0], data[1])
    if kind in (_T_DATE, _T_TIME, _T_DATETIME, _T_TIMESTAMP):
        return f'"{_temporal(kind, int.from_bytes(data, "little", signed=True))}"'
    text = base64.b64encode(data).decode()
    lines = "\\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return f'"base64:type{kind}:{lines}"'


def _temporal(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    micros, value = packed & 0xFFFFFF, packed >> 24
    clock = f"{value >> 6 & 63:02d}:{value & 63:02d}.{micros:06d}"
    if kind == _T_TIME:
        return f"{sign}{value >> 12 & 1023:02d}:{clock}"
    days = value >> 17
    date = f"{(days >> 5) // 13:04d}-{(days >> 5) % 13:02d}-{days & 31:02d}"
    return date if kind == _T_DATE else f"{date} {value >> 12 & 31:02d}:{clock}"
