"""Reads chunks from a memory database; parses the simple conditions that it supports."""

from __future__ import annotations

import ast
import operator
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import Key, key_from_json, key_to_json
from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema, row_struct
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.memory.database import MemoryDatabase, Row
from airflow_provider_cdc.sources.memory.position import MemoryPosition

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


_PIECE = 8
"""Rows between two checks of their size."""


class MemoryChunkReader(ChunkReader):
    """Reads chunks; implements :class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`. Views of this database are exact: low and high are one position.

    :param signals: the signal table, for written watermarks
    """

    def __init__(self, database: MemoryDatabase, signals: TableId | None) -> None:
        self._db, self._signals = database, signals

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        return self._db.read_consistent_view()[1].get(table)

    def read_last_key(self, rows: KeyRange) -> Key | None:
        _, rows_in_range = self._rows(rows)
        return _key(rows_in_range[-1], rows.order) if rows_in_range else None

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        began = time.monotonic()
        entry, there = self._rows(rows)
        rows_read, after = _first(there[: limit * queries], row_struct(rows.table), max_bytes)
        complete = len(rows_read) == len(there) and len(rows_read) < limit * queries
        now, source = self._db.clock(), {"entry": entry, "row": 0}
        position = None if self._signals is not None else MemoryPosition(entry)
        if not rows_read:
            return ChunkRows([], None, position, position, complete=True, ts_us=now, source=source)
        n = len(rows_read)
        block = RowBlock(
            table=rows.table,
            op=np.full(n, READ, np.int8),
            before=None,
            after=after,
            order=np.arange(n),
            transaction=None,
            ts_us=np.full(n, now, np.int64),
            source={"entry": pa.array([entry] * n, pa.int64()), "row": pa.array(range(n), pa.int32())},
        )
        return ChunkRows(
            [block],
            _key(rows_read[-1], rows.order),
            position,
            position,
            complete,
            time.monotonic() - began,
            now,
            source,
        )

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        return [*keys]

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        assert self._signals is not None
        with self._db.transaction() as t:
            t.insert(str(self._signals), dict(zip(self._names(), (id_, type_, data), strict=True)))

    def delete_signal_row(self, id_: str) -> None:
        assert self._signals is not None
        with self._db.transaction() as t:
            t.delete(str(self._signals), {self._names()[0]: id_})

    def end_of_log(self) -> MemoryPosition:
        return MemoryPosition(self._db.read_consistent_view()[0])

    def close(self) -> None:
        """Nothing is open."""

    def _names(self) -> tuple[str, ...]:
        assert self._signals is not None
        return self._db.read_consistent_view()[1][self._signals].column_names[:3]

    def _rows(self, rows: KeyRange) -> tuple[int, list[Row]]:
        """End of the log, and the rows of a range in order."""
        entry, schemas, tables = self._db.read_consistent_view()
        if (there := schemas.get(rows.table.id)) is None or there.columns != rows.table.columns:
            raise StructureChanged
        types = [there.get_column(name).type for name in rows.order]

        def parsed(key: Key | None) -> tuple[Any, ...] | None:
            return None if key is None else tuple(key_from_json(key, types[: len(key)]))

        low, high, first, end = map(parsed, (rows.after, rows.upto, rows.first, rows.end))
        keys = None if rows.keys is None else {parsed(key) for key in rows.keys}
        width = len(rows.keys[0]) if rows.keys else 0
        fits = parse_condition(rows.condition, there) if rows.condition else lambda row: True
        matching = []
        for row in tables[there.id]:
            key = tuple(row[name] for name in rows.order)
            if (
                (low is None or key > low)
                and (high is None or key <= high)
                and (first is None or key[: len(first)] >= first)
                and (end is None or key[: len(end)] <= end)
                and (keys is None or key[:width] in keys)
                and fits(row)
            ):
                matching.append(row)
        return entry, sorted(matching, key=lambda row: tuple(row[name] for name in rows.order))


def parse_condition(text: str, table: TableSchema) -> Callable[[Row], bool]:
    """Parse a comparison of a column with a number or a quoted text, or several with ``AND``.

    :raises QueryRejected: it is something else
    """
    tests = []
    for part in re.split(r"\s+AND\s+", text.strip(), flags=re.IGNORECASE):
        match = re.fullmatch(r"(\w+)\s*(=|<>|<=|>=|<|>)\s*(-?\d+|'[^']*')", part.strip())
        if match is None or match[1] not in table.column_names:
            raise QueryRejected(
                f"The database cannot parse the condition: {text}",
                where=f"{table.id}: {part}",
                safe="Nothing was read.",
                remedy="correct the condition",
            )
        tests.append((match[1], _OPERATORS[match[2]], ast.literal_eval(match[3])))
    return lambda row: all(row[name] is not None and test(row[name], value) for name, test, value in tests)


def _first(rows: list[Row], type_: pa.StructType, max_bytes: int) -> tuple[list[Row], pa.StructArray]:
    """Return the first rows, up to that with which they take so many bytes."""
    pieces, size, n = [], 0, 0
    while n < len(rows) and size < max_bytes:
        piece = pa.array(rows[n : n + _PIECE], type_)
        pieces.append(piece)
        size, n = size + piece.nbytes, n + len(piece)
    return rows[:n], pa.concat_arrays(pieces) if pieces else pa.array([], type_)


def _key(row: Row, order: tuple[str, ...]) -> Key:
    return key_to_json([row[name] for name in order])
