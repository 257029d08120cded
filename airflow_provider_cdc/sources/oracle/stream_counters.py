"""Counters of the parts of a stream; :mod:`.metrics` makes metrics of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

IDS: Final = 100
"""How many ids of rolled back transactions, and of transactions that were given up, are kept."""


def _ids() -> deque[str]:
    return deque(maxlen=IDS)


@dataclass(slots=True)
class RowCounters:
    """Counters of rows and transactions; times in seconds.

    :ivar changes: rows of captured tables
    :ivar filtered: rows of tables that are not captured
    :ivar oversized: transactions that were given up because of their size; also in ``abandoned``
    :ivar abandoned: ids of transactions that were given up
    :ivar parse: total time of reading redo statements
    :ivar last_commit: time to build the last block of committed changes; ``max_commit`` the longest
    :ivar spilled: changes that were written to disk until their commit
    :ivar unknown_ddl: DDL statements on captured tables that were not understood
    :ivar ts_us: time of the last row, µs since the epoch; 0 before the first one
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
    spilled: int = 0
    unknown_ddl: int = 0

    def count_ended_transactions(self, committed: int, rolled_back: Iterable[str], last: str, last_scn: int) -> None:
        """Transactions ended.

        :param committed: number of committed transactions
        :param rolled_back: ids of rolled back transactions
        :param last: id of the last committed transaction; ignored if there is none
        :param last_scn: SCN of its commit
        """
        rolled_back = list(rolled_back)
        self.committed += committed
        self.rolled_back += len(rolled_back)
        self.rolled_back_ids += rolled_back
        if committed:
            self.last_transaction, self.committed_scn = last, last_scn

    def record_block_time(self, seconds: float) -> None:
        """Record that a block of committed changes was built."""
        self.last_commit, self.max_commit = seconds, max(self.max_commit, seconds)


@dataclass(slots=True)
class CarriedCounters:
    """Counters of open transactions that are carried over to the next stream.

    :ivar changes: their changes, in ``files`` files of ``nbytes`` bytes
    :ivar written: bytes written for that so far
    :ivar lost: how often carried state could not be used
    """

    changes: int = 0
    files: int = 0
    nbytes: int = 0
    written: int = 0
    lost: int = 0

    def record_carried_changes(self, changes: int, sizes: Iterable[int]) -> None:
        """Record the changes and the files that are carried now.

        :param sizes: of the files, bytes
        """
        sizes = list(sizes)
        self.changes, self.files, self.nbytes = changes, len(sizes), sum(sizes)


@dataclass(slots=True)
class SessionCounters:
    """Counters of LogMiner sessions; times in seconds.

    :ivar switches: number of log switches within the last day, when the last session began
    :ivar logs: name and status of the logs of the last session, also after its end
    :ivar memory: memory of the session in the server, bytes by metric
    :ivar last_fetch: time of fetching the rows of the last query
    """

    sessions: int = 0
    retries: int = 0
    missing_scns: int = 0
    switches: int = 0
    logs: list[tuple[str, str]] = field(default_factory=list)
    min_logs: int = 0
    max_logs: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    queries: int = 0
    rows: int = 0
    last_start: float = 0.0
    max_start: float = 0.0
    total_start: float = 0.0
    last_fetch: float = 0.0
    max_fetch: float = 0.0
    total_fetch: float = 0.0

    def record_session_start(self, logs: list[tuple[str, str]], switches: int) -> None:
        """Record that a session began.

        :param logs: name and status of its logs
        """
        self.sessions += 1
        self.logs, self.switches = logs, switches
        self.min_logs = min(self.min_logs or len(logs), len(logs))
        self.max_logs = max(self.max_logs, len(logs))

    def record_window_start(self, seconds: float) -> None:
        """LogMiner was ready for a window."""
        self.last_start, self.max_start = seconds, max(self.max_start, seconds)
        self.total_start += seconds

    def count_query(self) -> None:
        """Record that a query begins."""
        self.queries += 1
        self.last_fetch = 0.0

    def record_fetch_time(self, seconds: float) -> None:
        """Record that some rows of a query came."""
        self.last_fetch += seconds
        self.total_fetch += seconds
        self.max_fetch = max(self.max_fetch, self.last_fetch)


@dataclass(slots=True)
class WindowCounters:
    """Counters of the windows of SCNs."""

    steps: int = 0
    gaps: int = 0
    empty: int = 0
