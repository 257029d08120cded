"""Takes rows out of an Iceberg table by where they are, and adds others.

That is one snapshot for a batch of a table without a key. A small table's files are rewritten. A larger one gets a file of deleted positions, which all readers know. Deletes of keys would not do: they
delete all rows that are equal.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers
from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.array_commit import (
    no_positions,
    removed_unless_done,
    replace_files,
    unfit_table,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.copy_on_write import IcebergCopyOnWrite
from airflow_provider_cdc.targets.lake.formats.iceberg.data_file_writer import IcebergFileWriter
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics
from airflow_provider_cdc.targets.lake.rows.keyless_row_locator import locate_rows
from airflow_provider_cdc.targets.lake.rows.multiset_diff import MultisetDifference

_PLACE = "_file", "_pos"


class IcebergKeylessCommit:
    """A commit of one batch to a table without a key, within a transaction.

    :param table: the table within it (``org.apache.iceberg.Table``)
    """

    def __init__(self, spark: SparkSession, table: Any, changes: MultisetDifference) -> None:
        self._spark, self._table, self._changes = spark, table, changes
        self.written: WriteMetrics | None = None

    def find_replace_reason(self) -> str:
        """Why the table has to be replaced; empty if it need not be."""
        return unfit_table(self._spark, self._table, self._changes.column_names, others=True)

    def write_snapshot(self, marker: str, batch: int) -> str:
        """Write the files and the snapshot.

        :param marker: property of the snapshot that gets the number of the batch
        :return: why the table has to be replaced after all; empty if it is done
        :raises AbsentRows: the table does not have a row that goes
        """
        files = IcebergFileWriter(self._spark, self._table)
        small = IcebergCopyOnWrite(self._spark, self._table, files)
        fits = small.is_small_enough()
        taken = locate_rows(
            spark_plans.read_table_rows(self._spark, self._table).select("*", *_PLACE), self._changes, _PLACE
        )
        come, places = self._changes.build_added_rows(taken), _by_file(taken.places)
        if places and not fits and (reason := no_positions(self._table)):
            return reason
        new = [come.select(files.column_names)] if come.num_rows else []
        with removed_unless_done(files):
            if fits:
                done = small.remove_rows(places)
                replace_files(self._table, done, files.write_rows(chain(done.rows, new)), marker, batch)
            else:
                delta = self._table.newRowDelta()
                if places:
                    delta.addDeletes(files.write_position_deletes(_listed(places)))
                for file in files.write_rows(iter(new)):
                    delta.addRows(file)
                delta.set(marker, str(batch)).commit()
        self.written = WriteMetrics(
            "commit", come.num_rows, len(taken.image), sum(files.file_sizes), len(files.file_sizes)
        )
        return ""


def _by_file(places: pa.Table) -> dict[str, Numbers]:
    """File → the numbers of the rows in it, in order."""
    each = places.group_by(_PLACE[0], use_threads=False).aggregate([(_PLACE[1], "list")])
    rows_by_file = zip(each[_PLACE[0]].to_pylist(), each[f"{_PLACE[1]}_list"].to_pylist(), strict=True)
    return {file: np.sort(np.array(rows, np.int64)) for file, rows in rows_by_file}


def _listed(places: dict[str, Numbers]) -> pa.Table:
    at = pa.array(list(places.values()), pa.list_(pa.int64()))
    return pa.table({"file": pa.array(list(places)), "at": at})
