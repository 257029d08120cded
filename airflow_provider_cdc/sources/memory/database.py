"""A small transactional database with a log, for tests of code that works on sources.

>>> shop = MemoryDatabase("shop")
>>> shop.create_table("shop.orders", {"id": "int64", "note": "string"}, key=("id",))
>>> with shop.transaction() as t:
...     t.insert("shop.orders", {"id": 1, "note": "first"})
>>> shop.rows("shop.orders")
[{'id': 1, 'note': 'first'}]
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableChange, TableId, TableSchema

DATABASES: dict[str, MemoryDatabase] = {}
"""All databases of the process by name, where the property ``memory.database`` finds them."""

Row = dict[str, Any]

_VARCHAR = 12
"""JDBC's number of texts."""


@dataclass(slots=True)
class LoggedRowChange:
    """A row of a transaction, as logged. An image lacks the columns whose values the log does not have."""

    table: TableSchema
    op: int
    before: Row | None
    after: Row | None


@dataclass(slots=True)
class MemoryLogEntry:
    """An entry of the log: a transaction, a schema change, or a truncate."""

    ts_us: int
    rows: list[LoggedRowChange] = field(default_factory=list)
    ddl: str = ""
    changes: list[TableChange] = field(default_factory=list)
    truncated: TableId | None = None
    rollback_of: int = 0
    """Number of ``rows`` that precede a rollback inside the transaction and are void."""


