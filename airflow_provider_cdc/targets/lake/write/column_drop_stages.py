"""Batches in which columns are dropped that stay in the table, applied to rows that are not told by one key: stage by stage, in one commit.

Such rows are told by all their values. An event that comes before a column is dropped tells its row by this column, too, and has a value for it; one after
that does not. So what comes before makes of the table's rows, with the columns that there were, the rows which the rest begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import Pending, base_version, left_behind, lineage
from airflow_provider_cdc.targets.lake.events import reduce_events, row_images
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import SEQ, UNKNOWN
from airflow_provider_cdc.targets.lake.rows.multiset import NUMBER, followed, repeated
from airflow_provider_cdc.targets.lake.rows.multiset_diff import AbsentRows
from airflow_provider_cdc.targets.lake.rules.projection import Shape, lowered
from airflow_provider_cdc.targets.lake.schema.lossy_casts import other_types
from airflow_provider_cdc.targets.lake.schema.table_evolution import brought_up, evolution_of
from airflow_provider_cdc.targets.lake.types.spark_types import quoted
from airflow_provider_cdc.targets.lake.write.table_write import Write


def stages(write: Write, cut: int = 0) -> list[Pending]:
    """The batches, parted before each version that drops such columns; only one part, if there is nothing to part them for.

    :param cut: number of the event behind which the table begins
    """
    pending = write.pending
    if not pending.changes or write.begun():  # columns that are changed already are not changed one after the other
        return [pending]
    first = min((file.schema_version for _, file in pending.files if file.last_seq > cut), default=pending.version)
    bounds = [v for v in sorted(pending.changes) if _stays(write, v) and (first < v or (not cut and _came(pending, v)))]
    return [_between(pending, a, b) for a, b in zip([0, *bounds], [*bounds, pending.version + 1], strict=True)]


def _stays(write: Write, version: int) -> bool:
    """Whether a column of the table gets no values from a version on, and stays there."""
    pending, shape = write.pending, write.shape
    before, schema = shape.as_of(version - 1), pending.schemas[version]
    live = lowered(shape.names(pending.schema).values())
    for column in left_behind(pending, version):
        there = before.name(column)
        # a column that is there again goes on in another one of the table
        keeps = shape.rule.dropped_columns == "keep" or column in schema.names
        if keeps and there is not None and there.lower() not in live:
            return True
    return False


def _came(pending: Pending, version: int) -> bool:
    """Whether the batches add one of the columns that a version drops."""
    base = base_version(pending)
    if version - 1 <= base:
        return False
    origins = lineage(pending, base, version - 1)
    return any(origins[column].column is None for column in left_behind(pending, version))


def _between(pending: Pending, first: int, end: int) -> Pending:
    """The part of some batches that is of some schema versions."""
    return replace(
        pending,
        room=None,
        files=[(path, file) for path, file in pending.files if first <= file.schema_version < end],
        passing=[(path, file) for path, file in pending.passing if first <= file.schema_version < end],
        schemas={version: schema for version, schema in pending.schemas.items() if version < end},
        changes={version: change for version, change in pending.changes.items() if first <= version < end},
    )


def rows_after(write: Write, parts: Sequence[Pending], cut: int = 0) -> DataFrame:
    """The table's rows after all stages.

    :param cut: as of :func:`stages`
    :raises TargetError: a column would get a type that the rule or its values do not allow
    """
    rows, start = (None, 0) if cut else (write.target.rows(), base_version(write.pending))
    for part in parts:
        shape = _shape(write, part)
        if rows is not None:
            rows = _changed(_evolved(write, rows, part, start, shape), part, cut, shape)
        elif part is parts[-1] or any(file.last_seq > cut for _, file in part.files):
            rows = reduce_events.contents(write.spark, part, cut, shape).drop(UNKNOWN)
        start = part.version
    assert rows is not None
    return rows


def _shape(write: Write, part: Pending) -> Shape:
    return write.shape if part.version == write.pending.version else write.shape.as_of(part.version)


def _evolved(write: Write, rows: DataFrame, part: Pending, start: int, shape: Shape) -> DataFrame:
    """Rows with the columns after a stage, and those that stay."""
    evolution = evolution_of(part, write.marker.app, start, part.version, shape)
    changed = other_types({f.name: f.dataType.simpleString() for f in rows.schema.fields}, evolution)
    write.check_types(changed)
    rows = rows.drop(*[F.col(quoted(name)) for name in evolution.going(rows.columns)])
    types = reduce_events.final_types(part.schema, shape)
    return brought_up(rows, part, start, shape, types, changed, write.target.location, fills=True)


def _changed(there: DataFrame, part: Pending, cut: int, shape: Shape) -> DataFrame:
    names = list(shape.types(part.schema))
    changes = row_images.differences(there.sparkSession, part, cut, shape)
    return there if changes is None else changed(there, changes, names)


def changed(there: DataFrame, changes: DataFrame, names: Sequence[str]) -> DataFrame:
    """All rows of a table without a key after some changes.

    :param there: its rows: ``names``, and columns that the source has dropped
    :param changes: as :func:`airflow_provider_cdc.targets.lake.events.row_images.differences` gives them
    :raises AbsentRows: a row goes that is not there. Where the table has no more columns, the query fails instead, with :data:`airflow_provider_cdc.targets.lake.rows.multiset.ABSENT`
    """
    types = {f.name: f.dataType for f in there.schema.fields}  # they may have more room
    changes = changes.select(
        *[F.col(quoted(c)).cast(types[c]).alias(c) if c in types else F.col(quoted(c)) for c in changes.columns]
    )
    if set(there.columns) > set(names):
        for rows, lacks in _each(there, changes, names):
            if not lacks.head(1):
                return rows
        raise AbsentRows
    whole = there.withColumn(NUMBER, F.lit(1)).unionByName(changes.drop(SEQ))
    return repeated(whole, list(names))


def _each(there: DataFrame, changes: DataFrame, names: Sequence[str]) -> Iterator[tuple[DataFrame, DataFrame]]:
    """An earlier release may have written zeros without their signs."""
    for signs in (True, False):
        yield followed(there, changes, names, signs=signs)
