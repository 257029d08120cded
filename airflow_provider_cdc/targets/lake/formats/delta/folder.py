"""The folder of a Delta table, and Delta's own view of it, in the JVM."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

WRITER = "cdc.writer"
"""In a commit's metadata: the run that has written the batch into the change log."""
_MADE_ANEW = frozenset(
    {
        "REPLACE TABLE",
        "CREATE OR REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE AS SELECT",
        "CLONE",
    }
)
"""Operations of Delta's that put other rows and columns in the place of a table's, and drop its properties."""


class TableFolder:
    """One table.

    :param name: path or URL
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name
        self.writers = dict[str, str]()
        """Application's identifier → the writer of its last batch, as far as :meth:`set_back` has found it."""

    def cls(self, name: str) -> Any:
        """A class of the JVM by its full name. Looked up part by part (``_jvm.java.util``), each part is searched for in all jars."""
        return getattr(self.spark._jvm, name)

    def plain(self, collection: Any) -> Any:
        """A collection of Scala as Python's, in one call: py4j's own has several for each value."""
        java = self.cls("scala.jdk.javaapi.CollectionConverters").asJava(collection)
        return json.loads(self.cls("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString(java))

    def path(self, *parts: Any) -> Any:
        """A path in Hadoop's words."""
        return self.cls("org.apache.hadoop.fs.Path")(*parts)

    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self.plain(self.snapshot().metadata().configuration())
        return found

    def files(self) -> tuple[Any, Any]:
        """The table's folder and its filesystem, in Hadoop's words."""
        folder = self.path(self.name)
        return folder, folder.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())

    def exists(self) -> bool:
        """Whether a table is there by now."""
        return bool(self.log(fresh=True).tableExists())

    def log(self, *, fresh: bool = False) -> Any:
        """Delta's own view of the table.

        :param fresh: look for commits of others first, which costs a listing
        """
        # threads of Python have no active session, without which Delta cannot read its own log
        spark = self.spark._jsparkSession
        self.cls("org.apache.spark.sql.classic.SparkSession").setActiveSession(spark)
        log = self.cls("org.apache.spark.sql.delta.DeltaLog").forTable(spark, self.name)
        if fresh:
            nothing = self.cls("scala.Option").empty()
            log.update(False, nothing, nothing)
        return log

    def snapshot(self) -> Any:
        """The newest version that is known (``org.apache.spark.sql.delta.Snapshot``)."""
        return self.log().unsafeVolatileSnapshot()

    def version(self) -> int:
        """Its number."""
        return int(self.snapshot().version())

    def listing(self) -> tuple[int, int]:
        """Number of the files in it, and their bytes; without the log, to which maintenance adds commits."""
        folder, files = self.files()
        found, log = (files.getContentSummary(path) for path in (folder, self.path(folder, "_delta_log")))
        return int(found.getFileCount() - log.getFileCount()), int(found.getLength() - log.getLength())

    def set_back(self, app: str, batch: int) -> str:
        """What has given the table other rows than those that it had with the last batch of an application's identifier; empty if nothing has.

        A RESTORE brings back files and columns, and leaves transaction identifiers as they are; so does a statement that makes the table anew.

        :param batch: the last one, by the identifier
        """
        log, back = self.log(fresh=True), ""
        version = int(log.unsafeVolatileSnapshot().version())
        while version >= 0 and (actions := self.actions(log, version)):  # older ones may be cleaned up
            done: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
            if batches := [a["txn"]["version"] for a in actions if "txn" in a and a["txn"]["appId"] == app]:
                if batch in batches:
                    self.writers[app] = _writer(done)
                    return ""
                return back
            operation = str(done.get("operation"))
            if operation in _MADE_ANEW:
                return f"{operation} in version {version}"
            if operation == "RESTORE":
                back = back or f"RESTORE in version {version}"
                to = done["operationParameters"].get("version")
                if to is None:  # it was one by time
                    break
                version = int(to)
            else:
                version -= 1
        return back

    def actions(self, log: Any, version: int) -> list[dict[str, Any]]:
        """What a version of the table changed; nothing if its log is not kept any more."""
        path = self.path(log.logPath(), f"{version:020d}.json")
        if not self.files()[1].exists(path):
            return []
        return [json.loads(line) for line in self.plain(log.store().read(path, log.newDeltaHadoopConf()))]


def _writer(done: dict[str, Any]) -> str:
    """The writer that a commit says; empty if it says none."""
    try:
        said = json.loads(done.get("userMetadata") or "{}")
    except ValueError:  # of an earlier release, in a session that gives all commits a text
        return ""
    return str(said.get(WRITER, "")) if isinstance(said, dict) else ""
