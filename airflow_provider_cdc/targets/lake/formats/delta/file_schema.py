"""The columns and features of a Delta table, as its files have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_FEATURES = frozenset(
    {"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
)  # fmt: skip
"""Features of tables that ask nothing more of a writer than this code does."""
_PLAIN = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeltaFileLayout:
    """A table as its files have it, at some version.

    :param fields: of the schema, as Delta writes them
    :param properties: of the table
    :param features: names in its protocol
    """

    fields: list[dict[str, Any]]
    partitions: list[str]
    properties: Mapping[str, str]
    features: frozenset[str]

    @property
    def has_vectors(self) -> bool:
        return self.properties.get("delta.enableDeletionVectors") == "true"


def not_for(layout: DeltaFileLayout, names: Sequence[str], *, others: bool = False) -> str:
    """Why a table's files cannot be written here; empty if they can.

    :param names: columns of the source
    :param others: whether the table may have more columns
    """
    there = {field["name"] for field in layout.fields}
    odd = layout.features - _FEATURES
    if layout.partitions:
        return f"it is partitioned by {', '.join(layout.partitions)}"
    if odd:
        return f"it has {', '.join(sorted(odd))}"
    if more := set(names) - there if others else there ^ set(names):
        return f"its columns differ from the source columns: {', '.join(sorted(more))}"
    if required := [field["name"] for field in layout.fields if not field["nullable"]]:
        return f"some columns are NOT NULL: {', '.join(required)}"
    if any(
        set(field["metadata"]) - {k for k in field["metadata"] if k.startswith(_MAPPING)} - _HARMLESS
        for field in layout.fields
    ):
        return "its columns have conditions or generated values"
    rules = [name for name in layout.properties if name.startswith("delta.constraints.")]
    if rules or layout.properties.get("delta.enableChangeDataFeed") == "true":
        return "it has constraints or a change data feed"
    if layout.properties.get("delta.columnMapping.mode") == "id":
        return "its files use other column names"
    if layout.properties.get("delta.appendOnly") == "true":
        return "it is append-only"
    for field in layout.fields:
        if arrow_of(field["type"]) is None:
            return f"column {field['name']} has the type {field['type']}"
    return ""


_MAPPING = "delta.columnMapping."
_HARMLESS = frozenset({"comment", "delta.typeChanges"})


def field_of(field: Mapping[str, Any]) -> pa.Field:
    """Return a field of Delta's schema as it is in the files.

    That is by its physical name and number, where columns are mapped.
    """
    name = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    number = field["metadata"].get("delta.columnMapping.id")
    type_ = arrow_of(field["type"])
    assert type_ is not None, "not_for has looked"
    return pa.field(name, type_, metadata=None if number is None else {"PARQUET:field_id": str(number)})


def arrow_of(type_: Any) -> pa.DataType | None:
    """Return the Arrow type of a Delta type; ``None`` if it is none that change logs have."""
    if isinstance(type_, str):
        if type_.startswith("decimal("):
            return pa.decimal128(*map(int, type_.removeprefix("decimal(").removesuffix(")").split(",")))
        return _PLAIN.get(type_)
    if type_["type"] == "array":
        element = arrow_of(type_["elementType"])
        return None if element is None else pa.list_(pa.field("element", element))
    if type_["type"] == "struct" and all(arrow_of(field["type"]) is not None for field in type_["fields"]):
        return pa.struct([field_of(field) for field in type_["fields"]])
    return None


def cast_column(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Values of a column of the table with another type, or of fewer fields."""
    if values.type == type_:
        return values
    if not pa.types.is_struct(type_):
        return values.cast(type_)
    return pa.chunked_array([_cast_struct(chunk, type_) for chunk in values.chunks], type_)


def _cast_struct(values: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    names = [field.name for field in values.type]
    parts = []
    for at, field in enumerate(type_):
        # the fields of a batch are in the table's order, those of a file have its names
        source_field = field.name if field.name in names else at if len(names) == type_.num_fields else None
        part = pa.nulls(len(values), field.type) if source_field is None else pc.struct_field(values, source_field)
        parts.append(part.cast(field.type))
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=values.is_null())


def is_ordered(type_: pa.DataType) -> bool:
    """Check whether files record the least and the greatest values of such a column."""
    is_ = pa.types
    return any(kind(type_) for kind in (is_.is_integer, is_.is_string, is_.is_date, is_.is_decimal))
