"""Mode ``soft_delete``: a row that the source has deleted stays, with ``_is_deleted`` and ``_deleted_at``. It comes back to life when its key does.

A row that does not pass the filter of the rule any more counts as deleted, and keeps the values with which it passed.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce as fold
from operator import or_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import (
    OMITTED,
    OP,
    ORIGIN,
    OURS,
    SEQ,
    UNKNOWN,
    inherit_values,
    last_per_key,
)
from airflow_provider_cdc.targets.lake.rules.projection import COMMITTED, PASSES
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from airflow_provider_cdc.targets.lake.write.modes.keyed_mode_events import (
    build_no_events,
    cut_after,
    read_followed_events,
)
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite, key_is_another

_AT, _IMAGE, _LAST, _CARRIED = f"{OURS}at", f"{OURS}image", f"{OURS}last", f"{OURS}told_"
_ENDED, _LIVED, _BEFORE = f"{OURS}ended", f"{OURS}lived", f"{OURS}before"
"""When a row has ended that stays deleted, whether it was alive in the batches, and when it had ended by the table."""


def write_soft_delete(write: TableWrite) -> None:
    """Merge the last image of each key, and whether its row is deleted."""
    pending, shape = write.pending, write.shape
    events, cuts, sparse = read_followed_events(write)
    key, types = shape.list_key_columns(pending.schema), write.column_types
    if events is None:
        events, sparse = build_no_events(write).withColumn(PASSES, F.lit(col=True)), []
    events = events.withColumn(_AT, F.col(SEQ))
    last = (
        last_per_key(events.drop(PASSES), key, sparse, shape.retired_columns, stays=True)
        if shape.filter is None
        else _last_that_passed(events, key, shape.retired_columns)
    )
    rows = _flagged(last, cuts)
    # a key that was looked up and is not there, or a row that still does not pass, may be deleted already
    again = shape.filter is not None or _lookups(write)
    if again:
        rows = _first_end(rows, events, key)

    def final(there: DataFrame) -> DataFrame:
        if pending.changes and there.groupBy(*map(quote_name, key)).count().where("count > 1").head(1):
            raise key_is_another(
                write, "a table in mode soft_delete in which a deleted row has the new key of another row"
            )
        merged = inherit_values(rows, there, key, sparse, shape.retired_columns) if ORIGIN in rows.columns else rows
        merged = merged.drop(UNKNOWN)
        if again:
            merged = _as_it_was(merged, there, key)
        flags = set(shape.map_flag_types())
        # deletes, and rows that a truncate has taken, change the flags alone
        marks = F.array(*[F.lit(name) for name in types if name not in {*flags, *key}]).cast("array<string>")
        if shape.filter is not None:
            alone = merged.where(F.col(_IMAGE).isNull()).drop(_IMAGE)
            present_keys = there.select(*map(quote_name, key))
            same = fold(
                lambda a, b: a & b, [F.col(f"a.{quote_name(c)}").eqNullSafe(F.col(f"b.{quote_name(c)}")) for c in key]
            )
            alone = (
                alone.alias("a")
                .join(present_keys.alias("b"), same, "left_semi")
                .withColumn(OMITTED, marks)
                .localCheckpoint()
            )
            merged = merged.where(F.col(_IMAGE).isNotNull()).drop(_IMAGE)
            if OMITTED not in merged.columns:
                merged = merged.withColumn(OMITTED, F.array().cast("array<string>"))
            merged = merged.unionByName(alone)
        if cuts:
            same = fold(
                lambda a, b: a & b, [F.col(f"a.{quote_name(c)}").eqNullSafe(F.col(f"b.{quote_name(c)}")) for c in key]
            )
            swept = there.where(~F.coalesce("_is_deleted", F.lit(col=False))).alias("a")
            swept = swept.join(merged.alias("b"), same, "left_anti").withColumn(SEQ, F.lit(0).cast("bigint"))
            swept = swept.withColumn("_is_deleted", F.lit(col=True)).withColumn("_deleted_at", cut_after(SEQ, cuts).ts)
            swept = swept.select(F.lit("u").alias(OP), *map(quote_name, types), marks.alias(OMITTED)).localCheckpoint()
            if OMITTED not in merged.columns:
                merged = merged.withColumn(OMITTED, F.array().cast("array<string>"))
            merged = merged.unionByName(swept)
        return merged

    if write.fresh:
        if _IMAGE in rows.columns:
            rows = rows.where(F.col(_IMAGE).isNotNull())
        write.replace_topic_rows(rows.select(*map(quote_name, types)))
    else:
        write.merge_rows(final, key, shape.list_nullable_keys(pending.schema))


def _lookups(write: TableWrite) -> bool:
    """Return whether there are deletes that have only the key: of a row that the table may have as deleted already."""
    whole, with_deletes = (
        event_reduction.list_sparse_columns(write.pending, 0, deletes=deletes) for deletes in (False, True)
    )
    return set(whole) != set(with_deletes)


def _first_end(rows: DataFrame, events: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows that are deleted since the first event after their last life in the batches, not since the last one."""
    alive = F.col(PASSES) & (F.col(OP) != "d")
    lived = F.max(F.when(alive, F.col(SEQ))).over(Window.partitionBy(*map(quote_name, key)))
    after = events.withColumn(_LIVED, F.coalesce(lived, F.lit(0))).where(F.col(SEQ) > F.col(_LIVED))
    ends = after.groupBy(*map(quote_name, key)).agg(
        F.min_by(COMMITTED, SEQ).alias(_ENDED), (F.max(_LIVED) > 0).alias(_LIVED)
    )
    ended = F.when(F.col("_is_deleted"), F.coalesce(_ENDED, "_deleted_at"))
    return _joined(rows, ends, key).withColumn("_deleted_at", ended).drop(_ENDED)


