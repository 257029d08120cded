"""The table and the work of the benchmarks: eight columns of common types, the same rows on every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

DATABASE = "bench"
TRANSACTION_ROWS = 1000
DDL = """CREATE TABLE {name} (
  id BIGINT NOT NULL PRIMARY KEY,
  name VARCHAR(64) NOT NULL,
  amount DECIMAL(12,2) NOT NULL,
  created DATETIME(6) NOT NULL,
  qty INT NULL,
  score DOUBLE NULL,
  note TEXT NULL,
  flag TINYINT NOT NULL
) ENGINE=InnoDB"""
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ äöüß€ "

Progress = Callable[[str], None]


class RowWriter:
    """Makes rows over one connection.

    :param progress: called with a few words now and then
    :param transaction_rows: rows of each transaction
    """

    def __init__(self, connection: Any, progress: Progress, transaction_rows: int = TRANSACTION_ROWS) -> None:
        self._connection, self._cursor, self._progress = connection, connection.cursor(), progress
        self._transaction_rows = transaction_rows

    def prepare(self, table: str) -> None:
        """An empty table."""
        self._cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self._cursor.execute(f"USE {DATABASE}")
        self._cursor.execute(DDL.format(name=table))

    def fill(self, table: str, rows: int, *, first: int = 1) -> None:
        """Insert rows."""
        for low, high in self._ranges(first, first + rows):
            values = ",".join(row(i) for i in range(low, high))
            self._cursor.execute(f"INSERT INTO {table} VALUES {values}")
            self._connection.commit()
            self._progress(f"{high - first:,} of {rows:,} rows inserted")

    def change(self, table: str, rows: int, *, first: int = 1) -> None:
        """Update rows with consecutive ids."""
        for low, high in self._ranges(first, first + rows):
            self._cursor.execute(
                f"UPDATE {table} SET qty = COALESCE(qty, 0) + 1, amount = amount + 1.25, "
                f"note = CONCAT('u ', COALESCE(note, '')) WHERE id >= {low} AND id < {high}"
            )
            self._connection.commit()
            self._progress(f"{high - first:,} of {rows:,} rows updated")

    def remove(self, table: str, rows: int, *, first: int) -> None:
        """Delete rows with consecutive ids."""
        for low, high in self._ranges(first, first + rows):
            self._cursor.execute(f"DELETE FROM {table} WHERE id >= {low} AND id < {high}")
            self._connection.commit()
            self._progress(f"{high - first:,} of {rows:,} rows deleted")

    def stream(self, table: str, events: int) -> None:
        """So many row events: 60 % inserts, 30 % updates, 10 % deletes."""
        inserts, deletes = events * 6 // 10, events // 10
        self.fill(table, inserts)
        self.change(table, events - inserts - deletes)
        self.remove(table, deletes, first=inserts - deletes + 1)

    def _ranges(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        for low in range(first, end, self._transaction_rows):
            yield low, min(low + self._transaction_rows, end)


def row(i: int) -> str:
    """Return a row as SQL; its values depend on the id alone."""
    h = (i * 2654435761) & 0xFFFFFFFF
    k = h % len(_LETTERS)
    note = ((_LETTERS[k:] + _LETTERS)[:40] * 3)[: 80 + h % 41]
    created = (
        f"2024-{1 + h % 12:02d}-{1 + h % 28:02d} {h % 24:02d}:{h % 60:02d}:{(h >> 6) % 60:02d}.{h % 1_000_000:06d}"
    )
    qty = "NULL" if h % 50 == 0 else h % 2_000_000_000 - 1_000_000_000
    shown = "NULL" if h % 40 == 0 else f"'{note}'"
    amount = f"{(h % 100_000_000) / 100:.2f}"
    return f"({i},'customer-{h:010d}-{i}',{amount},'{created}',{qty},{h / 7.0!r},{shown},{h % 2})"
