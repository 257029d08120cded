"""The folder of a Delta table, and Delta's own view of it, in the JVM."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.delta.commit_history import CommitHistory
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import (
    activate_session,
    count_parameters,
    scala_to_python,
)
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type

_HISTORIES = dict[tuple[str, str], CommitHistory]()
"""Place and identity of a table → its commits, which no thread and no topic reads again."""


class DeltaTableFolder:
    """The folder of one table.

    :param name: path or URL
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name
        self.writers = dict[str, str]()
        """Application's identifier → the writer of its last batch, as far as :meth:`set_back` has found it."""

    def load_class(self, name: str) -> Any:
        """Return a class of the JVM by its full name.

        Looked up part by part (``_jvm.java.util``), each part is searched for in all jars.
        """
        return getattr(self.spark._jvm, name)

    def to_python_value(self, collection: Any) -> Any:
        """Convert a collection of Scala to Python's."""
        return scala_to_python(self.spark, collection)

    def build_path(self, *parts: Any) -> Any:
        """Build a path in Hadoop's words."""
        return self.load_class("org.apache.hadoop.fs.Path")(*parts)

    def read_properties(self) -> dict[str, str]:
        """Return the table's properties."""
        properties: dict[str, str] = self.to_python_value(self.read_snapshot().metadata().configuration())
        return properties

    def resolve_filesystem(self) -> tuple[Any, Any]:
        """Return the table's folder and its filesystem, in Hadoop's words."""
        folder = self.build_path(self.name)
        return folder, folder.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())

    def can_widen(self, old: str, new: str) -> bool:
        """Check whether this release of Delta changes a column's type in place: with Spark 3.5 only to ``smallint`` and ``int``."""
        widening = "org.apache.spark.sql.delta.TypeWidening$"
        if 3 in count_parameters(self.spark, widening, "isTypeChangeSupported"):
            return True  # a later release, which widens all types that callers ask for
        parse = self.spark._jsparkSession.parseDataType
        types = [parse(field.dataType.json()) for field in build_struct_type({"old": old, "new": new}).fields]
        return bool(getattr(self.load_class(widening), "MODULE$").isTypeChangeSupported(*types))

    def exists(self) -> bool:
        """Check whether a table is there by now."""
        return bool(self.open_log(fresh=True).tableExists())

    def open_log(self, *, fresh: bool = False) -> Any:
        """Delta's own view of the table.

        :param fresh: look for commits of others first, which costs a listing
        """
        # threads of Python have no active session, without which Delta cannot read its own log
        activate_session(self.spark)
        log = self.load_class("org.apache.spark.sql.delta.DeltaLog").forTable(self.spark._jsparkSession, self.name)
        if fresh:
            nothing = self.load_class("scala.Option").empty()
            log.update(False, nothing, nothing)
        return log

    def read_snapshot(self) -> Any:
        """Return the newest version that is known (``org.apache.spark.sql.delta.Snapshot``)."""
        return self.open_log().unsafeVolatileSnapshot()

    def read_version(self) -> int:
        """Its number."""
        return int(self.read_snapshot().version())

    def measure_files(self) -> tuple[int, int]:
        """Return the number of the files in it, and their bytes.

        The log is not counted, to which maintenance adds commits.
        """
        folder, files = self.resolve_filesystem()
        content, log = (files.getContentSummary(path) for path in (folder, self.build_path(folder, "_delta_log")))
        return int(content.getFileCount() - log.getFileCount()), int(content.getLength() - log.getLength())

    def set_back(self, app: str, batch: int) -> str:
        """Find the operation that has given the table other rows than those of an application identifier's last batch; empty if nothing has.

        A RESTORE brings back files and columns, and leaves transaction identifiers as they are; so does a statement that replaces the table.

        :param batch: the last one, by the identifier
        """
        log = self.open_log(fresh=True)
        snapshot = log.unsafeVolatileSnapshot()
        place = str(log.logPath().toString()), str(snapshot.metadata().id())
        history = _HISTORIES.setdefault(place, CommitHistory())
        commit, back = history.find_last_commit(
            app, int(snapshot.version()), lambda version: self.read_actions(log, version)
        )
        if commit is not None and batch in commit.batches:
            self.writers[app] = commit.writer
            return ""
        return back

    def read_actions(self, log: Any, version: int) -> list[dict[str, Any]]:
        """Return the changes of a version of the table; nothing if its log is not kept any more."""
        path = self.build_path(log.logPath(), f"{version:020d}.json")
        if not self.resolve_filesystem()[1].exists(path):
            return []
        return [json.loads(line) for line in self.to_python_value(log.store().read(path, log.newDeltaHadoopConf()))]
