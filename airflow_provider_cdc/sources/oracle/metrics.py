"""Metrics of the streams of a source, under the documented names where there are such (Debezium Oracle connector, "Monitoring").

:class:`LogMinerMetrics` owns the counters; each part of a stream updates its own. It also writes a line to the task's log once a minute and
at the end of a run. :meth:`OracleSource.collect_stream_metrics` returns its values.

Names that are not in Debezium's documents: ``ScnLag``, ``NumberOfMiningSessions``, ``NumberOfScnGaps``, ``NumberOfLogRetries``,
``OldestTransactionId``, ``OldestTransactionAgeInMilliseconds``, ``BufferedChangesCount``, ``BufferedChangesInBytes``, ``SpilledChangesCount``,
``CarriedChangesCount``, ``CarriedChangesInBytes``, ``CarriedFilesCount``, ``CarriedBytesWritten``, ``CarriedLostCount``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.stream_counters import (
    CarriedCounters,
    RowCounters,
    SessionCounters,
    WindowCounters,
)

log = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60.0
"""Seconds between two lines in the log."""
_PACKAGE: Final = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class StreamGauges:
    """The state of a stream at one moment.

    :param current: the database's SCN when it was last asked
    :param read: SCN up to which rows were read
    :param active: number of open transactions
    :param oldest: id, first SCN and time (µs since the epoch) of the oldest one that is not given up; ``None`` without one
    :param buffered: number of buffered changes
    :param buffered_bytes: their size in memory
    :param window: number of SCNs of the next window
    :param pause: seconds to wait before the next window
    """

    position: OraclePosition
    current: int
    read: int
    active: int
    oldest: tuple[str, int, int] | None
    buffered: int
    buffered_bytes: int
    window: int
    pause: float


@dataclass(slots=True)
class _MinedWindowCounters:
    """Counters of the mined windows; times in seconds."""

    count: int = 0
    last: float = 0.0
    least: float = 0.0
    most: float = 0.0
    total: float = 0.0
    rows: int = 0
    last_speed: float = 0.0
    max_speed: float = 0.0
    last_changes: int = 0
    max_changes: int = 0
    frozen: int = 0


class _LogMessageCounter(logging.Handler):
    """Counts the warnings and errors that the source logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings = self.errors = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors += 1
        else:
            self.warnings += 1


