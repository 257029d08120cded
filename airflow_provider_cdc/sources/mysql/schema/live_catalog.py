"""The current catalog, for questions while the log is read. It may be ahead of the log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog, StoredObjects


@dataclass(frozen=True)
class LiveCatalog:
    """Asks the catalog when an answer is needed.

    :param ask: runs a question with a :class:`.catalog_reader.MySqlCatalog` on an open connection
    :param any_case: as of :meth:`.catalog_reader.MySqlCatalog.read_table`
    """

    ask: Callable[[Callable[[MySqlCatalog], Any]], Any]
    any_case: bool = False

    def read_table(self, table: TableId) -> TableSchema | None:
        """Read the current schema of a table, which is provisional for the log; ``None`` if it does not exist."""
        schema: TableSchema | None = self.ask(lambda c: c.read_table(table, any_case=self.any_case))
        return None if schema is None else schema.model_copy(update={"provisional": True})

    def is_table(self, table: TableId) -> bool | None:
        """Check whether a name is that of a table; ``None`` if nothing has it now."""
        is_table: bool | None = self.ask(lambda c: c.is_table(table))
        return is_table

    def with_expressions(self, table: TableId) -> tuple[TableSchema, dict[str, str]] | None:
        """Read the current schema of a table and the expressions of its generated columns.

        ``None`` if it does not exist.
        """
        schema = self.read_table(table)
        return None if schema is None else (schema, self.ask(lambda c: c.read_expressions(table)))

    def database_charset(self, database: str) -> str | None:
        """Read the default character set of a database."""
        charset: str | None = self.ask(lambda c: c.database_charset(database))
        return charset

    def read_engines(self, tables: Collection[TableId]) -> dict[TableId, str]:
        """Read the storage engines of tables; those that do not exist are missing."""
        engines: dict[TableId, str] = self.ask(lambda c: c.read_engines(tables))
        return engines

    @cached_property
    def stored_objects(self) -> StoredObjects:
        """Objects through which statements may change rows of tables that they do not name; see :meth:`forget_routes`."""
        stored_objects: StoredObjects = self.ask(lambda c: c.read_stored_objects())
        return stored_objects

    def forget_routes(self) -> None:
        """Ask again for :attr:`stored_objects`: views, triggers or functions have changed."""
        self.__dict__.pop("stored_objects", None)

    @cached_property
    def collation_charsets(self) -> dict[int, str]:
        """Collation number → character set."""
        charsets: dict[int, str] = self.ask(lambda c: c.read_charsets())
        return charsets
