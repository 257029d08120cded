"""The conversions of ``$convert`` and its short forms (MongoDB manual, "$convert"); error 241 if there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.expressions import dates
from dev.servers.mongodb.expressions.operators import is_null, is_true
from dev.servers.mongodb.values import numbers, order
from dev.servers.mongodb.values.documents import INT32
from dev.servers.mongodb.values.errors import TYPE_NUMBERS, MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

FAILED = 241
_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)


def _conversion_error(value: Any, to: str) -> MongoError:
    return MongoError(
        FAILED, f"Unsupported conversion from {type_name(value)} to {to} in $convert with no onError value"
    )


def _parse_error(value: str, to: str) -> MongoError:
    return MongoError(
        FAILED, f"Failed to parse {to} '{value}' in $convert with no onError value: Did not consume whole string."
    )


def _convert_to_integer(value: Any, to: str, room: range) -> int:
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise _parse_error(value, "number")
        result = int(value)
    elif isinstance(value, bool):
        return int(value)
    elif order.is_number(value):
        number = order.number(value)
        if order.is_nan(value) or (isinstance(number, float) and math.isinf(number)):
            raise MongoError(
                FAILED, f"Attempt to convert {number} value to integer type in $convert with no onError value"
            )
        if isinstance(number, Decimal) and not number.is_finite():
            raise MongoError(
                FAILED, "Attempt to convert infinity value to integer type in $convert with no onError value"
            )
        result = int(number)
    else:
        raise _conversion_error(value, to)
    if result not in room:
        raise MongoError(FAILED, f"Conversion would overflow target type in $convert with no onError value: {value}")
    return result


def to_int(value: Any) -> Any:
    """A 32-bit number."""
    return _convert_to_integer(value, "int", INT32)


def to_long(value: Any) -> Any:
    """A 64-bit number; a date by its milliseconds."""
    return (
        Int64(int(value)) if isinstance(value, DatetimeMS) else Int64(_convert_to_integer(value, "long", numbers.INT64))
    )


def to_double(value: Any) -> Any:
    """A double; a date by its milliseconds."""
    if isinstance(value, DatetimeMS | bool):
        return float(int(value))
    if isinstance(value, str):
        if not _REAL.fullmatch(value):
            raise _parse_error(value, "number")
        return float(value)
    if not order.is_number(value):
        raise _conversion_error(value, "double")
    result = float(order.number(value))
    if isinstance(value, Decimal128) and math.isinf(result) and value.to_decimal().is_finite():
        raise MongoError(FAILED, f"Conversion would overflow target type in $convert with no onError value: {value}")
    return result


def to_decimal(value: Any) -> Any:
    """A decimal; a date by its milliseconds."""
    if isinstance(value, DatetimeMS | bool):
        return Decimal128(Decimal(int(value)))
    if isinstance(value, str):
        try:
            return Decimal128(value)
        except (ValueError, InvalidOperation, ArithmeticError):
            raise _parse_error(value, "number") from None
    if not order.is_number(value):
        raise _conversion_error(value, "decimal")
    return value if isinstance(value, Decimal128) else Decimal128(numbers.as_decimal(value))


def to_bool(value: Any) -> Any:
    """Check whether a number is not zero; everything else is true."""
    return is_true(value)


def to_date(value: Any) -> Any:
    """A date: of a number by its milliseconds, but not of 32 bits."""
    if isinstance(value, DatetimeMS):
        return value
    if isinstance(value, ObjectId):
        return DatetimeMS(int(value.generation_time.timestamp() * 1000))
    if isinstance(value, Timestamp):
        return DatetimeMS(value.time * 1000)
    if isinstance(value, str):
        return dates.parse_date(value)
    if type(value) is int or not order.is_number(value):
        raise _conversion_error(value, "date")
    return DatetimeMS(_convert_to_integer(value, "date", numbers.INT64))


def to_object_id(value: Any) -> Any:
    """An ObjectId, of its 24 hexadecimal digits."""
    if isinstance(value, ObjectId):
        return value
    if not isinstance(value, str):
        raise _conversion_error(value, "objectId")
    if not re.fullmatch("[0-9a-fA-F]{24}", value):
        raise MongoError(FAILED, f"Failed to parse objectId '{value}' in $convert with no onError value")
    return ObjectId(value)


def to_text(value: Any) -> Any:
    """A text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DatetimeMS):
        return dates.text(value)
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, ObjectId | Decimal128):
        return str(value)
    raise _conversion_error(value, "string")


def _double_text(value: float) -> str:
    """The shortest text that is this number, with an exponent below 1e-5 and from 1e21 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    places = len(digits) + exponent
    if -6 < places <= 21:
        return format(Decimal(repr(value)).normalize(), "f")
    head = "".join(map(str, digits))
    mantissa = head[0] + ("." + head[1:] if len(head) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{places - 1:+d}"


BY_NAME: dict[str, Callable[[Any], Any]] = {
    "int": to_int,
    "long": to_long,
    "double": to_double,
    "decimal": to_decimal,
    "bool": to_bool,
    "date": to_date,
    "objectId": to_object_id,
    "string": to_text,
}


def shortly(to: str) -> Callable[[Any], Any]:
    """``$toInt`` and the like: null stays null."""
    work = BY_NAME[to]
    return lambda value: None if is_null(value) else work(value)


def convert(input: Any, to: Any, onError: Any = MISSING, onNull: Any = None, **other: Any) -> Any:
    """``$convert``."""
    if is_null(input):
        return onNull
    if is_null(to):
        return None
    if isinstance(to, dict):
        to = to.get("type")
    name = TYPE_NUMBERS.get(int(order.number(to))) if order.is_number(to) else to
    if name not in TYPE_NUMBERS.values():
        raise MongoError(2, f"Unknown type name: {to}")
    if other:
        raise MongoError(9, f"the stand-in's $convert does not know {', '.join(other)}")
    try:
        if name not in BY_NAME:
            raise _conversion_error(input, str(name))
        return BY_NAME[name](input)
    except MongoError as error:
        if error.code != FAILED or onError is MISSING:
            raise
        return onError
