"""The line of snapshots that has led to an Iceberg table's rows: the newest marker of each application in it.

A table that many topics share is asked for each of them. Each snapshot is read once for all of them, however long ago the last one of a topic was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """The facts of a snapshot that are read.

    :param batches: application → its batch in this snapshot
    :param cherry_picked: rows of another line, whose marker they do not bring
    """

    batches: dict[str, int] = field(default_factory=dict)
    cherry_picked: bool = False


@dataclass(frozen=True, slots=True)
class LineMarker:
    """The newest marker of an application.

    :param cherry_picked: the newest snapshot after it that was cherry-picked
    """

    batch: int
    cherry_picked: int | None = None


ReadSummary = Callable[[int], SnapshotSummary]


class SnapshotLine:
    """The snapshots of one table, as far as they were read; several threads may ask.

    What is kept grows with the applications, not with the snapshots.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: int | None = None
        self._oldest: int | None = None
        self._markers = dict[str, tuple[int, int]]()
        """Application → the newest snapshot with its marker, and the batch."""
        self._cherry_picked: int | None = None
        """The newest one that was cherry-picked."""

    def find_markers(
        self, apps: Collection[str], ids: Sequence[int], read: ReadSummary
    ) -> tuple[dict[str, LineMarker], int | None]:
        """Find the newest markers, and the newest snapshot that was cherry-picked.

        :param apps: they are looked for; if there are none, all that there are
        :param ids: the snapshots that the table has, from its current one to the oldest
        :return: the applications that have one; others may be among them
        """
        with self._lock:
            places = {snapshot: place for place, snapshot in enumerate(ids)}
            if self._newest not in places:  # nothing was read, or the table was rolled back
                self._newest = self._oldest = self._cherry_picked = None
                self._markers.clear()
            self._drop_expired(places)
            for snapshot in reversed(ids[: self._count_newer(places)]):
                self._add(snapshot, read(snapshot), newer=True)
            for snapshot in ids[self._find_unread(places) :]:
                if apps and self._markers.keys() >= set(apps):
                    break
                self._add(snapshot, read(snapshot), newer=False)
                self._oldest = snapshot
            self._newest = ids[0] if ids else None
            return {
                app: LineMarker(batch, self._cherry_picked_after(places[snapshot], places))
                for app, (snapshot, batch) in self._markers.items()
            }, self._cherry_picked

    def _count_newer(self, places: dict[int, int]) -> int:
        return 0 if self._newest is None else places[self._newest]

    def _find_unread(self, places: dict[int, int]) -> int:
        """Return the place of the newest snapshot older than all that were read."""
        if self._newest is None:
            return 0
        # those that were not read have expired with the oldest one that was
        return places[self._oldest] + 1 if self._oldest in places else len(places)

    def _drop_expired(self, places: dict[int, int]) -> None:
        self._markers = {app: marker for app, marker in self._markers.items() if marker[0] in places}
        if self._cherry_picked not in places:
            self._cherry_picked = None

    def _add(self, snapshot: int, summary: SnapshotSummary, *, newer: bool) -> None:
        for app, batch in summary.batches.items():
            if newer or app not in self._markers:
                self._markers[app] = snapshot, batch
        if summary.cherry_picked and (newer or self._cherry_picked is None):
            self._cherry_picked = snapshot

    def _cherry_picked_after(self, place: int, places: dict[int, int]) -> int | None:
        picked = self._cherry_picked
        return picked if picked is not None and places[picked] < place else None
