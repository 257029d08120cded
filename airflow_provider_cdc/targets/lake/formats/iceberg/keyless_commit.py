"""Takes rows out of an Iceberg table by where they are, and adds others: one snapshot for a batch of a table without a key.

A small table's files are written anew. A larger one gets a file of deleted positions, which all readers know. Deletes of keys would not do: they
delete all rows that are equal.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reading.arrow_keys import Numbers
from airflow_provider_cdc.targets.lake.formats.iceberg import spark_plans
from airflow_provider_cdc.targets.lake.formats.iceberg.array_commit import (
    no_positions,
    put,
    removed_unless_done,
    unfit_table,
)
from airflow_provider_cdc.targets.lake.formats.iceberg.copy_on_write import CopyOnWrite
from airflow_provider_cdc.targets.lake.formats.iceberg.data_files import NewFiles
from airflow_provider_cdc.targets.lake.formats.target import Written
from airflow_provider_cdc.targets.lake.rows.multiset_diff import Difference
from airflow_provider_cdc.targets.lake.rows.row_locator import found

_PLACE = "_file", "_pos"


class BagCommit:
    """One batch, within a transaction.

    :param table: the table within it (``org.apache.iceberg.Table``)
    """

    def __init__(self, spark: SparkSession, table: Any, changes: Difference) -> None:
        self._spark, self._table, self._changes = spark, table, changes
        self.written: Written | None = None

    def reason(self) -> str:
        """Why the table has to be replaced; empty if it need not be."""
        return unfit_table(self._spark, self._table, self._changes.names, others=True)

    def take(self, marker: str, batch: int) -> str:
        """Write the files and the snapshot.

        :param marker: property of the snapshot that gets the number of the batch
        :return: why the table has to be replaced after all; empty if it is done
        :raises AbsentRows: the table does not have a row that goes
        """
        files = NewFiles(self._spark, self._table)
        small = CopyOnWrite(self._spark, self._table, files)
        fits = small.fits()
        taken = found(spark_plans.read(self._spark, self._table).select("*", *_PLACE), self._changes, _PLACE)
        come, places = self._changes.comes(taken), _by_file(taken.places)
        if places and not fits and (reason := no_positions(self._table)):
            return reason
        new = [come.select(files.names)] if come.num_rows else []
        with removed_unless_done(files):
            if fits:
                done = small.without(places)
                put(self._table, done, files.rows(chain(done.rows, new)), marker, batch)
            else:
                delta = self._table.newRowDelta()
                if places:
                    delta.addDeletes(files.positions(_listed(places)))
                for file in files.rows(iter(new)):
                    delta.addRows(file)
                delta.set(marker, str(batch)).commit()
        self.written = Written("commit", come.num_rows, len(taken.image), sum(files.sizes), len(files.sizes))
        return ""


def _by_file(places: pa.Table) -> dict[str, Numbers]:
    """File → the numbers of the rows in it, in order."""
    each = places.group_by(_PLACE[0], use_threads=False).aggregate([(_PLACE[1], "list")])
    found = zip(each[_PLACE[0]].to_pylist(), each[f"{_PLACE[1]}_list"].to_pylist(), strict=True)
    return {file: np.sort(np.array(rows, np.int64)) for file, rows in found}


def _listed(places: dict[str, Numbers]) -> pa.Table:
    at = pa.array(list(places.values()), pa.list_(pa.int64()))
    return pa.table({"file": pa.array(list(places)), "at": at})
