"""Commits a batch that is at hand as arrays, in one snapshot and without a MERGE.

A small table's files are rewritten (:mod:`airflow_provider_cdc.targets.lake.formats.iceberg.copy_on_write`). A larger table gets a file of the batch's rows, and beside it
a file of deletes. There are two kinds of deletes. Those of **keys** cost as much as the batch, whatever the size of the table; not every reader knows
them, so that a table says whether it may have them (:data:`BY_KEY`). Those of **positions** all readers know; where the
rows are, the driver finds, which reads the key columns of the files that may have them (:mod:`airflow_provider_cdc.targets.lake.formats.iceberg.row_positions`), or Spark in a very large table. New keys need neither: by the bounds in the table's metadata no
file can have them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.copy_on_write import IcebergCopyOnWrite, IcebergFileReplacement
from airflow_provider_cdc.targets.lake.formats.iceberg.data_file_writer import (
    IcebergFileWriter,
    explain_unfit_columns,
    read_table_fields,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG, java_list, to_python_dict
from airflow_provider_cdc.targets.lake.formats.iceberg.row_positions import RowPositionFinder
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported
from airflow_provider_cdc.targets.lake.formats.table_values import KeyedChanges, WriteMetrics
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import JvmMember, find_missing_member, load_jvm_class
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow
from airflow_provider_cdc.targets.lake.types.spark_types import iso_text, quote_name

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.iceberg")
BY_KEY = "cdc.deletes.by-key"
"""Property of a table: ``true`` if it may have deletes of keys (``equality deletes``)."""
NEEDED = tuple(
    JvmMember(f"{ICEBERG}.{owner}", name, parameters)
    for owner, name, parameters in (
        ("RowDelta", "addRows", 1),
        ("RowDelta", "addDeletes", 1),
        ("RowDelta", "removeRows", 1),
        ("RowDelta", "removeDeletes", 1),
        ("DataFiles", "builder", 1),
        ("FileMetadata", "deleteFileBuilder", 1),
        ("MetricsConfig", "forTable", 1),
        ("MetricsConfig", "forPositionDelete", 0),
        ("parquet.ParquetUtil", "fileMetrics", 2),
    )
)
"""Members of Iceberg that a commit of arrays calls; a release without one of them merges all batches."""
FEW_KEYS = 200
"""Number of values that Iceberg compares one by one with the bounds of a file."""
BROADCAST_KEYS = 5_000_000
_VECTORS = 3
"""Version of the format from which on positions are deleted by vectors only."""


class IcebergArrayCommit:
    """A commit of one batch, within a transaction.

    :param table: the table within it (``org.apache.iceberg.Table``)
    """

    def __init__(self, spark: SparkSession, table: Any, changes: KeyedChanges) -> None:
        self._spark, self._table, self._changes = spark, table, changes
        self.written: WriteMetrics | None = None
        """Metrics of the write; ``None`` before it."""

    def find_merge_reason(self) -> str:
        """Why the batch has to be merged; empty if it need not be."""
        return unfit_table(self._spark, self._table, self._changes.column_names)

    def write_batch(self, keys: Callable[[], DataFrame], marker: str, batch: int) -> str:
        """Write the files and the snapshot.

        :param keys: gives the key columns of all events; read if rows have to be found
        :param marker: property of the snapshot that gets the number of the batch
        :return: why the batch has to be merged after all; empty if it is done
        """
        files = IcebergFileWriter(self._spark, self._table)
        physical = files.to_file_columns(self._changes.keys)
        small = IcebergCopyOnWrite(self._spark, self._table, files)
        if small.is_small_enough():
            with removed_unless_done(files):
                done = small.replace_keys(physical)
                replace_files(
                    self._table, done, files.write_rows(chain(done.rows, self._changes.read_rows())), marker, batch
                )
            self._tell(files)
            return ""
        may_exist = self._may_be_there(physical)
        by_key = self._properties().get(BY_KEY) == "true"
        if may_exist and not by_key and (reason := no_positions(self._table)):
            return reason
        with removed_unless_done(files):
            delta = self._table.newRowDelta()
            if may_exist and by_key:
                delta.addDeletes(files.write_equality_deletes(self._changes.keys))
            elif may_exist and (positions := self._find_positions(keys, physical, files)).num_rows:
                delta.addDeletes(files.write_position_deletes(positions))
            for file in files.write_rows(self._changes.read_rows()):
                delta.addRows(file)
            delta.set(marker, str(batch)).commit()
        self._tell(files)
        return ""

    def _tell(self, files: IcebergFileWriter) -> None:
        rows, deleted, sizes = self._changes.number_of_rows(), self._changes.number_of_deletes(), files.file_sizes
        self.written = WriteMetrics("commit", rows, deleted, sum(sizes), len(sizes))

    def _properties(self) -> dict[str, str]:
        return to_python_dict(self._table.properties())

    # -- rows with the batch's keys -----------------------------------------------------------------------------------

    def _may_be_there(self, keys: pa.Table) -> bool:
        """Check whether a file of the table may have a row with one of the keys, by the bounds of the files' columns."""
        if not keys.num_rows or self._table.currentSnapshot() is None:
            return False
        planned = self._table.newScan().filter(self._bounds(keys)).planFiles()
        try:
            return bool(planned.iterator().hasNext())
        finally:
            planned.close()

    def _bounds(self, keys: pa.Table) -> Any:
        expressions = load_jvm_class(self._spark, f"{ICEBERG}.expressions.Expressions")
        both, one_of = getattr(expressions, "and"), getattr(expressions, "in")
        condition = expressions.alwaysTrue()
        for name in keys.column_names:
            values = keys[name]
            if values.null_count or not _comparable(values.type):
                continue
            if len(keys.column_names) == 1 and len(values) <= FEW_KEYS:
                return one_of(name, java_list(self._spark, map(_literal, values)))
            least, most = _ends(values)
            condition = both(condition, expressions.greaterThanOrEqual(name, _literal(least)))
            condition = both(condition, expressions.lessThanOrEqual(name, _literal(most)))
        return condition

    def _find_positions(self, keys: Callable[[], DataFrame], physical: pa.Table, files: IcebergFileWriter) -> pa.Table:
        """Find where the table's rows with some keys are: for each file a list of positions."""
        try:
            return RowPositionFinder(self._spark, self._table, files).find_positions(physical, self._bounds(physical))
        except ArrowUnsupported as e:
            log.info("Spark searches for the rows to remove: %s.", e)
        return self._by_spark(keys(), physical)

    def _by_spark(self, keys: DataFrame, physical: pa.Table) -> pa.Table:
        names = self._changes.keys.column_names
        there = spark_plans.read_table_rows(self._spark, self._table)
        for name in names:
            values = physical[name]
            if not values.null_count and (
                pa.types.is_integer(values.type) or pa.types.is_string(values.type)
            ):  # files without such keys are not read
                least, most = _ends(values)
                there = there.where(F.col(quote_name(name)).between(least.as_py(), most.as_py()))
        there = there.select(*[F.col(quote_name(name)).alias(f"t{i}") for i, name in enumerate(names)], "_file", "_pos")
        same = reduce(and_, [F.col(f"t{i}").eqNullSafe(F.col(f"k.{quote_name(name)}")) for i, name in enumerate(names)])
        key_rows = F.broadcast(keys) if physical.num_rows < BROADCAST_KEYS else keys
        rows = there.join(key_rows.alias("k"), same, "left_semi")
        by_file = rows.groupBy(F.col("_file").alias("file"))
        return collect_arrow(by_file.agg(F.sort_array(F.collect_list("_pos")).alias("at")))


