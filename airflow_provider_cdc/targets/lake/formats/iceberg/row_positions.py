"""Finds where the rows with some keys are in a larger Iceberg table, on Arrow arrays: the driver reads the key columns of the files that can have them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers
from airflow_provider_cdc.targets.lake.formats import parquet_key_lookup
from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.data_file_writer import IcebergFileWriter
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import to_python_dict
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import (
    ArrowUnsupported,
    JvmFileStream,
    find_key_rows,
    open_parquet_file,
)
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class

ROW_NUMBERS = pa.schema([("file", pa.string()), ("at", pa.list_(pa.int64()))])
"""For each file the numbers of rows in it, in order."""


class RowPositionFinder:
    """The rows of one table, at its newest snapshot, by their positions.

    :param table: ``org.apache.iceberg.Table``
    :param writer: knows its columns
    """

    def __init__(self, spark: SparkSession, table: Any, writer: IcebergFileWriter) -> None:
        self._spark, self._table, self._writer = spark, table, writer

    def find_positions(self, keys: pa.Table, bounds: Any) -> pa.Table:
        """Find the positions of the rows with some keys.

        :param keys: with the table's types
        :param bounds: an expression of Iceberg's that files with such keys meet
        :return: with the columns of :data:`ROW_NUMBERS`; without rows that a file of positions has deleted already
        :raises NotOnArrays: Spark has to look for the rows
        """
        total = to_python_dict(self._table.currentSnapshot().summary())
        if (
            number := int(total.get("total-data-files", parquet_key_lookup.MOST_FILES + 1))
        ) > parquet_key_lookup.MOST_FILES:
            raise ArrowUnsupported(f"the table has {number} files")
        tasks = spark_plans.list_scan_tasks(self._table.newScan().filter(bounds))
        files, deletes = [task.file() for task in tasks], self._deletes(tasks)
        if (size := sum(int(file.fileSizeInBytes()) for file in [*files, *deletes])) > parquet_key_lookup.MOST_BYTES:
            raise ArrowUnsupported(f"the keys may be in files of {size >> 30} GB")
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            positions = list(pool.map(lambda file: self._in(file, keys), files))
            gone = list(pool.map(self._gone, deletes)) if any(map(len, positions)) else []
        return _without(dict(zip([str(file.location()) for file in files], positions, strict=True)), gone)

    @staticmethod
    def _deletes(tasks: Sequence[Any]) -> list[Any]:
        """Files of deleted positions, each once."""
        every = {str(delete_file.location()): delete_file for task in tasks for delete_file in task.deletes()}
        return [delete_file for delete_file in every.values() if delete_file.content().name() == "POSITION_DELETES"]

    def _in(self, file: Any, keys: pa.Table) -> Numbers:
        with self._open(file) as source:
            columns = self._writer.in_file(source.schema_arrow, keys.column_names)
            if columns is None:
                raise ArrowUnsupported("the columns of a file have other types or no field IDs")
            return find_key_rows(source, keys, columns, self._writer.as_now)

    def _gone(self, file: Any) -> pa.Table:
        with self._open(file) as source:
            return source.read(["file_path", "pos"], use_threads=False)

    @contextlib.contextmanager
    def _open(self, file: Any) -> Iterator[pq.ParquetFile]:
        if file.format().name() != "PARQUET":
            raise ArrowUnsupported(f"a file has the format {file.format().name()}")
        location = str(file.location())
        if local := _on_disk(load_jvm_class(self._spark, "org.apache.hadoop.fs.Path")(location)):
            yield open_parquet_file(local)
            return
        with contextlib.closing(self._table.io().newInputFile(location).newStream()) as stream:
            yield open_parquet_file(JvmFileStream(stream, int(file.fileSizeInBytes())))


def _on_disk(path: Any) -> str | None:
    """Return the path on this machine's disk for a path of Hadoop's."""
    local: str = path.toUri().getPath()
    return local if path.toUri().getScheme() in (None, "file") and os.path.exists(local) else None


def _without(positions: dict[str, Numbers], gone: Sequence[pa.Table]) -> pa.Table:
    """Rows that are not deleted yet: a position that is deleted again would be read with every scan."""
    deleted = (
        pa.concat_tables(gone)
        if gone
        else pa.table({"file_path": pa.array([], pa.string()), "pos": pa.array([], pa.int64())})
    )
    left = {}
    for file, at in positions.items():
        if len(at):
            before = deleted.filter(pc.equal(deleted["file_path"], file))["pos"].to_numpy()
            left[file] = at[~np.isin(at, before)]
    left = {file: at for file, at in left.items() if len(at)}
    return pa.table(
        [pa.array(list(left), pa.string()), pa.array(list(left.values()), ROW_NUMBERS.field("at").type)],
        schema=ROW_NUMBERS,
    )
