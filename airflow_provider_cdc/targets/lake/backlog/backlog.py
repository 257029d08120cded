"""What a table has not seen of the change log: batches in groups, each read once for all tables that need it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import Batches
from airflow_provider_cdc.changelog.reading.start_batch import Beginning, Start
from airflow_provider_cdc.core.model.manifest import Contents
from airflow_provider_cdc.targets.lake.backlog.backlog_state import View, indexed
from airflow_provider_cdc.targets.lake.formats.target import NEVER
from airflow_provider_cdc.targets.lake.rules.target_table import Placed

log = logging.getLogger("airflow_provider_cdc.targets.lake.backlog.backlog")


class Backlog:
    """The batches of one connector; used by several threads at once."""

    def __init__(self, changelog: ChangeLog, connector: str) -> None:
        self._changelog, self._connector = changelog, connector
        self._lock, self._read = threading.Lock(), dict[int, list[Batches]]()
        self._contents: list[Contents] = []
        """Those that were read, without gaps: what one table needs is a part of what another one needs that stands further back."""
        self.beginning = Beginning(changelog, connector)
        """How the change log begins."""

    def of(self, table: Placed, at: int | None, view: View) -> tuple[Placed, list[Batches]]:
        """Groups of batches that hold everything that a table has not seen; and the table, which knows where it begins.

        :param at: its last batch; ``None`` if there is no table
        :raises BatchesRemoved: it needs something that was removed from the change log
        """
        name = table.name
        known = view.stands.get(name)
        through = view.reported and name not in view.lagging and known is not None and known["batch"] == at
        if through and at not in (None, NEVER) and not table.touched:
            return table, []
        if at is not None and at >= view.start:
            return table, view.groups
        if view.start == 0 or (through and at not in (None, NEVER)):
            return table, view.groups
        if known is not None and at is not None and at < known["batch"]:
            log.warning(
                "The table of %s stands at batch %d, and stood at %d: it is caught up.", name, at, known["batch"]
            )
        elif known is not None and known["batch"] != NEVER and at is None:
            log.warning("The table of %s is gone, and is built again from the change log.", name)
        start = self._start(table, at, view)
        if at in (None, NEVER) and start.after:
            table = replace(table, since=start.after, lacks=table.lacks or start.lacks)
        return table, self._after(start.after, view)

    def _start(self, table: Placed, at: int | None, view: View) -> Start:
        new = at in (None, NEVER)
        reached = table.since if new else max(at or 0, 0)
        if not new and (found := view.evidence.get(table.location)) is not None and found[0] == at:
            reached = found[1]
        elif new and view.never_had(table):
            mark = self.beginning.mark()
            if mark is None or mark.topics is None:
                reached = view.start
        source = view.table(table.topic)
        return self.start(table.topic, reached, view, new=new, where=table.location, table=str(source or ""))

    def start(self, topic: str, at: int, view: View, *, new: bool, where: str, table: str = "") -> Start:
        """Where a table begins; as :meth:`airflow_provider_cdc.changelog.reading.start_batch.Beginning.start`."""
        return self.beginning.start(topic, at, new=new, kept=lambda b: self._after(b, view), where=where, table=table)

    def _after(self, batch: int, view: View) -> list[Batches]:
        return view.groups if batch == view.start else self.since(batch)

    def since(self, batch: int, until: int = 0) -> list[Batches]:
        """All batches after one of them. However many tables ask, each manifest is read once.

        :param until: those up to this one are to be among them, also if they have come since others were read
        """
        with self._lock:
            if not self._contents or until > self._contents[-1].batch:
                self._read_on(batch)
            if batch not in self._read:
                self._read[batch] = self._made(batch)
            return self._read[batch]

    def _read_on(self, batch: int) -> None:
        """Read what has come since; or if nothing is read, what has come since a batch."""
        newest = self._contents[-1].batch if self._contents else batch
        if found := self._contents_of(after=newest):
            self._contents += found
            self._read.clear()

    def _made(self, batch: int) -> list[Batches]:
        further = max((start for start in self._read if start < batch), default=None)
        if further is not None:
            return [group.since(batch) for group in self._read[further] if group.last > batch]
        if self._contents and batch + 1 < self._contents[0].batch:
            there = self._contents[0].batch
            self._contents[:0] = self._contents_of(after=batch, until=there - 1, there=there)
        dropped = self.beginning.dropped(batch)
        return indexed(self._changelog, (found for found in self._contents if found.batch > batch), {}, dropped)

    def _contents_of(self, **which: int) -> list[Contents]:
        return [manifest.contents for manifest in self._changelog.manifests(self._connector, **which)]

    def all(self) -> list[Batches]:
        """All batches that the change log has; its first ones may have been removed."""
        return self.left_since(0)

    def left_since(self, batch: int, until: int = 0) -> list[Batches]:
        """Those after one of them that the change log still has.

        :param until: as of :meth:`since`
        """
        if self._changelog.has(self._connector, batch + 1):
            return self.since(batch, until)
        first = self._changelog.first(self._connector)
        return self.since(max(batch, first - 1), until) if first else []

    def forget(self) -> None:
        """Drop what was read; the next run may find other batches."""
        self.beginning.forget()
        with self._lock:
            self._read.clear()
            self._contents.clear()
