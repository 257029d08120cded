"""Delta tables by path.

The marker is Delta's own transaction identifier (``txn`` action: application id and version), which lands in the commit of the
data and makes a repeated commit of the same version a no-op. It is read back through the table's log object, for which Delta has
no SQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter

from airflow_provider_cdc.core.errors import TargetError
from spark_jobs.targets.base import Conflict, Evolution, Marker, Target

_TXN = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_CONFLICTS = ("Concurrent", "DELTA_CONCURRENT", "MetadataChangedException", "ProtocolChangedException")
_PROPERTIES = {
    # renaming, dropping and odd names of columns without rewriting files
    "delta.columnMapping.mode": "name",
    # INT to BIGINT without rewriting files
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "true",
}


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


class DeltaTarget(Target):
    """See :class:`spark_jobs.targets.base.Target`."""

    @property
    def _name(self) -> str:
        return f"delta.{quoted(self.location)}"

    def exists(self) -> bool:
        return bool(self._log().tableExists())

    def marker(self, app: str) -> int:
        option = self._jvm.scala.Option.empty()
        return int(self._log().startTransaction(option, option).txnVersion(app))

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.location)

    def create(self, types: Mapping[str, str]) -> None:
        columns = ", ".join(f"{quoted(name)} {type_}" for name, type_ in types.items())
        properties = ", ".join(f"'{k}' = '{v}'" for k, v in _PROPERTIES.items())
        with _conflicts():
            self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING DELTA TBLPROPERTIES ({properties})"
            )

    def evolve(self, evolution: Evolution) -> dict[str, str]:
        with _conflicts():
            return self._evolve(evolution)

    def _evolve(self, evolution: Evolution) -> dict[str, str]:
        there = self._columns()
        for old, new in evolution.renamed:
            if old in there and new not in there:
                self.spark.sql(f"ALTER TABLE {self._name} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
                there = {new if name == old else name: type_ for name, type_ in there.items()}
        missing = {name: type_ for name, type_ in evolution.types.items() if name not in there}
        if missing:
            added = ", ".join(f"{quoted(name)} {type_}" for name, type_ in missing.items())
            self.spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({added})")
        for name, type_ in evolution.types.items():
            if name in there and there[name] != type_:
                self._widen(name, there[name], type_)
        return {
            name: literal
            for name, literal in evolution.fills.items()
            if literal != "NULL" or (name in there and self._has_values(name))
        }

    def _widen(self, name: str, old: str, new: str) -> None:
        try:
            self.spark.sql(f"ALTER TABLE {self._name} ALTER COLUMN {quoted(name)} TYPE {new}")
        except PySparkException as e:
            raise TargetError(
                f"Column {name} is {old} in the table and would have to become {new}, which Delta cannot do in place.",
                where=self.location,
                safe="The table was not changed; the change log keeps the batches.",
                remedy="set schema.change.rewrite.mode=snapshot, so that the table is read again after such a change, or drop "
                "the target table and read it again with snapshot.mode=always for one run",
            ) from e

    def _has_values(self, name: str) -> bool:
        return bool(self.rows().where(f"{quoted(name)} IS NOT NULL").head(1))

    def _columns(self) -> dict[str, str]:
        return {f.name: f.dataType.simpleString() for f in self.rows().schema.fields}

    def merge(
        self, rows: DataFrame, key: tuple[str, ...], types: Mapping[str, str], fills: Mapping[str, str], marker: Marker
    ) -> None:
        rows.createOrReplaceTempView("cdc_rows")
        on = " AND ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in key)
        sets = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in types)
        names, values = ", ".join(map(quoted, types)), ", ".join(f"s.{quoted(c)}" for c in types)
        sql = (
            f"MERGE INTO {self._name} t USING cdc_rows s ON {on} "
            "WHEN MATCHED AND s.__op = 'd' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.__op <> 'd' THEN INSERT ({names}) VALUES ({values})"
        )
        if fills:
            sql += " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET " + ", ".join(
                f"t.{quoted(c)} = {literal}" for c, literal in fills.items()
            )
        with _conflicts(), self._transaction(marker):
            self.spark.sql(sql)

    def append(self, rows: DataFrame, marker: Marker) -> None:
        with _conflicts():
            self._writer(rows, marker, "append").save(self.location)

    def replace(self, rows: DataFrame, marker: Marker) -> None:
        writer = self._writer(rows, marker, "overwrite")
        if self._columns() != {f.name: f.dataType.simpleString() for f in rows.schema.fields}:
            writer = writer.option("overwriteSchema", "true")
        with _conflicts():
            writer.save(self.location)

    def _writer(self, rows: DataFrame, marker: Marker, mode: str) -> DataFrameWriter:
        writer = rows.write.format("delta").mode(mode)
        return writer.option("txnAppId", marker.app).option("txnVersion", marker.batch)

    @contextlib.contextmanager
    def _transaction(self, marker: Marker) -> Iterator[None]:
        """The marker for a SQL statement. Left behind in the session, it would make later statements silent no-ops."""
        for name, value in zip(_TXN, (marker.app, str(marker.batch)), strict=True):
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in _TXN:
                self.spark.conf.unset(name)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    def _log(self) -> Any:
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.location)
        log.update(False, self._jvm.scala.Option.empty(), self._jvm.scala.Option.empty())
        return log


@contextlib.contextmanager
def _conflicts() -> Iterator[None]:
    """Delta's ways of saying that another writer was faster."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        if any(word in f"{type(e).__name__} {e}" for word in _CONFLICTS):
            raise Conflict(str(e)) from e
        raise
