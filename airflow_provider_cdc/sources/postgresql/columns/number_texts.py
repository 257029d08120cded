"""Numbers: the texts that the server prints."""

from __future__ import annotations

import math
import struct
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Any, Final

import numpy as np

_NAN, _INFINITY, _MINUS_INFINITY, _NEGATIVE = 0xC000, 0xD000, 0xF000, 0x4000
_SPECIAL: Final = {_NAN: "NaN", _INFINITY: "Infinity", _MINUS_INFINITY: "-Infinity"}
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 6
_EXACT: Final = Context(prec=2_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Digits for any number between two of 64 bits."""


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
    """Return the text of a ``float8``: the shortest that is nearer to it than to any other.

    >>> double_text(1e15), double_text(0.0001), double_text(1e-5), double_text(-0.0)
    ('1e+15', '0.0001', '1e-05', '-0')
    """
    return _shortest(np.float64(value), _DOUBLE_DIGITS, 17)


def float_text(value: float) -> str:
    """Return the text of a ``float4``.

    >>> float_text(1234567.0), float_text(0.1)
    ('1.234567e+06', '0.1')
    """
    return _shortest(np.float32(value), _FLOAT_DIGITS, 9)


def _shortest(value: np.floating[Any], most_whole: int, most: int) -> str:
    """Return the shortest text.

    :param most_whole: numbers with more digits before the point have an exponent
    :param most: digits that are enough for any number
    """
    number = float(value)
    if not math.isfinite(number):
        return "NaN" if number != number else ("Infinity" if number > 0 else "-Infinity")
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return f"{sign}0"
    shortest = _find_digits(abs(value), most)
    parts = shortest.as_tuple()
    text = "".join(map(str, parts.digits))
    exponent = int(parts.exponent) + len(text) - 1
    if -5 < exponent < most_whole:
        return f"{sign}{shortest:f}"
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _find_digits(value: np.floating[Any], most: int) -> Decimal:
    """Return the decimal with the fewest digits that is nearer to a number than to its neighbours, and not halfway as Python accepts."""
    first = Decimal(np.format_float_scientific(value, unique=True)).normalize()
    exact = Decimal(float(value))
    with np.errstate(all="ignore"):
        below, above = (float(np.nextafter(value, value.dtype.type(end))) for end in (0, np.inf))
    with localcontext(_EXACT):
        lower = (exact + Decimal(below)) / 2
        upper = (exact + Decimal(above)) / 2 if math.isfinite(above) else exact + (exact - lower)
        for digits in range(len(first.as_tuple().digits), most + 1):
            last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
            nearest, down, up = (exact.quantize(last, how) for how in (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING))
            for text in (nearest, down if nearest == up else up):
                if lower < text < upper:
                    return text.normalize()
    return exact.normalize(_EXACT)
