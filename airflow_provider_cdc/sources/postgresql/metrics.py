"""Metrics of the stream, under the documented names (Debezium PostgreSQL connector, "Monitoring"), and of its slot."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.postgresql.log_range import ReplicationSlot
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition


@dataclass(slots=True)
class SlotStreamMetrics:
    """Counters of one source, updated by its streams.

    :ivar read: position up to which the log was read
    :ivar confirmed: position up to which the server may remove its log
    :ivar held_bytes: of log that the server keeps for the slot; -1 = not known
    :ivar safe_bytes: of log that can be written before the slot is lost; -1 = not known, or without limit
    """

    read: PostgresPosition | None = None
    confirmed: PostgresPosition | None = None
    committed: int = 0
    last_transaction: str = ""
    held_bytes: int = -1
    safe_bytes: int = -1

    def read_up_to(self, position: PostgresPosition) -> None:
        """Record that the log was read up to this position."""
        self.read = position

    def transactions_ended(self, count: int, last: str) -> None:
        """Record that transactions were delivered.

        :param last: id of the last one
        """
        self.committed += count
        self.last_transaction = last or self.last_transaction

    def record_slot(self, slot: ReplicationSlot | None) -> None:
        """Record the state of the slot."""
        known = slot is not None and not slot.is_lost
        self.held_bytes = slot.held_bytes if known and slot is not None and slot.held_bytes is not None else -1
        self.safe_bytes = slot.safe_bytes if known and slot is not None and slot.safe_bytes is not None else -1

    def build_metrics(self) -> dict[str, Value]:
        """Return the metrics by their names."""
        return {
            "NumberOfCommittedTransactions": self.committed,
            "LastTransactionId": self.last_transaction,
            "SourceEventPosition": {} if self.read is None else {"lsn": str(self.read)},
            "ConfirmedLsn": "" if self.confirmed is None else str(self.confirmed),
            "SlotHeldLogBytes": self.held_bytes,
            "SlotSafeLogBytes": self.safe_bytes,
        }
