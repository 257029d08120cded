"""Maintenance of an Iceberg table: compaction, and removal of files and snapshots that are not needed any more.

Files and manifests are rewritten where there are many small ones or deletes, old snapshots expire, and files that no snapshot has are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.iceberg import compaction
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG, to_python_dict
from airflow_provider_cdc.targets.lake.formats.table_values import MaintenanceStepResult
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import activate_session, load_jvm_class

FEW = 5
"""So many small files, or manifests, are left alone."""
SMALL_MANIFEST = 1 << 20
YOUNGEST_ORPHAN = timedelta(days=1)
"""A file that no snapshot has may be one that is being written. No run writes a batch for this long."""


class IcebergMaintenance:
    """The steps.

    :param load: gives the table as it is now (``org.apache.iceberg.Table``)
    :param alone: while the metadata are replaced, as :meth:`airflow_provider_cdc.targets.lake.formats.iceberg.table_locations.IcebergLocation.lock_metadata`
    """

    def __init__(
        self, spark: SparkSession, load: Callable[[], Any], alone: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._spark, self._load, self._alone = spark, load, alone

    def compact_files(self) -> MaintenanceStepResult:
        """Rewrite small files, and files of which rows are deleted; sorted, if the table has an order."""
        table = self._load()
        files, deletes, small = compaction.count_files(table)
        if not deletes and small <= FEW:
            return MaintenanceStepResult(False, f"of {files} files, {small} are small, and no delete files exist")
        with self._alone():
            table = self._load()
            done = compaction.compact_files(self._spark, table)
        rewritten, added = int(done.rewrittenDataFilesCount()), int(done.addedDataFilesCount())
        if not rewritten:
            return MaintenanceStepResult(False, f"the {files} files cannot be compacted further")
        return MaintenanceStepResult(
            True, f"{rewritten} files became {added}, with {deletes} delete files merged into them"
        )

    def rewrite_manifests(self) -> MaintenanceStepResult:
        """Put the lists of files together."""
        table = self._load()
        snapshot = table.currentSnapshot()
        manifests = [] if snapshot is None else list(snapshot.dataManifests(table.io()))
        small = [manifest for manifest in manifests if manifest.length() < SMALL_MANIFEST]
        if len(small) <= FEW:
            return MaintenanceStepResult(False, f"of {len(manifests)} manifests, {len(small)} are small")
        with self._alone():
            done = self._action("rewriteManifests", self._load()).execute()
        before, after = (sum(1 for _ in changed) for changed in (done.rewrittenManifests(), done.addedManifests()))
        return MaintenanceStepResult(after < before, f"{before} manifests became {after}")

    def expire_snapshots(self, keep: timedelta) -> MaintenanceStepResult:
        """Forget older snapshots, and remove the files that only they have. The current one stays, however old it is."""
        table, until = self._load(), self._until(keep)
        if reason := _kept_by_itself(table):
            return MaintenanceStepResult(False, reason)
        old = [snapshot for snapshot in table.snapshots() if snapshot.timestampMillis() < until]
        current = table.currentSnapshot()
        if not [snapshot for snapshot in old if snapshot.snapshotId() != current.snapshotId()]:
            return MaintenanceStepResult(
                False, f"no snapshot except the current one is older than {keep.total_seconds() / 3600:g} hours"
            )
        with self._alone():
            table = self._load()
            before = table.operations().current().snapshots().size()
            done = self._action("expireSnapshots", table).expireOlderThan(until).retainLast(1).execute()
            table.refresh()
            went = before - table.operations().current().snapshots().size()
        data = int(done.deletedDataFilesCount()) + int(done.deletedPositionDeleteFilesCount())
        data += int(done.deletedEqualityDeleteFilesCount())
        lists = int(done.deletedManifestsCount()) + int(done.deletedManifestListsCount())
        return MaintenanceStepResult(
            went > 0,
            f"{went} snapshots expired; {data} data or delete files and {lists} manifests or manifest lists were removed",
        )

    def remove_orphans(self, keep: timedelta) -> MaintenanceStepResult:
        """Remove files that killed writers have left."""
        table, keep = self._load(), max(keep, YOUNGEST_ORPHAN)
        if reason := _kept_by_itself(table):
            return MaintenanceStepResult(False, reason)
        done = self._action("deleteOrphanFiles", table).olderThan(self._until(keep)).execute()
        orphans = sum(1 for _ in done.orphanFileLocations())
        if not orphans:
            return MaintenanceStepResult(False, f"no orphan file is older than {keep.total_seconds() / 3600:g} hours")
        return MaintenanceStepResult(True, f"{orphans} files that no snapshot refers to were removed")

    def _action(self, name: str, table: Any) -> Any:
        activate_session(self._spark)
        actions = load_jvm_class(self._spark, f"{ICEBERG}.spark.actions.SparkActions").get(self._spark._jsparkSession)
        return getattr(actions, name)(table)

    def _until(self, keep: timedelta) -> int:
        return int((time.time() - keep.total_seconds()) * 1000)


def _kept_by_itself(table: Any) -> str:
    off = to_python_dict(table.properties()).get("gc.enabled", "true").lower() == "false"
    return "the table property gc.enabled is false: another table may use the same files" if off else ""
