"""A reduction projected by a rule, on arrays: columns that need no SQL, and rows that are marked as deleted.

:meth:`airflow_provider_cdc.targets.lake.rules.projection.Projection.project_events` says the same to Spark. A caller with a rule that :func:`needs_spark` names has Spark make the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.changelog.reading.last_events import EVENT_FACTS, LastEvents
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.types.spark_types import can_hold_type, spark_type

_ARROW = {
    "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
"""Types that a cast may have here."""


def needs_spark(shape: Projection, pending: PendingBatches) -> str:
    """Why Spark has to make the rows of some batches; empty if arrays do.

    :param pending: batches that :func:`~airflow_provider_cdc.changelog.reading.last_events.reduce_to_last_events` takes
    """
    if shape.is_identity:
        return ""
    if shape.mode not in ("current", "soft_delete"):
        return f"its mode is {shape.mode}"
    if shape.variants or shape.left:
        return "a column continues in another column"
    if shape.documents:
        return "its documents are variants"
    if shape.filter is not None:
        return f"its rule has a {shape.filter.rule_option}"
    if shape.computed:
        return f"its rule computes {', '.join(shape.computed)}"
    if inexact := [
        old for old, (there, required) in _casts(shape, pending.schema).items() if not _exact(there, required)
    ]:
        return f"its rule casts {', '.join(inexact)}"
    if others := sorted(
        {name for name in shape.rule.metadata_columns.values() if name not in {*EVENT_FACTS, *shape.places}}
    ):
        return f"its rule requests {', '.join(others)}"
    if shape.mode == "soft_delete" and (lacking := event_reduction.list_sparse_columns(pending, 0, deletes=True)):
        return f"deletes lack values: {', '.join(lacking)}"
    return ""


def _casts(shape: Projection, schema: TableSchema) -> dict[str, tuple[str, str]]:
    """Column of the source that gets another type → its Spark type, and the one that it gets."""
    types, casts = shape.map_column_types(schema), {}
    for old, new in shape.map_column_names(schema).items():
        there = spark_type(schema.get_column(old).type)
        if types[new] != there:
            casts[old] = there, types[new]
    return casts


def _exact(there: str, required: str) -> bool:
    """Return whether Arrow converts each value as Spark does."""
    # nanoseconds are texts to Spark only
    return can_hold_type(required, there) and (required in _ARROW or required.startswith("decimal("))


def _arrow(type_: str) -> pa.DataType:
    if type_.startswith("decimal("):
        return pa.decimal128(*map(int, type_.removeprefix("decimal(").removesuffix(")").split(",")))
    return _ARROW[type_]


@dataclass(frozen=True)
class ProjectedReduction:
    """The rows of some batches; implements :class:`airflow_provider_cdc.targets.lake.formats.table_values.KeyedChanges`.

    :param shape: one of which :func:`needs_spark` says that arrays do
    """

    shape: Projection
    reduction: LastEvents
    source_version = ""

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of rows."""
        return [*self.shape.map_column_types(self.reduction.schema), *self.shape.map_flag_types()]

    @cached_property
    def keys(self) -> pa.Table:
        """The key columns, as the table calls them."""
        keys, schema = self.reduction.keys, self.reduction.schema
        names = self.shape.map_column_names(schema)
        columns = {name: self._constant(name, keys.num_rows) for name in self.shape.rule.shard}
        return pa.table(columns | {names[k]: self._cast(k, keys[k]) for k in schema.key})

    @property
    def inserts_only(self) -> bool:
        """True if all keys are new ones, by their events."""
        return self.reduction.inserts_only

    def number_of_rows(self) -> int:
        """Rows that the batches leave."""
        return self.reduction.keys.num_rows if self._marks else self.reduction.number_of_rows()

    def number_of_deletes(self) -> int | None:
        """Rows that were there before the batches, and are not after them."""
        return 0 if self._marks else self.reduction.number_of_deletes()

    def read_rows(self) -> Iterator[pa.Table]:
        """Iterate over the rows that the batches leave; a row group at a time."""
        metadata = {name for name in self.shape.rule.metadata_columns.values() if name in EVENT_FACTS}
        requested = sorted(metadata | {"op", "commit_ts"}) if self._marks else sorted(metadata)
        for rows, of_events in self.reduction.read_images(requested, deleted=self._marks):
            yield self._project_rows(rows, of_events)

    @property
    def _marks(self) -> bool:
        """True if rows that are deleted stay."""
        return self.shape.mode == "soft_delete"

    def _project_rows(self, rows: pa.Table, metadata: pa.Table) -> pa.Table:
        shape, number = self.shape, rows.num_rows
        columns = {
            new: self._cast(old, rows[old]) for old, new in shape.map_column_names(self.reduction.schema).items()
        }
        columns |= {name: self._constant(name, number) for name in shape.constants}
        for name, source in shape.rule.metadata_columns.items():
            columns[name] = metadata[source] if source in EVENT_FACTS else _repeated(shape.places[source], number)
        if self._marks:
            gone = pc.equal(metadata["op"], "d")
            at = metadata["commit_ts"]
            columns |= {"_is_deleted": gone, "_deleted_at": pc.if_else(gone, at, pa.scalar(None, at.type))}
        return pa.table({name: columns[name] for name in self.column_names})

    def _cast(self, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        cast = _casts(self.shape, self.reduction.schema).get(column)
        return values if cast is None else values.cast(_arrow(cast[1]))

    def _constant(self, name: str, number: int) -> pa.Array:
        return _repeated(self.shape.constants[name], number)


def _repeated(text: str, number: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), number)
