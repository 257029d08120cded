"""The catalog as it is now, for questions while the log is read: it may be ahead of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from airflow_provider_cdc.sources.mysql.schema.catalog import Catalog


@dataclass(frozen=True)
class PresentCatalog:
    """Answers of the catalog, each asked for when it is needed.

    :param ask: asks a question on a connection that is open
    """

    ask: Callable[[Callable[[Catalog], Any]], Any]

    def table(self, table: TableId) -> TableSchema | None:
        """A table's structure; ``None`` when it does not exist."""
        found: TableSchema | None = self.ask(lambda c: c.table(table))
        return found

    def database_charset(self, database: str) -> str | None:
        """A database's default character set."""
        found: str | None = self.ask(lambda c: c.database_charset(database))
        return found

    @cached_property
    def charsets(self) -> dict[int, str]:
        """Collation number → character set."""
        found: dict[int, str] = self.ask(lambda c: c.charsets())
        return found
