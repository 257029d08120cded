"""Evolution of a table for pending batches: the changes of its columns, and the values of its rows in them then."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import (
    ColumnLineage,
    PendingBatches,
    base_version,
    left_behind,
    trace_columns,
)
from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution, WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rules.projection import Projection, lower_names
from airflow_provider_cdc.targets.lake.schema.lossy_casts import Changed, check_exact
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_fill_value,
    find_common_type,
    format_constant,
    quote_name,
)


def present_version(target: Target, pending: PendingBatches, app: str, shape: Projection) -> int:
    """Return the schema version of the table's columns.

    If a killed run has left an evolution unfinished, it is finished first.

    :raises Conflict: another run has brought them further than these batches go
    """
    base, at = base_version(pending), target.read_schema_version(app)
    if at > pending.schema_version:
        raise WriteConflict(f"its columns are already at schema version {at}")
    if not base < at < pending.schema_version:
        return base
    half = evolution_of(pending, app, base, at, shape)
    if target.can_evolve(half):
        target.evolve_columns(half)
    return at


def evolution_of(pending: PendingBatches, app: str, start: int, until: int, shape: Projection) -> ColumnEvolution:
    """Compute the changes of columns from one version to another. Fills are those of all rows that the table has."""
    # the newest version is that of the shape itself
    before, after = shape.as_of(start), shape if until == pending.schema_version else shape.as_of(until)
    schema = pending.schema if until == pending.schema_version else pending.schemas[until]
    types = {**event_reduction.final_types(schema, after), **shape.map_flag_types()}
    if not pending.changes:
        return ColumnEvolution(app, until, types)
    pairs = [(str(o.column), name) for name, o in trace_columns(pending, start, until).items() if o.column is not None]
    named = [(before.map_column_name(old), after.map_column_name(new)) for old, new in pairs]
    named += [
        (before.map_column_name(str(o.column)), n)
        for n, o in _left_from(pending, start, after).items()
        if o.column is not None
    ]
    renamed = tuple((old, new) for old, new in named if old is not None and new is not None and old != new)
    gone = _dropped(pending, start, until, shape, types) if shape.rule.dropped_columns == "drop" else ()
    return ColumnEvolution(app, until, types, renamed, _fills(pending, until, after), gone)


def _dropped(
    pending: PendingBatches, start: int, until: int, shape: Projection, types: Mapping[str, str]
) -> tuple[str, ...]:
    """Columns of the table whose columns of the source are dropped on the way from one version to another.

    They are dropped alone, or with a table that is made again.
    """
    gone = [
        shape.as_of(start).map_column_name(origin.column)
        for v in range(start + 1, until + 1)
        for old in (*pending.changes[v].dropped, *left_behind(pending, v))
        if (origin := _origin(pending, start, v - 1, old)).column is not None
    ]
    return tuple(dict.fromkeys(name for name in gone if name is not None and name.lower() not in lower_names(types)))


def _fills(pending: PendingBatches, until: int, shape: Projection) -> dict[str, str | None]:
    """Return column of the table → value of rows that existed before the source had the column."""
    schema, names = pending.schemas[until], shape.map_column_names(pending.schemas[until])
    return {
        names[name]: format_constant(origin.fill, schema.get_column(name).type)
        for name, origin in trace_columns(pending, base_version(pending), until).items()
        if origin.column is None and name in names
    } | {
        name: format_constant(origin.fill, pending.schemas[left.until - 1].get_column(left.column).type)
        for name, left in shape.left.items()
        if (origin := _left_from(pending, base_version(pending), shape)[name]).column is None
    }


def _left_from(pending: PendingBatches, start: int, shape: Projection) -> dict[str, ColumnLineage]:
    """Column that gets no values any more → where its values come from in rows of a version, which may be of before that."""
    return {
        name: _origin(pending, start, left.until - 1, left.column)
        for name, left in shape.left.items()
        if start < left.until
    }


def _origin(pending: PendingBatches, start: int, until: int, column: str) -> ColumnLineage:
    """Return the origin of the values of a column of one version in rows of a version before.

    The batches need not have the schema of the first one.
    """
    return ColumnLineage(column=column) if start == until else trace_columns(pending, start, until)[column]


def brought_up(
    rows: DataFrame, pending: PendingBatches, start: int, shape: Projection, types: Mapping[str, str], changed: Changed, where: str, *, fills: bool
) -> DataFrame:  # fmt: skip
    """Rows of a table as they are with its final columns. A type with less room than the table's changes nothing.

    :param start: schema version of the columns that they have
    :param changed: columns whose values become others of the same meaning
    :param where: the table, for errors
    :param fills: whether rows get the values of columns that are new
    """
    names, before = {new: old for old, new in shape.map_column_names(pending.schema).items()}, shape.as_of(start)
    origins = (
        trace_columns(pending, start)
        if pending.changes
        else {name: ColumnLineage(column=name) for name in pending.schema.column_names}
    )
    fill_values = _fills(pending, pending.schema_version, shape) if pending.changes else {}
    came: dict[str, str] = {}
    columns, left = [], _left_from(pending, start, shape)
    there = {f.name.lower(): f.dataType.simpleString() for f in rows.schema.fields}
    for name, type_ in types.items():
        if name in fill_values:
            value = build_fill_value(fill_values[name] if fills else None, type_)
        else:
            old = before.map_column_name(str(origins[names[name]].column)) if name in names else name
            if name in left:
                old = before.map_column_name(str(left[name].column))
            came[name] = str(old)
            value = F.col(quote_name(came[name]))
            type_ = find_common_type(there[came[name].lower()], type_) or type_
        columns.append(value.cast(type_).alias(name))
    check_exact(rows.select(*[F.col(quote_name(came[name])).alias(name) for name in changed]), changed, where)
    taken = {old.lower() for old in came.values()} | {name.lower() for name in types}
    columns += [F.col(quote_name(c)) for c in rows.columns if c.lower() not in taken]
    return rows.select(*columns)
