"""Commits of transactions, and the positions after them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FOREVER
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import UncommittedTransaction

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TransactionCommit:
    """The commit of a transaction.

    :param serial: number of the transaction in the buffer
    :param id: the documented transaction id
    :param scn: SCN of the commit
    :param thread: redo thread
    :param ts_us: time of the commit, µs since the epoch
    :param first_scn: SCN at which the transaction began
    """

    serial: int
    id: str
    scn: int
    thread: int
    ts_us: int
    first_scn: int = 0


def commits_at(
    rows: pa.Table, at: Int64s, serials: Int64s, met: dict[int, UncommittedTransaction]
) -> list[TransactionCommit]:
    """Return the commits of transactions, without those that were given up.

    :param at: indices of the COMMIT rows
    :param serials: per row, the transaction
    :param met: serial → transaction
    """
    picked = pa.array(at)
    columns = [rows.column(name).take(picked).to_pylist() for name in ("scn", "thread", "ts_us")]
    commits = zip((met[serial] for serial in serials[at].tolist()), *columns, strict=True)
    return [
        TransactionCommit(t.serial, t.id, scn, thread, ts_us, t.first_scn)
        for t, scn, thread, ts_us in commits
        if not t.given_up
    ]


def resume_scns(commits: list[TransactionCommit], open_low: int) -> list[int]:
    """Return, per commit, the SCN from which mining has to resume after it.

    That is the start of the oldest transaction that is still open or not yet delivered.

    :param open_low: SCN at which the oldest open transaction began
    """
    first = np.array([c.first_scn for c in commits], np.int64)
    later = np.append(np.minimum.accumulate(first[::-1])[::-1], FOREVER)[1:] if len(first) else first
    scns = np.array([c.scn for c in commits], np.int64)
    resume_from: list[int] = np.minimum(np.minimum(later, scns), open_low).tolist()
    return resume_from


def position_after(position: OraclePosition, commits: list[TransactionCommit], low: int) -> OraclePosition:
    """Return the position after some commits that follow a position.

    :param low: SCN from which mining has to resume
    """
    newest = {c.thread: c.scn for c in commits}
    at: dict[int, set[str]] = {thread: set() for thread in newest}
    for c in commits:
        if c.scn == newest[c.thread]:
            at[c.thread].add(c.id)
    for thread, scn in newest.items():
        position = position.advance_commits(scn, thread, frozenset(at[thread]))
    return replace(position, scn=low)
