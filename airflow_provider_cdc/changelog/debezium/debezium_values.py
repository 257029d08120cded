"""Converts native values of the change log to values of Debezium's JSON form, and makes the Connect schemas that describe them.

The semantic name that a column carries decides (Debezium connector documents, "Data type mappings"): a date becomes days, a
timestamp milliseconds, microseconds or nanoseconds, a decimal the bytes of its unscaled value.

Python's own datetimes end at microseconds: values of finer columns are whole nanoseconds since 1970 (:func:`as_integers`).
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.core.config.property_enums import BinaryHandling
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.date()
_MICROSECOND = dt.timedelta(microseconds=1)
_BITS = "io.debezium.data.Bits"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_ZONED = "io.debezium.time.ZonedTimestamp"
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Decimals of any length, without rounding."""
_TIMESTAMPS = ("timestamp[us]", "timestamp[ns]")

Convert = Callable[[Any], Any]


def build_converter(column: Column) -> Convert:
    """Return the function that converts a column's values to JSON; it is never called with ``None``."""
    semantic = (column.semantic or "").rpartition(".")[2]
    if column.semantic == _DECIMAL:
        scale = int(column.parameters["scale"])
        return lambda v: _unscaled(Decimal(v), scale)
    if column.semantic == _VARIABLE_SCALE:
        return lambda v: _variable_scale(Decimal(v))
    if column.type == "date32[day]":
        return lambda v: (v - _EPOCH_DAY).days
    if column.type == "timestamp[us]":
        unit = 1 if semantic == "MicroTimestamp" else 1000
        return lambda v: (v - _EPOCH) // _MICROSECOND // unit
    if column.type == "timestamp[ns]":
        nanos = {"NanoTimestamp": 1, "MicroTimestamp": 1000}.get(semantic, 1_000_000)
        return lambda v: v // nanos
    if column.type.startswith("timestamp[ns"):
        return lambda v: _zoned_nanos(v, 9 if column.declared.length is None else column.declared.length)
    if column.type.startswith("timestamp["):
        digits = column.declared.length or 0
        return lambda v: _zoned(v, digits)
    if column.type == GEOMETRY:
        return _point if semantic == "Point" else _geometry
    if semantic == "Time":
        return lambda v: v // 1000
    simple: dict[str, Convert] = {"binary": _base64, "float": _float, "double": _double, "list<item: float>": _floats}
    return simple.get(column.type, _same)


def as_integers(values: pa.Array) -> pa.Array:
    """Timestamps of nanoseconds as whole numbers, inside of structs too; all others as they are."""
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        return values.view(pa.int64())
    if not pa.types.is_struct(values.type):
        return values
    children = [as_integers(values.field(i)) for i in range(values.type.num_fields)]
    if all(child.type == field.type for child, field in zip(children, values.type, strict=True)):
        return values
    return pa.StructArray.from_arrays(children, names=values.type.names, mask=values.is_null())


def _same(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unscaled(value: Decimal, scale: int) -> str:
    """Big-endian two's complement of the unscaled value, in base64."""
    number = int(value.scaleb(scale, _EXACT))
    return _base64(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))


def _variable_scale(value: Decimal) -> dict[str, Any]:
    """Build a decimal with its own scale: as many decimals as it has."""
    scale = max(-int(value.as_tuple().exponent), 0)
    return {"scale": scale, "value": _unscaled(value, scale)}


def _zoned_nanos(value: int, digits: int) -> str:
    """Like :func:`_zoned`, from nanoseconds since 1970."""
    seconds, nanos = divmod(value, 10**9)
    text = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat()
    return f"{text}.{nanos:09d}"[: len(text) + 1 + digits] + "Z" if digits else text + "Z"


def _zoned(value: dt.datetime, digits: int) -> str:
    """ISO 8601 in UTC, with as many decimals as the column has."""
    text = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds" if digits else "seconds")
    return (text[: len(text) - 6 + digits] if digits else text) + "Z"


def _float(value: float) -> float | str:
    """Return the shortest decimal that is the same 32-bit number."""
    if not math.isfinite(value):
        return _double(value)
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _double(value: float) -> float | str:
    """JSON has no number for these."""
    return value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")


