"""Puts the events of a transaction in an order in which the last one of a key is about the row that has it in the end (:mod:`.key_handovers`).

Where rows have held a key beside each other, the events of the row that remains come behind all others of the transaction; those of rows that came
and went within it are apart, as they say nothing of the key. A transaction of several blocks is waited for, from its first change of a key on: the rows of that
table wait, on disk if they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from airflow_provider_cdc.core.model.log_items import BlockTransactions, LogBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.writing.key_reassignments import RowSlice, moves_of, split_moved_rows
from airflow_provider_cdc.core.writing.open_transaction_rows import WaitingRows
from airflow_provider_cdc.core.writing.row_block_slices import (
    OrderKey,
    RowBlockPart,
    RowBlockParts,
    concatenate_parts,
    numbers_of,
    renumber_parts,
    select_part_rows,
    sorted_part,
)
from airflow_provider_cdc.core.writing.row_block_transforms import Mask, SelectedColumns


class KeyOrder:
    """Orders the rows of blocks, and keeps those of an open transaction.

    :param select: returns the captured columns of a table
    :param overlapping: whether rows of a table may hold one key beside each other
    """

    def __init__(
        self, select: Callable[[TableSchema], SelectedColumns], overlapping: Callable[[TableSchema], bool]
    ) -> None:
        self._select, self._overlapping = select, overlapping
        self._waiting: dict[TableId, list[WaitingRows]] = {}

    def discard_transaction(self) -> None:
        """Discard the rows of the open transaction, which is taken back."""
        for rows in (rows for some in self._waiting.values() for rows in some):
            rows.close()
        self._waiting = {}

    def needs_ordering(self, block: LogBlock, changed: Sequence[Mask | None]) -> bool:
        """Check whether the order of a block's rows is to be looked at.

        :param changed: of each of its row blocks, mask of the updates that change the key
        """
        return bool(self._waiting) or any(
            mask is not None and rows.transaction is not None and self._overlapping(rows.table)
            for rows, mask in zip(block.rows, changed, strict=True)
        )

    def order_block(
        self, block: LogBlock, keep: Sequence[Mask | None], changed: Sequence[Mask | None]
    ) -> Iterator[RowBlockParts]:
        """Yield the blocks that a block becomes.

        :param keep: of each of its row blocks, mask of the rows that events are made of; ``None`` = all
        :param changed: as of :meth:`needs_ordering`
        """
        parts = [RowBlockPart(rows, mask) for rows, mask in zip(block.rows, changed, strict=True)]
        parts = [
            part if rows_mask is None else select_part_rows(part, rows_mask)
            for part, rows_mask in zip(parts, keep, strict=True)
        ]
        parts = renumber_parts(parts)
        block = replace(block, rows=[part.rows for part in parts])
        concerned = {
            part.rows.table.id
            for part in parts
            if part.changed is not None and self._overlapping(part.rows.table) and part.rows.transaction is not None
        }
        if block.open:
            yield from self._without_waiting(block, parts, concerned)
            return
        if self._waiting:
            ended, block, parts = self._ended(block, parts, concerned)
            yield from ended
        parts = _ordered(parts, concerned, self._select)
        yield RowBlockParts(replace(block, rows=[part.rows for part in parts]), parts)

    def _without_waiting(
        self, block: LogBlock, parts: list[RowBlockPart], concerned: set[TableId]
    ) -> Iterator[RowBlockParts]:
        """Yield an open block without the rows that wait for the end of the transaction."""
        others = []
        for part in parts:
            if part.rows.table.id in concerned or part.rows.table.id in self._waiting:
                self._wait(part)
            else:
                others.append(part)
        others = renumber_parts(others)
        yield RowBlockParts(replace(block, rows=[part.rows for part in others]), others)

    def _wait(self, part: RowBlockPart) -> None:
        tables = self._waiting.setdefault(part.rows.table.id, [])
        waiting = next((held for held in tables if held.table is part.rows.table), None)
        if waiting is None:
            waiting = WaitingRows(part.rows.table)
            tables.append(waiting)
        if len(part.rows):
            waiting.add_rows(part.rows, part.changed)

    def _ended(
        self, block: LogBlock, parts: list[RowBlockPart], concerned: set[TableId]
    ) -> tuple[list[RowBlockParts] | Iterator[RowBlockParts], LogBlock, list[RowBlockPart]]:
        """Return the rows that have waited, and the block that ends the transaction without those rows of it."""
        rest = []
        for part in parts:
            if part.rows.table.id in self._waiting and part.rows.transaction is not None:
                own = part.rows.transaction == 0
                self._wait(select_part_rows(part, own))
                part = select_part_rows(part, ~own)
            if len(part.rows):
                rest.append(part)
        waiting, self._waiting = [rows for some in self._waiting.values() for rows in some], {}
        transaction = BlockTransactions(block.transactions.id.slice(0, 1), block.transactions.ts_us[:1])
        opened = replace(block, rows=[], transactions=transaction, open=True, left_out=[])
        first = _ordered(
            renumber_parts([select_part_rows(part, _of_first(part)) for part in rest]), concerned, self._select
        )
        later = renumber_parts([select_part_rows(part, ~_of_first(part)) for part in rest])
        closing = replace(block, rows=[part.rows for part in later])

        def ended() -> Iterator[RowBlockParts]:
            yield RowBlockParts(replace(opened, rows=[part.rows for part in first]), first)
            for late in (False, True):
                for rows in waiting:
                    for some in rows.iterate_parts(self._select(rows.table), late=late):
                        yield RowBlockParts(replace(opened, rows=[part.rows for part in some]), some)
            for rows in waiting:
                rows.close()

        return ended(), closing, later


def _of_first(part: RowBlockPart) -> Mask:
    owner = part.rows.transaction
    return np.zeros(len(part.rows), np.bool_) if owner is None else owner == 0


def _ordered(
    parts: list[RowBlockPart], concerned: set[TableId], select: Callable[[TableSchema], SelectedColumns]
) -> list[RowBlockPart]:
    """Parts of whole transactions."""
    ordered_parts: list[RowBlockPart] = []
    keys: list[OrderKey] = []

    def plain(part: RowBlockPart) -> None:
        ordered_parts.append(part)
        zeros = np.zeros(len(part.rows), np.int64)
        keys.append((part.rows.order, zeros, part.rows.order, zeros))

    groups: dict[int, list[RowBlockPart]] = {}
    for part in parts:
        if part.rows.table.id in concerned:
            groups.setdefault(id(part.rows.table), []).append(part)
        else:
            plain(part)
    anything = False
    for group in groups.values():
        whole = concatenate_parts(group)
        moves = moves_of([RowSlice(whole.rows, whole.changed)], select(whole.rows.table))
        if moves is None:
            for part in group:
                plain(part)
            continue
        anything = True
        for ordered, key in split_moved_rows(whole, moves, 0, select(whole.rows.table)):
            ordered_parts.append(RowBlockPart(ordered.rows, None, ordered))
            keys.append(key)
    if not anything:
        return parts
    number, begin, result = numbers_of(keys), 0, []
    for part in ordered_parts:
        own = number[begin : begin + len(part.rows)]
        begin += len(part.rows)
        result.append(sorted_part(part, own))
    return result
