"""Removes the changes of a transaction that were rolled back within it (savepoints, failed statements).

After a rollback to a savepoint, or a statement that fails half-way, the log has rows with ``ROLLBACK = 1`` and the ROWID of the row
concerned. Each undoes the newest change of that ROWID that is not undone yet. Where a table has long values, changes have no ROWID: their net
effect is read from the table (:mod:`airflow_provider_cdc.sources.oracle.transactions.net_changes`), and if that cannot be done, :mod:`.undone_lob_changes` infers it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.oracle.config_enums import LOBS
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FIRST_PIECE, INTERNAL, NO_ROW_ID, UNSUPPORTED
from airflow_provider_cdc.sources.oracle.redo.name_restorer import COLUMN_NUMBERS
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.transactions.buffer.undone_lob_changes import UndoneChangeFinder

log = logging.getLogger(__name__)

_COLUMN_NUMBERS = re.compile(COLUMN_NUMBERS)

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COLUMNS = ["tx", "code", "table", "sql", "row_id", "rollback"]
"""The columns of :data:`.row_segments.ROWS` that are needed, in their order."""
PIECE_CHARACTERS = 4_096
"""Of the text of a piece, so many characters are needed."""


class RemainingChanges(NamedTuple):
    """The changes of some transactions that were not rolled back.

    :param keep: mask of their rows, with undo rows that leave open which change they undo
    :param unmatched: number of undo rows without a change to undo
    :param uncertain: tables of which all rows remain, as it is not certain which changes were undone, by number
    :param inferred: transaction and table of changes of which it was inferred which were undone
    """

    keep: Mask
    unmatched: int
    uncertain: list[int]
    inferred: list[tuple[int, int]]


def not_rolled_back(
    rows: pa.Table, schemas: Callable[[int], Sequence[TableSchema]], *, infer: bool = True, lobs: bool = True
) -> RemainingChanges:
    """Find the changes of some transactions that were not rolled back.

    :param rows: :data:`COLUMNS`, the rows of a transaction together and in log order
    :param schemas: the schemas of a table, by its number
    :param infer: infer which changes were undone where they have no ROWID; else all rows of such a table in the transaction remain, unless they
        are older than a change of the table: then it cannot be read as it was
    :param lobs: the pieces of LOBs are among the rows
    """
    codes = rows.column("code").to_numpy()
    undo = rows.column("rollback").to_numpy(zero_copy_only=False)
    change = codes != INTERNAL
    if not undo.any():
        return RemainingChanges(change, 0, [], [])
    names = pc.if_else(pc.equal(rows.column("row_id"), NO_ROW_ID), None, rows.column("row_id"))
    ids = pa.chunked_array(names).combine_chunks().dictionary_encode().indices.fill_null(-1)
    row = ids.to_numpy(zero_copy_only=False).astype(np.int64)
    transactions, tables = rows.column("tx").to_numpy(), rows.column("table").to_numpy()
    gone, left_open = np.zeros(len(row), np.bool_), np.zeros(len(row), np.bool_)
    shown = codes != UNSUPPORTED  # the others do not say which change they undo
    pieces = ((codes >= FIRST_PIECE) | (row < 0)) & shown
    long_columns = {t: _long_columns(schemas(t)) for t in np.unique(tables).tolist()}
    long = np.isin(tables, [t for t, (lobs, _) in long_columns.items() if lobs or pieces[tables == t].any()]) & shown
    plain = np.flatnonzero(~long & change & shown)
    order = plain[np.lexsort((row[plain], transactions[plain]))]  # stable: log order within a row of a transaction
    unmatched = int(mark_undone_rows(order, transactions, row, undo, gone))
    texts = _LazyTexts(rows.column("sql"))
    of_long, uncertain, inferred = np.flatnonzero(long), set[int](), list[tuple[int, int]]()
    of_long = of_long[np.lexsort((tables[of_long], transactions[of_long]))]
    cuts = np.flatnonzero((np.diff(tables[of_long]) != 0) | (np.diff(transactions[of_long]) != 0)) + 1
    all_codes, all_rows = codes.tolist(), row.tolist()
    for part in np.split(of_long, cuts):
        if not undo[part].any():
            continue
        of_table, long_texts = long_columns[int(tables[part[0]])]
        if pieces[part].any() or (of_table and long_texts and not lobs):
            if not infer and not any(_is_numbered(texts[i]) for i in part.tolist()):
                uncertain.add(int(tables[part[0]]))
                change[part] = left_open[part] = True
                continue
            inferred.append((int(transactions[part[0]]), int(tables[part[0]])))
        changes = UndoneChangeFinder(of_table | long_texts, all_codes, all_rows, texts, gone, left_open)
        for i, undoes in zip(part.tolist(), undo[part].tolist(), strict=True):
            (changes.apply_undo_row if undoes else changes.add_row)(i)
        unmatched += changes.unmatched
    return RemainingChanges(change & ~gone & (~undo | left_open), unmatched, sorted(uncertain), inferred)


def _is_numbered(text: str | None) -> bool:
    """Return whether a statement has column numbers instead of column names."""
    return text is not None and _COLUMN_NUMBERS.search(text) is not None


def warn_inferred(transaction: str, table: TableId) -> None:
    """Warn that values of a table may be wrong: it was inferred which of its changes a transaction has undone."""
    log.warning(
        "Transaction %s has undone changes of long values of %s, and the table cannot be read at its state before "
          "and after the transaction: long values that the transaction changed may be wrong in targets. To be sure, "
          "snapshot the table again.",
        transaction, table,
    )  # fmt: skip


def _long_columns(schemas: Sequence[TableSchema]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the LOBs and XML documents of a table, and its other columns whose values may be long.

    They are by name and by number as LogMiner has it.
    """
    types = {
        name: ColumnType.from_column(c)
        for schema in schemas
        for number, c in enumerate(schema.columns, 1)
        for name in (c.name, f"COL {number}")
    }
    texts = (name for name, t in types.items() if t.is_long_text)
    return frozenset(name for name, t in types.items() if t.base in LOBS), frozenset(texts)


class _LazyTexts(Sequence[str | None]):
    """The values of a column, made when they are asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, i: int) -> str | None:  # type: ignore[override]
        text: str | None = self._column[i].as_py()
        return text


@jit
def mark_undone_rows(order: Int64s, transactions: Int64s, rows: Int64s, undo: Mask, gone: Mask) -> int:
    """Undo changes, per transaction and ROWID, with a stack of the changes not undone yet.

    :param order: indices of the log rows, sorted by transaction and ROWID
    :param gone: output: mask of the undone changes
    :return: number of undo rows without a change to undo
    """
    stack = np.empty(len(order), np.int64)
    depth, unmatched = 0, 0
    for i in range(len(order)):
        at = order[i]
        if i == 0 or rows[at] != rows[order[i - 1]] or transactions[at] != transactions[order[i - 1]]:
            depth = 0
        if not undo[at]:
            stack[depth] = at
            depth += 1
        elif depth and rows[at] >= 0:
            depth -= 1
            gone[stack[depth]] = True
        else:
            unmatched += 1
    return unmatched
