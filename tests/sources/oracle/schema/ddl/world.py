"""Structures that a schema reader works on: the real history and filters, and a dictionary that the test fills."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.unlogged_rewrite_check import rewrite_reason
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.ddl import UnknownStatement, parse_ddl_statement
from airflow_provider_cdc.sources.oracle.schema.ddl_applier import DdlApplier, DdlEffect
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import NoLookups
from tests.sources.oracle.redo.redo_tables import config

CATALOG = "PDB1"


def table_id(name: str, owner: str = "APP") -> TableId:
    return TableId(catalog=CATALOG, namespace=owner, name=name)


class _Dictionary(NoLookups):
    """The dictionary of a world, which notes the tables that it is asked for."""

    def __init__(self, world: SchemaModel) -> None:
        self._world = world

    def read_table(self, table: TableId) -> TableSchema | None:
        self._world.asked.append(table)
        return self._world.dictionary.get(table)


@dataclass
class SchemaModel:
    """Reads statements and applies what they change.

    :ivar asked: tables that the dictionary was asked for
    """

    properties: dict[str, Any] = field(default_factory=dict)
    dictionary: dict[TableId, TableSchema] = field(default_factory=dict)
    asked: list[TableId] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = config(**{"database.pdb.name": CATALOG, **self.properties})
        self.history = SchemaHistory()
        self.tables = CapturedTables(Filters(self.config), self.history)
        self.reader = DdlApplier(self.config, self.tables, _Dictionary(self))

    def run(self, *statements: str, owner: str = "APP", understood: bool = True) -> DdlEffect:
        """Apply statements; what the last one meant. ``reasons`` is why each of its changes has to be read again."""
        found = DdlEffect()
        for sql in statements:
            statement = parse_ddl_statement(sql)
            assert isinstance(statement, UnknownStatement) is not understood, statement
            found = self.reader.apply(statement, owner, "SCN 5")
            self.reasons = [rewrite_reason(self._before(c), c) for c in found.changes]
            self.history.remove_renamed(found.changes)
            found.changes = [self.history.apply_change(c) or c for c in found.changes]
        return found

    def _before(self, change: TableChange) -> TableSchema | None:
        return self.history.find_schema(change.previous_id or change.id)

    def table(self, name: str = "T", owner: str = "APP") -> TableSchema:
        found = self.history.find_schema(table_id(name, owner))
        assert found is not None, f"there is no {owner}.{name}"
        return found

    def shape(self, name: str = "T") -> list[str]:
        """The table in short: each column with its type, ``!`` where it is not null, and the key at the end."""
        table = self.table(name)
        columns = [
            f"{c.name} {ColumnType.from_column(c).ddl_expression}{'' if c.nullable else '!'}" for c in table.columns
        ]
        return [*columns, f"({','.join(table.key)})"]

    def other(self, *statements: str) -> SchemaModel:
        """Put the structures after these statements, made in another world, into the dictionary; return that world."""
        there = SchemaModel(self.properties)
        there.run(*statements)
        self.dictionary |= {t: there.table(t.name, t.namespace) for t in there.history.current_tables}
        return there
