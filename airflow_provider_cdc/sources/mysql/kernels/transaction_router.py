"""Finds the transactions in a set of events, and the table and transaction of each row event."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import read_big_endian, read_little_endian, read_uint32
from airflow_provider_cdc.sources.mysql.kernels.event_array_layout import (
    EV_LENGTH,
    EV_SERVER,
    EV_START,
    EV_TYPE,
    HEADER,
    MAP_DESCRIPTION,
)
from airflow_provider_cdc.sources.mysql.kernels.event_codes import (
    ANONYMOUS_GTID,
    DELETE_ROWS,
    DELETE_ROWS_V1,
    GTID,
    GTID_TAGGED,
    MARIADB_ANNOTATE,
    MARIADB_BINLOG_CHECKPOINT,
    MARIADB_GTID,
    QUERY,
    ROWS_QUERY,
    TABLE_MAP,
    WRITE_ROWS,
    WRITE_ROWS_V1,
    XID,
)
from airflow_provider_cdc.sources.mysql.kernels.tagged_gtids import BAD_GTID, GTID_NUMBER, NO_GTID, read_tagged

NOT_ROWS: Final = -2
NOT_CAPTURED: Final = -1

ROUTED: Final = 0
NEW_MAP: Final = 1  # a table map that is not known yet: add it to the map_… arrays, then call again
ATTENTION: Final = 2  # an event for plain Python; state[AT] is its index

AT: Final = 0  # next event
TX: Final = 1  # transactions begun so far; the one that is open has the index TX - 1
OPEN: Final = 2  # 1 while a transaction is open
STATE: Final = 3

TX_GTID: Final = 0  # index of its GTID event, or -1
TX_END: Final = 1  # index of the event that commits it, or -1 while it is open
TX_THREAD: Final = 2  # session id, from its BEGIN, or -1
TX_FIRST: Final = 3  # index of its first event
TX_FIELDS: Final = 4

SLOTS: Final = 4096

OTHER: Final = 0
BEGIN: Final = 1
COMMIT: Final = 2
_BEGIN = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT = np.frombuffer(b"COMMIT", np.uint8)


@jit
def _same(a: npt.NDArray[np.uint8], p: int, b: npt.NDArray[np.uint8], q: int, length: int) -> bool:
    for i in range(length):
        if a[p + i] != b[q + i]:
            return False
    return True


@jit
def _statement(buf: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return whether a query event is ``BEGIN``, ``COMMIT`` or any other statement."""
    body = start + HEADER
    sql = body + 13 + (np.int64(buf[body + 11]) | np.int64(buf[body + 12]) << 8) + np.int64(buf[body + 8]) + 1
    length = end - sql
    if length == len(_BEGIN) and _same(buf, sql, _BEGIN, 0, length):
        return BEGIN
    if length == len(_COMMIT) and _same(buf, sql, _COMMIT, 0, length):
        return COMMIT
    return OTHER


@jit
def _begin(
    i: int, gtid: int, state: npt.NDArray[np.int64], transaction_of: npt.NDArray[np.int32], transactions: npt.NDArray[np.int64]
) -> None:  # fmt: skip
    """Begin a transaction with event ``i``; ``gtid`` is the index of its GTID event, or -1."""
    transaction = state[TX]
    transactions[transaction, TX_GTID] = gtid
    transactions[transaction, TX_END] = -1
    transactions[transaction, TX_THREAD] = -1
    transactions[transaction, TX_FIRST] = i
    transaction_of[i] = transaction
    state[TX] = transaction + 1
    state[OPEN] = 1


