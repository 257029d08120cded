"""Replaces the files of a small table in which rows change, on Arrow arrays.

Deletes beside files cost little to write, and something with every read, until a compaction comes. A small table costs less to write anew: it
has few files and no deletes, so that it needs no compaction, and every reader knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.files.temporary_log import LOOK_AGAIN_S, scratch_folder
from airflow_provider_cdc.changelog.reading.arrow_keys import Numbers, among
from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.data_files import NewFiles
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_classes import named, texts
from airflow_provider_cdc.targets.lake.types.spark_types import quoted

MOST_BYTES = 4 << 20
"""Bytes of a table up to which its rows are written anew."""
MOST_ROWS = 500_000
MOST_FILES = 64
GATHERED = 16
"""How many files a small table may have; then they become one."""
_NONE: Numbers = np.zeros(0, np.int64)
_WITHOUT_ROW_IDS = 2
"""Version of the format up to which rows have no numbers of their own, which would have to be written with them."""


@dataclass(frozen=True)
class Replacement:
    """What goes (``org.apache.iceberg.DataFile``, ``DeleteFile``), and the rows of it that stay."""

    files: list[Any]
    deletes: list[Any]
    rows: list[pa.Table]


class CopyOnWrite:
    """Finds the files that hold keys of a batch, and what is left of them.

    :param table: ``org.apache.iceberg.Table``
    :param made: writes its files, and knows its columns
    """

    def __init__(self, spark: SparkSession, table: Any, made: NewFiles) -> None:
        self._spark, self._table, self._made = spark, table, made

    def fits(self) -> bool:
        """Whether the table is so small that this costs less than deletes."""
        snapshot = self._table.currentSnapshot()
        if snapshot is None or self._table.operations().current().formatVersion() > _WITHOUT_ROW_IDS:
            return False
        total = texts(snapshot.summary())
        limits = {"total-files-size": MOST_BYTES, "total-records": MOST_ROWS, "total-data-files": MOST_FILES}
        return all(int(total.get(name, most + 1)) <= most for name, most in limits.items())

    def replace(self, keys: pa.Table) -> Replacement:
        """
        :param keys: with the table's types
        """
        tasks = spark_plans.tasks(self._table.newScan())
        deletes = {str(one.location()): one for task in tasks for one in task.deletes()}
        files = [task.file() for task in tasks]
        if not keys.num_rows and not deletes and len(files) < GATHERED:
            return Replacement([], [], [])
        if not deletes and (some := self._some(files, keys)) is not None:
            return some
        # whatever the files are: Spark reads them
        names = [quoted(name) for name in self._made.names]
        rows = self._made.physical(spark_plans.read(self._spark, self._table).select(*names).toArrow())
        return Replacement(files, list(deletes.values()), _without(rows, keys))

    def without(self, places: Mapping[str, Numbers]) -> Replacement:
        """
        :param places: file → the numbers of the rows that go
        """
        tasks = spark_plans.tasks(self._table.newScan())
        deletes = {str(one.location()): one for task in tasks for one in task.deletes()}
        files = {str(task.file().location()): task.file() for task in tasks}
        others = [path for path in files if path not in places]
        gone = [*places, *(others if len(others) >= GATHERED else ())]
        if deletes and gone:
            return self._all_without(places, files, deletes)
        left = []
        for path in gone:
            if (rows := self._read(files[path])) is None:
                return self._all_without(places, files, deletes)
            stay = np.ones(rows.num_rows, np.bool_)
            stay[places.get(path, _NONE)] = False
            left += [rows.filter(pa.array(stay))] if stay.any() else []
        return Replacement([files[path] for path in gone], [], left)

    def _all_without(
        self, places: Mapping[str, Numbers], files: Mapping[str, Any], deletes: Mapping[str, Any]
    ) -> Replacement:
        """All rows of the table but for some, whatever its files are: Spark reads them."""
        names = self._made.names
        columns = [F.col(quoted(name)).alias(f"c{at}") for at, name in enumerate(names)]
        there = spark_plans.read(self._spark, self._table).select(*columns, "_file", "_pos").toArrow()
        stay, at = np.ones(there.num_rows, np.bool_), there["_pos"].to_numpy()
        for path, gone in places.items():
            stay &= ~(pc.equal(there["_file"], path).to_numpy() & np.isin(at, gone))
        rows = there.select(range(len(names))).rename_columns(names)
        left = [self._made.physical(rows.filter(pa.array(stay)))] if stay.any() else []
        return Replacement(list(files.values()), list(deletes.values()), left)

    def _some(self, files: list[Any], keys: pa.Table) -> Replacement | None:
        """Only files that have some of the keys; ``None`` if a file cannot be read as arrays."""
        gone: list[Any] = []
        left: list[pa.Table] = []
        others: list[tuple[Any, pa.Table]] = []
        for file in files:
            rows = self._read(file)
            if rows is None:
                return None
            stay = _without(rows, keys)
            if sum(part.num_rows for part in stay) < rows.num_rows:
                gone.append(file)
                left += stay
            else:
                others.append((file, rows))
        if len(others) >= GATHERED:
            gone += [file for file, _ in others]
            left += [rows for _, rows in others]
        return Replacement(gone, [], left)

    def _read(self, file: Any) -> pa.Table | None:
        if file.format().name() != "PARQUET":
            return None
        stream = self._table.io().newInputFile(file.location()).newStream()
        with scratch_folder(look_s=LOOK_AGAIN_S) as scratch:
            name = str(scratch / "file.parquet")
            try:
                path = named(self._spark, "java.nio.file.Path").of(name, self._made.array("java.lang.String"))
                named(self._spark, "java.nio.file.Files").copy(
                    stream, path, self._made.array("java.nio.file.CopyOption")
                )
            finally:
                stream.close()
            return self._made.held(pq.read_table(name, memory_map=False))


def _without(rows: pa.Table, keys: pa.Table) -> list[pa.Table]:
    """Rows that have none of the keys."""
    known = among(rows.select(keys.column_names), keys)
    return [] if known.all() else [rows.filter(pa.array(~known))] if known.any() else [rows]
