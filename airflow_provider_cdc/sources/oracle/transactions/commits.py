"""Commits of transactions, and the positions after them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operations import FOREVER
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.transactions.open_transactions import Transaction

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a transaction.

    :param serial: its number in the buffer
    :param id: the documented transaction id
    :param first_scn: where it began
    """

    serial: int
    id: str
    scn: int
    thread: int
    ts_us: int
    first_scn: int = 0


def commits_at(rows: pa.Table, at: Int64s, serials: Int64s, met: dict[int, Transaction]) -> list[Commit]:
    """The commits at some rows, without those of transactions that were given up."""
    place = pa.array(at)
    columns = [rows.column(name).take(place).to_pylist() for name in ("scn", "thread", "ts_us")]
    found = zip((met[serial] for serial in serials[at].tolist()), *columns, strict=True)
    return [
        Commit(t.serial, t.id, scn, thread, ts_us, t.first_scn) for t, scn, thread, ts_us in found if not t.given_up
    ]


def lows(commits: list[Commit], open_low: int) -> list[int]:
    """Where mining has to begin after each of some commits: before every transaction that is open still, or that is yet to be given out.

    :param open_low: where the oldest open transaction began
    """
    first = np.array([c.first_scn for c in commits], np.int64)
    later = np.append(np.minimum.accumulate(first[::-1])[::-1], FOREVER)[1:] if len(first) else first
    scns = np.array([c.scn for c in commits], np.int64)
    found: list[int] = np.minimum(np.minimum(later, scns), open_low).tolist()
    return found


def after(position: OraclePosition, commits: list[Commit], low: int) -> OraclePosition:
    """The position after some commits that follow on a position.

    :param low: where mining has to begin
    """
    newest = {c.thread: c.scn for c in commits}
    at: dict[int, set[str]] = {thread: set() for thread in newest}
    for c in commits:
        if c.scn == newest[c.thread]:
            at[c.thread].add(c.id)
    for thread, scn in newest.items():
        position = position.committed(scn, thread, frozenset(at[thread]))
    return replace(position, scn=low)