def _as_it_was(rows: DataFrame, there: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows that were deleted before, and stay so, since the time that the table has."""
    before = there.where("_is_deleted").select(*map(quote_name, key), F.col("_deleted_at").alias(_BEFORE))
    stays = F.col("_is_deleted") & ~F.coalesce(_LIVED, F.lit(col=True)) & F.col(_BEFORE).isNotNull()
    since = F.when(stays, F.col(_BEFORE)).otherwise(F.col("_deleted_at"))
    # a merge reads its rows twice, and may not see two states of the table
    return _joined(rows, before, key).withColumn("_deleted_at", since).drop(_BEFORE, _LIVED).localCheckpoint()


def _joined(rows: DataFrame, more: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows with the columns that others have of their keys."""
    same = fold(lambda a, b: a & b, [F.col(f"a.{quote_name(c)}").eqNullSafe(F.col(f"b.{quote_name(c)}")) for c in key])
    others = [F.col(f"b.{quote_name(c)}") for c in more.columns if c not in key]
    return rows.alias("a").join(more.alias("b"), same, "left").select("a.*", *others)


def _last_that_passed(events: DataFrame, key: tuple[str, ...], carried: Collection[str]) -> DataFrame:
    """Reduce the events of each key to the last one, with the last row that passed the filter.

    ``_IMAGE`` is NULL if none did.

    :param carried: columns that have the value of the last event that passed and has one; :data:`OMITTED` names those that no event has
    """
    not_row = (SEQ, OP, PASSES, COMMITTED, _AT, OMITTED, *carried, *key)
    others = [c for c in events.columns if c not in not_row]
    op = F.when(F.col(PASSES), F.col(OP)).otherwise(F.lit("d"))
    image = F.struct(F.lit(1).alias("_"), *map(quote_name, others))
    carried_values = []
    for i, c in enumerate(carried):
        has_value = F.col(PASSES) & ~F.array_contains(OMITTED, F.lit(c))
        value = F.max_by(F.struct(F.col(quote_name(c)).alias("v")), F.when(has_value, F.col(SEQ)))
        carried_values.append(value.alias(f"{_CARRIED}{i}"))
    reduced = events.groupBy(*map(quote_name, key)).agg(
        F.max_by(F.struct(op.alias(OP), COMMITTED, _AT, *map(quote_name, key)), SEQ).alias(_LAST),
        F.max_by(F.when(F.col(PASSES), image), F.when(F.col(PASSES), F.col(SEQ))).alias(_IMAGE),
        *carried_values,
    )
    kept_names = [F.when(F.col(f"{_CARRIED}{i}").isNull(), F.lit(c)) for i, c in enumerate(carried)]
    return reduced.select(
        f"{_LAST}.*", *[F.col(f"{_IMAGE}.{quote_name(c)}").alias(c) for c in others],
        *[F.col(f"{_CARRIED}{i}.v").alias(c) for i, c in enumerate(carried)],
        *([F.array_compact(F.array(*kept_names)).alias(OMITTED)] if kept_names else []),
        F.col(f"{_IMAGE}._").alias(_IMAGE),
    )  # fmt: skip


def _flagged(rows: DataFrame, cuts: list[tuple[int, int]]) -> DataFrame:
    """Rows with the flags: deleted are those that end with a delete, or before a truncate."""
    cut = cut_after(_AT, cuts)
    ended = fold(or_, [F.col(OP) == "d", cut.isNotNull()])
    at = F.when(F.col(OP) == "d", F.col(COMMITTED)).otherwise(cut.ts)
    return (
        rows.withColumn("_is_deleted", ended)
        .withColumn("_deleted_at", F.when(F.col("_is_deleted"), at))
        .withColumn(OP, F.lit("u"))
        .drop(_AT, COMMITTED)
    )
