"""Finds the rows and the transactions among messages of pgoutput (protocol version 1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.postgresql.kernels.big_endian import read_int32, read_int64
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import (
    ALL_ROUTED,
    BAD_ORDER,
    CUT_SHORT,
    MSG_END,
    MSG_KIND,
    MSG_LSN,
    MSG_START,
    NOT_A_ROW,
    ROW_END,
    ROW_LSN,
    ROW_OPERATION,
    ROW_RELATION,
    ROW_START,
    ROW_TRANSACTION,
    TX_COMMIT,
    TX_END,
    TX_ID,
    TX_TIME,
    UNKNOWN_RELATION,
)

_BEGIN, _COMMIT, _INSERT, _UPDATE, _DELETE = ord("B"), ord("C"), ord("I"), ord("U"), ord("D")
_BEGIN_SIZE, _COMMIT_SIZE = 20, 25


@jit
def route_messages(
    buf: npt.NDArray[np.uint8],
    messages: npt.NDArray[np.int64],
    first: int,
    relations: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    row_count: int,
    transactions: npt.NDArray[np.int64],
    transaction_count: int,
    within: bool,
) -> tuple[int, int, int, bool, int]:
    """Route messages from ``first`` on, up to one that Python has to take.

    A transaction that began in earlier messages is the last one of ``transactions``.

    :param messages: ``int64[messages, MSG_FIELDS]``
    :param relations: ``int64[n, 2]``: OIDs of known relations in ascending order, and the index of each
    :param rows: output, ``int64[≥ row_count + messages, ROW_FIELDS]``
    :param transactions: output, ``int64[≥ transaction_count + messages, TX_FIELDS]``
    :param within: a transaction has begun, and its commit has not come
    :return: the first message that is left, number of rows, number of transactions, whether a transaction is open, and why it stopped
    """
    oids = relations[:, 0]
    last_oid, last_relation = np.int64(-1), np.int64(-1)
    for m in range(first, len(messages)):
        kind, p, end = messages[m, MSG_KIND], messages[m, MSG_START], messages[m, MSG_END]
        if kind == _INSERT or kind == _UPDATE or kind == _DELETE:
            if not within:
                return m, row_count, transaction_count, within, BAD_ORDER
            if end - p < 4:
                return m, row_count, transaction_count, within, CUT_SHORT
            oid = read_int32(buf, p)
            if oid != last_oid:
                at = np.searchsorted(oids, oid)
                if at == len(oids) or oids[at] != oid:
                    return m, row_count, transaction_count, within, UNKNOWN_RELATION
                last_oid, last_relation = oid, relations[at, 1]
            rows[row_count, ROW_RELATION] = last_relation
            rows[row_count, ROW_OPERATION] = CREATE if kind == _INSERT else UPDATE if kind == _UPDATE else DELETE
            rows[row_count, ROW_START] = p + 4
            rows[row_count, ROW_END] = end
            rows[row_count, ROW_LSN] = messages[m, MSG_LSN]
            rows[row_count, ROW_TRANSACTION] = transaction_count - 1
            row_count += 1
        elif kind == _BEGIN:
            if within:
                return m, row_count, transaction_count, within, BAD_ORDER
            if end - p < _BEGIN_SIZE:
                return m, row_count, transaction_count, within, CUT_SHORT
            transactions[transaction_count, TX_COMMIT] = read_int64(buf, p)
            transactions[transaction_count, TX_TIME] = read_int64(buf, p + 8)
            transactions[transaction_count, TX_ID] = read_int32(buf, p + 16)
            transactions[transaction_count, TX_END] = 0
            transaction_count += 1
            within = True
        elif kind == _COMMIT:
            if not within:
                return m, row_count, transaction_count, within, BAD_ORDER
            if end - p < _COMMIT_SIZE:
                return m, row_count, transaction_count, within, CUT_SHORT
            transactions[transaction_count - 1, TX_END] = read_int64(buf, p + 9)
            within = False
        else:
            return m, row_count, transaction_count, within, NOT_A_ROW
    return len(messages), row_count, transaction_count, within, ALL_ROUTED
