"""Counters of the streams of one source, which update them once per block."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.sources.postgresql.position import PostgresPosition


@dataclass(slots=True)
class LogMetrics:
    """Counts of the streams of a run.

    :ivar read: position up to which the log was read
    :ivar confirmed: LSN up to which the slot was confirmed
    :ivar committed: transactions that were delivered
    :ivar large: transactions of which a part was delivered before their end was read
    :ivar disconnects: connections that were lost
    :ivar last_transaction: id of the last transaction that was delivered
    """

    read: PostgresPosition | None = None
    confirmed: int = 0
    committed: int = 0
    large: int = 0
    disconnects: int = 0
    last_transaction: str = ""

    def transactions_ended(self, count: int, last: str, *, large: bool) -> None:
        """Count transactions that were delivered whole.

        :param last: id of the last one
        :param large: a part of the first one was delivered before
        """
        self.committed += count
        self.large += large
        self.last_transaction = last or self.last_transaction

    def read_up_to(self, position: PostgresPosition) -> None:
        """Record that the log was read up to a position."""
        self.read = position

    def confirm_up_to(self, lsn: int) -> None:
        """Record that the slot was confirmed up to an LSN."""
        self.confirmed = max(self.confirmed, lsn)

    def count_disconnect(self) -> None:
        """Count a lost connection."""
        self.disconnects += 1