@jit
def route_events(
    buf: npt.NDArray[np.uint8], events: npt.NDArray[np.int64], state: npt.NDArray[np.int64],
    layout_of: npt.NDArray[np.int32], transaction_of: npt.NDArray[np.int32], transactions: npt.NDArray[np.int64],
    map_ids: npt.NDArray[np.int64], map_spans: npt.NDArray[np.int64], map_layouts: npt.NDArray[np.int32],
    map_bytes: npt.NDArray[np.uint8],
) -> int:  # fmt: skip
    """Find the ends of transactions, and the layout and transaction of each row event.

    Known table maps are in a hash table of ``SLOTS`` slots, by table id: ``map_ids`` (-1 = free), ``map_spans[slot]`` = (offset,
    length) of the event's body in ``map_bytes``, without its id and flags, and the layout's number. A table map that differs in any
    other byte counts as new.

    :param state: ``int64[STATE]``; kept between calls
    :param layout_of: output, per event: number of its layout, ``NOT_CAPTURED`` or ``NOT_ROWS``
    :param transaction_of: output, per event: index of its transaction
    :param transactions: output, ``int64[transactions, TX_FIELDS]``
    :return: why it stopped: ``ROUTED``, ``NEW_MAP`` or ``ATTENTION``
    """
    n = len(events)
    while state[AT] < n:
        i = state[AT]
        kind = events[i, EV_TYPE]
        start = events[i, EV_START]
        end = start + events[i, EV_LENGTH]
        layout_of[i] = NOT_ROWS
        transaction_of[i] = state[TX] - 1
        if (kind >= WRITE_ROWS_V1 and kind <= DELETE_ROWS_V1) or (kind >= WRITE_ROWS and kind <= DELETE_ROWS):
            if not state[OPEN]:
                return ATTENTION
            table = read_little_endian(buf, start + HEADER, 6)
            slot = table % SLOTS
            if map_ids[slot] != table:
                return ATTENTION
            layout_of[i] = map_layouts[slot]
        elif kind == TABLE_MAP:
            table = read_little_endian(buf, start + HEADER, 6)
            slot = table % SLOTS
            length = end - start - HEADER - MAP_DESCRIPTION
            known = map_ids[slot] == table and map_spans[slot, 1] == length
            if not known or not _same(buf, start + HEADER + MAP_DESCRIPTION, map_bytes, map_spans[slot, 0], length):
                return NEW_MAP
        elif kind == XID:
            if not state[OPEN]:
                return ATTENTION
            transactions[state[TX] - 1, TX_END] = i
            state[OPEN] = 0
        elif kind == GTID or kind == ANONYMOUS_GTID or kind == GTID_TAGGED or kind == MARIADB_GTID:
            # a GTID inside an open transaction, or one that carries XA flags, is for plain Python
            if state[OPEN] or (kind == MARIADB_GTID and buf[start + HEADER + 12] & 0xC0):
                return ATTENTION
            _begin(i, i, state, transaction_of, transactions)
        elif kind == QUERY:
            statement = _statement(buf, start, end)
            if statement == OTHER:
                return ATTENTION
            if statement == BEGIN:
                if not state[OPEN]:
                    _begin(i, -1, state, transaction_of, transactions)
                transactions[state[TX] - 1, TX_THREAD] = read_uint32(buf, start + HEADER)
            else:
                if not state[OPEN]:
                    return ATTENTION
                transactions[state[TX] - 1, TX_END] = i
                state[OPEN] = 0
        elif kind != MARIADB_ANNOTATE and kind != ROWS_QUERY and kind != MARIADB_BINLOG_CHECKPOINT:
            return ATTENTION
        state[AT] += 1
    return ROUTED


@jit
def read_gtids(buf: npt.NDArray[np.uint8], events: npt.NDArray[np.int64], picked: npt.NDArray[np.int64],
               out: npt.NDArray[np.int64]) -> None:  # fmt: skip
    """Read GTID events as numbers.

    :param picked: index of the GTID event per transaction, -1 = none
    :param out: output, ``int64[transactions, GTID_FIELDS]``, zeros at first; its number is ``NO_GTID`` for an anonymous transaction,
        ``BAD_GTID`` if the event cannot be read
    """
    for n in range(len(picked)):
        if picked[n] < 0:
            out[n, GTID_NUMBER] = NO_GTID
            continue
        p = events[picked[n], EV_START] + HEADER
        if events[picked[n], EV_TYPE] == MARIADB_GTID:
            out[n, 0] = read_uint32(buf, p + 8)
            out[n, 1] = events[picked[n], EV_SERVER]
            out[n, GTID_NUMBER] = read_little_endian(buf, p, 8)
        elif events[picked[n], EV_TYPE] == GTID_TAGGED:
            if not read_tagged(buf, p, p - HEADER + events[picked[n], EV_LENGTH], out, n):
                out[n, GTID_NUMBER] = BAD_GTID
        else:
            out[n, 0] = read_big_endian(buf, p + 1, 8)
            out[n, 1] = read_big_endian(buf, p + 9, 8)
            out[n, GTID_NUMBER] = read_little_endian(buf, p + 17, 8) if events[picked[n], EV_TYPE] == GTID else NO_GTID