def unfit_table(spark: SparkSession, table: Any, names: Sequence[str], *, others: bool = False) -> str:
    """Why files of a table cannot be written here; empty if they can.

    :param names: columns of the rows
    :param others: whether the table may have more columns
    """
    if obstacle := find_missing_member(spark, "Iceberg", NEEDED):
        return obstacle
    spec = table.spec()
    if spec.isPartitioned():
        return f"it is partitioned by {', '.join(field.name() for field in spec.fields())}"
    if "encryption.key-id" in dict(table.properties()):
        return "it is encrypted"
    return explain_unfit_columns(read_table_fields(spark, table), names, others=others)


def no_positions(table: Any) -> str:
    """Why there cannot be a file of deleted positions; empty if there can."""
    if table.operations().current().formatVersion() >= _VECTORS:
        return f"it uses deletion vectors (format version {_VECTORS})"
    # deleted positions hold for files of the same partition, and files that are written here are of none
    older = {number for number, spec in dict(table.specs()).items() if spec.isPartitioned()}
    if older and any(manifest.partitionSpecId() in older for manifest in _manifests(table)):
        return "it has files from an earlier partitioning"
    return ""


def _manifests(table: Any) -> list[Any]:
    """List the manifests of existing files of rows."""
    snapshot = table.currentSnapshot()
    manifests = [] if snapshot is None else snapshot.dataManifests(table.io())
    return [manifest for manifest in manifests if manifest.hasAddedFiles() or manifest.hasExistingFiles()]


def replace_files(table: Any, old: IcebergFileReplacement, new: Iterable[Any], marker: str, batch: int) -> None:
    """Put files in the place of others and their deletes.

    :param new: their remaining rows, and the rows of the batch (``org.apache.iceberg.DataFile``)
    """
    delta = table.newRowDelta()
    for file in old.files:
        delta.removeRows(file)
    for file in old.deletes:
        delta.removeDeletes(file)
    for file in new:
        delta.addRows(file)
    delta.set(marker, str(batch)).commit()


@contextlib.contextmanager
def removed_unless_done(files: IcebergFileWriter) -> Iterator[None]:
    """No snapshot will have the files of a commit that has failed."""
    try:
        yield
    except BaseException:
        files.remove_files()
        raise


def _comparable(type_: pa.DataType) -> bool:
    is_ = pa.types
    return any(kind(type_) for kind in (is_.is_integer, is_.is_string, is_.is_date, is_.is_timestamp, is_.is_decimal))


def _ends(values: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar]:
    ends = pc.min_max(values)
    return ends["min"], ends["max"]


def _literal(value: pa.Scalar) -> int | str:
    """Build a value as Iceberg's expressions take it for every type: days are numbers, times and decimals texts."""
    if pa.types.is_date(value.type):
        return int(value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(value.type):
        # Java gets a small number as an int, and Iceberg takes only a long for a time
        return iso_text(value) + ("+00:00" if value.type.tz else "")
    return str(value.as_py()) if pa.types.is_decimal(value.type) else value.as_py()
