"""Decides where tables begin on a change log whose first batches were removed.

A table needs every batch after its last one; a new one needs all there ever were. Of those that are gone it lacks nothing if none of them had anything of its topic,
which the log's mark says (:class:`airflow_provider_cdc.changelog.files.truncation_marker.TruncationMarker`). If one had, a new table begins with the last batch in which its topic is emptied: all rows
that it has now come after that. It is emptied by a truncate of the source, and whenever all of its rows are read again, as by ``airflow cdc snapshot … --replace``. If
there is no such batch, the table cannot be built, and the error says how its rows come into the log again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.core.errors import BatchesRemoved
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command


@dataclass(frozen=True, slots=True)
class TableStart:
    """The batch after which a table begins to read.

    :param after: the batch after which it does
    :param lacks: whether there were events of its topic before that which it does not get: its rows are all there, but not their earlier values
    """

    after: int
    lacks: bool = False


class TableStartFinder:
    """Finds where tables begin on the change log of one connector; used by several threads at once."""

    def __init__(self, changelog: ChangeLog, connector: str) -> None:
        self._changelog, self._connector, self._lock = changelog, connector, threading.Lock()
        self._marker_read = False
        self._mark: TruncationMarker | None = None

    def read_marker(self) -> TruncationMarker | None:
        """Return the known facts of the batches that were removed; ``None`` if none was."""
        with self._lock:
            if not self._marker_read:
                self._mark, self._marker_read = self._changelog.read_truncation_marker(self._connector), True
            return self._mark

    def discard_marker(self) -> None:
        """Look again the next time: more may be removed meanwhile."""
        with self._lock:
            self._marker_read = False

    def list_dropped_tables(self, after: int) -> frozenset[str]:
        """List the full names of tables that the source had dropped before the first batch, for a reader that starts there."""
        mark = self.read_marker() if after else None
        return mark.dropped if mark is not None and after == mark.first - 1 else frozenset()

    def find_start(
        self,
        topic: str,
        at: int,
        *,
        new: bool,
        list_batches: Callable[[int], Sequence[BatchesByTopic]],
        where: str,
        table: str = "",
    ) -> TableStart:
        """Find the batch after which a table begins.

        :param at: it has everything up to this batch; 0 if it has nothing
        :param new: it has no rows that count
        :param list_batches: gives the batches after one, as they are read
        :param where: the table is
        :param table: of the source, for people
        :raises BatchesRemoved: it needs something that is gone
        """
        mark = self.read_marker()
        if mark is None or at >= mark.first - 1:
            return TableStart(at)
        if not mark.may_lack(topic, at):
            return TableStart(mark.first - 1)
        base = find_emptying_batch(topic, list_batches(mark.first - 1))
        if new and base:
            return TableStart(base - 1, lacks=True)
        raise unbuildable_error(self._connector, mark, topic, at, new=new, base=base, where=where, table=table)


def find_emptying_batch(topic: str, groups: Sequence[BatchesByTopic], until: int | None = None) -> int:
    """Find the last batch in which a topic is emptied; 0 if there is none.

    :param until: look no further than this batch
    """
    parts = (part for group in reversed(groups) for part in reversed(group.list_parts(topic)))
    return next((p.last for p in parts if "t" in p.count_operations() and (until is None or p.last <= until)), 0)


def unbuildable_error(
    connector: str, mark: TruncationMarker, topic: str, at: int, *, new: bool, base: int, where: str, table: str = ""
) -> BatchesRemoved:
    """Build the error for a table that needs batches which were removed.

    :param base: a batch with which a new table could begin; 0 if there is none
    :param table: of the source
    """
    gone = mark.topics.get(topic) if mark.topics is not None else None
    table = table or (str(gone.table) if gone is not None else "")
    how = f"on {mark.at}, {mark.why}" if mark.why else "by a lifecycle rule of the store or by a person"
    had = (
        "some of them contained changes of the table"
        if gone is not None
        else "it is not known whether any of them contained changes of the table"
    )
    read = (
        f"run `{format_cdc_command('snapshot', connector, format_exact_pattern(table), replace=True)}`, which reads all of its rows into the change log again"
        if table
        else f"run `{format_cdc_command('snapshot', connector, '.*', replace=True)}`, which reads all rows of all tables into the change log again (the source table "
        "of this table is not known)"
    )
    if new:
        problem, remedy = f"The table of {topic} cannot be built", f"{read}, then run the apply again"
    else:
        problem = f"The table of {topic} is at batch {at} and cannot be continued"
        more = (
            f"to rebuild it from batch {base} on, where a snapshot of all of its rows begins"
            if base
            else f"again, but first {read}"
        )
        remedy = f"move the table away, and run the apply {more}"
    return BatchesRemoved(
        f"{problem}: batches of the change log before {mark.first} were removed ({how}), and {had}.",
        where=f"{where} ({connector}/{topic})",
        safe=f"The table was not changed; the change log keeps batches from {mark.first} on.",
        remedy=remedy,
    )
