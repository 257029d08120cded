"""The captured tables that DDL in the log may change, and the effect of a statement on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas


@dataclass(slots=True)
class StatementEffect:
    """Effect of a statement on captured tables.

    :ivar truncated: tables that are empty after it
    """

    changes: list[TableChange] = field(default_factory=list)
    truncated: list[TableId] = field(default_factory=list)


class CapturedStructures:
    """The structures in force, as far as statements concern them: of captured tables, and of none of the database's own.

    :param is_system: whether a table is the database's own, which is never captured
    """

    def __init__(self, tables: CapturedTableSchemas, is_system: Callable[[TableId], bool]) -> None:
        self._tables, self._is_system = tables, is_system

    def is_captured(self, table: TableId) -> bool:
        """Check whether a table, which need not exist, is captured."""
        return not self._is_system(table) and self._tables.is_captured(table)

    def find_structure(self, table: TableId) -> TableSchema | None:
        """Return the structure in force of a captured table; ``None`` for others, and where there is none."""
        schema = self._tables.find_schema(table)
        return schema if schema is not None and self.is_captured(table) else None

    def in_namespace(self, namespace: str) -> list[TableId]:
        """List the tables with a structure in a database or schema."""
        return [table for table in self._tables.list_known_tables() if table.namespace == namespace]

    def list_concerned_tables(self, named: list[TableId]) -> list[TableId]:
        """List the captured tables that a statement which is not understood may concern.

        :param named: the tables that were recognised in it; without any, it may be about each table
        """
        return [table for table in named or self._tables.list_known_tables() if self.is_captured(table)]

    def drop_table(self, table: TableId, effect: StatementEffect) -> None:
        """Record that the table is gone."""
        if self.find_structure(table) is not None:
            effect.changes.append(TableChange(type="DROP", id=table))

    def rows_changed(self, table: TableId, effect: StatementEffect) -> bool:
        """Rows of the table may have changed, and the log does not say how. Gives whether it is a captured one."""
        structure = self.find_structure(table)
        if structure is not None:
            effect.changes.append(TableChange(type="ALTER", id=table, table=structure, exact=False))
        return structure is not None
