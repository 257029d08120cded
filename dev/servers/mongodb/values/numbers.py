"""Arithmetic on BSON numbers with the type that the server gives the result: the wider of the two, a longer integer where one overflows."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from bson import Decimal128, Int64

from dev.servers.mongodb.values.documents import INT32
from dev.servers.mongodb.values.errors import MongoError

_CONTEXT = decimal.Context(
    prec=34, rounding=decimal.ROUND_HALF_EVEN, Emin=-6143, Emax=6144, capitals=1, clamp=1, traps=[]
)
INT64 = range(-(2**63), 2**63)


def compute_number(
    first: Any, other: Any, work: Callable[[Any, Any], Any], *, operator: str = "$inc", overflow_to_double: bool = False
) -> Any:
    """``work`` on two BSON numbers, in the type of the result. Raises :class:`MongoError` where 64 bits overflow."""
    if isinstance(first, Decimal128) or isinstance(other, Decimal128):
        with decimal.localcontext(_CONTEXT):
            return Decimal128(_CONTEXT.plus(work(as_decimal(first), as_decimal(other))))
    if isinstance(first, float) or isinstance(other, float):
        try:
            return float(work(float(first), float(other)))
        except OverflowError:
            return math.inf
    result = work(int(first), int(other))
    if result not in INT64:
        if overflow_to_double:
            return float(result)
        raise MongoError(2, f"Failed to apply {operator} operations to current value ({first})")
    if isinstance(first, Int64) or isinstance(other, Int64) or result not in INT32:
        return Int64(result)
    return result


def as_decimal(value: Any) -> Decimal:
    """A number as decimal; a double by its 15 significant digits, as the server converts it."""
    if isinstance(value, Decimal128):
        return value.to_decimal()
    if isinstance(value, float):
        if not math.isfinite(value):
            return Decimal(value)
        return _fifteen_digits(value)
    return Decimal(int(value))


def _fifteen_digits(value: float) -> Decimal:
    rounded = Decimal(f"{value:.14e}")
    if float(rounded) == value and Decimal(value) == rounded and rounded == rounded.to_integral_value():
        return Decimal(f"{value:.14e}")
    return rounded


def add(first: Any, other: Any) -> Any:
    """Add a number to another."""
    return first + other


def multiply(first: Any, other: Any) -> Any:
    """Multiply a number by another."""
    return first * other
