"""Commits a batch in one transaction, without a MERGE. There are two ways.

In a small table, the files that hold some of the keys are rewritten by Arrow, with their remaining rows and the rows of the batch
(:mod:`airflow_provider_cdc.targets.lake.formats.delta.copy_on_write`). In a larger one that has deletion vectors, Arrow writes the rows of the batch as a separate
file, and finds the rows that they replace, for which it reads the key columns (:mod:`airflow_provider_cdc.targets.lake.formats.delta.deletion_vectors`); in a very large one Spark finds them.

Delta has no public interface for such a commit. The calls here are internal to Delta; a release of Delta without one of :data:`NEEDED` merges
all batches. A table that has anything which these calls would not take care of is merged (:func:`airflow_provider_cdc.targets.lake.formats.delta.file_schema.not_for`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats import parquet_key_lookup
from airflow_provider_cdc.targets.lake.formats.delta import deletion_vectors as vectors
from airflow_provider_cdc.targets.lake.formats.delta.copy_on_write import MOST_BYTES, MOST_FILES, DeltaCopyOnWrite
from airflow_provider_cdc.targets.lake.formats.delta.data_file_writer import GREGORIAN, DeltaFileWriter
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaDataFile, DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.delta.file_schema import DeltaFileLayout, is_ordered
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported
from airflow_provider_cdc.targets.lake.formats.table_values import KeyedChanges, WriteMetrics
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import JvmMember, count_parameters, python_to_scala
from airflow_provider_cdc.targets.lake.spark_releases.python_features import metadata_column
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.delta")
BROADCAST_KEYS = 5_000_000
_DELTA = "org.apache.spark.sql.delta"
NEEDED = tuple(
    JvmMember(f"{_DELTA}.{owner}", name or f"{_DELTA}.{owner}", parameters)
    for owner, name, parameters in (
        ("OptimisticTransaction", "readTxn", 0),
        ("OptimisticTransaction", "updateSetTransaction", 3),
        ("OptimisticTransaction", "readWholeTable", 0),
        ("OptimisticTransaction", "filterFiles", 0),
        ("OptimisticTransaction", "commit", 2),
        ("DeltaOperations$StreamingUpdate", "", 4),
        ("actions.Action", "fromJson", 1),
        ("actions.AddFile", "removeRows", 3),
        ("VersionChecksum", "allFiles", 0),
        ("storage.dv.DeletionVectorStore$", "createInstance", 1),
        ("util.PathWithFileSystem$", "withConf", 2),
        ("deletionvectors.RoaringBitmapArray", "readFrom", 1),
        ("commands.DeletionVectorWriter$", "createWriter", 3),
        ("commands.DeletionVectorWriter$", "storeSerializedBitmap", 3),
        ("commands.DeletionVectorWriter$DeletionVectorMapperContext", "", 5),
    )
)
"""Members of Delta that a commit of arrays calls."""
METADATA = f"{OURS}metadata"
"""Column of Spark's that says where a row is."""


def find_matching_rows(rows: DataFrame, keys: DataFrame, changes: KeyedChanges) -> DataFrame:
    """Return the places of the table's rows with some of the keys: their files' :data:`METADATA`.

    :param rows: of the table at the version that the commit is based on
    :param keys: with the key columns; a key may come several times
    """
    names = list(changes.keys.column_names)
    candidates = rows.select(
        *[F.col(quote_name(name)).alias(f"t{i}") for i, name in enumerate(names)],
        metadata_column(rows, "_metadata").alias(METADATA),
    )  # fmt: skip
    for i, name in enumerate(names):
        if bounds := _bounds(changes.keys[name]):  # files without such keys are not read
            candidates = candidates.where(F.col(f"t{i}").between(*bounds))
    same = reduce(and_, [F.col(f"t{i}").eqNullSafe(F.col(f"k.{quote_name(name)}")) for i, name in enumerate(names)])
    key_rows = F.broadcast(keys) if changes.keys.num_rows < BROADCAST_KEYS else keys
    return candidates.join(key_rows.alias("k"), same, "left_semi")


def _bounds(keys: pa.ChunkedArray) -> tuple[Column, Column] | None:
    """Return the least and the greatest key, if a filter by them finds all keys."""
    if keys.null_count or not len(keys) or not is_ordered(keys.type):
        return None
    ends = pc.min_max(keys)
    if pa.types.is_date(keys.type):  # as numbers: Python has no days before its first year and after 9999
        least, most = (ends[name].cast(pa.int32()).as_py() for name in ("min", "max"))
        if least <= GREGORIAN:  # filters that Spark gives to the reader of files take such dates for others
            return None
        return F.date_from_unix_date(F.lit(least)), F.date_from_unix_date(F.lit(most))
    return F.lit(ends["min"].as_py()), F.lit(ends["max"].as_py())


# -- the transaction ----------------------------------------------------------------------------------------------------


