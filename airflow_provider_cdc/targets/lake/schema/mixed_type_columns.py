"""Columns whose types change between the events of some batches.

A type with less room changes nothing in a table: earlier values stay. Of any other type each value has to have an equal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import ColumnLineage, PendingBatches, trace_columns
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.events.event_files import open_event_files
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.schema.lossy_casts import check_exact
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_struct_type,
    can_hold_type,
    file_type,
    find_common_type,
    from_file,
    quote_name,
    spark_type,
)


def with_room(pending: PendingBatches, after: int = 0) -> PendingBatches:
    """Batches whose newest schema has room for the values of all their events, as a table has to which these came one batch after the other.

    :param after: number of the event behind which the table begins
    """
    newest, types = pending.schema, {c.name: c.type for c in pending.schema.columns}
    for then, origins in _older(pending, after):
        for name, origin in origins.items():
            if origin.column is not None and _has_more(type_ := then.get_column(origin.column).type, types[name]):
                types[name] = type_
    columns = tuple(c.model_copy(update={"type": types[c.name]}) for c in newest.columns)
    if columns == newest.columns:
        return pending
    return replace(pending, room=newest.model_copy(update={"columns": columns}))


def check_values(spark: SparkSession, pending: PendingBatches, shape: Projection, where: str) -> None:
    """Check the values of a table that has a row for each event.

    :param where: the table, for errors
    :raises TargetError: an event has a value that has no equal one of the newest type
    """
    names = shape.map_column_names(pending.schema)
    for then, origins in _older(pending, 0):
        changed = {
            origin.column: (old, new)
            for name, origin in origins.items()
            if name in names and origin.column is not None
            for old, new in [
                (spark_type(then.get_column(origin.column).type), spark_type(pending.schema.get_column(name).type))
            ]
            if find_common_type(old, new) is None
        }
        if not changed:
            continue
        image = build_struct_type({name: file_type(then.get_column(name).type) for name in changed})
        files = [path for path, file in pending.files if file.schema_version == then.version]
        events = open_event_files(spark, build_struct_type({"op": "string", "before": image, "after": image}), files)
        values = []
        for name in changed:
            value = F.when(F.col("op") == "d", F.col(f"before.{quote_name(name)}")).otherwise(
                F.col(f"after.{quote_name(name)}")
            )
            values.append(from_file(value, then.get_column(name).type).alias(name))
        check_exact(events.select(*values), changed, f"{where}, batches {pending.first} to {pending.last}")


def _older(pending: PendingBatches, after: int) -> Iterator[tuple[TableSchema, dict[str, ColumnLineage]]]:
    """Schemas of events before the newest one, and where the values of its columns come from in them."""
    for version in sorted({file.schema_version for _, file in pending.files if file.last_seq > after}):
        if version != pending.schema_version:
            yield pending.schemas[version], trace_columns(pending, version)


def _has_more(wide: str, narrow: str) -> bool:
    a, b = spark_type(wide), spark_type(narrow)
    return a != b and can_hold_type(a, b)
