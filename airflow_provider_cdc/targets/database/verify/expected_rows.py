"""The rows that a table ought to have, by the last event of each key, on the disk of this machine. Memory stays small however many there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import arrow_type
from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation
from airflow_provider_cdc.targets.database.schema.target_table import PREVIOUS, DatabaseTargetTable

CHUNK_ROWS: Final = 5_000
"""Rows that are in memory together, at most."""
CHUNK_BYTES: Final = 16 << 20
"""The same in bytes, about; a row that is larger is one by itself."""
_AT_ONCE: Final = 500
"""Rows whose values before are looked for together."""


@dataclass(frozen=True, slots=True)
class ExpectedChunk:
    """Some rows.

    :param rows: by the columns of the target
    :param unknown: for each of them, columns of which the events do not have the value (``unavailable``)
    """

    rows: pa.Table
    unknown: list[frozenset[str]]


class ExpectedRows:
    """The rows of one table, from steps in their order.

        >>> with ExpectedRows(f"{folder}/orders.db", table) as rows:
        ...     rows.apply_operations(steps(changelog, "shop", pending, table, config))
        ...     for chunk in rows.read_chunks():
        ...         ...

    :param path: of a file that is not there yet
    """

    def __init__(self, path: str, table: DatabaseTargetTable) -> None:
        self._schema = pa.schema([(field.name, arrow_type(field.column.type)) for field in table.fields])
        self._key = [field.name for field in table.key_columns]
        self._database = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",  # no process needs it after a crash
            "PRAGMA synchronous = OFF",
            "CREATE TABLE parts (number INTEGER PRIMARY KEY, data BLOB NOT NULL)",
            "CREATE TABLE latest (key BLOB PRIMARY KEY, part INTEGER NOT NULL, at INTEGER NOT NULL, unknown TEXT NOT NULL) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(statement)

    def __enter__(self) -> ExpectedRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def apply_operations(self, steps: Iterable[TableOperation]) -> None:
        """Make some steps."""
        for step in steps:
            match step.action:
                case "empty":
                    self._database.execute("DELETE FROM latest")
                    self._database.execute("DELETE FROM parts")
                case "delete":
                    self._forget(keys_of(step.rows.select(self._key)))
                case "move":
                    self._move(step.rows)
                case "write":
                    self._write(step.rows, keys_of(step.rows.select(self._key)))

    def __len__(self) -> int:
        (number,) = self._database.execute("SELECT COUNT(*) FROM latest").fetchone()
        return int(number)

    def read_chunks(self) -> Iterator[ExpectedChunk]:
        """Read all rows."""
        self._database.execute("CREATE INDEX IF NOT EXISTS by_part ON latest (part)")
        parts, unknown, size = list[pa.Table](), list[frozenset[str]](), 0
        for (number,) in self._database.execute("SELECT number FROM parts ORDER BY number").fetchall():
            alive = self._database.execute("SELECT at, unknown FROM latest WHERE part = ? ORDER BY at", (number,))
            rows = alive.fetchall()
            if not rows:
                continue
            part = self._part(number).take([at for at, _ in rows])
            if parts and (len(unknown) + len(rows) > CHUNK_ROWS or size + part.nbytes > CHUNK_BYTES):
                yield ExpectedChunk(pa.concat_tables(parts), unknown)
                parts, unknown, size = [], [], 0
            parts.append(part)
            unknown += [_names(text) for _, text in rows]
            size += part.nbytes
        if parts:
            yield ExpectedChunk(pa.concat_tables(parts), unknown)

    def read_values(self, column: str, keys: Sequence[Hashable]) -> dict[Hashable, Any]:
        """Return the values that rows have in a column, by the keys among these that there are.

        :param keys: each a tuple, of values that Python has
        """
        places_by_part: dict[int, list[tuple[Hashable, int]]] = {}
        for key in keys:
            of_key = repr(key).encode("utf-8", "surrogatepass")
            stored = self._database.execute("SELECT part, at FROM latest WHERE key = ?", (of_key,)).fetchone()
            if stored is not None:
                places_by_part.setdefault(stored[0], []).append((key, stored[1]))
        result: dict[Hashable, Any] = {}
        for part, places in places_by_part.items():
            there = self._part(part)[column]
            result |= {key: there[at].as_py() for key, at in places}
        return result

    # -- steps --------------------------------------------------------------------------------------------------------

    def _forget(self, keys: Sequence[bytes]) -> None:
        self._database.executemany("DELETE FROM latest WHERE key = ?", [(key,) for key in keys])

    def _move(self, rows: pa.Table) -> None:
        """Move rows to other keys: the values that their events leave out are in the rows that had the keys before."""
        before = [PREVIOUS.format(at) for at in range(len(self._key))]
        old = keys_of(rows.select(before))
        there = [self._database.execute("SELECT 1 FROM latest WHERE key = ?", (key,)).fetchone() for key in old]
        at = np.flatnonzero([row is not None for row in there])
        self._write(rows.drop_columns(before).take(at), [old[i] for i in at])
        self._forget(old)

    def _write(self, rows: pa.Table, before: Sequence[bytes]) -> None:
        """:param before: keys of the rows that have the values which these leave out"""
        lacking = frozenset(self._schema.names) - set(rows.column_names)
        step = _AT_ONCE if lacking else max(1, min(CHUNK_ROWS, rows.num_rows * CHUNK_BYTES // max(rows.nbytes, 1)))
        for begin in range(0, rows.num_rows, step):
            some = rows.slice(begin, step)
            unknown = [""] * some.num_rows
            if lacking:
                some, unknown = self._completed(some, lacking, before[begin : begin + step])
            self._keep(some.select(self._schema.names).cast(self._schema), unknown)

    def _completed(
        self, rows: pa.Table, lacking: frozenset[str], before: Sequence[bytes]
    ) -> tuple[pa.Table, list[str]]:
        """Return rows with all columns, and for each of them the columns whose values are not known."""
        rows_by_part: dict[int, list[tuple[int, int]]] = {}
        unknown = ["\0".join(sorted(lacking))] * rows.num_rows
        for row, key in enumerate(before):
            stored = self._database.execute("SELECT part, at, unknown FROM latest WHERE key = ?", (key,)).fetchone()
            if stored is not None:
                rows_by_part.setdefault(stored[0], []).append((row, stored[1]))
                unknown[row] = "\0".join(sorted(lacking & _names(stored[2])))
        values = [pa.table([pa.nulls(1, field.type) for field in self._schema], schema=self._schema)]
        place, number = np.zeros(rows.num_rows, np.int64), 1
        for part, places in rows_by_part.items():
            values.append(self._part(part).take([at for _, at in places]))
            for row, _ in places:
                place[row], number = number, number + 1
        old = pa.concat_tables(values).take(place)
        for name in sorted(lacking):
            rows = rows.append_column(name, old[name])
        return rows, unknown

    def _keep(self, rows: pa.Table, unknown: Sequence[str]) -> None:
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, self._schema) as stream:
            stream.write_table(rows)
        part = self._database.execute("INSERT INTO parts (data) VALUES (?)", (memoryview(buffer.getvalue()),)).lastrowid
        latest = zip(keys_of(rows.select(self._key)), unknown, strict=True)
        self._database.executemany(
            "INSERT OR REPLACE INTO latest (key, part, at, unknown) VALUES (?, ?, ?, ?)",
            [(key, part, at, text) for at, (key, text) in enumerate(latest)],
        )

    def _part(self, number: int) -> pa.Table:
        (data,) = self._database.execute("SELECT data FROM parts WHERE number = ?", (number,)).fetchone()
        return pa.ipc.open_stream(data).read_all()


def keys_of(keys: pa.Table) -> list[bytes]:
    """Each key as bytes that no other key has.

    >>> keys_of(pa.table({"id": [1], "name": ["a"]}))
    [b"(1, 'a')"]
    """
    columns = [_plain(column).to_pylist() for column in keys.columns]
    return [repr(key).encode("utf-8", "surrogatepass") for key in zip(*columns, strict=True)]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert times to numbers: Python has not all of them."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split("\0")) if text else frozenset()