class LogMinerMetrics:
    """Measures the streams of one source.

    ::

        metrics.record_stream_start(position)
        metrics.record_window(gauges, rows, seconds)  # after each window
        metrics.record_stream_end(gauges)
    """

    def __init__(self, config: OracleConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._config, self._clock = config, clock
        self.rows, self.session, self.windows = RowCounters(), SessionCounters(), WindowCounters()
        self.carried = CarriedCounters()
        self._steps, self._log_counter = _MinedWindowCounters(), _LogMessageCounter()
        self._lags: list[int] = []  # last, least, most, in milliseconds
        self._began = self._shown = clock()
        self._changes = self._low = self._read = 0

    def record_stream_start(self, position: OraclePosition) -> None:
        """Begin to measure a stream that begins at a position."""
        self._low = self._read = position.scn
        logging.getLogger(_PACKAGE).addHandler(self._log_counter)

    def record_stream_end(self, gauges: StreamGauges) -> None:
        """End the measurement of a stream, and log a last line."""
        logging.getLogger(_PACKAGE).removeHandler(self._log_counter)
        log.info("%s", self._line(gauges))

    @property
    def is_report_due(self) -> bool:
        """Check whether a line in the log is due, or no window was counted yet."""
        return self._steps.count == 0 or self._clock() - self._shown >= REPORT_SECONDS

    def record_window(self, gauges: StreamGauges, rows: int, seconds: float) -> None:
        """Record that a window was mined.

        :param seconds: from opening the session until all rows were processed
        """
        steps, low = self._steps, gauges.position.scn
        steps.count += 1
        steps.last, steps.total, steps.rows = seconds, steps.total + seconds, steps.rows + rows
        steps.least = seconds if steps.count == 1 else min(steps.least, seconds)
        steps.most = max(steps.most, seconds)
        steps.last_speed = rows / max(seconds, 1e-6)
        steps.max_speed = max(steps.max_speed, steps.last_speed)
        steps.last_changes, self._changes = self.rows.changes - self._changes, self.rows.changes
        steps.max_changes = max(steps.max_changes, steps.last_changes)
        steps.frozen += gauges.read > self._read and low <= self._low and gauges.active > 0
        self._low, self._read = low, gauges.read
        if rows:
            lag = max(int(self._clock() * 1000) - self.rows.ts_us // 1000, 0)
            least, most = (self._lags[1:] or [lag, lag])[:2]
            self._lags = [lag, min(least, lag), max(most, lag)]
        if self._clock() - self._shown >= REPORT_SECONDS:
            self._shown = self._clock()
            log.info("%s", self._line(gauges))

    def to_document(self, gauges: StreamGauges) -> dict[str, Value]:
        """Return the metrics by name; times in milliseconds unless the name says otherwise."""
        return self._of_position(gauges) | self._of_session() | self._of_steps(gauges) | self._of_transactions(gauges)

    def _line(self, gauges: StreamGauges) -> str:
        """Format the line for the log.

        ``Mined 12 windows up to SCN 91237 (7 behind, 0.4 s): 1,200 rows, 900 changes, 14 commits, 1 rollback …``
        """
        counted = self.rows
        lag = f"{self._lags[0] / 1000:.1f} s" if self._lags else "nothing read"
        oldest = f", the oldest {gauges.oldest[0]} since SCN {gauges.oldest[1]}" if gauges.oldest else ""
        return (
            f"Mined {self._steps.count} windows up to SCN {gauges.read} ({_behind(gauges)} SCNs behind, {lag}): "
            f"{self._steps.rows:,} rows, {counted.changes:,} changes, {counted.committed:,} commits, "
            f"{counted.rolled_back:,} rollbacks. Open: {gauges.active:,} transactions{oldest}, with "
            f"{gauges.buffered:,} changes in {gauges.buffered_bytes:,} bytes of memory, {counted.spilled:,} "
            f"spilled so far. {self.session.sessions} sessions, {self.session.retries} retries, "
            f"{self.windows.gaps} SCN gaps, {self._steps.frozen} times without advance of the offset, "
            f"{len(counted.abandoned)} transactions abandoned."
        )

    # -- parts ----------------------------------------------------------------------------------------------------------

    def _of_position(self, gauges: StreamGauges) -> dict[str, Value]:
        counted = self.rows
        return {
            "CurrentScn": str(gauges.read),
            "OldestScn": str(gauges.oldest[1] if gauges.oldest else 0),
            "CommittedScn": str(counted.committed_scn),
            "OffsetScn": str(gauges.position.scn),
            "ScnLag": _behind(gauges),
            "ScnFreezeCount": self._steps.frozen,
            "SourceEventPosition": {"scn": str(gauges.position.scn), "commit_scn": str(counted.committed_scn)},
            "NumberOfEventsFiltered": counted.filtered,
            "UnparsableDdlCount": counted.unknown_ddl,
            "ErrorCount": self._log_counter.errors,
            "WarningCount": self._log_counter.warnings,
        }

    def _of_session(self) -> dict[str, Value]:
        counters = self.session
        return {
            "CurrentRedoLogFileName": [name for name, _ in counters.logs],
            "RedoLogStatus": [f"{name}|{status}" for name, status in counters.logs],
            "MinimumMinedLogCount": counters.min_logs,
            "MaximumMinedLogCount": counters.max_logs,
            "SwitchCounter": counters.switches,
            "NumberOfMiningSessions": counters.sessions,
            "NumberOfLogRetries": counters.retries,
            "FetchingQueryCount": counters.queries,
            "LastDurationOfFetchQueryInMilliseconds": _ms(counters.last_fetch),
            "MaxDurationOfFetchQueryInMilliseconds": _ms(counters.max_fetch),
            "TotalResultSetNextTimeInMilliseconds": _ms(counters.total_fetch),
            "LastMiningSessionStartTimeInMilliseconds": _ms(counters.last_start),
            "MaxMiningSessionStartTimeInMilliseconds": _ms(counters.max_start),
            "TotalMiningSessionStartTimeInMilliseconds": _ms(counters.total_start),
            "TotalProcessedRows": counters.rows,
            **{f"MiningSession{name}InBytes": value for name, value in counters.memory.items()},
        }

    def _of_steps(self, gauges: StreamGauges) -> dict[str, Value]:
        steps = self._steps
        return {
            "LastCapturedDmlCount": steps.last_changes,
            "MaxCapturedDmlInBatch": steps.max_changes,
            "TotalCapturedDmlCount": self.rows.changes,
            "LastBatchProcessingTimeInMilliseconds": _ms(steps.last),
            "MinBatchProcessingTimeInMilliseconds": _ms(steps.least),
            "MaxBatchProcessingTimeInMilliseconds": _ms(steps.most),
            "TotalProcessingTimeInMilliseconds": _ms(steps.total),
            "TotalParseTimeInMilliseconds": _ms(self.rows.parse),
            "LastBatchProcessingThroughput": int(steps.last_speed),
            "MaxBatchProcessingThroughput": int(steps.max_speed),
            "AverageBatchProcessingThroughput": int(steps.rows / max(steps.total, 1e-6)) if steps.count else 0,
            "BatchSize": gauges.window,
            "MillisecondToSleepBetweenMiningQuery": _ms(gauges.pause),
            "NumberOfScnGaps": self.windows.gaps,
        }

    def _of_transactions(self, gauges: StreamGauges) -> dict[str, Value]:
        counted = self.rows
        oldest, _, oldest_ts_us = gauges.oldest or ("", 0, 0)
        age = int(self._clock() * 1000) - oldest_ts_us // 1000 if oldest else 0
        last, least, most = self._lags or (0, 0, 0)
        return {
            "HoursToKeepTransactionInBuffer": self._config.log_mining_transaction_retention_ms // 3_600_000,
            "NumberOfActiveTransactions": gauges.active,
            "NumberOfCommittedTransactions": counted.committed,
            "NumberOfRolledBackTransactions": counted.rolled_back,
            "NumberOfOversizedTransactions": counted.oversized,
            "CommitThroughput": int(counted.committed / max(self._clock() - self._began, 1e-3)),
            "RegisteredDmlCount": counted.changes,
            "LastTransactionId": counted.last_transaction,
            "AbandonedTransactionIds": list(counted.abandoned),
            "RolledBackTransactionIds": list(counted.rolled_back_ids),
            "LastCommitDurationInMilliseconds": _ms(counted.last_commit),
            "MaxCommitDurationInMilliseconds": _ms(counted.max_commit),
            "LagFromSourceInMilliseconds": last,
            "MinLagFromSourceInMilliseconds": least,
            "MaxLagFromSourceInMilliseconds": most,
            "OldestTransactionId": oldest,
            "OldestTransactionAgeInMilliseconds": max(age, 0),
            "BufferedChangesCount": gauges.buffered,
            "BufferedChangesInBytes": gauges.buffered_bytes,
            "SpilledChangesCount": counted.spilled,
            "CarriedChangesCount": self.carried.changes,
            "CarriedChangesInBytes": self.carried.nbytes,
            "CarriedFilesCount": self.carried.files,
            "CarriedBytesWritten": self.carried.written,
            "CarriedLostCount": self.carried.lost,
        }


def _behind(gauges: StreamGauges) -> int:
    """Return the number of SCNs that the stream lags behind the database."""
    return max(gauges.current - gauges.read, 0)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
