"""Functions of the modes that follow rows by their keys: the events to follow, and the truncates among them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS, SEQ
from airflow_provider_cdc.targets.lake.rules.projection import COMMITTED
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite, key_is_another

CUT = f"{OURS}cut"
"""The first truncate after an event: ``seq`` and ``ts``, NULL if there is none."""


def read_followed_events(write: TableWrite) -> tuple[DataFrame | None, list[tuple[int, int]], list[str]]:
    """Events, truncates (number, and time in microseconds), and columns that events leave out.

    :raises TargetError: the key has changed at the source
    """
    pending, shape, after = write.pending, write.shape, 0
    if event_reduction.key_changed(pending, 0):
        after = event_reduction.last_truncate(write.spark, pending)
        if not (write.fresh and after) or event_reduction.key_changed(pending, after):
            raise key_is_another(write, f"a table in mode {shape.mode}")
    sparse = shape.list_sparse_columns(event_reduction.list_sparse_columns(pending, after), pending.schema)
    if shape.needs_deleted:
        sparse = shape.left_out(event_reduction.list_sparse_columns(pending, after, deletes=True), pending.schema)
    cuts = [cut for cut in event_reduction.list_truncates(write.spark, pending) if cut[0] > after]
    return event_reduction.read_events(write.spark, pending, after, shape, present=write.read_documents), cuts, sparse


def cut_after(seq: str, cuts: Sequence[tuple[int, int]]) -> Expression:
    """Build the first truncate after an event's number, as a struct of ``seq`` and ``ts``; NULL if there is none."""
    type_ = "struct<seq:bigint,ts:timestamp>"
    if not cuts:
        return F.lit(None).cast(type_)
    each = [F.struct(F.lit(n).alias("seq"), F.timestamp_micros(F.lit(us)).alias("ts")).cast(type_) for n, us in cuts]
    return F.get(F.filter(F.array(*each), lambda cut: cut.seq > F.col(seq)), F.lit(0))


def build_no_events(write: TableWrite) -> DataFrame:
    """No event."""
    rows = event_reduction.build_empty_rows(write.spark, write.pending, write.shape)
    return rows.withColumn(SEQ, F.lit(0).cast("bigint")).withColumn(COMMITTED, F.lit(None).cast("timestamp"))
