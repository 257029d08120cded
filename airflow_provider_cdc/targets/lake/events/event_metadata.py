"""Values that are read of events besides their rows: their times, transactions, and the columns that they leave out."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column as Expression
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.rules.projection import META


class EventMetadata:
    """Values that are read of events besides their rows.

    :param names: as in :attr:`airflow_provider_cdc.targets.lake.rules.projection.Projection.needed_metadata`
    :param truncates: whether ``t`` events are wanted, too
    """

    def __init__(self, names: Collection[str], *, truncates: bool) -> None:
        self.names, self.truncates = frozenset(names), truncates

    def list_metadata_fields(self, spark: SparkSession, files: list[str]) -> dict[str, T.DataType]:
        """Columns of the files."""
        if not self.names:
            return {}
        source: T.DataType = T.StructType(
            [T.StructField("ts_us", T.LongType()), T.StructField("snapshot", T.StringType())]
        )
        if "source" in self.names:
            source = spark.read.parquet(files[0]).schema["source"].dataType
        transaction = T.StructType([T.StructField("id", T.StringType())])
        return {"source": source, "ts_us": T.LongType(), "transaction": transaction}

    def build_metadata_values(self, left_out: Expression) -> list[Expression]:
        values = {
            "commit_ts": F.timestamp_micros("source.ts_us"),
            "captured_ts": F.timestamp_micros("ts_us"),
            "transaction_id": F.col("transaction.id"),
            "source": F.to_json("source"),
            "snapshot": F.col("source.snapshot"),
            "unavailable": left_out,
        }
        return [value.alias(f"{META}{name}") for name, value in values.items() if name in self.names]
