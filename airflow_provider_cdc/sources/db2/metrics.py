"""Metrics of the streams of a source, under the documented names where there are such (Debezium Db2 connector, "Monitoring").

:class:`AsnStreamMetrics` owns the counters; each part of a stream updates its own. It also writes a line to the task's log once a minute and
at the end of a run. ``Db2Source.collect_stream_metrics`` returns its values.

Names that are not in Debezium's documents: ``PublishedLsn``, ``AgentLatencyInMilliseconds``, ``AgentSilentInMilliseconds``, ``RegisteredTables``,
``ActiveRegistrations``, ``NumberOfPolls``, ``NumberOfWindows``, ``NumberOfChangeTableQueries``, ``TotalProcessedRows``,
``LastWindowDurationInMilliseconds``, ``MaxWindowDurationInMilliseconds``, ``RowsWithReselectedLobs``, ``RowsWithLostLobs``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_text

log = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60.0
"""Seconds between two lines in the log."""


@dataclass(slots=True)
class StreamCounters:
    """Counters of a stream.

    :ivar rows: rows of change tables; an update may be two
    :ivar changes: changes that were made of them
    :ivar queries: queries on change tables
    :ivar last_transaction: LSN of the last commit, as text
    :ivar ts_us: when it was committed, µs since the epoch
    :ivar lobs_read: rows whose LOBs were read from their table; ``lobs_gone`` those that were not there any more
    """

    rows: int = 0
    changes: int = 0
    transactions: int = 0
    polls: int = 0
    windows: int = 0
    queries: int = 0
    last_transaction: str = ""
    ts_us: int = 0
    lobs_read: int = 0
    lobs_gone: int = 0
    last_window: float = 0.0
    max_window: float = 0.0


class AsnStreamMetrics:
    """Measures the streams of one source.

    ::

        metrics.record_poll(published)  # after each look at the agent's progress
        metrics.record_position(position)  # when the stream has read on
        metrics.record_window(seconds)  # after each window
        metrics.record_end()
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.counters = StreamCounters()
        self._published: AgentProgress | None = None
        self._position: Db2Position | None = None
        self._moved = self._shown = clock()

    def record_poll(self, published: AgentProgress) -> None:
        """Record that the agent was looked at."""
        self.counters.polls += 1
        before = self._published
        if before is None or (before.lsn, before.synch_us) != (published.lsn, published.synch_us):
            self._moved = self._clock()
        self._published = published
        if self._clock() - self._shown >= REPORT_SECONDS:
            self._shown = self._clock()
            log.info("%s", self._line())

    def record_position(self, position: Db2Position) -> None:
        """Record that the stream has read up to a position."""
        self._position = position

    def record_window(self, seconds: float) -> None:
        """Record that a window was read."""
        counted = self.counters
        counted.windows += 1
        counted.last_window, counted.max_window = seconds, max(seconds, counted.max_window)

    def record_end(self) -> None:
        """Record that the stream ends."""
        if self._published is not None:
            log.info("%s", self._line())

    @property
    def silent_s(self) -> float:
        """For how long the agent has published nothing, not even that nothing has happened."""
        return self._clock() - self._moved

    def build_metrics(self) -> dict[str, Value]:
        """Return the metrics by name; times in milliseconds."""
        counted, published = self.counters, self._published
        latency = published.latency_us if published is not None else None
        position = lsn_text(self._position.commit_lsn) if self._position is not None else ""
        return {
            "SourceEventPosition": {"commit_lsn": position},
            "LastTransactionId": counted.last_transaction,
            "NumberOfCommittedTransactions": counted.transactions,
            "PublishedLsn": lsn_text(published.lsn) if published is not None else "",
            "AgentLatencyInMilliseconds": -1 if latency is None else latency // 1000,
            "AgentSilentInMilliseconds": _ms(self.silent_s) if published is not None else -1,
            "RegisteredTables": published.registered if published is not None else 0,
            "ActiveRegistrations": published.active if published is not None else 0,
            "NumberOfPolls": counted.polls,
            "NumberOfWindows": counted.windows,
            "NumberOfChangeTableQueries": counted.queries,
            "TotalProcessedRows": counted.rows,
            "LastWindowDurationInMilliseconds": _ms(counted.last_window),
            "MaxWindowDurationInMilliseconds": _ms(counted.max_window),
            "RowsWithReselectedLobs": counted.lobs_read,
            "RowsWithLostLobs": counted.lobs_gone,
        }

    def _line(self) -> str:
        """Return the line for the log.

        For example: ``Read 12 windows up to LSN …: 1,200 rows, 900 changes of 14 transactions. The agent …``
        """
        counted, published = self.counters, self._published
        assert published is not None
        latency = published.latency_us
        behind = (
            "its distance to the database is unknown"
            if latency is None
            else f"{latency / 1e6:.1f} s behind the database"
        )
        return (
            f"Read {counted.windows} windows up to {self._position}: {counted.rows:,} rows, {counted.changes:,} changes of "
            f"{counted.transactions:,} transactions, by {counted.queries:,} queries. The capture agent has published LSN "
            f"{lsn_text(published.lsn) or 'none'}, {behind}, for {published.active} of {published.registered} registered tables; it moved "
            f"{self.silent_s:.0f} s ago."
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
