"""Applies pending batches to one table: chooses the kind of write, and makes its rows.

There are four kinds. A new or truncated table is replaced by the rows that result from the events. A table with a key is merged. So is one whose
columns change, unless only a rewrite of all rows can change them in one commit. In a table without a key, row images are added and
removed by number. That is the only write that must not be repeated: it applies one batch at a time, so that the marker alone decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.pending import Origin, Pending, base_version, lineage
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from spark_jobs import reduce
from spark_jobs.bags import NUMBER, followed
from spark_jobs.datatypes import constant, filled, quoted
from spark_jobs.last import ORIGIN, SEQ, UNKNOWN, inherited, last_per_key
from spark_jobs.rewrite import rewritten
from spark_jobs.route import Route
from spark_jobs.session import suit
from spark_jobs.targets.base import Conflict, Evolution, Marker, Merge, Target

log = logging.getLogger("spark_jobs.table")


def one_batch_at_a_time(spark: SparkSession, pending: Pending) -> bool:
    """Whether these batches can be applied to a table only one after the other."""
    if reduce.last_truncate(spark, pending):
        return False
    return not pending.schema.key or reduce.key_changed(pending, 0)


def bring_up(target: Target, pending: Pending, marker: Marker, route: Route, *, new: bool) -> None:
    """Apply pending batches.

    :param route: how rows of a table with a key are written
    :param new: no batch was applied before; rows that are there do not count
    :raises TargetError: the table cannot take a change
    :raises Conflict: another writer was faster
    """
    spark = target.spark
    suit(spark, pending.bytes + (0 if new else target.size()))
    cut = reduce.last_truncate(spark, pending)
    if new or cut:
        rows = reduce.contents(spark, pending, cut).drop(UNKNOWN)
        if target.exists():
            target.replace(rows, marker)
        else:
            target.create(rows, marker)
    elif not pending.schema.key or reduce.key_changed(pending, 0):
        _by_number(target, pending, marker)
    else:
        merges = route.merges(target, pending) or _by_arrays(target, pending, marker, route)
        if merges:
            log.info("%s is merged: %s.", pending.topic, merges)
            _by_key(target, pending, marker)


def _by_arrays(target: Target, pending: Pending, marker: Marker, route: Route) -> str:
    """Commit arrays.

    :return: why the table has to be merged instead; empty if it is done
    """
    _present_version(target, pending, marker.app)
    changes = route.reduce(pending)
    reason = target.upsert(changes, lambda: reduce.keys(target.spark, pending), marker)
    if not reason:
        log.info("%s is committed: %d keys, %d rows.", pending.topic, changes.keys.num_rows, changes.number_of_rows())
    return reason


def _by_key(target: Target, pending: Pending, marker: Marker) -> None:
    spark, types, key = target.spark, reduce.final_types(pending.schema), pending.schema.key
    found, sparse = reduce.events(spark, pending, 0), reduce.sparse(pending, 0)
    rows = last_per_key(found, key, sparse) if found is not None else reduce.nothing(spark, pending)
    start = _present_version(target, pending, marker.app)
    final = _evolution(pending, marker.app, start, pending.version)
    if target.can_evolve(final):
        nullable = frozenset(name for name in key if pending.schema.column(name).nullable)
        fills = target.evolve(final)
        if ORIGIN in rows.columns:
            rows = inherited(rows, _filled(target.rows(), types, fills), key, sparse)
        target.merge(Merge(rows, key, nullable, types, fills), marker)
    else:
        there = _present(target, pending, start)
        if ORIGIN in rows.columns:
            rows = inherited(rows, there, key, sparse)
        target.replace(rewritten(there, rows, key, types), marker)


def _filled(there: DataFrame, types: dict[str, str], fills: Mapping[str, str | None]) -> DataFrame:
    """The table's rows as they are when the fills are made."""
    return there.select(*[filled(fills[c], t).alias(c) if c in fills else F.col(quoted(c)) for c, t in types.items()])


def _by_number(target: Target, pending: Pending, marker: Marker) -> None:
    """Apply changes to a table without a key, which is a bag of rows: equal rows are added and removed by number."""
    changes, names = reduce.differences(target.spark, pending, 0), list(pending.schema.names)
    if changes is None:
        nothing = reduce.nothing(target.spark, pending).select(*map(quoted, names))
        changes = nothing.withColumn(NUMBER, F.lit(1)).withColumn(SEQ, F.lit(0).cast("bigint"))
    if not pending.changes and set(pending.counts()) <= {"c", "r"}:
        target.append(changes.drop(NUMBER, SEQ), marker)
        return
    there = _present(target, pending, _present_version(target, pending, marker.app))
    if set(there.columns) > set(names):
        rows, lacks = followed(there, changes, names)
        if lacks.head(1):
            raise _absent(target, pending)
        target.replace(rows, marker)
        return
    try:
        whole = there.withColumn(NUMBER, F.lit(1)).unionByName(changes.drop(SEQ))
        target.replace(reduce.repeated(whole, names), marker)
    except PySparkException as e:
        if reduce.ABSENT not in str(e):
            raise
        raise _absent(target, pending) from e


def _absent(target: Target, pending: Pending) -> ChangeLogDamaged:
    return ChangeLogDamaged(
        "The change log removes a row that the table does not have: they do not belong together.",
        where=f"{target.location}, batches {pending.first} to {pending.last}",
        safe="The table was not changed.",
        remedy="drop the target table and run the apply again: it is built again from the change log",
    )


# -- columns ----------------------------------------------------------------------------------------------------------


def _present_version(target: Target, pending: Pending, app: str) -> int:
    """The schema version of the table's columns. If a killed run has left an evolution unfinished, it is finished first.

    :raises Conflict: another run has brought them further than these batches go
    """
    base, at = base_version(pending), target.version(app)
    if at > pending.version:
        raise Conflict(f"its columns are at schema version {at} already")
    if not base < at < pending.version:
        return base
    half = _evolution(pending, app, base, at)
    if target.can_evolve(half):
        target.evolve(half)
    return at


def _evolution(pending: Pending, app: str, start: int, until: int) -> Evolution:
    """How columns have to change from one version to another. Fills are those of all rows that the table has."""
    types = reduce.final_types(pending.schemas[until])
    if not pending.changes:
        return Evolution(app, until, types)
    renamed = [(o.column, name) for name, o in lineage(pending, start, until).items() if o.column not in (None, name)]
    return Evolution(app, until, types, tuple((str(o), n) for o, n in renamed), _fills(pending, until))


def _fills(pending: Pending, until: int) -> dict[str, str | None]:
    return {
        name: constant(origin.fill, pending.schemas[until].column(name).type)
        for name, origin in lineage(pending, base_version(pending), until).items()
        if origin.column is None
    }


def _present(target: Target, pending: Pending, start: int) -> DataFrame:
    """The table's rows, with the final columns first, then the columns that the source has dropped."""
    types, rows = reduce.final_types(pending.schema), target.rows()
    if pending.changes:
        origins, fills = lineage(pending, start), _fills(pending, pending.version)
    else:
        origins, fills = {name: Origin(column=name) for name in types}, {}
    columns = []
    for name, type_ in types.items():
        value = filled(fills[name], type_) if name in fills else F.col(quoted(str(origins[name].column)))
        columns.append(value.cast(type_).alias(name))
    taken = {str(o.column).lower() for name, o in origins.items() if name not in fills} | {c.lower() for c in types}
    columns += [F.col(quoted(c)) for c in rows.columns if c.lower() not in taken]
    return rows.select(*columns)
