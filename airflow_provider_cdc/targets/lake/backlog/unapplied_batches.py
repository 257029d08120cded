"""The batches of the change log that a table has not seen: in groups, each read once for all tables that need it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.changelog.reading.table_start_batch import TableStart, TableStartFinder
from airflow_provider_cdc.core.model.batch_manifest import BatchContents
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState, group_batches
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

log = logging.getLogger("airflow_provider_cdc.targets.lake.backlog.unapplied_batches")


class Backlog:
    """The batches of one connector; used by several threads at once."""

    def __init__(self, changelog: ChangeLog, connector: str) -> None:
        self._changelog, self._connector = changelog, connector
        self._lock, self._read = threading.Lock(), dict[int, list[BatchesByTopic]]()
        self._contents: list[BatchContents] = []
        """Batches that were read, without gaps: the batches of one table are a part of those of another one that is further behind."""
        self.beginning = TableStartFinder(changelog, connector)
        """How the change log begins."""

    def find_unapplied_groups(
        self, table: TargetTable, at: int | None, view: BacklogState
    ) -> tuple[TargetTable, list[BatchesByTopic]]:
        """Return groups of batches that hold everything that a table has not seen.

        The table is returned too, which knows where it begins.

        :param at: its last batch; ``None`` if there is no table
        :raises BatchesRemoved: it needs something that was removed from the change log
        """
        name = table.name
        entry = view.table_states.get(name)
        through = view.reported and name not in view.lagging and entry is not None and entry["batch"] == at
        if through and at not in (None, NEVER) and not table.touched:
            return table, []
        if at is not None and at >= view.start:
            return table, view.groups
        if view.start == 0 or (through and at not in (None, NEVER)):
            return table, view.groups
        if entry is not None and at is not None and at < entry["batch"]:
            log.warning(
                "The table of %s is at batch %d, but was at batch %d before: the apply brings it up to date.",
                name,
                at,
                entry["batch"],
            )
        elif entry is not None and entry["batch"] != NEVER and at is None:
            log.warning("The table of %s no longer exists: the apply rebuilds it from the change log.", name)
        start = self._start(table, at, view)
        if at in (None, NEVER) and start.after:
            table = replace(table, begins_after=start.after, lacks=table.lacks or start.lacks)
        return table, self._after(start.after, view)

    def _start(self, table: TargetTable, at: int | None, view: BacklogState) -> TableStart:
        new = at in (None, NEVER)
        reached = table.begins_after if new else max(at or 0, 0)
        if not new and (evidence := view.evidence.get(table.location)) is not None and evidence[0] == at:
            reached = evidence[1]
        elif new and view.never_had(table):
            mark = self.beginning.read_marker()
            if mark is None or mark.topics is None:
                reached = view.start
        source = view.find_table(table.topic)
        return self.resolve_start(table.topic, reached, view, new=new, where=table.location, table=str(source or ""))

    def resolve_start(
        self, topic: str, at: int, view: BacklogState, *, new: bool, where: str, table: str = ""
    ) -> TableStart:
        """Find where a table begins; as :meth:`airflow_provider_cdc.changelog.reading.table_start_batch.TableStartFinder.find_start`."""
        return self.beginning.find_start(
            topic, at, new=new, list_batches=lambda b: self._after(b, view), where=where, table=table
        )

    def _after(self, batch: int, view: BacklogState) -> list[BatchesByTopic]:
        return view.groups if batch == view.start else self.list_later_batches(batch)

    def list_later_batches(self, batch: int, until: int = 0) -> list[BatchesByTopic]:
        """List all batches after one of them. Each manifest is read once, however many tables need it.

        :param until: those up to this one are to be among them, also if they have come since others were read
        """
        with self._lock:
            if not self._contents or until > self._contents[-1].batch:
                self._read_on(batch)
            if batch not in self._read:
                self._read[batch] = self._build_groups(batch)
            return self._read[batch]

    def _read_on(self, batch: int) -> None:
        """Read the batches since the last one that was read; or since a batch, if none was read."""
        newest = self._contents[-1].batch if self._contents else batch
        if newer := self._contents_of(after=newest):
            self._contents += newer
            self._read.clear()

    def _build_groups(self, batch: int) -> list[BatchesByTopic]:
        further = max((start for start in self._read if start < batch), default=None)
        if further is not None:
            return [group.select_later(batch) for group in self._read[further] if group.last > batch]
        if self._contents and batch + 1 < self._contents[0].batch:
            there = self._contents[0].batch
            self._contents[:0] = self._contents_of(after=batch, until=there - 1, there=there)
        dropped = self.beginning.list_dropped_tables(batch)
        return group_batches(
            self._changelog, (contents for contents in self._contents if contents.batch > batch), {}, dropped
        )

    def _contents_of(self, **which: int) -> list[BatchContents]:
        return [manifest.batch_contents for manifest in self._changelog.read_manifests(self._connector, **which)]

    def list_all_batches(self) -> list[BatchesByTopic]:
        """List all batches of the change log; its first ones may have been removed."""
        return self.left_since(0)

    def left_since(self, batch: int, until: int = 0) -> list[BatchesByTopic]:
        """List the batches after one of them that the change log still has.

        :param until: as of :meth:`list_later_batches`
        """
        if self._changelog.has_batch(self._connector, batch + 1):
            return self.list_later_batches(batch, until)
        first = self._changelog.find_first_batch(self._connector)
        return self.list_later_batches(max(batch, first - 1), until) if first else []

    def discard_batches(self) -> None:
        """Discard the batches that were read; the next run may find other batches."""
        self.beginning.discard_marker()
        with self._lock:
            self._read.clear()
            self._contents.clear()
