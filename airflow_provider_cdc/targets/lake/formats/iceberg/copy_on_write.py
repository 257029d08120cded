"""Replaces the files of a small table in which rows change, on Arrow arrays.

Deletes beside files cost little to write, and something with every read, until a compaction comes. A small table costs less to rewrite: it
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

from airflow_provider_cdc.changelog.files.scratch_change_log import CLEANUP_EVERY_S, scratch_folder
from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers, match_keys
from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.data_file_writer import IcebergFileWriter
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import to_python_dict
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

MOST_BYTES = 4 << 20
"""Bytes of a table up to which its rows are rewritten."""
MOST_ROWS = 500_000
MOST_FILES = 64
GATHERED = 16
"""How many files a small table may have; then they become one."""
_NONE: Numbers = np.zeros(0, np.int64)
_WITHOUT_ROW_IDS = 2
"""Version of the format up to which rows have no numbers of their own, which would have to be written with them."""


@dataclass(frozen=True)
class IcebergFileReplacement:
    """Files that go (``org.apache.iceberg.DataFile``, ``DeleteFile``), and the rows of them that stay."""

    files: list[Any]
    deletes: list[Any]
    rows: list[pa.Table]


class IcebergCopyOnWrite:
    """Finds the files that hold keys of a batch, and their remaining rows.

    :param table: ``org.apache.iceberg.Table``
    :param writer: writes its files, and knows its columns
    """

    def __init__(self, spark: SparkSession, table: Any, writer: IcebergFileWriter) -> None:
        self._spark, self._table, self._writer = spark, table, writer

    def is_small_enough(self) -> bool:
        """Check whether the table is so small that this costs less than deletes."""
        snapshot = self._table.currentSnapshot()
        if snapshot is None or self._table.operations().current().formatVersion() > _WITHOUT_ROW_IDS:
            return False
        total = to_python_dict(snapshot.summary())
        limits = {"total-files-size": MOST_BYTES, "total-records": MOST_ROWS, "total-data-files": MOST_FILES}
        return all(int(total.get(name, most + 1)) <= most for name, most in limits.items())

    def replace_keys(self, keys: pa.Table) -> IcebergFileReplacement:
        """
        :param keys: with the table's types
        """
        tasks = spark_plans.list_scan_tasks(self._table.newScan())
        deletes = {str(delete_file.location()): delete_file for task in tasks for delete_file in task.deletes()}
        files = [task.file() for task in tasks]
        if not keys.num_rows and not deletes and len(files) < GATHERED:
            return IcebergFileReplacement([], [], [])
        if not deletes and (some := self._some(files, keys)) is not None:
            return some
        # files of any kind: Spark reads them
        names = [quote_name(name) for name in self._writer.column_names]
        rows = self._writer.to_file_columns(
            collect_arrow(spark_plans.read_table_rows(self._spark, self._table).select(*names))
        )
        return IcebergFileReplacement(files, list(deletes.values()), _without(rows, keys))

    def remove_rows(self, places: Mapping[str, Numbers]) -> IcebergFileReplacement:
        """
        :param places: file → the numbers of the rows that go
        """
        tasks = spark_plans.list_scan_tasks(self._table.newScan())
        deletes = {str(delete_file.location()): delete_file for task in tasks for delete_file in task.deletes()}
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
        return IcebergFileReplacement([files[path] for path in gone], [], left)

    def _all_without(
        self, places: Mapping[str, Numbers], files: Mapping[str, Any], deletes: Mapping[str, Any]
    ) -> IcebergFileReplacement:
        """All rows of the table but for some, whatever its files are: Spark reads them."""
        names = self._writer.column_names
        columns = [F.col(quote_name(name)).alias(f"c{at}") for at, name in enumerate(names)]
        there = collect_arrow(spark_plans.read_table_rows(self._spark, self._table).select(*columns, "_file", "_pos"))
        stay, at = np.ones(there.num_rows, np.bool_), there["_pos"].to_numpy()
        for path, gone in places.items():
            stay &= ~(pc.equal(there["_file"], path).to_numpy() & np.isin(at, gone))
        rows = there.select(range(len(names))).rename_columns(names)
        left = [self._writer.to_file_columns(rows.filter(pa.array(stay)))] if stay.any() else []
        return IcebergFileReplacement(list(files.values()), list(deletes.values()), left)

    def _some(self, files: list[Any], keys: pa.Table) -> IcebergFileReplacement | None:
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
        return IcebergFileReplacement(gone, [], left)

    def _read(self, file: Any) -> pa.Table | None:
        if file.format().name() != "PARQUET":
            return None
        stream = self._table.io().newInputFile(file.location()).newStream()
        with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S) as scratch:
            name = str(scratch / "file.parquet")
            try:
                path = load_jvm_class(self._spark, "java.nio.file.Path").of(
                    name, self._writer.create_empty_array("java.lang.String")
                )
                load_jvm_class(self._spark, "java.nio.file.Files").copy(
                    stream, path, self._writer.create_empty_array("java.nio.file.CopyOption")
                )
            finally:
                stream.close()
            return self._writer.to_current_columns(pq.read_table(name, memory_map=False))


def _without(rows: pa.Table, keys: pa.Table) -> list[pa.Table]:
    """Rows that have none of the keys."""
    matches = match_keys(rows.select(keys.column_names), keys)
    return [] if matches.all() else [rows.filter(pa.array(~matches))] if matches.any() else [rows]