class MemoryDatabase:
    """Tables by name, a log from entry ``oldest`` on. Thread-safe.

    :param catalog: the level above the namespace of all tables
    """

    def __init__(self, name: str, *, catalog: str | None = None) -> None:
        self.name, self.catalog, self.lock = name, catalog, threading.RLock()
        self.log: list[MemoryLogEntry] = []
        self.oldest = 0
        self._schemas: dict[TableId, TableSchema] = {}
        self._rows: dict[TableId, list[Row]] = {}
        self._sparse: dict[TableId, frozenset[str]] = {}
        self.clock: Callable[[], int] = _now_us
        self.executed: list[str] = []
        self.on_execute: Callable[[str], None] | None = None
        DATABASES[name] = self

    def execute(self, statement: str) -> None:
        """Keep a statement in ``executed``, and have ``on_execute`` carry it out: there is no SQL here."""
        self.executed.append(statement)
        if self.on_execute is not None:
            self.on_execute(statement)

    # -- reading ------------------------------------------------------------------------------------------------------

    def copy_rows(self, table: str) -> list[Row]:
        """Return a copy of a table's rows."""
        with self.lock:
            return [dict(row) for row in self._rows[self.resolve_table_id(table)]]

    def read_consistent_view(self) -> tuple[int, dict[TableId, TableSchema], dict[TableId, list[Row]]]:
        """End of the log, table schemas and rows, consistent with each other."""
        with self.lock:
            return len(self.log), dict(self._schemas), {t: list(rows) for t, rows in self._rows.items()}

    # -- structure ----------------------------------------------------------------------------------------------------

    def resolve_table_id(self, table: str) -> TableId:
        """Return the id of a table that is called ``namespace.name``."""
        namespace, _, name = table.partition(".")
        return TableId(namespace=namespace, name=name, catalog=self.catalog)

    def create_table(
        self,
        table: str,
        columns: Mapping[str, str],
        key: tuple[str, ...] = (),
        *,
        sparse: Iterable[str] = (),
        rows: Iterable[Row] = (),
    ) -> None:
        """Create a table.

        :param columns: name → change log type; a ``!`` at the end makes it not nullable
        :param sparse: columns whose values the log has only where a statement sets them, as databases do with large ones
        :param rows: first rows of the table, of which the log knows nothing (``CREATE TABLE … AS SELECT``)
        """
        with self.lock:
            table_columns = tuple(_column(n, t.rstrip("!"), nullable=not t.endswith("!")) for n, t in columns.items())
            schema = TableSchema(id=self.resolve_table_id(table), columns=table_columns, key=key)
            hidden = [{name: row.get(name) for name in schema.column_names} for row in rows]
            self._schemas[schema.id], self._rows[schema.id] = schema, hidden
            self._sparse[schema.id] = frozenset(sparse)
            change = TableChange(type="CREATE", id=schema.id, table=schema, exact=not hidden)
            self._ddl(f"CREATE TABLE {table}", change)

    def add_column(self, table: str, name: str, type_: str, value: Any = None, *, text: str | None = None) -> None:
        """Add a column; existing rows get ``value``, which is ``text`` in the statement."""
        with self.lock:
            schema = self._schemas[self.resolve_table_id(table)]
            schema = schema.model_copy(update={"columns": (*schema.columns, _column(name, type_))})
            for row in self._own(schema.id):
                row[name] = value
            fill = {name: None if value is None else text or str(value)}
            self._alter(schema, TableChange(type="ALTER", id=schema.id, table=schema, added=fill), f"ADD COLUMN {name}")

    def make_sparse(self, table: str, *columns: str) -> None:
        """From now on the log has values of these columns only where a statement sets them."""
        with self.lock:
            self._sparse[self.resolve_table_id(table)] |= set(columns)

    def drop_column(self, table: str, name: str) -> None:
        with self.lock:
            schema = self._schemas[self.resolve_table_id(table)]
            schema = schema.model_copy(update={"columns": tuple(c for c in schema.columns if c.name != name)})
            for row in self._own(schema.id):
                del row[name]
            self._alter(schema, TableChange(type="ALTER", id=schema.id, table=schema), f"DROP COLUMN {name}")

    def rename_column(self, table: str, old: str, new: str) -> None:
        with self.lock:
            schema = self._schemas[self.resolve_table_id(table)]
            columns = tuple(c.model_copy(update={"name": new}) if c.name == old else c for c in schema.columns)
            key = tuple(new if name == old else name for name in schema.key)
            schema = schema.model_copy(update={"columns": columns, "key": key})
            for row in self._own(schema.id):
                row[new] = row.pop(old)
            self._sparse[schema.id] = frozenset(new if name == old else name for name in self._sparse[schema.id])
            change = TableChange(type="ALTER", id=schema.id, table=schema, renamed={new: old})
            self._alter(schema, change, f"RENAME COLUMN {old} TO {new}")

    def change_column(self, table: str, name: str, type_: str, convert: Any) -> None:
        """Give a column another type; ``convert`` is called with each existing value that is not ``None``."""
        with self.lock:
            schema = self._schemas[self.resolve_table_id(table)]
            columns = tuple(_column(name, type_, nullable=c.nullable) if c.name == name else c for c in schema.columns)
            schema = schema.model_copy(update={"columns": columns})
            for row in self._own(schema.id):
                row[name] = None if row[name] is None else convert(row[name])
            self._alter(schema, TableChange(type="ALTER", id=schema.id, table=schema), f"MODIFY {name} {type_}")

    def rename_tables(self, *pairs: tuple[str, str]) -> None:
        """Give tables new names in one statement: ``("shop.a", "shop.b"), ("shop.b", "shop.a")`` swaps two."""
        with self.lock:
            ids = [(self.resolve_table_id(old), self.resolve_table_id(new)) for old, new in pairs]
            moved = [(a, b, self._schemas.pop(a), self._rows.pop(a), self._sparse.pop(a)) for a, b in ids]
            changes = []
            for before, after, schema, rows, sparse in moved:
                self._schemas[after], self._rows[after] = schema.model_copy(update={"id": after}), rows
                self._sparse[after] = sparse
                changes.append(TableChange(type="ALTER", id=after, previous_id=before, table=self._schemas[after]))
            self._ddl("RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs), *changes)

    def drop_table(self, table: str) -> None:
        with self.lock:
            schema = self._schemas.pop(self.resolve_table_id(table))
            del self._rows[schema.id]
            self._ddl(f"DROP TABLE {table}", TableChange(type="DROP", id=schema.id))

    def truncate_table(self, table: str) -> None:
        with self.lock:
            self._rows[self.resolve_table_id(table)] = []
            self.log.append(
                MemoryLogEntry(self.clock(), ddl=f"TRUNCATE TABLE {table}", truncated=self.resolve_table_id(table))
            )

    def purge_log(self, upto: int | None = None) -> None:
        """Forget log entries, as a server does with old log files."""
        with self.lock:
            self.oldest = len(self.log) if upto is None else upto

    def _own(self, table: TableId) -> list[Row]:
        """Copy a table's rows, fit to be changed in place: views and log entries keep the old ones."""
        self._rows[table] = [dict(row) for row in self._rows[table]]
        return self._rows[table]

    def _alter(self, schema: TableSchema, change: TableChange, clause: str) -> None:
        self._schemas[schema.id] = schema
        self._ddl(f"ALTER TABLE {schema.id} {clause}", change)

    def _ddl(self, ddl: str, *changes: TableChange) -> None:
        self.log.append(MemoryLogEntry(self.clock(), ddl=ddl, changes=list(changes)))

    # -- rows ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        """Make changes inside visible, and logged, together; an exception undoes them."""
        with self.lock:
            saved = {t: list(rows) for t, rows in self._rows.items()}
            transaction = MemoryTransaction(self)
            try:
                yield transaction
            except BaseException:
                self._rows = saved
                raise
            if transaction.changes:
                self.log.append(MemoryLogEntry(self.clock(), rows=transaction.changes, rollback_of=transaction.void))


class MemoryTransaction:
    """Changes in the making; see :meth:`MemoryDatabase.transaction`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self.changes: list[LoggedRowChange] = []
        self.void = 0

    def insert(self, table: str, row: Row, *, logged: Iterable[str] | None = None) -> None:
        """:param logged: columns whose values the log has; by default all"""
        schema = self._db._schemas[self._db.resolve_table_id(table)]
        full = {name: row.get(name) for name in schema.column_names}
        self._db._rows[schema.id].append(full)
        left_out = set() if logged is None else set(full) - set(logged)
        self.changes.append(LoggedRowChange(schema, CREATE, None, _without(full, left_out)))

    def update(self, table: str, where: Row, values: Row, *, limit: int | None = None) -> int:
        """Change the rows that equal ``where``; returns how many.

        :param limit: only so many of them
        """
        schema = self._db._schemas[self._db.resolve_table_id(table)]
        rows, sparse, n = self._db._rows[schema.id], self._db._sparse[schema.id], 0
        for i, row in enumerate(rows):
            if _matches(row, where) and n != limit:
                rows[i] = {**row, **values}
                before, after = _without(row, sparse), _without(rows[i], sparse - values.keys())
                self.changes.append(LoggedRowChange(schema, UPDATE, before, after))
                n += 1
        return n

    def update_each(self, table: str, changes: Iterable[tuple[Row, Row]]) -> None:
        """Change each row that equals the first of a pair as the second says, all by one statement: each is found as it was before it.

        :raises ValueError: a row is not there
        """
        schema = self._db._schemas[self._db.resolve_table_id(table)]
        rows, sparse = self._db._rows[schema.id], self._db._sparse[schema.id]
        free = set(range(len(rows)))
        updates = []
        for where, values in changes:
            i = next((i for i in sorted(free) if _matches(rows[i], where)), None)
            if i is None:
                raise ValueError(f"{table} has no row {where}")
            free.remove(i)
            updates.append((i, rows[i], values))
        for i, row, values in updates:
            rows[i] = {**row, **values}
            before, after = _without(row, sparse), _without(rows[i], sparse - values.keys())
            self.changes.append(LoggedRowChange(schema, UPDATE, before, after))

    def delete(self, table: str, where: Row, *, limit: int | None = None) -> int:
        """Remove the rows that equal ``where``; returns how many.

        :param limit: only so many of them
        """
        schema = self._db._schemas[self._db.resolve_table_id(table)]
        remaining, n = [], 0
        for row in self._db._rows[schema.id]:
            if _matches(row, where) and n != limit:
                self.changes.append(LoggedRowChange(schema, DELETE, _without(row, self._db._sparse[schema.id]), None))
                n += 1
            else:
                remaining.append(row)
        self._db._rows[schema.id] = remaining
        return n

    def log_void(self, table: str, row: Row) -> None:
        """Log an insert that the same transaction has taken back, as a log with partial rollbacks has it."""
        schema = self._db._schemas[self._db.resolve_table_id(table)]
        full = {name: row.get(name) for name in schema.column_names}
        self.changes.insert(self.void, LoggedRowChange(schema, CREATE, None, full))
        self.void += 1


def _column(name: str, type_: str, *, nullable: bool = True) -> Column:
    declared = ColumnDeclaration(jdbc_type=_VARCHAR) if type_ == "string" else ColumnDeclaration()
    return Column(name=name, type=type_, nullable=nullable, declared=declared)


def _now_us() -> int:
    return time.time_ns() // 1000


def _matches(row: Row, where: Row) -> bool:
    return all(row[name] is value or row[name] == value for name, value in where.items())


def _without(row: Row, columns: Set[str]) -> Row:
    return {name: value for name, value in row.items() if name not in columns}
