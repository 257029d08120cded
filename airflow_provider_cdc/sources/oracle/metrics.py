"""What a stream does, in numbers: under the names of the documents where these have one (Debezium Oracle connector, "Monitoring").

Whoever does the work counts (:class:`Taken` here, ``SessionCounters``, ``WindowCounters``); :class:`StreamMetrics` puts it together, writes
a line into the log once a minute and at the end of a run, and is what :meth:`OracleSource.metrics` shows.

Names without a counterpart in the documents: ``ScnLag``, ``NumberOfMiningSessions``, ``NumberOfScnGaps``, ``NumberOfLogRetries``,
``OldestTransactionId``, ``OldestTransactionAgeInMilliseconds``, ``BufferedChangesCount``, ``BufferedChangesInBytes``, ``SpilledChangesCount``.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.metrics import Value
from airflow_provider_cdc.sources.oracle.config import OracleConfig

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.oracle.commits import Commit
    from airflow_provider_cdc.sources.oracle.logs import LogFile
    from airflow_provider_cdc.sources.oracle.schema import SchemaReader
    from airflow_provider_cdc.sources.oracle.session import MiningSession
    from airflow_provider_cdc.sources.oracle.taking import Taker
    from airflow_provider_cdc.sources.oracle.window import Windows

log = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60.0
"""Between two lines of the log."""
IDS: Final = 100
"""Of so many transactions that ended in a special way the ids are kept."""
_PACKAGE: Final = __name__.rpartition(".")[0]


def _ids() -> deque[str]:
    return deque(maxlen=IDS)


@dataclass(slots=True)
class Taken:
    """Counters of the rows that were taken; times in seconds.

    :ivar changes: rows of captured tables
    :ivar filtered: rows of tables that are not captured
    :ivar oversized: transactions that were given up because of their size; they are in ``abandoned`` too
    :ivar ts_us: when the last row was written, 0 before the first one
    """

    changes: int = 0
    filtered: int = 0
    committed: int = 0
    rolled_back: int = 0
    oversized: int = 0
    abandoned: deque[str] = field(default_factory=_ids)
    rolled_back_ids: deque[str] = field(default_factory=_ids)
    last_transaction: str = ""
    committed_scn: int = 0
    last_commit: float = 0.0
    max_commit: float = 0.0
    parse: float = 0.0
    ts_us: int = 0

    def ended(self, committed: list[Commit], rolled_back: list[str]) -> None:
        self.committed += len(committed)
        self.rolled_back += len(rolled_back)
        self.rolled_back_ids += rolled_back
        if committed:
            self.last_transaction, self.committed_scn = committed[-1].id, committed[-1].scn

    def gave(self, seconds: float) -> None:
        """Committed changes were put together."""
        self.last_commit, self.max_commit = seconds, max(self.max_commit, seconds)


@dataclass(slots=True)
class _Steps:
    """Of windows that were mined; times in seconds."""

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


class _Complaints(logging.Handler):
    """Counts what the source says at the levels of warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings = self.errors = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors += 1
        else:
            self.warnings += 1


