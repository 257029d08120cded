"""Rows of an open transaction that wait for its end, in memory, or on disk if they are many."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.writing.key_reassignments import MovedRows, RowSlice, moves_of, split_moved_rows
from airflow_provider_cdc.core.writing.row_block_slices import (
    OrderedRows,
    OrderKey,
    RowBlockPart,
    numbers_of,
    renumber_parts,
    sorted_part,
)
from airflow_provider_cdc.core.writing.row_block_transforms import Mask, SelectedColumns, select_rows

WAITING_BYTES: Final = 64 << 20
"""Rows of an open transaction that wait in memory for its end; more of them wait on disk."""
_DIRECT: Final = {"before", "after", "op", "order", "transaction", "ts_us", "source", "unavailable_before", "unavailable_after", "beside", "address", "together"}  # fmt: skip


class WaitingRows:
    """Rows of a table in an open transaction."""

    def __init__(self, table: TableSchema) -> None:
        self.table = table
        self._held: list[tuple[RowBlock, Mask | None]] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._moved: MovedRows | None = None
        self._looked = False

    def add_rows(self, rows: RowBlock, changed: Mask | None) -> None:
        self._held.append((rows, changed))
        self._held_bytes += rows.nbytes
        if self._held_bytes > WAITING_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for some, mask in self._held:
                own = select_rows(some, np.arange(len(some)))  # without the other rows in its buffers
                pickle.dump(({name: getattr(own, name) for name in _DIRECT}, mask), self._file, protocol=5)
            self._held, self._held_bytes = [], 0

    def close(self) -> None:
        """Remove the file on disk."""
        if self._file is not None:
            self._file.close()

    def iterate_slices(self) -> Iterator[RowSlice]:
        if self._file is not None:
            self._file.flush()
            at = 0
            while True:
                self._file.seek(at)
                with suppress(EOFError):
                    fields, changed = pickle.load(self._file)
                    at = self._file.tell()
                    yield RowSlice(RowBlock(table=self.table, **fields), changed)
                    continue
                break
        for rows, changed in self._held:
            yield RowSlice(rows, changed)

    def iterate_parts(self, selected: SelectedColumns, *, late: bool) -> Iterator[list[RowBlockPart]]:
        """All rows but those that come late, or these; some at a time."""
        if not self._looked:
            self._looked, self._moved = True, moves_of(self, selected)
        begin = 0
        for piece in self.iterate_slices():
            if self._moved is None:
                if not late:
                    yield renumber_parts([RowBlockPart(piece.rows, piece.changed)])
                continue
            parts, keys = list[RowBlockPart](), list[OrderKey]()
            for split, key in split_moved_rows(RowBlockPart(piece.rows, piece.changed), self._moved, begin, selected):
                index = np.flatnonzero(key[1] == int(late))
                if len(index):
                    rows, previous = select_rows(split.rows, index), split.previous.take(pa.array(index))
                    parts.append(RowBlockPart(rows, None, OrderedRows(rows, previous, split.passing, late, index)))
                    keys.append(tuple(column[index] for column in key))  # type: ignore[arg-type]
            begin += len(piece.rows)
            number, at, ordered = numbers_of(keys) if keys else np.zeros(0, np.int64), 0, list[RowBlockPart]()
            for part in parts:
                own = number[at : at + len(part.rows)]
                at += len(part.rows)
                part = sorted_part(part, own)
                assert part.ordered is not None
                part.ordered.place = part.rows.order  # no other rows of the table are in its block
                ordered.append(part)
            if ordered:
                yield ordered
