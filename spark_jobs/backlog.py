"""What a table has not seen of the change log: batches in groups, each read once for all tables that need it."""

from __future__ import annotations

import logging
import threading

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Batches
from airflow_provider_cdc.core.model.manifest import Manifest
from spark_jobs.placed import Placed
from spark_jobs.targets.base import NEVER
from spark_jobs.view import View, indexed

log = logging.getLogger("spark_jobs.backlog")


class Backlog:
    """The batches of one connector; used by several threads at once."""

    def __init__(self, changelog: ChangeLog, connector: str) -> None:
        self._changelog, self._connector = changelog, connector
        self._lock, self._read = threading.Lock(), dict[int, list[Batches]]()
        self._manifests: list[Manifest] = []
        """Those that were read, without gaps: what one table needs is a part of what another one needs that stands further back."""

    def of(self, table: Placed, at: int | None, view: View) -> list[Batches]:
        """Groups of batches that hold everything that a table has not seen.

        :param at: its last batch; ``None`` if there is no table
        """
        name = table.name
        known = view.stands.get(name)
        through = view.reported and name not in view.lagging and known is not None and known["batch"] == at
        if through and at not in (None, NEVER) and not table.touched:
            return []
        if at is not None and at >= view.start:
            return view.groups
        if view.start == 0 or (through and at not in (None, NEVER)):
            return view.groups
        if known is not None and at is not None and at < known["batch"]:
            log.warning(
                "The table of %s stands at batch %d, and stood at %d: it is caught up.", name, at, known["batch"]
            )
        elif known is not None and known["batch"] != NEVER and at is None:
            log.warning("The table of %s is gone, and is built again from the change log.", name)
        if at in (None, NEVER) and table.since:
            return view.groups if table.since == view.start else self.since(table.since)
        return self.since(max(at or 0, 0))

    def since(self, batch: int, until: int = 0) -> list[Batches]:
        """All batches after one of them. However many tables ask, each manifest is read once.

        :param until: those up to this one are to be among them, also if they have come since others were read
        """
        with self._lock:
            if not self._manifests or until > self._manifests[-1].batch:
                self._read_on(batch)
            if batch not in self._read:
                self._read[batch] = self._made(batch)
            return self._read[batch]

    def _read_on(self, batch: int) -> None:
        """Read what has come since; or if nothing is read, what has come since a batch."""
        newest = self._manifests[-1].batch if self._manifests else batch
        if found := list(self._changelog.manifests(self._connector, after=newest)):
            self._manifests += found
            self._read.clear()

    def _made(self, batch: int) -> list[Batches]:
        further = max((start for start in self._read if start < batch), default=None)
        if further is not None:
            return [group.since(batch) for group in self._read[further] if group.last > batch]
        if self._manifests and batch + 1 < self._manifests[0].batch:
            there = self._manifests[0].batch
            self._manifests[:0] = self._changelog.manifests(self._connector, after=batch, until=there - 1, there=there)
        return indexed(self._changelog, (m for m in self._manifests if m.batch > batch), {})

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
        with self._lock:
            self._read.clear()
            self._manifests.clear()
