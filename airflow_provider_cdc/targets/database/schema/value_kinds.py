"""Kinds of the values of columns, in words that every dialect has a type for.

The kind follows from the type in the change log and the semantic name (Debezium JDBC connector, "Data type mappings"), and is refined by the source's
declaration: lengths of keys, digits and members. Where the source passes its own types (``column.propagate.source.type``), columns have its lengths, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration

KindName = Literal[
    "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal", "number", "text", "bytes", "date", "time", "time_tz",
    "timestamp", "timestamp_tz", "bits", "enum", "set", "json", "xml", "uuid", "ltree", "year", "duration", "interval", "vector", "geometry",
]  # fmt: skip
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_SOURCE_TYPE = "__debezium.source.column.type"
_SIGNS = 3
"""A sign, a point, and a zero before it."""
_BY_SEMANTIC: dict[str, KindName] = {
    "Bits": "bits", "Enum": "enum", "EnumSet": "set", "Json": "json", "Xml": "xml", "Uuid": "uuid", "Ltree": "ltree", "Year": "year",
    "MicroDuration": "duration", "Interval": "interval", "ZonedTime": "time_tz", "Time": "time", "MicroTime": "time", "NanoTime": "time",
    "VariableScaleDecimal": "number",
}  # fmt: skip
_PLAIN: dict[str, KindName] = {
    "bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float": "float", "double": "double",
    "string": "text", "binary": "bytes", "date32[day]": "date", "list<item: float>": "vector", GEOMETRY: "geometry",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of values.

    :param length: characters, bytes, bits, or all digits of a decimal; ``None`` if that is not known
    :param scale: digits after the point: of a decimal, or of seconds
    :param members: of an enumeration or a set
    :param source_type: the source's type, if the source is to pass it on (``column.propagate.source.type``): only then does a column that is no key get its length
    """

    name: KindName
    length: int | None = None
    scale: int | None = None
    members: tuple[str, ...] = ()
    source_type: str = field(default="", repr=False)


def kind_of(column: Column) -> ValueKind:
    """Return the kind of a column's values.

    >>> kind_of(Column(name="price", type="decimal128(12, 2)"))
    Kind(name='decimal', length=12, scale=2, members=())

    :raises ValueError: the change log has no such type
    """
    semantic, declared = (column.semantic or "").rpartition(".")[2], column.declared
    if match := _DECIMAL.fullmatch(column.type):
        return _decimal(int(match[1]), int(match[2]))
    if column.type.startswith("timestamp["):
        digits = 9 if column.type.startswith("timestamp[ns") else 6
        scale = digits if declared.length is None else min(declared.length, digits)
        return ValueKind("timestamp_tz" if "tz=" in column.type else "timestamp", scale=scale)
    if semantic == "Decimal":  # more digits than an array of decimals has
        parameters = column.parameters
        return _decimal(int(parameters.get("connect.decimal.precision", 0)) or None, int(parameters["scale"]))
    if semantic == "ZonedTimestamp":
        return ValueKind("timestamp_tz", scale=declared.length)
    name = _BY_SEMANTIC.get(semantic) or _PLAIN.get(column.type)
    if name is None:
        raise ValueError(f"unknown change log type {column.type!r}")
    if name == "time":
        return ValueKind(name, scale=min(declared.length or 0, 6) if declared.type_name else 6)
    if name == "bits":
        return ValueKind(name, int(column.parameters["length"]))
    if name in ("enum", "set"):
        return ValueKind(name, members=declared.values or tuple(column.parameters.get("allowed", "").split(",")))
    if name == "text" and declared.type_name.upper() == "UUID":
        return ValueKind("uuid")
    return _plain(name, column)


def _plain(name: KindName, column: Column) -> ValueKind:
    """Return the kind that follows from the type in the change log, with the source's own type if that is known."""
    declared, source_type = column.declared, column.parameters.get(_SOURCE_TYPE, "").upper()
    match name:
        case "int16" if source_type == "TINYINT":
            return ValueKind("int8", declared.length, source_type=source_type)
        case "bool" | "int8" | "int16" | "int32" | "int64":
            return ValueKind(name, declared.length if source_type else None, source_type=source_type)
        case "text":
            return ValueKind(name, _characters(declared), source_type=source_type)
        case "bytes" | "vector":
            return ValueKind(name, declared.length or None, source_type=source_type)
        case _:
            return ValueKind(name)


def _decimal(length: int | None, scale: int) -> ValueKind:
    """Return the kind of a decimal; of one whose last digits are always zero, these count."""
    return ValueKind("decimal", length and max(length - min(scale, 0), scale), max(scale, 0))


def _characters(declared: ColumnDeclaration) -> int | None:
    """Return the most characters that a text has; ``None`` if that is not known."""
    type_, length = declared.type_name.upper(), declared.length
    if not length:
        return None
    if any(word in type_ for word in ("BINARY", "BLOB", "RAW", "BIT")):  # hexadecimal, or base64
        return max(4, 2 * length)
    if any(word in type_ for word in ("DEC", "NUM", "FIXED")):
        return length + abs(declared.scale or 0) + _SIGNS
    return length if not type_ or any(word in type_ for word in ("CHAR", "TEXT", "CLOB", "GRAPHIC")) else None