def _floats(values: list[float]) -> list[Any]:
    return [_float(v) for v in values]


def _geometry(value: dict[str, Any]) -> dict[str, Any]:
    return {"wkb": _base64(value["wkb"]), "srid": value["srid"]}


def _point(value: dict[str, Any]) -> dict[str, Any]:
    order = "<" if value["wkb"][0] else ">"
    x, y = struct.unpack_from(f"{order}dd", value["wkb"], 5)
    return {"x": x, "y": y, **_geometry(value)}


# -- values that the log does not have ------------------------------------------------------------------------------------

PLACEHOLDER = "__debezium_unavailable_value"
"""Default of ``unavailable.value.placeholder``."""
_BINARY_JDBC_TYPES = {-2, -3, -4, 2004}
_OF_BYTES: dict[str, Callable[[bytes], str]] = {
    BinaryHandling.BASE64: _base64,
    BinaryHandling.BASE64_URL_SAFE: lambda v: base64.urlsafe_b64encode(v).decode(),
    BinaryHandling.HEX: bytes.hex,
}


def find_placeholder(column: Column, text: str = PLACEHOLDER, binary: str = BinaryHandling.BYTES) -> str | None:
    """Return the placeholder for a value that the log does not have.

    ``None`` for types that cannot hold it, such as numbers.

    :param text: ``unavailable.value.placeholder``
    :param binary: ``binary.handling.mode``: bytes that are texts here have the placeholder's bytes in the same form
    """
    literal = _literal(column)
    if literal == "bytes" and column.semantic is None:
        return _base64(text.encode())
    if literal != "string":
        return None
    if column.declared.jdbc_type in _BINARY_JDBC_TYPES and binary in _OF_BYTES:
        return _OF_BYTES[binary](text.encode())
    return text


# -- schemas ----------------------------------------------------------------------------------------------------------------------

_LITERALS = {
    "bool": "boolean", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float": "float",
    "double": "double", "string": "string", "binary": "bytes", "date32[day]": "int32",
    **dict.fromkeys(_TIMESTAMPS, "int64"),
}  # fmt: skip
_GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_VARIABLE_SCALE_FIELDS = [
    {"type": "int32", "optional": False, "field": "scale"},
    {"type": "bytes", "optional": False, "field": "value"},
]
_POINT_FIELDS = [
    {"type": "double", "optional": False, "field": "x"},
    {"type": "double", "optional": False, "field": "y"},
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]


def column_schema(column: Column, *, optional: bool | None = None) -> dict[str, Any]:
    """Build a column's node in a Connect schema."""
    node: dict[str, Any] = {"type": _literal(column), "optional": column.nullable if optional is None else optional}
    if column.type == GEOMETRY:
        point = column.semantic is not None and column.semantic.endswith("Point")
        node["fields"] = _POINT_FIELDS if point else _GEOMETRY_FIELDS
        node["doc"] = "Geometry (POINT)" if point else "Geometry"
    if column.semantic == _VARIABLE_SCALE:
        node["fields"], node["doc"] = _VARIABLE_SCALE_FIELDS, "Variable scaled decimal"
    if node["type"] == "array":
        node["items"] = {"type": "float", "optional": False}
    if column.semantic is not None:
        node |= {"name": column.semantic, "version": 1}
    if column.parameters:
        node["parameters"] = dict(column.parameters)
    if (default := _default(column)) is not None:
        node["default"] = default
    return node | {"field": column.name}


def _default(column: Column) -> Any:
    """Return the default as the JSON form writes it.

    ``None`` where there is none, or none that is a plain value.

    A moment that the database computes, in a column that is never NULL, is the beginning of 1970 (Debezium connector documents,
    "Default values").
    """
    text = column.declared.default
    if text is None:
        return None
    if column.declared.default_is_expression:
        if column.nullable or not _is_moment(column):
            return None
        if _is_zoned(column):
            return "1970-01-01T00:00:00Z"
        text = "1970-01-01 00:00:00"
    native = _native(column, text.strip())
    return None if native is None else build_converter(column)(native)


