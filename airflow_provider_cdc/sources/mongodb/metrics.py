"""Metrics of the streams of a source, under the documented names where there are such (Debezium MongoDB connector, "Monitoring").

Names that are not in Debezium's documents: ``ClusterTime``, ``NumberOfBatches``, ``NumberOfFetchedBytes``, ``NumberOfFetchedEvents``, ``NumberOfJoinedEvents``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

log = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60.0
"""Seconds between two lines in the log."""


@dataclass(slots=True)
class MongoSnapshotMetrics:
    """Counts the work of the snapshots of one source; readers of several threads update it."""

    _disconnects: list[str] = field(default_factory=list)

    def count_interruption(self, collection: str) -> None:
        """Count a reader that has lost its member, and continues.

        :param collection: collection that it reads
        """
        self._disconnects.append(collection)  # unlike a sum, one step for all threads

    def to_document(self) -> dict[str, Value]:
        """Return the metrics by name."""
        return {"NumberOfDisconnects": len(self._disconnects)}


@dataclass(slots=True)
class MongoStreamMetrics:
    """Counts the work of the streams of one source; each part of a stream updates its own.

    :ivar disconnects: how often a stream was lost and opened again
    :ivar elections: how often another member was primary then
    :ivar joined: events that came in parts
    """

    clock: Callable[[], float] = time.time
    position: MongoPosition | None = None
    disconnects: int = 0
    elections: int = 0
    batches: int = 0
    bytes: int = 0
    events: int = 0
    joined: int = 0
    transactions: int = 0
    last_transaction: str = ""
    _shown: float = field(default=0.0, init=False)

    def count_reply(self, events: int, size: int) -> None:
        """Count a batch that came."""
        self.batches += 1
        self.events += events
        self.bytes += size
        if self.clock() - self._shown >= REPORT_SECONDS:
            if self._shown:
                log.info("%s", self.format_line())
            self._shown = self.clock()

    def advance_position(self, position: MongoPosition) -> None:
        """Record the position that the stream has come to; it never goes back."""
        if self.position is None or position.has_reached(self.position):
            self.position = position

    def to_document(self) -> dict[str, Value]:
        """Return the metrics by name."""
        at = self.position
        return {
            "SourceEventPosition": {} if at is None else {name: str(value) for name, value in at.to_json().items()},
            "LastTransactionId": self.last_transaction,
            "NumberOfCommittedTransactions": self.transactions,
            "NumberOfDisconnects": self.disconnects,
            "NumberOfPrimaryElections": self.elections,
            "ClusterTime": "" if at is None else str(at.time),
            "NumberOfBatches": self.batches,
            "NumberOfFetchedBytes": self.bytes,
            "NumberOfFetchedEvents": self.events,
            "NumberOfJoinedEvents": self.joined,
        }

    def format_line(self) -> str:
        """Format a line for the log."""
        return (
            f"Read up to {self.position}: {self.events:,} events in {self.batches:,} batches, "
            f"{self.bytes / 1e6:,.1f} MB; the stream was reopened {self.disconnects} times, after {self.elections} "
            "elections."
        )
