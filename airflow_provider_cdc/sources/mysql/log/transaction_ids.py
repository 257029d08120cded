"""Ids, times and sessions of the transactions in a set of events: GTIDs as numbers, as texts and as sets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.events import Transactions
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid import Gtids, MariaDbGtids
from airflow_provider_cdc.sources.mysql.log.events.event_table import Events

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class TransactionColumns:
    """Transactions of a block: their documented ids, and the session numbers of those that say so."""

    transactions: Transactions
    threads: Int64s


def transaction_columns(
    events: Events, transactions: Int64s, ends: Int64s, file: str, carried: str | None, mariadb: bool
) -> TransactionColumns:
    """Ids, times and sessions of transactions.

    :param transactions: rows of the ``route`` kernel's table, those of the block
    :param carried: id of the first one, if it began in an earlier block
    """
    picked = transactions[:, k.TX_GTID]
    numbers = gtid_numbers(events, picked)
    first = transactions[:, k.TX_FIRST]
    times = events.table[
        np.where(transactions[:, k.TX_END] >= 0, transactions[:, k.TX_END], np.maximum(first, 0)), k.EV_TIME
    ]
    ids = _ids(numbers, ends, first, events, file, mariadb)
    if carried is not None and ids:
        ids[0] = carried
    return TransactionColumns(Transactions(pa.array(ids, pa.string()), times * 1_000_000), transactions[:, k.TX_THREAD])


def _ids(numbers: Int64s, ends: Int64s, first: Int64s, events: Events, file: str, mariadb: bool) -> list[str]:
    rows = numbers.tolist()
    if mariadb:
        return [f"{d}-{s}-{q}" for d, s, q, *_ in rows]
    texts = {key: source_of(*key) for key in {(a, b, *tag) for a, b, q, *tag in rows if q >= 0}}
    ids = []
    for i, (a, b, q, *tag) in enumerate(rows):
        if q >= 0:
            ids.append(f"{texts[a, b, *tag]}:{q}")
        else:
            at = max(int(first[i]), 0)
            ids.append(f"file={file},pos={int(ends[at] - events.table[at, k.EV_SIZE])}")
    return ids


def gtid_numbers(events: Events, picked: Int64s) -> Int64s:
    """GTID events as numbers, see ``kernels/tagged.py``.

    :param picked: numbers of the events, ``-1`` for a transaction without one
    :raises ValueError: one does not hold what it has to
    """
    numbers = np.zeros((len(picked), k.GTID_FIELDS), np.int64)
    k.read_gtids(events.buf, events.table, picked, numbers)
    if (numbers[:, k.GTID_NUMBER] == k.BAD_GTID).any():
        raise ValueError("a GTID with a tag has a form that is not known to this release")
    return numbers


def source_of(high: int, low: int, *tag: int) -> str:
    """A UUID from its two halves, as signed numbers, and a tag from its four parts, if there is one."""
    mask = (1 << 64) - 1
    source = str(uuid.UUID(int=((high & mask) << 64) | (low & mask)))
    text = np.array(tag, "<i8").tobytes().rstrip(b"\0").decode("ascii")
    return f"{source}:{text}" if text else source


def add_gtid_numbers(gtids: Gtids, numbers: Int64s) -> None:
    """Add transactions, as the ``read_gtids`` kernel gives them, to a set."""
    numbers = numbers[numbers[:, k.GTID_NUMBER] >= 0]
    if isinstance(gtids, MariaDbGtids):
        for domain in np.unique(numbers[:, 0]):
            last = numbers[numbers[:, 0] == domain][-1]
            gtids.domains[int(domain)] = int(last[1]), int(last[2])
    else:
        sources = np.delete(numbers, k.GTID_NUMBER, axis=1)
        if not sources[:, 2:].any():  # tags are rare, and the rest takes its time with every column
            sources = sources[:, :2]
        for source in np.unique(sources, axis=0):
            mine = (sources == source).all(axis=1)
            gtids.add_all(source_of(*source.tolist()), numbers[mine, k.GTID_NUMBER])
