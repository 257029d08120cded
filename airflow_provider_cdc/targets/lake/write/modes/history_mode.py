"""Mode ``history``: each version of a row is a separate row (a slowly changing dimension of type 2).

It is valid from ``_valid_from`` to ``_valid_to``.

A version begins with the event ``_seq`` and ends with the event ``_seq_to`` of the same key, or with a truncate. The rows at some time are those with
``_valid_from <= time AND (_valid_to > time OR _is_current)``; the rows after some event are those with the same of ``_seq`` and ``_seq_to``, even if the
clock of the source was set back.

Versions are merged by ``_seq``. So to apply events twice is to apply them once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import (
    FROM,
    OMITTED,
    OP,
    OURS,
    ROW,
    SEQ,
    build_key_condition,
    identify_rows,
)
from airflow_provider_cdc.targets.lake.rules.projection import COMMITTED
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, to_comparable_value
from airflow_provider_cdc.targets.lake.write.modes.keyed_mode_events import (
    CUT,
    build_no_events,
    cut_after,
    read_followed_events,
)
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite

_OPEN = "o"
"""Operation of a version that the table has, and that was valid before the batches."""
_AT, _BEGAN, _NEXT, _SILENT = f"{OURS}at", f"{OURS}began", f"{OURS}next", f"{OURS}silent"


def write_history(write: TableWrite) -> None:
    """Add the versions that events begin, and end those that they follow."""
    shape, schema = write.shape, write.pending.schema
    followed, cuts, sparse = read_followed_events(write)
    events, sparse = (build_no_events(write), []) if followed is None else (followed, sparse)
    key, types = shape.list_key_columns(schema), write.column_types
    values = list(shape.map_source_types(schema))

    def versions(there: DataFrame | None) -> DataFrame:
        rows = _completed(events, there, key, [*shape.map_column_types(schema)], sparse, everything=bool(cuts))
        return _versions(rows, cuts, key, values)

    if write.fresh:
        write.replace_topic_rows(versions(None).where(F.col(OP) != _OPEN).select(*map(quote_name, types)))
        return
    stays = [name for name in types if name not in ("_valid_to", "_is_current", "_seq_to", "_seq")]

    def final(there: DataFrame) -> DataFrame:
        rows, ended = versions(there), F.col(OP) == _OPEN
        kept_columns = F.when(ended, F.array(*[F.lit(c) for c in stays])).otherwise(F.array()).cast("array<string>")
        rows = rows.where(~ended | F.col("_seq_to").isNotNull())
        # a merge reads its rows twice, and may not see two states of the table
        return rows.select(F.lit("u").alias(OP), *map(quote_name, types), kept_columns.alias(OMITTED)).localCheckpoint()

    write.merge_rows(final, ("_seq",), frozenset())


def _completed(
    events: DataFrame,
    there: DataFrame | None,
    key: tuple[str, ...],
    names: Sequence[str],
    sparse: Sequence[str],
    *,
    everything: bool,
) -> DataFrame:
    """Events, and the versions of the table that they may end; with the values that events leave out.

    :param everything: all valid versions, not only those of keys that have events
    """
    if FROM in events.columns:
        events = identify_rows(events, key)
    if there is not None:
        opened = there.where(F.col("_is_current")).select(
            F.col("_seq").alias(SEQ),
            F.lit(_OPEN).alias(OP),
            *map(quote_name, names),
            F.col("_valid_from").alias(COMMITTED),
        )
        if not everything:
            opened = opened.alias("a").join(events.alias("b"), build_key_condition(key, "a", "b"), "left_semi")
        if (ended := _ended(events, there, opened, key)) is not None:
            opened = opened.unionByName(ended, allowMissingColumns=True)
        if OMITTED in events.columns:
            opened = opened.withColumn(OMITTED, F.array().cast("array<string>"))
        if ROW in events.columns:
            whole = F.struct(*[F.col(quote_name(c)) for c in key])
            opened = opened.withColumn(ROW, F.struct(F.lit(0).cast("bigint").alias("at"), whole.alias("key")))
        events = events.unionByName(opened, allowMissingColumns=True)
    if not sparse:
        return events
    row = [ROW] if ROW in events.columns else list(map(quote_name, key))
    before = Window.partitionBy(*row).orderBy(SEQ).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return events.select(
        *[
            (_last_known_value(c, events, before) if c in sparse else F.col(quote_name(c))).alias(c)
            for c in events.columns
        ]
    )


def _ended(events: DataFrame, there: DataFrame, opened: DataFrame, key: tuple[str, ...]) -> DataFrame | None:
    """Find ends of rows that have no valid version, as deletes.

    They are found where they are after some of the events by the clock of the source, which has gone back since. There are few, in files that were written lately.

    :param opened: the valid versions
    """
    first = events.agg(F.min(F.unix_micros(COMMITTED))).head()
    if first is None or first[0] is None:
        return None
    later = there.where(~F.col("_is_current") & (F.col("_valid_to") > F.timestamp_micros(F.lit(int(first[0])))))
    ends = later.groupBy(*map(quote_name, key)).agg(F.max("_seq_to").alias(SEQ), F.max("_valid_to").alias(COMMITTED))
    ends = ends.alias("a").join(events.alias("b"), build_key_condition(key, "a", "b"), "left_semi")
    ends = ends.alias("a").join(opened.alias("b"), build_key_condition(key, "a", "b"), "left_anti")
    return ends.withColumn(OP, F.lit("d"))


def _last_known_value(column: str, events: DataFrame, before: object) -> Expression:
    """Build the value of a column by the last event of the row that has it, or that begins a row without it."""
    begins = F.col(OP).isin("c", "r")
    if FROM in events.columns:
        begins &= F.col(FROM).isNull()
    has_value = (F.col(OP) != "d") & (~F.array_contains(OMITTED, F.lit(column)) | begins)
    value = F.when(has_value, F.struct(F.col(quote_name(column)).alias("v")))
    return F.last(value, ignorenulls=True).over(before).v  # type: ignore[arg-type]


def _versions(
    rows: DataFrame, cuts: Sequence[tuple[int, int]], key: tuple[str, ...], values: Sequence[str]
) -> DataFrame:
    """Events that begin a version, and versions of the table, with their ends."""
    of_key = Window.partitionBy(*map(quote_name, key)).orderBy(SEQ)
    rows = rows.withColumn(CUT, cut_after(SEQ, cuts))
    image = F.struct(*[to_comparable_value(F.col(quote_name(c)), rows.schema[c].dataType).alias(c) for c in values])
    rows = rows.withColumn(_SILENT, _says_nothing(of_key, image)).where(~F.col(_SILENT))
    # the clock of a source may go back, time in a history does not
    last = F.lag(F.struct(F.col(OP).alias("op"), F.col(CUT).alias("cut"))).over(of_key)
    emptied = F.when((last.op != "d") & (last.cut.seq < F.col(SEQ)), last.cut.ts)
    rows = rows.withColumn(_AT, F.greatest(COMMITTED, emptied))
    began = F.max(_AT).over(of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    rows = rows.withColumn(_BEGAN, began)
    following = F.struct(F.lead(SEQ).over(of_key).alias("seq"), F.lead(_BEGAN).over(of_key).alias("ts"))
    rows = rows.withColumn(_NEXT, F.when(following.seq.isNotNull(), following))
    by_cut = F.col(f"{CUT}.seq").isNotNull() & (
        F.col(f"{_NEXT}.seq").isNull() | (F.col(f"{CUT}.seq") < F.col(f"{_NEXT}.seq"))
    )
    until = F.when(by_cut, F.greatest(f"{CUT}.ts", _BEGAN)).otherwise(F.col(f"{_NEXT}.ts"))
    seq_to = F.when(by_cut, F.col(f"{CUT}.seq")).otherwise(F.col(f"{_NEXT}.seq"))
    return (
        rows.where(F.col(OP) != "d")
        .withColumn("_valid_from", F.col(_BEGAN))
        .withColumn("_valid_to", until)
        .withColumn("_is_current", seq_to.isNull())
        .withColumn("_seq_to", seq_to)
        .withColumn("_seq", F.col(SEQ))
    )


def _says_nothing(of_key: object, image: Expression) -> Expression:
    """Build the condition that an event is a read that finds the row as it is known.

    A snapshot beside the stream has many of them.

    :param image: the values of the row
    """
    before = F.lag(F.struct(F.col(OP).alias("op"), F.col(CUT).alias("cut"), image.alias("image"))).over(of_key)  # type: ignore[arg-type]
    still = (before.op != "d") & (before.cut.isNull() | (before.cut.seq > F.col(SEQ)))
    return F.coalesce((F.col(OP) == "r") & still & before.image.eqNullSafe(image), F.lit(col=False))
