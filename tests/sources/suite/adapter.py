"""The adapter of a database to the shared suite: how it is written to, and what it can do."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from airflow_provider_cdc.core.config.base_configuration import COLUMN_HASHES, COLUMN_TEXTS
from airflow_provider_cdc.core.model.table_schema import TableId
from tests.support.connectors import Connector
from tests.support.sources.rewrite_journal import Table

Row = dict[str, Any]


INT, LONG, TEXT = "int", "long", "text"
"""What columns are in these tests: 32 bits, 64 bits, and text of up to 200 characters."""


class Changes(abc.ABC):
    """An open transaction."""

    @abc.abstractmethod
    def insert(self, table: str, *rows: Row) -> None: ...

    @abc.abstractmethod
    def update(self, table: str, where: Row, values: Row) -> None: ...

    @abc.abstractmethod
    def delete(self, table: str, where: Row) -> None: ...


class UndoTransaction(Exception):
    """Raised inside a transaction, it rolls the transaction back and goes no further."""


class Adapter(abc.ABC):
    """A new, empty namespace (database, schema) for one test. Table names are without the namespace.

    :cvar kind: as connector definitions spell it
    :cvar changes_kinds: one statement makes a column of ``INT`` one of ``TEXT``
    :cvar structured: rows have columns, which statements change
    :cvar table_lists: names of the include and the exclude list of tables
    :cvar some_lists: lists and switches that its configuration has, among others
    :cvar snapshot_only_changes: statements after which a table has to be read again: ``rename_table`` and ``change_column``
    """

    kind: ClassVar[str]
    changes_kinds = True
    structured = True
    table_lists: ClassVar[tuple[str, str]] = ("table.include.list", "table.exclude.list")
    some_lists: ClassVar[frozenset[str]] = frozenset(
        {"table.include.list", "column.exclude.list", "skipped.operations"}
    )
    namespace: str

    @abc.abstractmethod
    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        """Create a table; columns of the key are not nullable."""

    @abc.abstractmethod
    def transaction(self) -> AbstractContextManager[Changes]:
        """Changes that are committed together; :class:`UndoTransaction` rolls them back."""

    def moves_keys(self, table: str, by: int) -> bool:
        """Add a number to the key ``id`` of all rows by one statement; ``False``: the database makes sure of the key of each row by itself."""
        return False

    def asks_to_try_again(self, error: Exception) -> bool:
        """Check whether the database has rolled a transaction back for no fault of its statements."""
        return False

    @abc.abstractmethod
    def rows(self, table: str) -> list[Row]:
        """All rows, sorted by their ``repr``."""

    @abc.abstractmethod
    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        """Existing rows get ``value``."""

    @abc.abstractmethod
    def drop_column(self, table: str, name: str) -> None: ...

    @abc.abstractmethod
    def rename_column(self, table: str, old: str, new: str, kind: str) -> None: ...

    @abc.abstractmethod
    def change_column(self, table: str, name: str, kind: str) -> None:
        """From ``INT`` to another kind."""

    @abc.abstractmethod
    def rename_table(self, old: str, new: str) -> None: ...

    def swap_tables(self, a: str, b: str) -> bool:
        """Let two tables exchange their names in one statement; ``False``: the database cannot."""
        return False

    def rewrites(self) -> dict[str, Callable[[str, Table, str], str]]:
        """Statements of this database after which rows have to be read again, besides :meth:`change_column`.

        Each is called with the table's name, its columns and rows, which it keeps true, and a name that nothing has. Gives what the
        table is called then.
        """
        return {}

    def create_like(self, table: str, other: str) -> bool:
        """Create a table with the columns of another one; ``False``: the database cannot."""
        return False

    @abc.abstractmethod
    def drop_table(self, table: str) -> None: ...

    @abc.abstractmethod
    def truncate(self, table: str) -> None: ...

    @abc.abstractmethod
    def connector(self, folder: Path, **properties: Any) -> Connector:
        """A connector that captures this namespace only, unless the properties say otherwise."""

    @abc.abstractmethod
    def other(self) -> Adapter:
        """Another namespace of the same database."""

    @abc.abstractmethod
    def purge(self) -> None:
        """Let the database forget its log up to now."""

    @abc.abstractmethod
    def small_blocks(self) -> AbstractContextManager[dict[str, Any]]:
        """While this is open, 3000 rows are more than a log block holds; gives properties for the connector."""

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        """While this is open, a reader of chunks takes in a few rows at a time; gives properties for the connector."""
        yield {}

    def create_sparse(
        self, table: str, columns: Mapping[str, str], key: tuple[str, ...], sparse: tuple[str, ...]
    ) -> bool:
        """Create a table whose log has the values of some ``TEXT`` columns only where a statement sets them.

        ``False``: this database logs all values.
        """
        return False

    sparse: ClassVar[Row] = {}
    """Properties with which values of such columns are captured where the log has them."""

    def signals(self) -> str:
        """Create a signal table that the connector may write to; gives ``signal.data.collection``."""
        raise NotImplementedError

    def collection(self, table: str) -> str:
        """A table's name, as ``signal.data.collection`` has it."""
        return f"{self.namespace}.{table}"

    def insert_signal(self, id_: str, type_: str, data: str) -> None:
        """A row of the signal table."""
        with self.transaction() as t:
            t.insert("signals", {"id": id_, "type": type_, "data": data})

    def condition(self, column: str, operator: str, value: int) -> str:
        """A condition in the database's SQL."""
        return f"{column} {operator} {value}"

    def select(self, table: str, condition: str) -> str:
        """A statement that gives the rows of a table that fulfil a condition."""
        return f"SELECT * FROM {self.namespace}.{table} WHERE {condition}"

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        """Properties under which one that decides what of tables is captured leaves something out, and under which it does not.

        :param tables: pattern of the tables
        """
        a = self.collection("a").replace('"', "")
        hashed = "column.mask.hash.v2.SHA-256.with.salt.x"
        return {
            "snapshot.include.collection.list": ({name: rf"{self.namespace}\.a"}, {name: ""}),
            "column.include.list": ({name: rf"{tables}\.(id|n)"}, {name: ""}),
            "column.exclude.list": ({name: rf"{tables}\.note"}, {name: ""}),
            COLUMN_TEXTS: (
                {"column.mask.with.2.chars": rf"{tables}\.note"}, {"column.mask.with.2.chars": None}
            ),
            COLUMN_HASHES: ({hashed: rf"{tables}\.note"}, {hashed: None}),
            "skipped.operations": ({name: "d"}, {name: "none"}),
            "snapshot.select.statement.overrides": (
                {name: a, f"{name}.{a}": self.select("a", self.condition("id", ">", 3))}, {name: None, f"{name}.{a}": None}
            ),
        }[name]  # fmt: skip

    def spoil(self) -> AbstractContextManager[str] | None:
        """Break a prerequisite and mend it at the end; gives what the finding's fix must name. ``None``: there is none."""
        return None

    def id(self, table: str) -> TableId:
        return TableId(namespace=self.namespace, name=table)
