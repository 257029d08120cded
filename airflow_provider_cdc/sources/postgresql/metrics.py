"""Metrics of the stream, under the documented names (Debezium PostgreSQL connector, "Monitoring"), and of its slot."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.postgresql.log.log_metrics import LogMetrics
from airflow_provider_cdc.sources.postgresql.position import format_lsn
from airflow_provider_cdc.sources.postgresql.slot_state import ReplicationSlot


@dataclass(slots=True)
class SlotStreamMetrics:
    """Counters of one source, updated by its streams, and the state of the slot, as it was last read.

    :ivar held_bytes: of log that the server keeps for the slot; -1 = not known
    :ivar safe_bytes: of log that can be written before the slot is lost; -1 = not known, or without limit
    """

    log: LogMetrics = field(default_factory=LogMetrics)
    held_bytes: int = -1
    safe_bytes: int = -1

    def record_slot(self, slot: ReplicationSlot | None) -> None:
        """Record the state of the slot."""
        self.held_bytes = self.safe_bytes = -1
        if slot is not None and not slot.is_lost:
            self.held_bytes = -1 if slot.held_bytes is None else slot.held_bytes
            self.safe_bytes = -1 if slot.safe_bytes is None else slot.safe_bytes

    def build_metrics(self) -> dict[str, Value]:
        """Return the metrics by their names."""
        log = self.log
        return {
            "NumberOfCommittedTransactions": log.committed,
            "NumberOfLargeTransactions": log.large,
            "NumberOfDisconnects": log.disconnects,
            "LastTransactionId": log.last_transaction,
            "SourceEventPosition": {} if log.read is None else {"lsn": str(log.read)},
            "ConfirmedLsn": format_lsn(log.confirmed) if log.confirmed else "",
            "SlotHeldLogBytes": self.held_bytes,
            "SlotSafeLogBytes": self.safe_bytes,
        }
