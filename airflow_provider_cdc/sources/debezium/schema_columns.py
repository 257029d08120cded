"""Connect schemas → columns: the inverse of :func:`airflow_provider_cdc.changelog.debezium.debezium_values.column_schema`.

A value that the change log has no type for (an array, a map, a struct that is no logical type) is a text of JSON, so that nothing is lost.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration
from airflow_provider_cdc.sources.debezium.config import ZonedTimestampMode

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
JSON: Final = "io.debezium.data.Json"
ZONED: Final = "io.debezium.time.ZonedTimestamp"
VECTOR: Final = "io.debezium.data.FloatVector"
GEOMETRIES: Final = frozenset(f"io.debezium.data.geometry.{kind}" for kind in ("Point", "Geometry", "Geography"))
LOGICAL: Final = frozenset({VARIABLE_SCALE, *GEOMETRIES})
"""Structs that are values of one column."""
_DIGITS: Final = 38
_EXACT: Final = Context(prec=1000)
"""Python would calculate with 28 digits; decimals of more than 38 are texts."""
_SOURCE: Final = "__debezium.source.column."
"""Parameters of ``column.propagate.source.type``."""
_PRIMITIVE: Final = {
    "boolean": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float": "float", "float32": "float",
    "double": "double", "float64": "double", "string": "string", "bytes": "binary",
}  # fmt: skip
_TEMPORAL: Final = {
    "io.debezium.time.Date": "date32[day]",
    "org.apache.kafka.connect.data.Date": "date32[day]",
    "io.debezium.time.Timestamp": "timestamp[us]",
    "org.apache.kafka.connect.data.Timestamp": "timestamp[us]",
    "io.debezium.time.MicroTimestamp": "timestamp[us]",
    "io.debezium.time.NanoTimestamp": "timestamp[ns]",
    "io.debezium.time.Time": "int64",
    "org.apache.kafka.connect.data.Time": "int64",
}
Node = Mapping[str, Any]


def column_of(node: Node, zoned: ZonedTimestampMode, *, key: bool = False) -> Column:
    """Build the column of a field.

    :param node: its schema
    :param zoned: ``events.zoned.timestamp.mode``
    :param key: it is part of the key, and so never NULL
    :raises ValueError: its type is not known

    >>> column_of({"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "day"}, ZonedTimestampMode.MOMENT).type
    'date32[day]'
    """
    semantic = node.get("name")
    parameters = {str(name): str(value) for name, value in (node.get("parameters") or {}).items()}
    type_, kept_semantic = _type(node, semantic, parameters, zoned)
    length = _number(parameters.get(f"{_SOURCE}length"))
    scale = _number(parameters.get(f"{_SOURCE}scale"))
    if type_.startswith("timestamp[") and length is None:
        length = 9 if type_.startswith("timestamp[ns") else 6
    declared = ColumnDeclaration(
        type_name=parameters.get(f"{_SOURCE}type", ""),
        length=length,
        scale=scale,
        values=tuple(parameters["allowed"].split(",")) if parameters.get("allowed") else (),
    )
    column = Column(
        name=str(node["field"]),
        type=type_,
        nullable=bool(node.get("optional", False)) and not key,
        semantic=kept_semantic,
        parameters=parameters,
        declared=declared,
    )
    default = default_text(node.get("default"), column)
    return column.model_copy(update={"declared": declared.model_copy(update={"default": default})})


def _type(
    node: Node, semantic: str | None, parameters: Mapping[str, str], zoned: ZonedTimestampMode
) -> tuple[str, str | None]:
    """Return the type in the change log, and the semantic name."""
    literal = str(node.get("type"))
    if semantic == DECIMAL:
        return _decimal(parameters), semantic
    if semantic == VARIABLE_SCALE:
        return "string", semantic
    if semantic in GEOMETRIES:
        return GEOMETRY, semantic
    if semantic == ZONED:
        return ("timestamp[us, tz=UTC]" if zoned is ZonedTimestampMode.MOMENT else "string"), semantic
    if semantic in _TEMPORAL:
        return _TEMPORAL[semantic], semantic
    if semantic == VECTOR:
        return "list<item: float>", semantic
    if literal in ("array", "map", "struct"):
        return "string", JSON
    if literal not in _PRIMITIVE:
        raise ValueError(f"the type {literal!r} of the field {node.get('field')!r} is unknown")
    return _PRIMITIVE[literal], semantic


def _decimal(parameters: Mapping[str, str]) -> str:
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", _DIGITS))
    digits = max(precision, scale) if scale > 0 else precision - scale
    if "connect.decimal.precision" not in parameters:
        digits = _DIGITS
    return f"decimal128({digits}, {max(scale, 0)})" if digits <= _DIGITS else "string"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


# -- defaults ---------------------------------------------------------------------------------------------------------

_EPOCH: Final = dt.datetime(1970, 1, 1)


def default_text(value: Any, column: Column) -> str | None:
    """Return a field's default as a text that casts to the column's type; ``None``: there is none, or none that is known to be one."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return "1" if value else "0"
    try:
        return _default(value, column)
    except (ValueError, OverflowError, binascii.Error):
        return None


def _default(value: Any, column: Column) -> str | None:
    type_, semantic = column.type, column.semantic or ""
    if semantic == DECIMAL:
        number = unscaled_from_base64(str(value))
        return f"{Decimal(number).scaleb(-int(column.parameters.get('scale', 0)), _EXACT):f}"
    if type_ == "binary":
        return None
    if type_ == "date32[day]":
        return (_EPOCH.date() + dt.timedelta(days=int(value))).isoformat()
    if type_ in ("timestamp[us]", "timestamp[ns]"):
        micros = int(value) * {"Timestamp": 1000}.get(semantic.rpartition(".")[2], 1)
        if type_ == "timestamp[ns]":
            micros //= 1000
        return (_EPOCH + dt.timedelta(microseconds=micros)).isoformat(sep=" ")
    if semantic.endswith(".Time"):
        return str(int(value) * 1000)
    return str(value)


def unscaled_from_base64(text: str) -> int:
    """Decode the unscaled number of a decimal's bytes: big-endian two's complement, in base64.

    >>> unscaled_from_base64("AMg=")
    200
    """
    return int.from_bytes(base64.b64decode(text), "big", signed=True)
