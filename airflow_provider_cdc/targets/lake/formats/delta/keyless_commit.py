"""Takes rows out of a Delta table, and adds others: one commit for a batch of a table without a key.

A table with deletion vectors keeps its files, and the vectors take the rows away. In any other one the files that have such rows are
rewritten: by Arrow, if they are small, otherwise by Spark. Of the rows that are equal there, any may go.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.delta.array_commit import (
    METADATA,
    DeltaArrayCommit,
    count_snapshot_bytes,
)
from airflow_provider_cdc.targets.lake.formats.delta.copy_on_write import MOST_BYTES, MOST_FILES
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaDataFile
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics
from airflow_provider_cdc.targets.lake.rows.keyless_row_locator import exclude_rows, locate_rows
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rows.multiset_diff import LocatedRows, MultisetDifference
from airflow_provider_cdc.targets.lake.spark_releases.python_features import create_frame, metadata_column

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.delta")
_FILE, _ROW = f"{OURS}file", f"{OURS}row"


class DeltaKeylessCommit(DeltaArrayCommit):
    """A commit of one batch to one table without a key, at the version of a transaction."""

    def write_difference(self, changes: MultisetDifference, marker: Marker) -> None:
        """Remove rows and add others.

        :raises AbsentRows: the table does not have a row that goes
        """
        rows = self._now()
        place = metadata_column(rows, "_metadata")
        if self._layout.has_vectors:
            there = rows.select("*", place["file_path"].alias(_FILE), place["row_index"].alias(_ROW))
            taken = locate_rows(there, changes, (_FILE, _ROW))
            actions, kept_rows, sizes = self._vectors(taken.places), list[pa.Table](), list[int]()
        else:  # Delta does not say where in a file a row is
            taken = locate_rows(rows.select("*", place["file_path"].alias(_FILE)), changes, (_FILE,))
            actions, kept_rows, sizes = self._without(changes, taken)
        come = changes.build_added_rows(taken)
        sizes += self._commit(actions, [come] if come.num_rows else [], marker, kept_rows)
        self.written = WriteMetrics("commit", come.num_rows, len(taken.image), sum(sizes), len(sizes))

    def _vectors(self, places: pa.Table) -> list[Any]:
        """Actions that give files new deletion vectors."""
        if not places.num_rows:
            self._transaction.filterFiles()
            return []
        try:
            touched = self._touched(places, self._delta.to_scala_sequence(self._few_files()))
            return self._vectors_of().build_row_removals(
                [(file, np.unique(rows[_ROW].to_numpy())) for file, rows in touched]
            )
        except ArrowUnsupported as e:
            log.info("Spark writes the deletion vectors: %s.", e)
        there = create_frame(self._spark, places)
        where = F.struct(F.col(_FILE).alias("file_path"), F.col(_ROW).alias("row_index"))
        return self._delta.build_deletion_vectors(self._transaction, self._log, there.select(where.alias(METADATA)))

    def _without(self, changes: MultisetDifference, taken: LocatedRows) -> tuple[list[Any], list[pa.Table], list[int]]:
        """Replace the files that have rows that go.

        :return: actions that replace files, rows of theirs that are to be written with those that come, and bytes of files that are written
            already
        """
        # the whole table counts as read: the first writer that changes it makes this commit fail
        files = self._transaction.filterFiles()
        gone = changes.build_removed_rows(taken)
        touched = self._touched(gone, files)
        others: list[DeltaDataFile] = []
        if files.size() <= MOST_FILES and count_snapshot_bytes(self._transaction.snapshot()) <= MOST_BYTES:
            paths = {file.path.toString() for file, _ in touched}
            all_files = [DeltaDataFile.from_action(action, self._log) for action in self._delta.to_python_list(files)]
            others = [file for file in all_files if file.path.toString() not in paths]
        if len(touched) <= MOST_FILES and sum(file.size for file, _ in touched) <= MOST_BYTES:
            try:
                done = self._old.remove_rows(touched, others)
                return [file.action.remove() for file in done.gone], done.rows, []
            except ArrowUnsupported as e:
                log.info("Spark rewrites the files: %s.", e)
        new_files = self._by_spark([file.action for file, _ in touched], gone)
        sizes = [int(action.size()) for action in new_files]
        return [*(file.action.remove() for file, _ in touched), *new_files], [], sizes

    def _touched(self, gone: pa.Table, files: Any) -> list[tuple[DeltaDataFile, pa.Table]]:
        """Return the files in which some rows are, and those rows."""
        helper = self._delta.load_scala_object("org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper")
        actions = helper.generateCandidateFileMap(self._log.dataPath(), files)
        path, uri = self._delta.load_class("org.apache.hadoop.fs.Path"), self._delta.load_class("java.net.URI")
        touched = []
        for file in pc.unique(gone[_FILE]).to_pylist():
            rows = gone.filter(pc.equal(gone[_FILE], file)).drop_columns([_FILE])
            touched.append((DeltaDataFile.from_action(actions.apply(path(uri(file)).toString()), self._log), rows))
        return touched

    def _by_spark(self, actions: list[Any], gone: pa.Table) -> list[Any]:
        """Write the remaining rows of some files.

        :return: actions that add it
        """
        if not actions:
            return []
        rows = self._delta.read_file_rows(self._log, self._transaction.snapshot(), actions)
        there = rows.select("*", metadata_column(rows, "_metadata")["file_path"].alias(_FILE))
        return self._delta.to_python_list(self._transaction.writeFiles(exclude_rows(there, gone).drop(_FILE)._jdf))
