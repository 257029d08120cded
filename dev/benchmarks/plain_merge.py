"""What somebody without this package writes: the last event of each key by a window, then ``MERGE INTO``."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.benchmarks.lake_changes import TYPES


class PlainTables(abc.ABC):
    """Tables of one format, in a session with the defaults of the format.

    :param folder: where the tables are
    """

    settings: Mapping[str, str] = {}
    """What the application has to be started with."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark.newSession(), folder

    @abc.abstractmethod
    def name(self, table: str) -> str:
        """How SQL names it."""

    @abc.abstractmethod
    def create(self, table: str, rows: Any) -> None:
        """Write a new table."""

    def load(self, table: str, files: Sequence[str]) -> None:
        """A new table of the rows that a snapshot has read."""
        self.create(table, self.spark.read.parquet(*files).select("after.*"))

    def merge(self, table: str, files: Sequence[str]) -> None:
        """Bring the changes of a batch into the table."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        newest = F.row_number().over(Window.partitionBy("key.id").orderBy(F.desc("seq")))
        events = self.spark.read.parquet(*files).withColumn("_newest", newest).where("_newest = 1")
        view = f"changes_{table}"
        events.select(F.col("op").alias("_op"), F.col("key.id").alias("_key"), "after.*").createOrReplaceTempView(view)
        sets = ", ".join(f"t.{name} = s.{name}" for name in TYPES)
        names, values = ", ".join(TYPES), ", ".join(f"s.{name}" for name in TYPES)
        self.spark.sql(
            f"MERGE INTO {self.name(table)} t USING {view} s ON t.id = s._key "
            "WHEN MATCHED AND s._op = 'd' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s._op <> 'd' THEN INSERT ({names}) VALUES ({values})"
        )

    def rows(self, table: str) -> Any:
        return self.spark.table(self.name(table))


class PlainDelta(PlainTables):
    def name(self, table: str) -> str:
        return f"delta.`{self.folder / table}`"

    def create(self, table: str, rows: Any) -> None:
        rows.write.format("delta").save(str(self.folder / table))


class PlainIceberg(PlainTables):
    settings: Mapping[str, str] = {
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "hadoop",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }

    def name(self, table: str) -> str:
        return f"plain.bench.{table}"

    def create(self, table: str, rows: Any) -> None:
        rows.writeTo(self.name(table)).using("iceberg").create()


PLAIN: dict[str, type[PlainTables]] = {"delta": PlainDelta, "iceberg": PlainIceberg}
"""Kind of target → the same format by hand."""