class DeltaArrayCommit:
    """A commit of one batch to one table, at the version of a transaction.

    :param log: Delta's view of the table
    :param layout: of the table at this version
    :param writer: writes files of the table
    :param files: reads those that are there
    :param at: version → the table's rows then
    """

    def __init__(
        self, spark: SparkSession, log: Any, transaction: Any, layout: DeltaFileLayout, writer: DeltaFileWriter, files: DeltaFileReader,
        at: Callable[[int], DataFrame],
    ) -> None:  # fmt: skip
        self._spark, self._delta = spark, DeltaClasses(spark)
        self._log, self._transaction, self._layout = log, transaction, layout
        self._writer, self._files, self._at = writer, files, at
        self._old = DeltaCopyOnWrite(writer, files)
        self.written: WriteMetrics | None = None
        """Metrics of the commit; ``None`` before it."""

    def write_batch(self, changes: KeyedChanges, keys: Callable[[], DataFrame], marker: Marker) -> str:
        """
        :return: why the table has to be merged; empty if the batch is committed
        """
        small = count_snapshot_bytes(self._transaction.snapshot()) <= MOST_BYTES
        reason = self._copy_on_write(changes, marker) if small else _LARGE
        if not reason:
            return ""
        if not changes.keys.num_rows:
            self._transaction.filterFiles()
            self._put([], changes, marker)
            return ""
        if self._layout.has_vectors:
            self._put(self._taken(changes, keys), changes, marker)
            return ""
        if not changes.inserts_only:
            return f"{reason}; {_NO_VECTORS}"
        if find_matching_rows(self._now(), keys(), changes).head(1):
            return f"{reason}; {_NO_VECTORS} and already has some of the keys"
        self._transaction.filterFiles()
        self._put([], changes, marker)
        return ""

    def _copy_on_write(self, changes: KeyedChanges, marker: Marker) -> str:
        actions = self._delta.read_all_files(self._transaction)
        if len(actions) > MOST_FILES:
            return f"it has {len(actions)} files"
        try:
            done = self._old.replace_keys([DeltaDataFile.from_action(action, self._log) for action in actions], changes)
        except ArrowUnsupported as e:
            return str(e)
        self._put([file.action.remove() for file in done.gone], changes, marker, done.rows)
        return ""

    def _taken(self, changes: KeyedChanges, keys: Callable[[], DataFrame]) -> list[Any]:
        """Actions that give files new deletion vectors, in which the rows with some keys are gone."""
        try:
            files = [DeltaDataFile.from_action(action, self._log) for action in self._few_files()]
            return self._vectors_of().build_key_removals(files, self._writer.to_file_columns(changes.keys))
        except ArrowUnsupported as e:
            log.info("Spark searches for the rows to remove: %s.", e)
        return self._delta.build_deletion_vectors(
            self._transaction, self._log, find_matching_rows(self._now(), keys(), changes)
        )

    def _few_files(self) -> list[Any]:
        """``AddFile`` of all files, with their statistics. The whole table counts as read.

        :raises NotOnArrays: they are too many for the driver
        """
        number = count_snapshot_files(self._transaction.snapshot())
        if number > parquet_key_lookup.MOST_FILES:
            raise ArrowUnsupported(f"the table has {number} files")
        return self._delta.read_all_files(self._transaction)

    def _vectors_of(self) -> vectors.DeletionVectorWriter:
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        return vectors.DeletionVectorWriter(self._delta, self._log, conf, self._files)

    def _put(
        self, actions: Sequence[Any], changes: KeyedChanges, marker: Marker, kept_rows: Iterable[pa.Table] = ()
    ) -> None:
        sizes = self._commit(actions, changes.read_rows(), marker, kept_rows)
        rows, deleted = changes.number_of_rows(), changes.number_of_deletes()
        self.written = WriteMetrics("commit", rows, deleted, sum(sizes), len(sizes))

    def _commit(
        self, actions: Sequence[Any], new: Iterable[pa.Table], marker: Marker, kept_rows: Iterable[pa.Table] = ()
    ) -> list[int]:
        """Write the new files, and commit them.

        :param new: rows with the table's columns
        :param kept_rows: rows as its files have them
        :return: bytes of each file that was written
        """
        files = self._writer.write_files(chain(kept_rows, map(self._writer.to_file_columns, new)))
        self._delta.commit_actions(
            self._transaction,
            [*actions, *map(self._delta.build_add_action, files)],
            marker.application_name,
            marker.batch,
        )
        return [int(file["size"]) for file in files]

    def _now(self) -> DataFrame:
        return self._at(int(self._transaction.snapshot().version()))


def read_snapshot_markers(spark: SparkSession, snapshot: Any) -> dict[str, int]:
    """Application → its last batch, at some version of a table."""
    # the version's checksum has them, as long as they are few; for all else, a Spark job reads the log first
    checksum = snapshot.checksumOpt()
    recorded = checksum.get().setTransactions() if checksum.isDefined() else checksum
    transactions = recorded.get() if recorded.isDefined() else snapshot.setTransactions()
    return {
        transaction.appId(): int(transaction.version())
        for transaction in DeltaClasses(spark).to_python_list(transactions)
    }


