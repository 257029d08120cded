"""Keys of rows as JSON: in signals, and in the offset. One form for both, of the values that the change log has.

>>> column = Column(name="price", type="decimal128(5, 2)")
>>> parse_key_value("1.5", column)
'1.50'
>>> parse_key_value(1.5, column)
Traceback (most recent call last):
  ...
airflow_provider_cdc.core.model.key_json.InvalidKeyValue: "price" is 1.5; a decimal128(5, 2) is a string such as "1.50": JSON numbers are not exact
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.core.model.table_schema import Column, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

Key = list[Any]
"""Values of the columns of one key, fit for JSON."""
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_NUMBER = re.compile(r"-?\d{1,80}(\.\d{1,80})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class InvalidKeyValue(ValueError):
    """A value is not one of its column; the text says what is valid."""


# -- Python values ----------------------------------------------------------------------------------------------------


def key_to_json(values: Sequence[Any]) -> Key:
    """Values of a key, as Python has them, as JSON; :func:`key_from_json` is the way back.

    >>> key_to_json([7, "a", Decimal("1.50"), b"\\x01"])
    [7, 'a', '1.50', 'AQ==']
    """
    return [_to_json(value) for value in values]


def key_from_json(key: Key, types: Sequence[str]) -> list[Any]:
    """Return the values again.

    :param types: change log types of the columns (``Column.type``)

    >>> key_from_json([7, "1.50", "AQ=="], ["int64", "decimal128(5, 2)", "binary"])
    [7, Decimal('1.50'), b'\\x01']
    """
    return [_from_json(value, type_) for value, type_ in zip(key, types, strict=True)]


def _to_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"  # zero with eight decimals is 0E-8 as a text
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case _:
            return value


def _from_json(value: Any, type_: str) -> Any:
    if value is None or not isinstance(value, str) or type_ == "string":
        return value
    if type_ == "binary":
        return base64.b64decode(value)
    if type_.startswith("decimal"):
        return Decimal(value)
    if type_.startswith("date"):
        return dt.date.fromisoformat(value)
    if type_.startswith("timestamp"):
        return dt.datetime.fromisoformat(value)
    raise ValueError(f"a key of type {arrow_type(type_)} cannot be stored as JSON")


# -- what people send -------------------------------------------------------------------------------------------------


def parse_key_value(value: Any, column: Column) -> Any:
    """Parse a value from outside into the one form that :func:`key_to_json` would give it.

    :raises InvalidKeyValue: it is not a value of this column
    """
    type_ = column.type
    if type_.startswith("int"):
        return _integer(value, column)
    if type_.startswith("decimal"):
        return _decimal(value, column)
    if type_.startswith("timestamp"):
        return _moment(value, column)
    simple = {
        "bool": _truth,
        "float": _float,
        "double": _float,
        "string": _text,
        "binary": _bytes,
        "date32[day]": _date,
    }
    if type_ not in simple:
        raise InvalidKeyValue(f'"{column.name}" is a {type_}, and keys of this type are not supported')
    return simple[type_](value, column)


def describe_value_form(column: Column) -> str:
    """Describe how a value of a column is given, for people.

    >>> describe_value_form(Column(name="price", type="decimal128(5, 2)"))
    'a string such as "1.50"'
    """
    try:
        parse_key_value([], column)
    except InvalidKeyValue as e:
        return str(e).rpartition(f"; a {column.type} is ")[2] or str(e)
    raise AssertionError(f"{column.type} takes anything")


def _bad(value: Any, column: Column, valid: str) -> InvalidKeyValue:
    shown = json.dumps(value, ensure_ascii=False)
    return InvalidKeyValue(
        f'"{column.name}" is {shown if len(shown) <= 100 else shown[:100] + "…"}; a {column.type} is {valid}'
    )


def _integer(value: Any, column: Column) -> int:
    most = 1 << (int(column.type.removeprefix("int")) - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -most <= value < most:
        raise _bad(value, column, f"a whole JSON number from {-most} to {most - 1}")
    return value


def _decimal(value: Any, column: Column) -> str:
    match = _DECIMAL.fullmatch(column.type)
    if match is None:
        raise InvalidKeyValue(f'"{column.name}" is a {column.type}, and keys of this type are not supported')
    precision, scale = int(match[1]), int(match[2])
    example = f'a string such as "1{"." + "50".ljust(scale, "0")[:scale] if scale > 0 else ""}"'
    if isinstance(value, float):
        raise _bad(value, column, f"{example}: JSON numbers are not exact")
    if isinstance(value, bool) or not isinstance(value, str | int) or not _NUMBER.fullmatch(str(value)):
        raise _bad(value, column, example)
    text = str(value)  # as text: arithmetic with decimals rounds to 28 digits
    whole, _, fraction = text.removeprefix("-").partition(".")
    if len(fraction.rstrip("0")) > max(scale, 0) or len(whole.lstrip("0")) > precision - max(scale, 0):
        raise _bad(value, column, f"{example}, with at most {precision} digits, {scale} of them after the point")
    sign = "-" if text.startswith("-") and text.strip("-0.") else ""
    point = "." + fraction[:scale].ljust(scale, "0") if scale > 0 else ""
    return f"{sign}{whole.lstrip('0') or '0'}{point}"


def _truth(value: Any, column: Column) -> bool:
    if not isinstance(value, bool):
        raise _bad(value, column, "true or false")
    return value


def _float(value: Any, column: Column) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
    except OverflowError:
        pass
    raise _bad(value, column, "a JSON number")


def _text(value: Any, column: Column) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
    except UnicodeEncodeError:  # half of a pair of surrogates
        pass
    raise _bad(value, column, "a JSON string")


def _bytes(value: Any, column: Column) -> str:
    try:
        if isinstance(value, str):
            return base64.b64encode(base64.b64decode(value, validate=True)).decode()
    except (binascii.Error, ValueError):
        pass
    raise _bad(value, column, 'a base64 string such as "AQI="')


def _date(value: Any, column: Column) -> str:
    try:
        if isinstance(value, str) and _DATE.fullmatch(value):
            return dt.date.fromisoformat(value).isoformat()
    except ValueError:  # no such day
        pass
    raise _bad(value, column, 'a string such as "2024-02-29"')


def _moment(value: Any, column: Column) -> str:
    unit, _, zone = column.type.removeprefix("timestamp[").removesuffix("]").partition(", tz=")
    most = _DIGITS[unit]
    fraction = "." + "123456789"[:most] if most else ""
    valid = f'a string such as "2024-02-29T12:00:00{fraction}{"Z" if zone else ""}", ' + (
        "with the UTC offset" if zone else "without a time zone"
    )
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or bool(match[4]) != bool(zone) or len((match[3] or "").rstrip("0")) > most:
        raise _bad(value, column, valid)
    try:
        moment = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4] or ''}")
        if zone:
            moment = moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):  # no such day, or before the year 1
        raise _bad(value, column, valid) from None
    digits = (match[3] or "").ljust(9, "0")[: max(most, 6)]
    text = moment.replace(tzinfo=None).isoformat() + (f".{digits}" if digits.strip("0") else "")
    return text + ("+00:00" if zone else "")


# -- arrays, and order ------------------------------------------------------------------------------------------------


def build_key_arrays(keys: Sequence[Key], columns: Sequence[Column]) -> list[pa.Array]:
    """Build arrays of the columns' types from the values of keys, in the change log's own form.

    :param keys: as :func:`parse_key_value` has left them
    :raises InvalidKeyValue: one cannot be held by its type, as a nanosecond of the year 3000
    """
    import pyarrow as pa

    arrays = []
    for i, column in enumerate(columns):
        type_, values = arrow_type(column.type), [key[i] for key in keys]
        try:
            if pa.types.is_timestamp(type_):
                arrays.append(
                    pa.array([v.removesuffix("+00:00") for v in values], pa.string()).cast(_bare(type_)).cast(type_)
                )
            else:
                arrays.append(pa.array([_from_json(v, column.type) for v in values], type_))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
            raise InvalidKeyValue(f'"{column.name}" has a value that does not fit a {column.type}: {e}') from None
    return arrays


def keys_of(values: Sequence[pa.Array]) -> list[Key]:
    """Return the keys that arrays hold, in JSON; :func:`build_key_arrays` is the way back.

    >>> import pyarrow as pa
    >>> keys_of([pa.array([7]), pa.array([b"\\x01"])])
    [[7, 'AQ==']]
    """
    import pyarrow as pa

    columns = []
    for column in values:
        if pa.types.is_timestamp(column.type):
            of_type = Column(name="", type=str(column.type))
            columns.append(
                [None if v is None else parse_key_value(v, of_type) for v in column.cast(pa.string()).to_pylist()]
            )
        else:
            columns.append([_to_json(v) for v in column.to_pylist()])
    return [[*key] for key in zip(*columns, strict=True)]


def _bare(type_: pa.TimestampType) -> pa.TimestampType:
    import pyarrow as pa

    return pa.timestamp("ns" if type_.unit == "ns" else "us")


def build_sort_key(key: Key, columns: Sequence[Column]) -> tuple[Any, ...] | None:
    """Return the key as something that compares as every database does.

    Returns ``None`` if databases order its types by rules of their own, as they do with texts and bytes.
    """
    ranks = []
    for value, column in zip(key, columns, strict=True):
        if column.type in ("string", "binary"):
            return None
        if column.type.startswith("timestamp"):
            second, _, fraction = value.removesuffix("+00:00").partition(".")
            value = second, fraction.ljust(9, "0")
        ranks.append(Decimal(value) if column.type.startswith("decimal") else value)
    return tuple(ranks)
