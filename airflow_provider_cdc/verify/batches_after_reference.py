"""Finds the changes that a connector has captured since the position at which its source was read for a verification.

It also finds whether a table has all of it.
"""

from __future__ import annotations

import threading

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.table_schema import TableSchema

ONLY_CHANGES = (
    "some of its events are partial document updates, also in the batch that was captured while the source was read, so it is not known "
    "which of them the reference already includes. Verify the table again when it has fewer writes, or with a smaller batch.max.rows"
)
"""Why a table is not compared whose events from before and after a position are in one batch, and may not be applied twice."""


class NotComparable(Exception):
    """The rows that the table ought to have cannot be known. The text gives the reason and the remedy."""


class NeverComparable(NotComparable):
    """The rows can never be known, as the source has no such rows."""


class BatchesAfterReference:
    """The connector's own batches since the position of a reference. They are read as far as they are needed; safe for threads.

    :param first: the first batch that ends after the position; it may not be there yet
    :param straddles: that batch may begin before the position
    """

    def __init__(self, changelog: ChangeLog, connector: str, first: int, *, straddles: bool) -> None:
        self.changelog, self.connector, self.first, self.straddles = changelog, connector, first, straddles
        self._lock, self._manifests = threading.Lock(), list[Manifest]()
        self._batches: BatchesByTopic | None = None
        self._topics: dict[int, frozenset[str]] = {}

    @property
    def required_batch(self) -> int:
        """The batch by which a table has everything up to the position."""
        return self.first if self.straddles else self.first - 1

    def list_parts(self, topic: str, last: int) -> list[PendingBatches]:
        """List the part of a topic in each batch up to one.

        :raises NotComparable: the change log does not go so far
        """
        with self._lock:
            self._read(last)
            batches = self._batches
            newest = self._manifests[-1].batch if self._manifests else self.first - 1
        if newest < last:
            raise NotComparable(
                f"it is at batch {last}, but the change log ends with batch {newest}: they do not belong together"
            )
        return [part for part in batches.list_parts(topic, self.first - 1) if part.last <= last] if batches else []

    def has_missing_events(self, topic: str, marker: int) -> bool:
        """Check whether a table with this last batch lacks something up to the position."""
        began = max(marker, 0) + 1
        mark = (
            None
            if self.changelog.has_batch(self.connector, began)
            else self.changelog.read_truncation_marker(self.connector)
        )
        if mark is not None and began < mark.first and mark.topics is not None:
            began, gone = mark.first, mark.may_lack(topic, marker)
        else:
            gone = False
        numbers = range(began, self.required_batch + 1)
        return gone or any(topic in self._topics_of(number) for number in reversed(numbers))

    def explain_lag(self, table: str, last: int) -> str:
        """Why the table of the target may be behind the source up to some batch; empty if nothing says that it may."""
        with self._lock:
            self._read(last)
            manifests = [m for m in self._manifests if m.batch <= last]
        if manifests:
            offsets = [manifests[0].offset_before or Offset(), *(m.offset_after for m in manifests)]
        else:
            before = self.changelog.find_manifest(self.connector, self.first - 1)
            offsets = [before.offset_after] if before else []
        return next(filter(None, (_unsettled(offset, table) for offset in offsets)), "")

    def schema_before(self, topic: str) -> TableSchema | None:
        """Return the schema of a topic's table in the batches before."""
        for number in range(self.first - 1, 0, -1):
            manifest = self.changelog.find_manifest(self.connector, number)
            if manifest is None:
                return None
            if schemas := manifest.schemas.get(topic):
                return schemas[max(schemas, key=int)]
        return None

    def _topics_of(self, number: int) -> frozenset[str]:
        """Topics that have something in a batch."""
        if (topics := self._topics.get(number)) is None:
            manifest = self.changelog.find_manifest(self.connector, number)
            if manifest is None:
                raise NotComparable(
                    f"batch {number} of the change log no longer exists, and the table has not applied it"
                )
            topics = frozenset({f.topic for f in manifest.files} | set(manifest.schemas))
            self._topics[number] = topics
        return topics

    def _read(self, last: int) -> None:
        newest = self._manifests[-1].batch if self._manifests else self.first - 1
        if last <= newest:
            return
        self._manifests += self.changelog.read_manifests(self.connector, after=newest, until=last)
        self._batches = (
            BatchesByTopic(self.changelog, [manifest.batch_contents for manifest in self._manifests])
            if self._manifests
            else None
        )


def _unsettled(offset: Offset, table: str) -> str:
    if table in offset.snapshot.pending:
        return "a snapshot of it was pending"
    if any(scan.table == table for scan in offset.incremental.scans):
        return "an incremental snapshot of it was running"
    at = offset.snapshot.read_at.get(table)
    if at is not None and at != offset.position:
        return "a snapshot of it was complete, but the stream had not reached the position of the snapshot"
    return ""
