"""The structures of the tables that are read: their changes since, and how their change tables are read.

The catalog is asked only about tables one of whose two tables was altered since it was asked last (``ALTER_TIME``); for the first time, when
a table has changes for the first time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.log.change_table_layout import ChangeTableLayout, layout_of
from airflow_provider_cdc.sources.db2.log.query_connection import QueryConnection
from airflow_provider_cdc.sources.db2.schema.captured_structures import captured_structure
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader


class TableStructures:
    """The structures of the tables of one stream.

    :param tables: the structures that core knows; it takes over each change before :meth:`resolve_layout` is asked
    """

    def __init__(self, config: Db2Config, tables: CapturedTableSchemas, questions: QueryConnection) -> None:
        self._config, self._tables, self._questions = config, tables, questions
        self._read_marks: dict[TableId, tuple[Any, ...]] = {}
        self._change_tables: dict[TableId, TableSchema] = {}
        self._layouts: dict[TableId, ChangeTableLayout] = {}

    def find_created_tables(self, new: Sequence[TableRegistration]) -> list[TableChange]:
        """Tables that the agent captures and that are not known yet. Rows that they had before are not in their change tables."""
        if not new:
            return []
        registrations = {registration.table: registration for registration in new}
        schemas = self._questions.run_query(
            lambda c: Db2CatalogReader(c, self._config).read_registered_schemas(registrations)
        )
        return [TableChange(type="CREATE", id=t, table=schema, exact=False) for t, schema in schemas.items()]

    def find_dropped_tables(self, missing: Sequence[TableId]) -> list[TableChange]:
        """Find those of some tables that do not exist."""
        if not missing:
            return []
        exist = self._questions.run_query(lambda c: Db2CatalogReader(c, self._config).read_table_schemas(missing))
        return [TableChange(type="DROP", id=table) for table in missing if table not in exist]

    def find_altered_tables(self, reading: Sequence[TableRegistration]) -> list[TableChange]:
        """Find changes of the structures of tables that are about to be read."""
        stale = [
            registration for registration in reading if self._read_marks.get(registration.table) != _mark(registration)
        ]
        if not stale:
            return []
        changes = {registration.table: self._change_id(registration) for registration in stale}
        raw = self._questions.run_query(
            lambda c: Db2CatalogReader(c, self._config).read_table_schemas([*changes, *changes.values()])
        )
        altered = []
        for registration in stale:
            change_table = raw.get(changes[registration.table])
            recorded = self._tables.find_schema(registration.table)
            if change_table is None or recorded is None:  # dropped since it was found: the next look says so
                continue
            if (source := raw.get(registration.table)) is not None:
                present = captured_structure(source, change_table, registration.before_prefix)
                if not recorded.same_description(present):
                    altered.append(altered_table(recorded, present))
            self._change_tables[registration.table] = change_table
            self._read_marks[registration.table] = _mark(registration)
            self._layouts.pop(registration.table, None)
        return altered

    def resolve_layout(self, registration: TableRegistration) -> ChangeTableLayout:
        """Return the layout by which the change table of a table is read."""
        schema = self._tables.find_schema(registration.table)
        layout = self._layouts.get(registration.table)
        if layout is not None and layout.schema is schema and layout.registration == registration:
            return layout
        change_table = self._change_tables.get(registration.table)
        if schema is None or change_table is None:
            raise SchemaConflict(
                f"The structure of {registration.table} changed just before its changes were read.",
                where=f"{registration.table}, change table {registration.change_table_name}",
                safe="Everything up to the position is captured; no row was decoded with a guessed structure.",
                remedy="run again: the run reads the current structures",
            )
        layout = self._layouts[registration.table] = layout_of(schema, registration, change_table, self._config)
        return layout

    def _change_id(self, registration: TableRegistration) -> TableId:
        return TableId(
            catalog=self._config.catalog_name, namespace=registration.change_owner, name=registration.change_table
        )


def altered_table(captured: TableSchema, present: TableSchema) -> TableChange:
    """Build the change from one structure to another one.

    No record shows a renamed column (spec DB2-374). But Db2 adds columns behind all others, and lets those that stay stand in their order: a new column
    that stands before one of these was renamed, whatever its type is now. Behind the last of them it may have been renamed as well, or made when
    another one went: which values existing rows have in it is not known then.
    """
    stay = {c.name for c in captured.columns} & {c.name for c in present.columns}
    renamed: dict[str, str] = {}
    exact = True
    old, new = _stretches(captured, stay), _stretches(present, stay)
    in_order = [c.name for c in captured.columns if c.name in stay] == [
        c.name for c in present.columns if c.name in stay
    ]
    for at, (gone, come) in enumerate(zip(old, new, strict=True)):
        last = at == len(old) - 1
        if not gone or not come:
            exact &= last or not come  # nothing can come but behind all others: the table is another one
            continue
        alike = len(gone) == len(come) and (not last or all(map(_same_type, gone, come)))
        if alike:
            renamed |= {b.name: a.name for a, b in zip(gone, come, strict=True)}
        exact &= alike and not last
    added = {
        c.name: c.declared.default
        for c in present.columns
        if c.name not in stay and c.name not in renamed and _is_told(c)
    }
    return TableChange(
        type="ALTER", id=captured.id, table=present, renamed=renamed, added=added, exact=exact and in_order
    )


def _stretches(schema: TableSchema, stay: Collection[str]) -> list[list[Column]]:
    """List the columns that do not stay, before the first of those that do, between each two of them, and behind the last."""
    stretches: list[list[Column]] = [[]]
    for column in schema.columns:
        if column.name in stay:
            stretches.append([])
        else:
            stretches[-1].append(column)
    return stretches


def _same_type(a: Column, b: Column) -> bool:
    return (
        a.type == b.type
        and a.declared.type_expression == b.declared.type_expression
        and a.declared.length == b.declared.length
    )


def _is_told(column: Column) -> bool:
    """Check whether the structure says which value existing rows have in a new column: its default."""
    d = column.declared
    if column.type == NOT_CAPTURED or d.default_is_expression or d.generated or d.auto_incremented:
        return False
    return d.default is not None or column.nullable


def _mark(registration: TableRegistration) -> tuple[Any, ...]:
    return (
        registration.altered,
        registration.source_altered,
        registration.change_table_name,
        registration.pairs,
        registration.before_prefix,
    )
