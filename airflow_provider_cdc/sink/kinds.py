"""What kind of values a column has, in words that every dialect has a type for.

The kind follows from the type in the change log and the semantic name (Debezium JDBC connector, "Data type mappings"), and is refined by what the source has
declared: lengths, digits and members.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from airflow_provider_cdc.core.model.schema import GEOMETRY, Column

KindName = Literal[
    "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal", "number", "text", "bytes", "date", "time", "time_tz",
    "timestamp", "timestamp_tz", "bits", "enum", "set", "json", "xml", "uuid", "ltree", "year", "duration", "interval", "vector", "geometry",
]  # fmt: skip
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
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
class Kind:
    """A kind of values.

    :param length: characters, bytes, bits, or all digits of a decimal; ``None`` if that is not known
    :param scale: digits after the point: of a decimal, or of seconds
    :param members: of an enumeration or a set
    """

    name: KindName
    length: int | None = None
    scale: int | None = None
    members: tuple[str, ...] = ()


def kind_of(column: Column) -> Kind:
    """The kind of a column's values.

    >>> kind_of(Column(name="price", type="decimal128(12, 2)"))
    Kind(name='decimal', length=12, scale=2, members=())

    :raises ValueError: the change log has no such type
    """
    semantic, declared = (column.semantic or "").rpartition(".")[2], column.declared
    if found := _DECIMAL.fullmatch(column.type):
        return Kind("decimal", int(found[1]), int(found[2]))
    if column.type.startswith("timestamp["):
        digits = 9 if column.type.startswith("timestamp[ns") else 6
        scale = digits if declared.length is None else min(declared.length, digits)
        return Kind("timestamp_tz" if "tz=" in column.type else "timestamp", scale=scale)
    if semantic == "Decimal":  # more digits than an array of decimals has
        parameters = column.parameters
        return Kind("decimal", int(parameters.get("connect.decimal.precision", 0)) or None, int(parameters["scale"]))
    if semantic == "ZonedTimestamp":
        return Kind("timestamp_tz", scale=declared.length)
    name = _BY_SEMANTIC.get(semantic) or _PLAIN.get(column.type)
    if name is None:
        raise ValueError(f"unknown change log type {column.type!r}")
    if name == "time":
        return Kind(name, scale=min(declared.length or 0, 6) if declared.type_name else 6)
    if name == "bits":
        return Kind(name, int(column.parameters["length"]))
    if name in ("enum", "set"):
        return Kind(name, members=declared.values or tuple(column.parameters.get("allowed", "").split(",")))
    length = declared.length if name in ("text", "bytes", "vector") else None
    return Kind(name, length or None)
