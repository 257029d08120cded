"""Numbers: the texts that the server prints."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Final

import numpy as np

_NAN, _INFINITY, _MINUS_INFINITY, _NEGATIVE = 0xC000, 0xD000, 0xF000, 0x4000
_SPECIAL: Final = {_NAN: "NaN", _INFINITY: "Infinity", _MINUS_INFINITY: "-Infinity"}
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 6


def numeric_text(data: bytes) -> str:
    """Return the text of a ``numeric``, with as many decimals as the server shows.

    :raises ValueError: it is not in the binary form
    """
    if len(data) < 8:
        raise ValueError("a numeric of less than eight bytes")
    count, weight, sign, scale = struct.unpack_from("!HhHH", data)
    if len(data) != 8 + 2 * count:
        raise ValueError(f"a numeric of {len(data)} bytes with {count} digits")
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    groups = "".join(f"{digit:04d}" for digit in struct.unpack_from(f"!{count}H", data, 8))
    point = 4 * (weight + 1)
    whole = groups[: max(point, 0)].ljust(point, "0") if point > 0 else ""
    decimals = (groups[point:] if point > 0 else "0" * -point + groups).ljust(scale, "0")[:scale]
    text = (whole.lstrip("0") or "0") + (f".{decimals}" if scale else "")
    return f"-{text}" if sign == _NEGATIVE and text.strip("0.") else text


def double_text(value: float) -> str:
    """Return the text of a ``float8``, which is the shortest that stands for it.

    >>> double_text(1e15), double_text(0.0001), double_text(1e-5), double_text(-0.0)
    ('1e+15', '0.0001', '1e-05', '-0')
    """
    return _shortest(repr(value), value, _DOUBLE_DIGITS)


def float_text(value: float) -> str:
    """Return the text of a ``float4``.

    >>> float_text(1234567.0), float_text(0.1)
    ('1.234567e+06', '0.1')
    """
    return _shortest(np.format_float_scientific(np.float32(value), unique=True), value, _FLOAT_DIGITS)


def _shortest(digits: str, value: float, most: int) -> str:
    if not math.isfinite(value):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return f"{sign}0"
    parts = Decimal(digits).normalize().as_tuple()
    text = "".join(map(str, parts.digits))
    exponent = int(parts.exponent) + len(text) - 1
    if -5 < exponent < most:
        return f"{sign}{Decimal(digits).copy_abs().normalize():f}"
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
