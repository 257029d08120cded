"""Maintenance of a Delta table: small files become large ones, commits become a checkpoint, files that no state needs any more go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.delta.array_commit import DeltaClasses
from airflow_provider_cdc.targets.lake.formats.table_values import MaintenanceStepResult
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

SMALL_FILE, LARGE_FILE = 32 << 20, 256 << 20
"""Bytes of a file below which it counts as small, and up to which files are put together."""
FEW = 5
"""So many small files are left alone."""
YOUNGEST_ORPHAN = timedelta(days=1)
"""A file that no version has may be one that is being written, and VACUUM does not distinguish it from one that is out of use. No run writes a batch for this long."""
DELETED = 0.05
"""Share of deleted rows from which on a file is rewritten; Delta's own."""
COMMITS = 10
"""Commits after a checkpoint that readers have to read one by one; Delta's own interval."""
_OPTIMIZE = {
    "spark.databricks.delta.optimize.minFileSize": str(LARGE_FILE // 2),
    "spark.databricks.delta.optimize.maxFileSize": str(LARGE_FILE),
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": str(DELETED),
}
_VACUUM = {
    # how long files stay is checked where it is set
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # otherwise Delta takes a week, whatever RETAIN says
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # as many tasks list the folder, whatever it has in it; Spark's own number is 10,000
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
}


class DeltaMaintenance:
    """The steps.

    :param log: gives Delta's view of the table as it is now
    :param listing: gives the number of files, and their bytes, below the table's folder
    """

    def __init__(
        self, spark: SparkSession, location: str, log: Callable[[], Any], listing: Callable[[], tuple[int, int]]
    ) -> None:
        self._spark, self._table, self._log, self._listing = spark, f"delta.{quote_name(location)}", log, listing

    def compact_files(self) -> MaintenanceStepResult:
        """Compact small files, and rewrite files that have many deleted rows. Clustered tables are clustered by it."""
        files = DataFrame(self._log().unsafeVolatileSnapshot().allFiles().toDF(), self._spark)
        gone = F.coalesce("deletionVector.cardinality", F.lit(0)) / F.get_json_object("stats", "$.numRecords")
        counts = files.agg(
            F.count("*").alias("all"), F.count_if(F.col("size") < SMALL_FILE).alias("small"), F.count_if(gone > DELETED).alias("worn")
        ).first()  # fmt: skip
        assert counts is not None
        if counts["small"] <= FEW and not counts["worn"]:
            return MaintenanceStepResult(
                False, f"of {counts['all']} files, {counts['small']} are small, and none has many deleted rows"
            )
        with self._set(_OPTIMIZE):
            done = self._spark.sql(f"OPTIMIZE {self._table}").first()
        assert done is not None
        metrics = done["metrics"]
        if not metrics["numFilesRemoved"]:
            return MaintenanceStepResult(False, f"the {counts['all']} files cannot be compacted further")
        return MaintenanceStepResult(True, f"{metrics['numFilesRemoved']} files became {metrics['numFilesAdded']}")

    def write_checkpoint(self) -> MaintenanceStepResult:
        """Write the table's state down, so that readers need no older commits; Delta removes those that have expired."""
        log = self._log()
        snapshot = log.unsafeVolatileSnapshot()
        commits = int(snapshot.version()) - max(int(snapshot.logSegment().checkpointProvider().version()), -1)
        if commits < COMMITS:
            return MaintenanceStepResult(False, f"{commits} commits since the last checkpoint")
        log.checkpoint(snapshot, DeltaClasses(self._spark).load_class("scala.Option").empty())
        return MaintenanceStepResult(True, f"a new checkpoint contains the {commits} commits since the last one")

    def remove_old_files(self, keep: timedelta) -> MaintenanceStepResult:
        """Remove files that no state of the table since then has, and files that killed writers have left.

        None is younger than a day: another run may be writing it.
        """
        keep = max(keep, YOUNGEST_ORPHAN)
        before, bytes_ = self._listing()
        with self._set(_VACUUM):
            self._spark.sql(f"VACUUM {self._table} RETAIN {keep.total_seconds() / 3600:.4f} HOURS").collect()
        after, left = self._listing()
        if before <= after:
            return MaintenanceStepResult(
                False, f"no file has been unused for more than {keep.total_seconds() / 3600:g} hours"
            )
        return MaintenanceStepResult(True, f"{before - after} files with {(bytes_ - left) / 1e6:.1f} MB were removed")

    @contextlib.contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        before = {name: self._spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self._spark.conf.unset(name)
                else:
                    self._spark.conf.set(name, old)
