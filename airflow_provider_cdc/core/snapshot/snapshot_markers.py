"""``source.snapshot`` of the rows that a snapshot reads: the first and the last of each table, and of all of them.

Consumers wait for ``last`` (Debezium connector documents, "Create events", ``snapshot``). Parallel readers deliver blocks of several
tables in turn, and a block is known to be the last one only when its table, or all tables, have ended. So the latest block
of each table that is being read is held back, and the latest one of all until it is known whether another row follows.

If several of these apply to a row, it gets the first of ``last``, ``first``, ``last_in_data_collection``, ``first_in_data_collection``, as in
Debezium's engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId

_VALUES = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_PLAIN, _FIRST, _FIRST_OF_TABLE, _LAST_OF_TABLE, _LAST = range(len(_VALUES))


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Rows with the value that ``source.snapshot`` has for each of them."""

    rows: RowBlock
    snapshot: pa.DictionaryArray


class SnapshotMarkers:
    """Marks the blocks of one snapshot. Blocks come out later than they go in, in the order of the events."""

    def __init__(self) -> None:
        self._chunks: dict[TableId, int] = {}
        self._held: dict[TableId, RowBlock] = {}
        self._tail: RowBlock | None = None
        self._begun: set[TableId] = set()

    def expect_chunks(self, chunks: Mapping[TableId, int]) -> None:
        """So many chunks of these tables will be read."""
        self._chunks.update(chunks)

    def mark_rows(self, rows: RowBlock) -> Iterator[MarkedRows]:
        """Rows of a table, in their order; blocks of several tables may come in turn."""
        if not len(rows):
            return
        yield from self.release_held_rows(rows_follow=True)
        table = rows.table.id
        if table in self._held:
            yield self._marked(self._held[table], _PLAIN)
        self._held[table] = rows

    def end_chunk(self, table: TableId) -> Iterator[MarkedRows]:
        """Record that a chunk of the table has been read."""
        self._chunks[table] -= 1
        if self._chunks[table] or table not in self._held:
            return
        yield from self.release_held_rows(rows_follow=True)
        self._tail = self._held.pop(table)

    @property
    def has_begun(self) -> bool:
        """True if a row was marked as the first one."""
        return bool(self._begun)

    @property
    def has_held_rows(self) -> bool:
        """True if rows of a table that has ended are held back."""
        return self._tail is not None

    def release_held_rows(self, *, rows_follow: bool) -> Iterator[MarkedRows]:
        """Yield the rows that are held back, of the table that has ended last.

        :param rows_follow: another row will be read, of whichever table
        """
        tail, self._tail = self._tail, None
        if tail is not None:
            yield self._marked(tail, _LAST_OF_TABLE if rows_follow else _LAST)

    def _marked(self, rows: RowBlock, last: int) -> MarkedRows:
        codes, table = np.zeros(len(rows), np.int8), rows.table.id
        if table not in self._begun:
            codes[0] = _FIRST_OF_TABLE if self._begun else _FIRST
            self._begun.add(table)
        if codes[-1] != _FIRST or last == _LAST:
            codes[-1] = last or codes[-1]
        return MarkedRows(rows, pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_VALUES)))


def mark_edges(rows: int, first: str, last: str) -> pa.DictionaryArray:
    """Build ``source.snapshot`` of the rows of a block.

    :param first: value of the first row, ``true`` if it is none of the first ones
    :param last: value of the last row. If both are the same row, it gets the one that counts more

    >>> mark_edges(3, "first", "true").to_pylist()
    ['first', 'true', 'true']
    """
    codes = np.zeros(rows, np.int8)
    first_code, last_code = _VALUES.index(first), _VALUES.index(last)
    codes[0] = first_code
    if rows > 1 or last_code == _LAST or (last_code and first_code != _FIRST):
        codes[-1] = last_code
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_VALUES))
