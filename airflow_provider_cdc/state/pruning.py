"""Removes old rows, piece by piece: a run may be alive meanwhile, and waits for no piece for long.

These rows stay, however old they are:

- the offset, the offset before the oldest one that is kept by its age (which was in force when the retention began), and the rows of tables
  (:mod:`.offset_table_states`) that one of those has;
- the newest batch: positions are compared with it;
- notifications that a user has looked at the data of a row, or asked for an action: there is no other record of it;
- signals that have not ended: an open snapshot on demand is asked for by one. Of those that came from outside and may be read once more (a row of
  the source's log after a rewind, a message) the row stays, without its data and message: by its origin the signal is known again, and
  not carried out twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import ACTION, ROW
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.state.models import BatchRow, NotificationRow, OffsetHistoryRow, OffsetTableRow, SignalRow
from airflow_provider_cdc.state.signals import SENT_ONCE
from airflow_provider_cdc.state.state_database import StateDatabase

_AT_ONCE = 5000
"""Rows that one transaction removes at most."""


class RowPruner:
    """Removes old rows of connectors."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def prune_rows(self, connector: str, retention: StateRetention, now: datetime) -> dict[str, int]:
        """See :meth:`airflow_provider_cdc.core.lifecycle.lifecycle_stores.LifecycleStore.prune_rows`."""
        steps: dict[str, tuple[timedelta | None, Callable[[str, datetime], int]]] = {
            "offset_history": (retention.offset_history, self._offsets),
            "batches": (retention.batches, self._batches),
            "notifications": (retention.notifications, self._notifications),
            "signals": (retention.signals, self._signals),
        }
        removed = {kind: 0 if keep is None else step(connector, now - keep) for kind, (keep, step) in steps.items()}
        if retention.signal_bytes is not None:
            removed["signals"] += self._large_signals(connector, retention.signal_bytes)
        return removed

    def _offsets(self, connector: str, before: datetime) -> int:
        h, t = OffsetHistoryRow, OffsetTableRow
        mine = h.connector == connector
        oldest_kept = self._ask(sa.select(sa.func.min(h.version)).where(mine, h.created_at >= before))
        older = sa.select(sa.func.max(h.version)).where(mine)
        in_force = self._ask(older if oldest_kept is None else older.where(h.version < oldest_kept))
        if in_force is None:
            return 0
        removed = self._remove(h.version, mine & (h.version < in_force))
        first = self._ask(sa.select(sa.func.min(h.version)).where(mine))
        self._remove(t.id, (t.connector == connector) & (t.until_version <= first))
        return removed

    def _batches(self, connector: str, before: datetime) -> int:
        b = BatchRow
        newest = self._ask(sa.select(sa.func.max(b.batch)).where(b.connector == connector))
        if newest is None:
            return 0
        return self._remove(b.batch, (b.connector == connector) & (b.created_at < before) & (b.batch < newest))

    def _notifications(self, connector: str, before: datetime) -> int:
        n = NotificationRow
        return self._remove(
            n.id, (n.connector == connector) & (n.created_at < before) & n.aggregate_type.not_in((ROW, ACTION))
        )

    def _signals(self, connector: str, before: datetime) -> int:
        return self._remove_signals(_ended_signals(connector) & (SignalRow.ended_at < before))

    def _large_signals(self, connector: str, most: int) -> int:
        """Remove the oldest ended signals, until the texts of the others are no larger.

        :param most: bytes
        """
        s = SignalRow
        size = sa.func.length(sa.func.coalesce(s.data, "")) + sa.func.length(s.message)
        ended = _ended_signals(connector)
        sizes = sa.select(s.id, sa.func.sum(size).over(order_by=s.id.desc()).label("total")).where(ended).subquery()
        last = self._ask(sa.select(sa.func.max(sizes.c.id)).where(sizes.c.total > most))
        return 0 if last is None else self._remove_signals(ended & (s.id <= last))

    def _remove_signals(self, ended: sa.ColumnElement[bool]) -> int:
        """Remove signals. The row of one that may be read once more stays, without its texts.

        :param ended: condition that selects signals with a final state
        """
        s = SignalRow
        once = s.origin.is_(None) | s.origin.startswith(SENT_ONCE, autoescape=True)
        removed = self._remove(s.id, ended & once)
        full = s.data.is_not(None) | (s.message != "") | s.progress.is_not(None)
        emptied = sa.update(s).where(ended & ~once & full).values(data=None, message="", progress=None)
        for attempt in self._database.iterate_attempts("remove old signals"):
            with attempt, self._database.open_transaction() as c:
                removed += c.execute(emptied).rowcount
        return removed

    def _ask(self, statement: sa.Select[Any]) -> Any:
        for attempt in self._database.iterate_attempts("count old rows"):
            with attempt, self._database.engine.connect() as c:
                count = c.scalar(statement)
        return count

    def _remove(self, number: Any, old: sa.ColumnElement[bool]) -> int:
        """Remove the rows of a table that fulfil a condition.

        :param number: the column by which they are taken in pieces
        """
        removed = 0
        while True:
            piece = sa.select(number).where(old).order_by(number).limit(_AT_ONCE).subquery()
            last = self._ask(sa.select(sa.func.max(piece.c[0])))
            if last is None:
                return removed
            for attempt in self._database.iterate_attempts("remove old rows"):
                with attempt, self._database.open_transaction() as c:
                    gone = c.execute(sa.delete(number.class_).where(old & (number <= last))).rowcount
            removed += gone


def _ended_signals(connector: str) -> sa.ColumnElement[bool]:
    final = SignalRow.state.in_([state.value for state in SignalState if state.is_final])
    return (SignalRow.connector == connector) & final