def count_snapshot_bytes(snapshot: Any) -> int:
    """Bytes of all files, at some version of a table."""
    checksum = snapshot.checksumOpt()  # as markers
    return int(checksum.get().tableSizeBytes() if checksum.isDefined() else snapshot.sizeInBytes())


def count_snapshot_files(snapshot: Any) -> int:
    """Count all files, at some version of a table."""
    checksum = snapshot.checksumOpt()  # as markers
    return int(checksum.get().numFiles() if checksum.isDefined() else snapshot.numOfFiles())


def too_large(layout: DeltaFileLayout, snapshot: Any) -> str:
    """Why rows of a table, at some version of it, cannot be replaced without a MERGE; empty if they can."""
    if layout.has_vectors or count_snapshot_bytes(snapshot) <= MOST_BYTES:
        return ""
    return f"{_LARGE}; {_NO_VECTORS}"


_LARGE, _NO_VECTORS = "it is large", "the table has no deletion vectors"


class DeltaClasses:
    """Delta's own classes, by their full names."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def load_class(self, name: str) -> Any:
        return getattr(self._spark._jvm, name)

    def load_scala_object(self, name: str) -> Any:
        """Return an object of Scala."""
        return getattr(self.load_class(f"{name}$"), "MODULE$")

    def to_python_list(self, sequence: Any) -> list[Any]:
        """Convert a sequence of Scala's to a list."""
        # py4j's own iteration ends each time with an error of Java's, which costs dozens of calls
        return [sequence.apply(at) for at in range(sequence.size())]

    def read_all_files(self, transaction: Any) -> list[Any]:
        """Return ``AddFile`` of all files.

        The whole table counts as read: the first writer that changes it makes the commit fail.
        """
        transaction.readWholeTable()
        snapshot = transaction.snapshot()
        checksum = snapshot.checksumOpt()
        # Delta writes the list of a small table's files into each version's checksum: otherwise a Spark job has to make it
        recorded = checksum.get().allFiles() if checksum.isDefined() else self.load_class("scala.Option").empty()
        if recorded.isDefined():
            return self.to_python_list(recorded.get())
        return list(snapshot.allFiles().collectAsList().toArray())

    def read_file_rows(self, log: Any, snapshot: Any, files: Iterable[Any]) -> DataFrame:
        """Read the rows of some files of a table, at some version of it.

        :param files: ``AddFile`` of each
        """
        none = self.load_class("scala.Option").empty()
        return DataFrame(log.createDataFrame(snapshot, self.to_scala_sequence(files), False, none), self._spark)

    def to_scala_sequence(self, values: Iterable[Any]) -> Any:
        """Build a sequence of Scala's."""
        return python_to_scala(self._spark, values)

    def build_deletion_vectors(self, transaction: Any, log: Any, rows: DataFrame) -> list[Any]:
        """Actions that give files new deletion vectors, in which some rows are gone."""
        commands, some = "org.apache.spark.sql.delta.commands", self.load_class("scala.Option").apply
        session = self._spark._jsparkSession
        # the whole table counts as read: the first writer that changes it makes this commit fail
        files = transaction.filterFiles()
        always = self.load_class("org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral()
        row_indexes = self.load_scala_object(
            f"{commands}.DeletionVectorBitmapGenerator"
        ).buildRowIndexSetsForFilesMatchingCondition(
            session,
            transaction,
            True,
            rows._jdf,
            files,
            always,
            some(F.col(f"{METADATA}.file_path")._jc),
            some(F.col(f"{METADATA}.row_index")._jc),
        )
        if row_indexes.isEmpty():
            return []
        helper_name = f"{commands}.DMLWithDeletionVectorsHelper"
        helper = self.load_scala_object(helper_name)
        by_path = helper.generateCandidateFileMap(log.dataPath(), files)
        touched = helper.findFilesWithMatchingRows(transaction, by_path, row_indexes)
        # later releases of Delta take one more number
        most = (32,) if 4 in count_parameters(self._spark, f"{helper_name}$", "processUnmodifiedData") else ()
        actions = helper.processUnmodifiedData(session, touched, transaction.snapshot(), *most)._1()
        return self.to_python_list(actions)

    def commit_actions(self, transaction: Any, actions: Sequence[Any], app: str, batch: int) -> None:
        none = self.load_class("scala.Option").empty()
        mode = self.load_class("org.apache.spark.sql.streaming.OutputMode").Update()
        # the first writer that commits a batch of the same application makes this commit fail
        getattr(transaction.readTxn(), "$plus$eq")(app)
        transaction.updateSetTransaction(app, batch, none)
        # history shows it as the update of a stream: its id is the application's, its epoch the batch
        operation = self.load_class("org.apache.spark.sql.delta.DeltaOperations$StreamingUpdate")(
            mode, app, batch, none
        )
        transaction.commit(self.to_scala_sequence(actions), operation)

    def build_add_action(self, file: Mapping[str, Any]) -> Any:
        return self.load_class("org.apache.spark.sql.delta.actions.Action").fromJson(json.dumps({"add": file}))
