"""Windows of commits: stretches of the log that are read with one query per change table.

A window ends at the LSN that the agent has published. A backlog is cut into several, so that no query stays open for long and none has to sort
everything: by ``IBMSNAP_UOW``, which has a row per transaction. These rows also say when each transaction was committed. Rows that the agent has
pruned there are no loss: a window is larger then, and the transactions have the time up to which the agent has published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.kernels.merge_order import find_row_numbers
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray
from airflow_provider_cdc.sources.db2.position import lsn_sort_key, resized_lsn

AIM_ROWS: Final = 500_000
"""About how many changes a window of a backlog has."""
FIRST: Final = 10_000
LEAST: Final = 100
MOST: Final = 200_000
MOST_GROWTH: Final = 4

_UOW: Final = """
SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM {schema}.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ > ? AND IBMSNAP_COMMITSEQ <= ?
ORDER BY IBMSNAP_COMMITSEQ FETCH FIRST {count} ROWS ONLY WITH CS"""


@dataclass(frozen=True, slots=True)
class CommitWindow:
    """The transactions that committed after ``start``, up to and with ``end``.

    :param start: an LSN; likewise ``end``
    :param whole: the window ends with the log; otherwise it ends with the last transaction of ``commits``
    :param commits: commits that ``IBMSNAP_UOW`` has, ascending; ``times_us`` is when each was, µs since the epoch
    :param otherwise_us: the time of all others
    """

    start: bytes
    end: bytes
    whole: bool
    commits: LsnArray
    times_us: npt.NDArray[np.int64]
    otherwise_us: int

    def times_of(self, commits: LsnArray) -> npt.NDArray[np.int64]:
        """Return when transactions were committed.

        :param commits: ascending
        """
        words = max(commits.words.shape[1], self.commits.words.shape[1])
        at = find_row_numbers(commits.pad_words(words), self.commits.pad_words(words))
        times = np.append(self.times_us, self.otherwise_us)
        return times[at]  # -1, which is not there, is the last one


class CommitWindowPlanner:
    """Chooses the windows of one stream.

    :param schema: quoted name of the schema of the agent's control tables
    :ivar transactions: the next window has at most so many
    :ivar count: windows so far
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.transactions, self.count = FIRST, 0

    def choose_window(
        self, connection: Db2Connection, start: bytes, end: bytes, published: AgentProgress
    ) -> CommitWindow:
        """Choose the window that begins behind an LSN.

        :param end: an LSN that the agent has published, after ``start``
        """
        self.count += 1
        sql = _UOW.format(schema=self._schema, count=self.transactions)
        rows = connection.fetch_rows(sql, resized_lsn(start, end), end)
        commits = LsnArray.from_bytes([bytes(commit) for commit, _ in rows])
        moments = np.array([moment for _, moment in rows], "datetime64[us]").astype(np.int64)
        cut = len(rows) == self.transactions and lsn_sort_key(commits.bytes_at(-1)) < lsn_sort_key(end)
        return CommitWindow(
            start=start,
            end=commits.bytes_at(-1) if cut else end,
            whole=not cut,
            commits=commits,
            times_us=moments - published.utc_offset_us,
            otherwise_us=published.synch_us or published.now_us,
        )

    def adapt_window_size(self, window: CommitWindow, rows: int) -> None:
        """Adapt to a window that had so many changes: let the next one have about :data:`AIM_ROWS`."""
        if window.whole:
            return
        transactions = self.transactions * AIM_ROWS // max(rows, 1)
        most = min(MOST, self.transactions * MOST_GROWTH)
        self.transactions = max(LEAST, min(transactions, most))
