"""Batches in which columns are dropped that stay in the table, applied to rows that no key identifies.

They are applied stage by stage, in one commit.

Such rows are identified by all their values. An event that comes before a column is dropped identifies its row by this column, too, and has a value for it; one after
that does not. So earlier events are applied to the table's rows with the columns of that time, and the rest begins with the resulting rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import (
    PendingBatches,
    base_version,
    left_behind,
    trace_columns,
)
from airflow_provider_cdc.targets.lake.events import event_reduction, row_images
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import SEQ, UNKNOWN
from airflow_provider_cdc.targets.lake.rows.multiset_diff import AbsentRows
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER, expand_row_counts, follow_images
from airflow_provider_cdc.targets.lake.rules.projection import Projection, lower_names
from airflow_provider_cdc.targets.lake.schema.lossy_casts import other_types
from airflow_provider_cdc.targets.lake.schema.table_evolution import brought_up, evolution_of
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite


def split_into_stages(write: TableWrite, cut: int = 0) -> list[PendingBatches]:
    """Split the batches before each version that drops such columns.

    There is only one part, if there is nothing to split them for.

    :param cut: number of the event behind which the table begins
    """
    pending = write.pending
    if (
        not pending.changes or write.has_started_evolution()
    ):  # columns that are changed already are not changed one after the other
        return [pending]
    first = min(
        (file.schema_version for _, file in pending.files if file.last_seq > cut), default=pending.schema_version
    )
    bounds = [v for v in sorted(pending.changes) if _stays(write, v) and (first < v or (not cut and _came(pending, v)))]
    return [_between(pending, a, b) for a, b in zip([0, *bounds], [*bounds, pending.schema_version + 1], strict=True)]


def _stays(write: TableWrite, version: int) -> bool:
    """Return whether a column of the table gets no values from a version on, and stays there."""
    pending, shape = write.pending, write.shape
    before, schema = shape.as_of(version - 1), pending.schemas[version]
    live = lower_names(shape.map_column_names(pending.schema).values())
    for column in left_behind(pending, version):
        there = before.map_column_name(column)
        # a column that is there again continues in another one of the table
        keeps = shape.rule.dropped_columns == "keep" or column in schema.column_names
        if keeps and there is not None and there.lower() not in live:
            return True
    return False


def _came(pending: PendingBatches, version: int) -> bool:
    """Return whether the batches add one of the columns that a version drops."""
    base = base_version(pending)
    if version - 1 <= base:
        return False
    origins = trace_columns(pending, base, version - 1)
    return any(origins[column].column is None for column in left_behind(pending, version))


def _between(pending: PendingBatches, first: int, end: int) -> PendingBatches:
    """Return the part of some batches that is of some schema versions."""
    return replace(
        pending,
        room=None,
        files=[(path, file) for path, file in pending.files if first <= file.schema_version < end],
        passing=[(path, file) for path, file in pending.passing if first <= file.schema_version < end],
        schemas={version: schema for version, schema in pending.schemas.items() if version < end},
        changes={version: change for version, change in pending.changes.items() if first <= version < end},
    )


def rows_after(write: TableWrite, parts: Sequence[PendingBatches], cut: int = 0) -> DataFrame:
    """Return the table's rows after all stages.

    :param cut: as of :func:`split_into_stages`
    :raises TargetError: a column would get a type that the rule or its values do not allow
    """
    rows, start = (None, 0) if cut else (write.target.read_rows(), base_version(write.pending))
    for part in parts:
        shape = _shape(write, part)
        if rows is not None:
            rows = _changed(_evolved(write, rows, part, start, shape), part, cut, shape)
        elif part is parts[-1] or any(file.last_seq > cut for _, file in part.files):
            rows = event_reduction.build_table_contents(write.spark, part, cut, shape).drop(UNKNOWN)
        start = part.schema_version
    assert rows is not None
    return rows


def _shape(write: TableWrite, part: PendingBatches) -> Projection:
    return (
        write.shape if part.schema_version == write.pending.schema_version else write.shape.as_of(part.schema_version)
    )


def _evolved(write: TableWrite, rows: DataFrame, part: PendingBatches, start: int, shape: Projection) -> DataFrame:
    """Rows with the columns after a stage, and those that stay."""
    evolution = evolution_of(part, write.marker.application_name, start, part.schema_version, shape)
    changed = other_types({f.name: f.dataType.simpleString() for f in rows.schema.fields}, evolution)
    write.check_types(changed)
    rows = rows.drop(*[F.col(quote_name(name)) for name in evolution.list_dropped_columns(rows.columns)])
    types = event_reduction.final_types(part.schema, shape)
    return brought_up(rows, part, start, shape, types, changed, write.target.location, fills=True)


def _changed(there: DataFrame, part: PendingBatches, cut: int, shape: Projection) -> DataFrame:
    names = list(shape.map_column_types(part.schema))
    changes = row_images.read_image_differences(there.sparkSession, part, cut, shape)
    return there if changes is None else build_changed_rows(there, changes, names)


def build_changed_rows(there: DataFrame, changes: DataFrame, names: Sequence[str]) -> DataFrame:
    """All rows of a table without a key after some changes.

    :param there: its rows: ``names``, and columns that the source has dropped
    :param changes: as :func:`airflow_provider_cdc.targets.lake.events.row_images.read_image_differences` gives them
    :raises AbsentRows: a row to remove does not exist. Where the table has no more columns, the query fails instead, with :data:`airflow_provider_cdc.targets.lake.rows.multiset_rewrite.ABSENT`
    """
    types = {f.name: f.dataType for f in there.schema.fields}  # they may have more room
    changes = changes.select(
        *[F.col(quote_name(c)).cast(types[c]).alias(c) if c in types else F.col(quote_name(c)) for c in changes.columns]
    )
    if set(there.columns) > set(names):
        for rows, lacks in _each(there, changes, names):
            if not lacks.head(1):
                return rows
        raise AbsentRows
    whole = there.withColumn(NUMBER, F.lit(1)).unionByName(changes.drop(SEQ))
    return expand_row_counts(whole, list(names))


def _each(there: DataFrame, changes: DataFrame, names: Sequence[str]) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Follow the changes with the signs of zeros, then without: an image removes any row that is equal to it, as in SQL."""
    for signs in (True, False):
        yield follow_images(there, changes, names, signs=signs)
