"""Table schemas from the catalog (``SYSCAT``): for discovery, snapshots, chunks, and whenever the stream finds that a change table is another one.

A handful of queries reads any number of tables. Only tables in capture mode can be captured: the structure of each is that of the table, as
far as its change table has it (:mod:`.captured_structures`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration, read_registrations
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.schema.captured_structures import captured_structure
from airflow_provider_cdc.sources.db2.schema.column_defaults import default_of
from airflow_provider_cdc.sources.db2.schema.never_captured_tables import is_system
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType, make_column
from airflow_provider_cdc.sources.relational.row_key import row_key

log = logging.getLogger(__name__)

MOST_NAMED: Final = 200
"""More tables are not named one by one in a query: their schemas are."""

_TABLES: Final = "SELECT t.TABSCHEMA, t.TABNAME, t.CARD, t.CREATE_TIME, t.REMARKS FROM SYSCAT.TABLES t WHERE t.TYPE = 'T' AND {where} ORDER BY t.TABSCHEMA, t.TABNAME"
_COLUMNS: Final = """
SELECT t.TABSCHEMA, t.TABNAME, t.COLNAME, t.TYPESCHEMA, t.TYPENAME, t.LENGTH, t.STRINGUNITSLENGTH, t.SCALE, t.CODEPAGE, t."NULLS", t."DEFAULT",
t."IDENTITY", t."GENERATED", t.REMARKS
FROM SYSCAT.COLUMNS t WHERE {where} ORDER BY t.TABSCHEMA, t.TABNAME, t.COLNO"""
_KEYS: Final = """
SELECT t.TABSCHEMA, t.TABNAME, t.INDNAME, t.UNIQUERULE, k.COLNAME
FROM SYSCAT.INDEXES t JOIN SYSCAT.INDEXCOLUSE k ON k.INDSCHEMA = t.INDSCHEMA AND k.INDNAME = t.INDNAME
WHERE t.UNIQUERULE IN ('P', 'U') AND k.COLORDER <> 'I' AND {where} ORDER BY t.TABSCHEMA, t.TABNAME, t.INDNAME, k.COLSEQ"""
_DISTINCT: Final = "SELECT t.TYPESCHEMA, t.TYPENAME, t.SOURCENAME, t.LENGTH, t.SCALE, t.CODEPAGE FROM SYSCAT.DATATYPES t WHERE t.METATYPE = 'T'"

_Row = tuple[Any, ...]
_Name = tuple[str, str]


class Db2CatalogReader:
    """Reads the catalog over one connection."""

    def __init__(self, connection: Db2Connection, config: Db2Config) -> None:
        self.connection, self.config = connection, config
        self._distinct: dict[_Name, _Row] | None = None

    def list_registrations(self) -> dict[TableId, TableRegistration]:
        """Read the registrations of the tables in capture mode; without those of Db2 and of the agent."""
        registrations = read_registrations(self.connection, self.config.capture_schema, self.config.catalog_name)
        return {
            table: registration for table, registration in registrations.items() if not is_system(table, self.config)
        }

    def read_captured_schemas(self, only: Collection[TableId] | None = None) -> dict[TableId, TableSchema]:
        """Read the structures with which tables are captured: of all that are in capture mode and exist, or of those of the given ones."""
        registered = self.list_registrations()
        return self.read_registered_schemas(
            {t: registration for t, registration in registered.items() if only is None or t in only}
        )

    def read_table(self, table: TableId) -> TableSchema | None:
        """Read the structure with which a table is captured; ``None`` if it does not exist or is not in capture mode."""
        return self.read_captured_schemas([table]).get(table)

    def read_registered_schemas(self, registered: dict[TableId, TableRegistration]) -> dict[TableId, TableSchema]:
        """Read the structures with which registered tables are captured; a table that does not exist is missing."""
        changes = {
            t: self._id(registration.change_owner, registration.change_table) for t, registration in registered.items()
        }
        raw = self.read_table_schemas([*registered, *changes.values()])
        return {
            table: captured_structure(raw[table], raw.get(changes[table]), registration.before_prefix)
            for table, registration in registered.items()
            if table in raw
        }

    def read_table_schemas(self, tables: Iterable[TableId]) -> dict[TableId, TableSchema]:
        """Read the own structures of any tables, of those that exist; change tables are tables, too."""
        names = {(t.namespace, t.name) for t in tables}
        if not names:
            return {}
        columns: dict[_Name, list[_Row]] = defaultdict(list)
        keys: dict[_Name, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
        exist = {(_text(schema), _text(name)): remarks for schema, name, *_, remarks in self._query(_TABLES, names)}
        for schema, name, *rest in self._query(_COLUMNS, names):
            columns[_text(schema), _text(name)].append(tuple(rest))
        for schema, name, index, kind, column in self._query(_KEYS, names):
            keys[_text(schema), _text(name)][_text(kind), _text(index)].append(str(column))
        return {
            self._id(*name): self._schema(name, columns[name], keys[name], remarks)
            for name, remarks in sorted(exist.items())
            if columns[name]
        }

    def estimate_row_counts(self, tables: Iterable[TableId]) -> dict[TableId, int]:
        """Rows of tables by the optimizer's statistics; 0 without statistics."""
        names = {(t.namespace, t.name) for t in tables}
        rows = self._query(_TABLES, names) if names else []
        return {self._id(_text(schema), _text(name)): max(int(card or 0), 0) for schema, name, card, *_ in rows}

    def read_creation_times(self, tables: Iterable[TableId]) -> dict[TableId, datetime]:
        """Read when tables were created, by the server's clock, of those that exist."""
        names = {(t.namespace, t.name) for t in tables}
        rows = self._query(_TABLES, names) if names else []
        return {self._id(_text(schema), _text(name)): moment for schema, name, _, moment, _ in rows}

    # -- plumbing -----------------------------------------------------------------------------------------------------

    def _id(self, schema: str, name: str) -> TableId:
        return TableId(catalog=self.config.catalog_name, namespace=schema, name=name)

    def _query(self, sql: str, names: set[_Name]) -> list[_Row]:
        if len(names) <= MOST_NAMED:
            where = "(" + " OR ".join(["(t.TABSCHEMA = ? AND t.TABNAME = ?)"] * len(names)) + ")"
            return self.connection.fetch_rows(
                sql.format(where=where), *(part for name in sorted(names) for part in name)
            )
        schemas = sorted({schema for schema, _ in names})
        where = f"t.TABSCHEMA IN ({', '.join('?' * len(schemas))})"
        rows = self.connection.fetch_rows(sql.format(where=where), *schemas)
        return [row for row in rows if (_text(row[0]), _text(row[1])) in names]

    def _schema(
        self, name: _Name, rows: list[_Row], keys: dict[tuple[str, str], list[str]], remarks: str | None
    ) -> TableSchema:
        columns = [self._column(row) for row in rows]
        candidates = [(kind == "P", index, tuple(names)) for (kind, index), names in keys.items()]
        key, comment = row_key(candidates, columns), self._comment(remarks)
        return TableSchema(id=self._id(*name), columns=tuple(columns), key=key, comment=comment)

    def _comment(self, remarks: str | None) -> str | None:
        return remarks or None if self.config.include_schema_comments else None

    def _column(self, row: _Row) -> Column:
        name, type_schema, type_name, length, units, scale, codepage, nulls, default, identity, generated, remarks = row
        owner, distinct = _text(type_schema), None
        type_name = _text(type_name)
        if owner != "SYSIBM":
            distinct = f'"{owner}"."{type_name}"'
            source = self._source_type(owner, type_name)
            if source is not None:
                type_name, length, scale, codepage = source
                units = None
        type_ = Db2ColumnType.of_catalog(
            type_name, _number(length if units is None else units), _number(scale), codepage=_number(codepage)
        )
        computed = _text(generated) != "" and _text(identity) != "Y"
        value, expression = (None, False) if _text(identity) == "Y" or computed else default_of(default, type_)
        column = make_column(
            str(name), type_, self.config, nullable=_text(nulls) == "Y", distinct=distinct, default=value,
            default_is_expression=expression, generated=computed, auto_incremented=_text(identity) == "Y",
        )  # fmt: skip
        return column.with_comment(self._comment(remarks))

    def _source_type(self, schema: str, name: str) -> tuple[str, int | None, int | None, int | None] | None:
        """Source type, length, scale and code page of a distinct type; ``None`` for structured types, whose values are not captured."""
        if self._distinct is None:
            self._distinct = {(_text(row[0]), _text(row[1])): row[2:] for row in self.connection.fetch_rows(_DISTINCT)}
        source_type = self._distinct.get((schema, name))
        if source_type is None:
            return None
        source, length, scale, codepage = source_type
        return _text(source), _number(length), _number(scale), _number(codepage)


def _text(value: Any) -> str:
    """Return a text of the catalog without padding, which some versions add."""
    return "" if value is None else str(value).rstrip()


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
