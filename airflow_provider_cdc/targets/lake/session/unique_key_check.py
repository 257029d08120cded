"""Rows that a snapshot reads."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.targets.lake.session.spark_session import PARTITION_BYTES


def read_once(spark: SparkSession, pending: PendingBatches, after: int) -> bool:
    """Return whether all events behind a number are those of one snapshot, which reads each key once.

    Another one, or one in chunks, may read it again.

    Few events are not checked: to reduce them costs less.
    """
    files = [(path, file) for path, file in pending.files if file.last_seq > after]
    if sum(file.bytes for _, file in files) < PARTITION_BYTES or any(set(f.counts) - {"r", "t"} for _, f in files):
        return False
    schema = "seq bigint, op string, source struct<ts_us:bigint,snapshot:string>"
    reads = spark.read.schema(schema).parquet(*[path for path, _ in files]).where(f"op = 'r' AND seq > {after}")
    chunks = F.bool_or(F.expr("source.snapshot = 'incremental'"))
    row = reads.agg(F.min("source.ts_us"), F.max("source.ts_us"), chunks).head()
    # all rows of a snapshot have its time
    return row is not None and row[0] == row[1] and row[2] is False
