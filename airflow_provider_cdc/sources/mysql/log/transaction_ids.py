"""Transaction ids, commit times and session ids of a set of events; GTIDs as numbers, as text and as sets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.log_items import BlockTransactions
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid_sets import Gtids, MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class TransactionColumns:
    """The transactions of a block.

    :param transactions: id (GTID, or file and offset) and commit time of each
    :param threads: session id (``source.thread``) of each, ``-1`` = not logged
    """

    transactions: BlockTransactions
    threads: Int64s


def transaction_columns(
    events: EventSet, transactions: Int64s, ends: Int64s, file: str, carried: str | None, mariadb: bool
) -> TransactionColumns:
    """Ids, commit times and session ids of transactions.

    :param transactions: the block's rows of the ``route`` kernel's table of transactions
    :param ends: per event, log position after it
    :param carried: id of the first transaction, if it began in an earlier block
    """
    picked = transactions[:, k.TX_GTID]
    numbers = gtid_numbers(events, picked)
    first = transactions[:, k.TX_FIRST]
    times = events.table[
        np.where(transactions[:, k.TX_END] >= 0, transactions[:, k.TX_END], np.maximum(first, 0)), k.EV_TIME
    ]
    ids = _ids(numbers, ends, first, events, file, mariadb)
    if carried is not None and len(ids):
        ids = pa.concat_arrays([pa.array([carried]), ids[1:]])
    return TransactionColumns(BlockTransactions(ids, times * 1_000_000), transactions[:, k.TX_THREAD])


def _ids(numbers: Int64s, ends: Int64s, first: Int64s, events: EventSet, file: str, mariadb: bool) -> pa.StringArray:
    sequence = _texts(numbers[:, k.GTID_NUMBER])
    if mariadb:
        return pc.binary_join_element_wise(_texts(numbers[:, 0]), _texts(numbers[:, 1]), sequence, "-")
    ids = pc.binary_join_element_wise(_sources(np.delete(numbers, k.GTID_NUMBER, axis=1)), sequence, ":")
    anonymous = numbers[:, k.GTID_NUMBER] < 0
    if not anonymous.any():
        return ids
    at = np.maximum(first, 0)
    places = pc.binary_join_element_wise(f"file={file},pos=", _texts(ends[at] - events.table[at, k.EV_SIZE]), "")
    return pc.if_else(pa.array(anonymous), places, ids)


def _texts(numbers: Int64s) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def _sources(numbers: Int64s) -> pa.StringArray:
    """Return the source id of each transaction; consecutive ones mostly have the same.

    :param numbers: rows of the ``read_gtids`` kernel, without the number of the transaction
    """
    begins = (numbers != np.roll(numbers, 1, axis=0)).any(axis=1)
    begins[:1] = True
    keys = [tuple(row) for row in numbers[begins].tolist()]
    texts = {key: source_of(*key) for key in set(keys)}
    return pa.array([texts[key] for key in keys], pa.string()).take(pa.array(np.cumsum(begins) - 1))


def gtid_numbers(events: EventSet, picked: Int64s) -> Int64s:
    """GTID events as rows of numbers, ``int64[transactions, GTID_FIELDS]``; see ``kernels/tagged_gtids.py``.

    :param picked: index of the GTID event per transaction, ``-1`` for a transaction without one
    :raises ValueError: a tagged GTID has an unknown form
    """
    numbers = np.zeros((len(picked), k.GTID_FIELDS), np.int64)
    k.read_gtids(events.buf, events.table, picked, numbers)
    if (numbers[:, k.GTID_NUMBER] == k.BAD_GTID).any():
        raise ValueError("a GTID with a tag has a format that this release does not support")
    return numbers


def source_of(high: int, low: int, *tag: int) -> str:
    """Build the source id ``uuid`` or ``uuid:tag`` from numbers.

    These are the UUID's two halves (signed numbers) and the four parts of the tag.
    """
    mask = (1 << 64) - 1
    source = str(uuid.UUID(int=((high & mask) << 64) | (low & mask)))
    text = np.array(tag, "<i8").tobytes().rstrip(b"\0").decode("ascii")
    return f"{source}:{text}" if text else source


def add_gtid_numbers(gtids: Gtids, numbers: Int64s) -> None:
    """Add transactions to a GTID set; ``numbers`` are rows of the ``read_gtids`` kernel."""
    numbers = numbers[numbers[:, k.GTID_NUMBER] >= 0]
    if isinstance(gtids, MariaDbGtids):
        for domain in np.unique(numbers[:, 0]):
            last = numbers[numbers[:, 0] == domain][-1]
            gtids.domains[int(domain)] = int(last[1]), int(last[2])
    else:
        sources = np.delete(numbers, k.GTID_NUMBER, axis=1)
        if not sources[:, 2:].any():  # tags are rare, and np.unique below gets slower with each column
            sources = sources[:, :2]
        for source in np.unique(sources, axis=0):
            mine = (sources == source).all(axis=1)
            gtids.add_all(source_of(*source.tolist()), numbers[mine, k.GTID_NUMBER])


def first_that_reaches(gtids: Gtids, target: Gtids, numbers: Int64s) -> int:
    """Count the transactions that it takes until a GTID set covers another one.

    Returns the number of all of them if they do not suffice.

    :param gtids: the set before them
    :param target: the set to be covered
    :param numbers: the transactions, as rows of the ``read_gtids`` kernel
    """
    count = len(numbers)
    if isinstance(gtids, MariaDbGtids):
        assert isinstance(target, MariaDbGtids)
        at = 0
        for domain, (server, sequence) in target.domains.items():
            if gtids.contains_gtids(MariaDbGtids({domain: (server, sequence)})):
                continue
            number = numbers[:, k.GTID_NUMBER]
            reaches = (number > sequence) | ((number == sequence) & (numbers[:, 1] == server))
            mine = np.flatnonzero((numbers[:, 0] == domain) & reaches)
            if not len(mine):
                return count
            at = max(at, int(mine[0]) + 1)
        return at
    assert isinstance(target, MySqlGtids)
    missing, is_missing = 0, np.zeros(count, np.bool_)
    for source, intervals in target.subtract_gtids(gtids).sources.items():
        mine = (np.delete(numbers, k.GTID_NUMBER, axis=1) == _numbers_of(source)).all(axis=1)
        for low, high in intervals:
            missing += high - low + 1
            is_missing |= mine & (numbers[:, k.GTID_NUMBER] >= low) & (numbers[:, k.GTID_NUMBER] <= high)
    found_at = np.flatnonzero(is_missing)
    return int(found_at[missing - 1]) + 1 if 0 < missing <= len(found_at) else count if missing else 0


def _numbers_of(source: str) -> Int64s:
    """Convert a source id to its numbers: the inverse of :func:`source_of`."""
    server, _, tag = source.partition(":")
    halves = np.frombuffer(uuid.UUID(server).bytes, ">i8").astype(np.int64)
    return np.concatenate([halves, np.frombuffer(tag.encode("ascii").ljust(32, b"\0"), "<i8")])
