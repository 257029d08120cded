"""The plain way, without this package: the last event of each key by a window, then ``MERGE INTO``."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.benchmarks.load.lake_changes import TYPES


@dataclass(frozen=True, slots=True)
class PlainRule:
    """A rule, in SQL over events, that defines the rows of a table.

    :param columns: column of the table → its value
    :param gone: whether the event leaves no row
    """

    columns: Mapping[str, str] = field(default_factory=lambda: {name: f"after.{name}" for name in TYPES})
    gone: str = "op = 'd'"


AS_IT_IS = PlainRule()


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
        """Return the name of a table in SQL."""

    @abc.abstractmethod
    def create(self, table: str, rows: Any) -> None:
        """Write a new table."""

    def load(self, table: str, files: Sequence[str], rule: PlainRule = AS_IT_IS) -> None:
        """A new table of the rows that a snapshot has read."""
        events = self.spark.read.parquet(*files).where(f"NOT coalesce({rule.gone}, true)")
        self.create(table, events.selectExpr(*[f"{value} AS {name}" for name, value in rule.columns.items()]))

    def merge(self, table: str, files: Sequence[str], rule: PlainRule = AS_IT_IS) -> None:
        """Bring the changes of a batch into the table."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        newest = F.row_number().over(Window.partitionBy("key.id").orderBy(F.desc("seq")))
        events = self.spark.read.parquet(*files).withColumn("_newest", newest).where("_newest = 1")
        view, names = f"changes_{table}", list(rule.columns)
        columns = [f"{value} AS {name}" for name, value in rule.columns.items()]
        events.selectExpr(f"coalesce({rule.gone}, true) AS _gone", "key.id AS _key", *columns).createOrReplaceTempView(
            view
        )
        sets = ", ".join(f"t.{name} = s.{name}" for name in names)
        self.spark.sql(
            f"MERGE INTO {self.name(table)} t USING {view} s ON t.id = s._key "
            "WHEN MATCHED AND s._gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{n}' for n in names)})"
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
