"""Takes rows out of a Delta table, and adds others: one commit for a batch of a table without a key.

A table with deletion vectors keeps its files, and the vectors take the rows away. In any other one the files that have such rows are written
anew: by Arrow, if they are small, otherwise by Spark. Of the rows that are equal there, any may go.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.delta.array_commit import METADATA, Commit, size
from airflow_provider_cdc.targets.lake.formats.delta.copy_on_write import MOST_BYTES, MOST_FILES
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import OldFile
from airflow_provider_cdc.targets.lake.formats.key_lookup import NotOnArrays
from airflow_provider_cdc.targets.lake.formats.target import Marker, Written
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rows.multiset_diff import Difference, Taken
from airflow_provider_cdc.targets.lake.rows.row_locator import found, without

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.delta")
_FILE, _ROW = f"{OURS}file", f"{OURS}row"


class BagCommit(Commit):
    """One batch for one table, at the version of a transaction."""

    def take(self, changes: Difference, marker: Marker) -> None:
        """:raises AbsentRows: the table does not have a row that goes"""
        rows = self._now()
        place = rows.metadataColumn("_metadata")
        if self._layout.has_vectors:
            there = rows.select("*", place["file_path"].alias(_FILE), place["row_index"].alias(_ROW))
            taken = found(there, changes, (_FILE, _ROW))
            actions, kept, sizes = self._vectors(taken.places), list[pa.Table](), list[int]()
        else:  # Delta does not say where in a file a row is
            taken = found(rows.select("*", place["file_path"].alias(_FILE)), changes, (_FILE,))
            actions, kept, sizes = self._without(changes, taken)
        come = changes.comes(taken)
        sizes += self._commit(actions, [come] if come.num_rows else [], marker, kept)
        self.written = Written("commit", come.num_rows, len(taken.image), sum(sizes), len(sizes))

    def _vectors(self, places: pa.Table) -> list[Any]:
        """Actions that give files new deletion vectors."""
        if not places.num_rows:
            self._transaction.filterFiles()
            return []
        try:
            touched = self._touched(places, self._delta.sequence(self._few_files()))
            return self._vectors_of().taking([(file, np.unique(rows[_ROW].to_numpy())) for file, rows in touched])
        except NotOnArrays as e:
            log.info("Spark writes the deletion vectors: %s.", e)
        there = self._spark.createDataFrame(places)
        where = F.struct(F.col(_FILE).alias("file_path"), F.col(_ROW).alias("row_index"))
        return self._delta.vectors(self._transaction, self._log, there.select(where.alias(METADATA)))

    def _without(self, changes: Difference, taken: Taken) -> tuple[list[Any], list[pa.Table], list[int]]:
        """
        :return: actions that replace files, rows of theirs that are to be written with those that come, and bytes of files that are written
            already
        """
        # the whole table counts as read: whoever changes it first makes this commit fail
        files = self._transaction.filterFiles()
        gone = changes.rows(taken)
        touched = self._touched(gone, files)
        others: list[OldFile] = []
        if files.size() <= MOST_FILES and size(self._transaction.snapshot()) <= MOST_BYTES:
            paths = {file.path.toString() for file, _ in touched}
            known = [OldFile.of(action, self._log) for action in self._delta.plain(files)]
            others = [file for file in known if file.path.toString() not in paths]
        if len(touched) <= MOST_FILES and sum(file.size for file, _ in touched) <= MOST_BYTES:
            try:
                done = self._old.without(touched, others)
                return [file.action.remove() for file in done.gone], done.rows, []
            except NotOnArrays as e:
                log.info("Spark writes the files anew: %s.", e)
        made = self._by_spark([file.action for file, _ in touched], gone)
        sizes = [int(action.size()) for action in made]
        return [*(file.action.remove() for file, _ in touched), *made], [], sizes

    def _touched(self, gone: pa.Table, files: Any) -> list[tuple[OldFile, pa.Table]]:
        """The files in which some rows are, and those rows."""
        helper = self._delta.object("org.apache.spark.sql.delta.commands.DMLWithDeletionVectorsHelper")
        actions = helper.generateCandidateFileMap(self._log.dataPath(), files)
        path, uri = self._delta.cls("org.apache.hadoop.fs.Path"), self._delta.cls("java.net.URI")
        found = []
        for file in pc.unique(gone[_FILE]).to_pylist():
            rows = gone.filter(pc.equal(gone[_FILE], file)).drop_columns([_FILE])
            found.append((OldFile.of(actions.apply(path(uri(file)).toString()), self._log), rows))
        return found

    def _by_spark(self, actions: list[Any], gone: pa.Table) -> list[Any]:
        """Write what is left of some files.

        :return: actions that add it
        """
        if not actions:
            return []
        rows = self._delta.rows(self._log, self._transaction.snapshot(), actions)
        there = rows.select("*", rows.metadataColumn("_metadata")["file_path"].alias(_FILE))
        return self._delta.plain(self._transaction.writeFiles(without(there, gone).drop(_FILE)._jdf))