class StreamMetrics:
    """Numbers of one stream. A context manager, for as long as the stream is read.

    :param earlier: of the stream before it in the same run, which this one's numbers are added to
    """

    def __init__(
        self,
        config: OracleConfig,
        taker: Taker,
        session: MiningSession,
        windows: Windows,
        schemas: SchemaReader,
        earlier: StreamMetrics | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._taker, self._session = config, taker, session
        self._windows, self._schemas, self._clock = windows, schemas, clock
        self._steps, self._complaints = _Steps(), _Complaints()
        self._lags: list[int] = []  # last, least, most, in milliseconds
        self._memory: dict[str, int] = {}
        self._final: dict[str, Value] = {}  # as it was when the stream ended, before what waits was let go of
        self._began = self._shown = clock()
        self._changes, self._low, self._read, self._current = 0, taker.position.scn, taker.position.scn, 0
        if earlier is not None:
            self._go_on(earlier)

    def _go_on(self, earlier: StreamMetrics) -> None:
        """Go on counting: one run may read several stretches of the log."""
        taker, before = self._taker, earlier._taker
        taker.counters, taker.buffer.spilled_rows = before.counters, before.buffer.spilled_rows
        self._session.counters, self._windows.counters = earlier._session.counters, earlier._windows.counters
        self._schemas.unknown = earlier._schemas.unknown
        self._steps, self._complaints, self._lags = earlier._steps, earlier._complaints, earlier._lags
        self._memory, self._began, self._shown = earlier._memory, earlier._began, earlier._shown
        self._changes, self._session.mined = earlier._changes, earlier._session.mined

    def __enter__(self) -> StreamMetrics:
        logging.getLogger(_PACKAGE).addHandler(self._complaints)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(_PACKAGE).removeHandler(self._complaints)
        log.info("%s", self)
        self._final = self.document()

    def stepped(self, read: int, current: int, rows: int, seconds: float) -> None:
        """A window was mined.

        :param read: its end
        :param current: where the database was
        :param seconds: from opening the session until all rows were taken
        """
        steps, taken, low = self._steps, self._taker.counters, self._taker.position.scn
        steps.count += 1
        steps.last, steps.total, steps.rows = seconds, steps.total + seconds, steps.rows + rows
        steps.least = seconds if steps.count == 1 else min(steps.least, seconds)
        steps.most = max(steps.most, seconds)
        steps.last_speed = rows / max(seconds, 1e-6)
        steps.max_speed = max(steps.max_speed, steps.last_speed)
        steps.last_changes, self._changes = taken.changes - self._changes, taken.changes
        steps.max_changes = max(steps.max_changes, steps.last_changes)
        steps.frozen += read > self._read and low <= self._low and len(self._taker.open) > 0
        self._low, self._read, self._current = low, read, current
        if rows:
            lag = max(int(self._clock() * 1000) - taken.ts_us // 1000, 0)
            least, most = (self._lags[1:] or [lag, lag])[:2]
            self._lags = [lag, min(least, lag), max(most, lag)]
        late = self._clock() - self._shown >= REPORT_SECONDS
        if steps.count == 1 or late:
            self._memory = self._session.memory()
        if late:
            self._shown = self._clock()
            log.info("%s", self)

    def document(self) -> dict[str, Value]:
        """By name; times in milliseconds unless the name says otherwise."""
        if self._final:
            return self._final
        return self._of_position() | self._of_session() | self._of_steps() | self._of_transactions()

    def __str__(self) -> str:
        """For the log.

        ``Mined 12 windows up to SCN 91237 (7 behind, 0.4 s): 1,200 rows, 900 changes, 14 commits, 1 rollback …``
        """
        m, taken = self.document(), self._taker.counters
        lag = f"{self._lags[0] / 1000:.1f} s" if self._lags else "nothing read"
        oldest = (
            f", the oldest {m['OldestTransactionId']} since SCN {m['OldestScn']}" if m["OldestTransactionId"] else ""
        )
        return (
            f"Mined {self._steps.count} windows up to SCN {self._read} ({m['ScnLag']} SCNs behind, {lag}): {self._steps.rows:,} rows, "
            f"{taken.changes:,} changes, {taken.committed:,} commits, {taken.rolled_back:,} rollbacks. Open: {len(self._taker.open):,} "
            f"transactions{oldest}, with {m['BufferedChangesCount']:,} changes in {m['BufferedChangesInBytes']:,} bytes of memory, "
            f"{m['SpilledChangesCount']:,} spilled so far. {m['NumberOfMiningSessions']} sessions, {m['NumberOfLogRetries']} retries, "
            f"{m['NumberOfScnGaps']} SCN gaps, {m['ScnFreezeCount']} times without advance of the offset, "
            f"{len(taken.abandoned)} transactions given up."
        )

    # -- parts ----------------------------------------------------------------------------------------------------------

    def _of_position(self) -> dict[str, Value]:
        taker = self._taker
        return {
            "CurrentScn": str(self._read),
            "OldestScn": str(taker.open.low(0)),
            "CommittedScn": str(taker.counters.committed_scn),
            "OffsetScn": str(taker.position.scn),
            "ScnLag": max(self._current - self._read, 0),
            "ScnFreezeCount": self._steps.frozen,
            "SourceEventPosition": {"scn": str(taker.position.scn), "commit_scn": str(taker.counters.committed_scn)},
            "NumberOfEventsFiltered": taker.counters.filtered,
            "UnparsableDdlCount": self._schemas.unknown,
            "ErrorCount": self._complaints.errors,
            "WarningCount": self._complaints.warnings,
        }

    def _of_session(self) -> dict[str, Value]:
        session, counters = self._session, self._session.counters
        return {
            "CurrentRedoLogFileName": [one.name for one in session.mined],
            "RedoLogStatus": [f"{one.name}|{_status(one)}" for one in session.mined],
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
            **{f"MiningSession{name}InBytes": value for name, value in self._memory.items()},
        }

    def _of_steps(self) -> dict[str, Value]:
        steps, windows = self._steps, self._windows
        return {
            "LastCapturedDmlCount": steps.last_changes,
            "MaxCapturedDmlInBatch": steps.max_changes,
            "TotalCapturedDmlCount": self._taker.counters.changes,
            "LastBatchProcessingTimeInMilliseconds": _ms(steps.last),
            "MinBatchProcessingTimeInMilliseconds": _ms(steps.least),
            "MaxBatchProcessingTimeInMilliseconds": _ms(steps.most),
            "TotalProcessingTimeInMilliseconds": _ms(steps.total),
            "TotalParseTimeInMilliseconds": _ms(self._taker.counters.parse),
            "LastBatchProcessingThroughput": int(steps.last_speed),
            "MaxBatchProcessingThroughput": int(steps.max_speed),
            "AverageBatchProcessingThroughput": int(steps.rows / max(steps.total, 1e-6)) if steps.count else 0,
            "BatchSize": windows.size,
            "MillisecondToSleepBetweenMiningQuery": _ms(windows.pause),
            "NumberOfScnGaps": windows.counters.gaps,
        }

    def _of_transactions(self) -> dict[str, Value]:
        taker, taken, buffer = self._taker, self._taker.counters, self._taker.buffer
        oldest = min((t for t in taker.open if not t.given_up), key=lambda t: t.first_scn, default=None)
        age = int(self._clock() * 1000) - oldest.first_ts_us // 1000 if oldest is not None else 0
        last, least, most = self._lags or (0, 0, 0)
        return {
            "HoursToKeepTransactionInBuffer": self._config.log_mining_transaction_retention_ms // 3_600_000,
            "NumberOfActiveTransactions": len(taker.open),
            "NumberOfCommittedTransactions": taken.committed,
            "NumberOfRolledBackTransactions": taken.rolled_back,
            "NumberOfOversizedTransactions": taken.oversized,
            "CommitThroughput": int(taken.committed / max(self._clock() - self._began, 1e-3)),
            "RegisteredDmlCount": taken.changes,
            "LastTransactionId": taken.last_transaction,
            "AbandonedTransactionIds": list(taken.abandoned),
            "RolledBackTransactionIds": list(taken.rolled_back_ids),
            "LastCommitDurationInMilliseconds": _ms(taken.last_commit),
            "MaxCommitDurationInMilliseconds": _ms(taken.max_commit),
            "LagFromSourceInMilliseconds": last,
            "MinLagFromSourceInMilliseconds": least,
            "MaxLagFromSourceInMilliseconds": most,
            "OldestTransactionId": oldest.id if oldest is not None else "",
            "OldestTransactionAgeInMilliseconds": max(age, 0),
            "BufferedChangesCount": sum(buffer.counts.values()),
            "BufferedChangesInBytes": buffer.nbytes,
            "SpilledChangesCount": buffer.spilled_rows,
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _status(file: LogFile) -> str:
    """Of a log, in the words of ``V$LOG`` as far as they apply."""
    if file.archived:
        return "ARCHIVED"
    return "CURRENT" if file.current else "INACTIVE"
