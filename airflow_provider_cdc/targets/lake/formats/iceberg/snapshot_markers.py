"""The line of snapshots of an Iceberg table: the markers in it and in the properties, the consequences of a rollback, and the remains of an overtaken commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG, to_python_dict
from airflow_provider_cdc.targets.lake.formats.iceberg.snapshot_line import SnapshotLine, SnapshotSummary
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class

SNAPSHOT_MARKER = "cdc.batch."
"""Property of a snapshot, followed by the application's name: its batch."""
MARKER = "cdc.marker."
"""Property of a table, followed by the application's name: the last batch, and the sequence number of its snapshot."""
WRITER = "cdc.writer."
"""Property of a table, followed by the application's name: the last batch, and the run that has written it into the change log."""
_CHERRY_PICKED = "source-snapshot-id"
_LINES = dict[str, SnapshotLine]()
"""Identity of a table → its snapshots, which no thread and no topic reads again."""


@dataclass(frozen=True, slots=True)
class SnapshotMarker:
    """A marker.

    :param cherry_picked: the newest cherry-picked snapshot after the one with the marker
    :param oldest: the oldest snapshot that is there, if the one with the marker is not any more: only the table's property knows the batch
    """

    batch: int
    cherry_picked: int | None = None
    oldest: Any = None


class SnapshotHistory:
    """The line of snapshots that has led to a table's rows.

    :param table: ``org.apache.iceberg.BaseTable``, as it is now; its later changes are not seen
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._metadata = table.operations().current()
        properties = to_python_dict(self._metadata.properties())
        self._recorded = {
            name.removeprefix(MARKER): tuple(map(int, value.split()))
            for name, value in properties.items()
            if name.startswith(MARKER)
        }
        self._writers = {
            name.removeprefix(WRITER): value.partition(" ")[::2]
            for name, value in properties.items()
            if name.startswith(WRITER)
        }

        self.last_markers = self._find_markers(spark, table)
        """Application → its marker. Only as many snapshots are read as are needed."""

    def read_last_writer(self, app: str) -> str:
        """Return the writer, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.read_last_writer`."""
        batch, writer = self._writers.get(app, ("", ""))
        return writer if app in self.last_markers and batch == str(self.last_markers[app].batch) else ""

    def _find_markers(self, spark: SparkSession, table: Any) -> dict[str, SnapshotMarker]:
        current = self._metadata.currentSnapshot()
        if current is None:
            return {}
        if len(self._recorded) == 1:  # mostly the newest one has it
            markers = _summary_of(current).batches
            if markers.keys() == self._recorded.keys():
                return {app: SnapshotMarker(batch) for app, batch in markers.items()}
        # as one text: py4j asks for each number of a list
        ids = json.loads(load_jvm_class(spark, f"{ICEBERG}.util.SnapshotUtil").currentAncestorIds(table).toString())
        line = _LINES.setdefault(str(self._metadata.uuid()), SnapshotLine())
        there, cherry_picked = line.find_markers(
            self._recorded, ids, lambda snapshot: _summary_of(self._metadata.snapshot(snapshot))
        )
        found = {app: SnapshotMarker(marker.batch, marker.cherry_picked) for app, marker in there.items()}
        if self._recorded.keys() <= found.keys() or (oldest := self._metadata.snapshot(ids[-1])).parentId() is None:
            return found
        expired = {app: SnapshotMarker(batch, cherry_picked, oldest) for app, (batch, _) in self._recorded.items()}
        return {**expired, **found}

    @property
    def went_back(self) -> dict[str, int]:
        """Application → the batch to which a user has rolled the table back, :data:`NEVER` if before its first one."""
        batches = {app: self.last_markers[app].batch if app in self.last_markers else NEVER for app in self._recorded}
        return {app: batch for app, batch in batches.items() if batch < self._recorded[app][0]}

    def set_back(self, app: str) -> str:
        """Find the operation that has set the rows back, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.set_back`.

        A rollback takes the marker back with the rows. The effect of a rollback to a snapshot after the marker's own
        expired one, or of a cherry-picked snapshot, on the rows is unknown. Others may have
        committed since, as a compaction does: the oldest snapshot that is known shows it.
        """
        marker = self.last_markers.get(app)
        if marker is None:
            return ""
        if marker.cherry_picked is not None:
            return f"snapshot {marker.cherry_picked} was cherry-picked"
        if marker.oldest is not None and marker.oldest.sequenceNumber() < self._recorded[app][1]:
            return f"the table was rolled back to snapshot {marker.oldest.snapshotId()}"
        return ""


def _summary_of(snapshot: Any) -> SnapshotSummary:
    summary = to_python_dict(snapshot.summary())
    batches = {
        name.removeprefix(SNAPSHOT_MARKER): int(value)
        for name, value in summary.items()
        if name.startswith(SNAPSHOT_MARKER)
    }
    return SnapshotSummary(batches, _CHERRY_PICKED in summary)


def bring_columns_back(spark: SparkSession, view: Any, went: Mapping[str, int], version: str) -> None:
    """Bring back columns that have changed since a state to which the table was rolled back.

    A rollback brings back rows and marker; the columns come back here, as the rows have them.

    :param view: the table within a transaction
    :param went: application → the batch that it went back to
    :param version: property of the table that says which columns it has
    """
    current = view.currentSnapshot()
    operations = view.operations()
    if current.schemaId() is not None:
        metadata = operations.current()
        builder = load_jvm_class(spark, f"{ICEBERG}.TableMetadata").buildFrom(metadata)
        operations.commit(metadata, builder.setCurrentSchema(current.schemaId()).build())
    update = view.updateProperties().remove(version)
    for app, batch in went.items():
        if batch == NEVER:
            update.remove(f"{MARKER}{app}")
        else:
            update.set(f"{MARKER}{app}", f"{batch} {current.sequenceNumber()}")
    update.commit()


def remove_new_files(table: Any, before: Any, now: Any) -> None:
    """Remove the files of snapshots that will never be the table's.

    A commit that is said to have failed may have been done: a request that is sent again, since its answer was lost, is overtaken by itself, and a rename in an
    object store fails after it has copied. Then the table has the snapshots, and their files stay.

    :param table: within the transaction
    :param before: the table's metadata before it
    :param now: the table as it is now; ``None`` if there is none
    """
    files, earlier_ids = table.io(), {snapshot.snapshotId() for snapshot in before.snapshots()}
    new = [snapshot for snapshot in table.snapshots() if snapshot.snapshotId() not in earlier_ids]
    if now is not None and any(now.snapshot(snapshot.snapshotId()) is not None for snapshot in new):
        return
    for snapshot in new:
        for file in (*snapshot.addedDataFiles(files), *snapshot.addedDeleteFiles(files)):
            files.deleteFile(file.location())
        for manifest in snapshot.allManifests(files):
            if manifest.snapshotId() == snapshot.snapshotId():
                files.deleteFile(manifest.path())
        files.deleteFile(snapshot.manifestListLocation())
