"""Removes the changes of a transaction that were rolled back within it (savepoints, failed statements).

After a rollback to a savepoint, or a statement that fails half-way, the log has rows with ``ROLLBACK = 1`` and the ROWID of the row
concerned. Each undoes the newest change of that ROWID that is not undone yet.

A change with long values has several log rows, of which only the last has the ROWID; they are undone together. If such a change fails,
as by a duplicate key, its last log row is missing, and the row that undoes it follows at once. A change in place by ``DBMS_LOB`` has the
ROWID as well, but no row that undoes it: it is undone with the change before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.oracle.kernels.operations import FIRST_PIECE, INTERNAL, NO_ROW_ID

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def not_rolled_back(rows: pa.Table) -> tuple[Mask, int]:
    """Find the changes of some transactions that were not rolled back.

    :param rows: columns ``tx``, ``code``, ``table``, ``row_id`` and ``rollback`` of :data:`.segments.ROWS`, the rows of a
        transaction together and in log order
    :return: mask of the rows that remain; and the number of undo rows without a change to undo
    """
    codes = rows.column("code").to_numpy()
    undo = rows.column("rollback").to_numpy(zero_copy_only=False)
    change = codes != INTERNAL
    if not undo.any():
        return change, 0
    names = pc.if_else(pc.equal(rows.column("row_id"), NO_ROW_ID), None, rows.column("row_id"))
    ids = pa.chunked_array(names).combine_chunks().dictionary_encode().indices.fill_null(-1)
    row = ids.to_numpy(zero_copy_only=False).astype(np.int64)
    transactions = rows.column("tx").to_numpy()
    ends, alone = np.arange(len(row)), np.ones(len(row), np.bool_)
    in_place = (codes >= FIRST_PIECE) & (row >= 0)
    group(transactions, rows.column("table").to_numpy(), row, undo, in_place, ends, alone)
    row = row[ends]
    last = (ends == np.arange(len(row))) & (change | ~alone) & ~in_place
    order = np.lexsort((row, transactions))  # stable: log order within a row of a transaction
    gone = np.zeros(len(row), np.bool_)
    unmatched = cancel(order, transactions, row, undo, last, in_place, ends, gone)
    return change & ~undo & ~gone[ends], int(unmatched)


@jit
def group(
    transactions: Int64s, tables: Int64s, rows: Int64s, undo: Mask, in_place: Mask, ends: Int64s, alone: Mask
) -> None:
    """Assign rows without a ROWID to the next row of their transaction and table that has one: ``ends`` is its index.

    Rows that are followed by a row which undoes them get the ROWID of that row.
    """
    end, undone = -1, -1
    for i in range(len(rows) - 1, -1, -1):
        if end >= 0 and transactions[end] != transactions[i]:
            end = -1
        if undo[i] or in_place[i]:
            undone = i if undo[i] else -1
            continue
        there = rows[i] < 0 and undone == i + 1 and rows[undone] >= 0
        if there and transactions[undone] == transactions[i] and tables[undone] == tables[i]:
            rows[i] = rows[undone]
        if rows[i] >= 0:
            end = i
        elif end >= 0 and tables[end] == tables[i]:
            ends[i] = end
            alone[end] = False


@jit
def cancel(
    order: Int64s, transactions: Int64s, rows: Int64s, undo: Mask, last: Mask, in_place: Mask, ends: Int64s, gone: Mask
) -> int:
    """Undo changes, per transaction and ROWID, with a stack of the changes not undone yet.

    :param order: indices of the log rows, sorted by transaction and ROWID
    :param last: mask of the log rows that end a change
    :param gone: output: mask of the undone changes
    :return: number of undo rows without a change to undo
    """
    stack = np.empty(len(order), np.int64)
    depth, unmatched = 0, 0
    for i in range(len(order)):
        at = order[i]
        if i == 0 or rows[at] != rows[order[i - 1]] or transactions[at] != transactions[order[i - 1]]:
            depth = 0
        if undo[at]:
            if depth and rows[at] >= 0:
                depth -= 1
                gone[stack[depth]] = True
            else:
                unmatched += 1
        elif last[at]:
            stack[depth] = at
            depth += 1
        elif in_place[at] and depth:
            ends[at] = stack[depth - 1]
    return unmatched
