"""Native values of the change log as the values of Debezium's JSON form, and the Connect schemas that describe them.

The semantic name that a column carries decides (Debezium connector documents, "Data type mappings"): a date becomes days, a
timestamp milliseconds or microseconds, a decimal the bytes of its unscaled value.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from airflow_provider_cdc.core.schema import GEOMETRY, Column

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.date()
_MICROSECOND = dt.timedelta(microseconds=1)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"

Convert = Callable[[Any], Any]


def converter(column: Column) -> Convert:
    """What makes a column's value fit for JSON; it is never called with ``None``."""
    semantic = (column.semantic or "").rpartition(".")[2]
    if column.semantic == _DECIMAL:
        scale = int(column.parameters["scale"])
        return lambda v: _unscaled(Decimal(v), scale)
    if column.type == "date32[day]":
        return lambda v: (v - _EPOCH_DAY).days
    if column.type == "timestamp[us]":
        unit = 1 if semantic == "MicroTimestamp" else 1000
        return lambda v: (v - _EPOCH) // _MICROSECOND // unit
    if column.type.startswith("timestamp["):
        digits = column.declared.length or 0
        return lambda v: _zoned(v, digits)
    if column.type == GEOMETRY:
        return _point if semantic == "Point" else _geometry
    if semantic == "Time":
        return lambda v: v // 1000
    simple: dict[str, Convert] = {"binary": _base64, "float": _float, "double": _double, "list<item: float>": _floats}
    return simple.get(column.type, _same)


def _same(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unscaled(value: Decimal, scale: int) -> str:
    """Big-endian two's complement of the unscaled value, in base64."""
    number = int(value.scaleb(scale))
    return _base64(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))


def _zoned(value: dt.datetime, digits: int) -> str:
    """ISO 8601 in UTC, with as many decimals as the column has."""
    text = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds" if digits else "seconds")
    return (text[: len(text) - 6 + digits] if digits else text) + "Z"


def _float(value: float) -> float | str:
    """The shortest decimal that is the same 32-bit number."""
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


# -- schemas ----------------------------------------------------------------------------------------------------------------------

_LITERALS = {
    "bool": "boolean", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float": "float",
    "double": "double", "string": "string", "binary": "bytes", "date32[day]": "int32", "timestamp[us]": "int64",
}  # fmt: skip
_GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_POINT_FIELDS = [
    {"type": "double", "optional": False, "field": "x"},
    {"type": "double", "optional": False, "field": "y"},
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]


def column_schema(column: Column, *, optional: bool | None = None) -> dict[str, Any]:
    """A column's node in a Connect schema."""
    node: dict[str, Any] = {"type": _literal(column), "optional": column.nullable if optional is None else optional}
    if column.type == GEOMETRY:
        point = column.semantic is not None and column.semantic.endswith("Point")
        node["fields"] = _POINT_FIELDS if point else _GEOMETRY_FIELDS
        node["doc"] = "Geometry (POINT)" if point else "Geometry"
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
    """The default as the JSON form writes it; ``None`` where there is none, or none that is a plain value."""
    text = column.declared.default
    if text is None or column.declared.default_is_expression:
        return None
    native = _native(column.type, text.strip())
    return None if native is None else converter(column)(native)


def _native(type_: str, text: str) -> Any:
    """A text as a value of a change log type; ``None`` where it is not one, such as a date of zeros."""
    try:
        if type_.startswith("int"):
            return int(text)
        if type_ in ("float", "double"):
            return float(text)
        if type_.startswith("decimal"):
            return Decimal(text)
        if type_ == "date32[day]":
            return dt.date.fromisoformat(text)
        if type_ == "timestamp[us]":
            return dt.datetime.fromisoformat(text)
    except (ValueError, ArithmeticError):
        return None
    return text if type_ == "string" else None


def _literal(column: Column) -> str:
    if column.semantic == _DECIMAL:
        return "bytes"
    if column.semantic in ("org.apache.kafka.connect.data.Time", "io.debezium.time.Time"):
        return "int32"
    if column.type == GEOMETRY:
        return "struct"
    if column.type.startswith("list<"):
        return "array"
    return _LITERALS.get(column.type, "string")
