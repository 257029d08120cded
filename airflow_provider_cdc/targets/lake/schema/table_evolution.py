"""How the columns of a table have to change for pending batches, and what its rows have in them then."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import Origin, Pending, base_version, left_behind, lineage
from airflow_provider_cdc.targets.lake.events import reduce_events
from airflow_provider_cdc.targets.lake.formats.target import Conflict, Evolution, Target
from airflow_provider_cdc.targets.lake.rules.projection import Shape, lowered
from airflow_provider_cdc.targets.lake.schema.lossy_casts import Changed, check_exact
from airflow_provider_cdc.targets.lake.types.spark_types import common, constant, filled, quoted


def present_version(target: Target, pending: Pending, app: str, shape: Shape) -> int:
    """The schema version of the table's columns. If a killed run has left an evolution unfinished, it is finished first.

    :raises Conflict: another run has brought them further than these batches go
    """
    base, at = base_version(pending), target.version(app)
    if at > pending.version:
        raise Conflict(f"its columns are at schema version {at} already")
    if not base < at < pending.version:
        return base
    half = evolution_of(pending, app, base, at, shape)
    if target.can_evolve(half):
        target.evolve(half)
    return at


def evolution_of(pending: Pending, app: str, start: int, until: int, shape: Shape) -> Evolution:
    """How columns have to change from one version to another. Fills are those of all rows that the table has."""
    # the newest version is that of the shape itself
    before, after = shape.as_of(start), shape if until == pending.version else shape.as_of(until)
    schema = pending.schema if until == pending.version else pending.schemas[until]
    types = {**reduce_events.final_types(schema, after), **shape.flags()}
    if not pending.changes:
        return Evolution(app, until, types)
    pairs = [(str(o.column), name) for name, o in lineage(pending, start, until).items() if o.column is not None]
    named = [(before.name(old), after.name(new)) for old, new in pairs]
    named += [
        (before.name(str(o.column)), n) for n, o in _left_from(pending, start, after).items() if o.column is not None
    ]
    renamed = tuple((old, new) for old, new in named if old is not None and new is not None and old != new)
    gone = _dropped(pending, start, until, shape, types) if shape.rule.dropped_columns == "drop" else ()
    return Evolution(app, until, types, renamed, _fills(pending, until, after), gone)


def _dropped(pending: Pending, start: int, until: int, shape: Shape, types: Mapping[str, str]) -> tuple[str, ...]:
    """Columns of the table whose columns of the source are dropped on the way from one version to another, alone or with a table that is made anew."""
    gone = [
        shape.as_of(start).name(origin.column)
        for v in range(start + 1, until + 1)
        for old in (*pending.changes[v].dropped, *left_behind(pending, v))
        if (origin := _origin(pending, start, v - 1, old)).column is not None
    ]
    return tuple(dict.fromkeys(name for name in gone if name is not None and name.lower() not in lowered(types)))


def _fills(pending: Pending, until: int, shape: Shape) -> dict[str, str | None]:
    """Column of the table → what rows get in it that were there before the source had it."""
    schema, names = pending.schemas[until], shape.names(pending.schemas[until])
    return {
        names[name]: constant(origin.fill, schema.column(name).type)
        for name, origin in lineage(pending, base_version(pending), until).items()
        if origin.column is None and name in names
    } | {
        name: constant(origin.fill, pending.schemas[left.until - 1].column(left.column).type)
        for name, left in shape.left.items()
        if (origin := _left_from(pending, base_version(pending), shape)[name]).column is None
    }


def _left_from(pending: Pending, start: int, shape: Shape) -> dict[str, Origin]:
    """Column that gets no values any more → where its values come from in rows of a version, which may be of before that."""
    return {
        name: _origin(pending, start, left.until - 1, left.column)
        for name, left in shape.left.items()
        if start < left.until
    }


def _origin(pending: Pending, start: int, until: int, column: str) -> Origin:
    """Where the values of a column of one version come from in rows of a version before. The batches need not have the schema of the first one."""
    return Origin(column=column) if start == until else lineage(pending, start, until)[column]


def brought_up(
    rows: DataFrame, pending: Pending, start: int, shape: Shape, types: Mapping[str, str], changed: Changed, where: str, *, fills: bool
) -> DataFrame:  # fmt: skip
    """Rows of a table as they are with its final columns. A type with less room than the table's changes nothing.

    :param start: schema version of the columns that they have
    :param changed: columns whose values become others of the same meaning
    :param where: the table, for errors
    :param fills: whether rows get the values of columns that are new
    """
    names, before = {new: old for old, new in shape.names(pending.schema).items()}, shape.as_of(start)
    origins = (
        lineage(pending, start) if pending.changes else {name: Origin(column=name) for name in pending.schema.names}
    )
    found = _fills(pending, pending.version, shape) if pending.changes else {}
    came: dict[str, str] = {}
    columns, left = [], _left_from(pending, start, shape)
    there = {f.name.lower(): f.dataType.simpleString() for f in rows.schema.fields}
    for name, type_ in types.items():
        if name in found:
            value = filled(found[name] if fills else None, type_)
        else:
            old = before.name(str(origins[names[name]].column)) if name in names else name
            if name in left:
                old = before.name(str(left[name].column))
            came[name] = str(old)
            value = F.col(quoted(came[name]))
            type_ = common(there[came[name].lower()], type_) or type_
        columns.append(value.cast(type_).alias(name))
    check_exact(rows.select(*[F.col(quoted(came[name])).alias(name) for name in changed]), changed, where)
    taken = {old.lower() for old in came.values()} | {name.lower() for name in types}
    columns += [F.col(quoted(c)) for c in rows.columns if c.lower() not in taken]
    return rows.select(*columns)