def _is_zoned(column: Column) -> bool:
    return column.semantic == _ZONED


def _is_moment(column: Column) -> bool:
    return column.type.startswith(("date", "timestamp")) or _is_zoned(column)


def _native(column: Column, text: str) -> Any:
    """Parse a text as a value of a column's change log type.

    ``None`` where it is not one, such as a date of zeros.
    """
    type_ = column.type
    try:
        if (column.semantic or "").endswith((".MicroDuration", ".Interval")):
            return _interval(text, as_text=type_ == "string")
        if _is_zoned(column):
            return _moment(column, text)
        if type_ == "bool":
            return Decimal(text) > 0
        if column.semantic == _BITS:
            return int(text, 2).to_bytes((int(column.parameters["length"]) + 7) // 8, "little")
        if type_.startswith("int"):
            return int(text)
        if type_ in ("float", "double"):
            return float(text)
        if type_.startswith("decimal"):
            return Decimal(text)
        if type_ == "date32[day]":
            return dt.datetime.fromisoformat(text).date()
        if type_ == "timestamp[us]":
            return dt.datetime.fromisoformat(text)
        if type_ == "timestamp[ns]":
            return pa.array([text]).cast(pa.timestamp("ns")).view(pa.int64())[0].as_py()
    except (ValueError, ArithmeticError):
        return None
    return text if type_ == "string" else None


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? ?(Z|[+-]\d\d:\d\d)")
_YEARS = re.compile(r"([+-]?)(\d{1,9})-(\d{1,2})")
_DAYS = re.compile(r"([+-]?)(\d{1,9}) (\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_MONTH_US = 2_629_800_000_000
"""Microseconds of a twelfth of 365.25 days."""


def _moment(column: Column, text: str) -> Any:
    """Parse a date and time with its offset, as the column's converter takes it.

    Without an offset it may be any moment.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, offset = match[1], match[2], (match[3] or "").ljust(9, "0"), match[4]
    offset = "Z" if offset in ("+00:00", "-00:00") else offset
    if column.type == "string":
        digits = column.declared.length or 0
        return f"{day}T{clock}" + (f".{fraction[:digits]}" if digits else "") + offset
    moment = dt.datetime.fromisoformat(f"{day}T{clock}.{fraction[:6]}{offset}")
    if not column.type.startswith("timestamp[ns"):
        return moment
    return (moment.astimezone(dt.UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND * 1000 + int(fraction[6:])


def _interval(text: str, *, as_text: bool) -> int | str | None:
    """Parse an interval in SQL's form, ``1-02`` or ``1 02:03:04.5``.

    The result is in microseconds, or a text such as ``P1Y2M0DT0H0M0S``.
    """
    if match := _YEARS.fullmatch(text):
        sign = -1 if match[1] == "-" else 1
        years, months = sign * int(match[2]), sign * int(match[3])
        return f"P{years}Y{months}M0DT0H0M0S" if as_text else (years * 12 + months) * _MONTH_US
    match = _DAYS.fullmatch(text)
    if match is None:
        return None
    sign = -1 if match[1] == "-" else 1
    days, hours, minutes, seconds = (int(part) for part in match.groups()[1:5])
    fraction = (match[6] or "").rstrip("0")
    if not as_text:
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return sign * (whole * 1_000_000 + int(fraction[:6].ljust(6, "0")))
    minus = "-" if sign < 0 and (seconds or fraction) else ""
    shown = f"{seconds}.{fraction}" if fraction else str(seconds)
    return f"P0Y0M{sign * days}DT{sign * hours}H{sign * minutes}M{minus}{shown}S"


def _literal(column: Column) -> str:
    if column.semantic == _DECIMAL:
        return "bytes"
    if column.semantic in ("org.apache.kafka.connect.data.Time", "io.debezium.time.Time"):
        return "int32"
    if column.type == GEOMETRY or column.semantic == _VARIABLE_SCALE:
        return "struct"
    if column.type.startswith("list<"):
        return "array"
    return _LITERALS.get(column.type, "string")
