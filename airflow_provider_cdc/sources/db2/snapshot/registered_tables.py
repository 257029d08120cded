"""The structures of tables in the catalog, with those of their change tables, for a reader of chunks."""

from __future__ import annotations

from typing import Final

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.relational.chunk_reader import CatalogRows

_COLUMNS: Final = """
SELECT t.TABSCHEMA, t.TABNAME, t.COLNO, t.COLNAME, t.TYPESCHEMA, t.TYPENAME, t.LENGTH, t.SCALE, t.CODEPAGE, t."NULLS", t."DEFAULT"
FROM SYSCAT.COLUMNS t WHERE (t.TABSCHEMA = ? AND t.TABNAME = ?) OR (t.TABSCHEMA = ? AND t.TABNAME = ?)
ORDER BY t.TABSCHEMA, t.TABNAME, t.COLNO"""


class Db2RegisteredTables:
    """The tables of a chunk reader, each with the registration of its change table as it was read last."""

    def __init__(self, connection: Db2Connection, config: Db2Config) -> None:
        self._connection, self._catalog = connection, Db2CatalogReader(connection, config)
        self._registrations: dict[TableId, TableRegistration | None] = {}
        self._dropped: dict[TableId, frozenset[str]] = {}

    def read_registration(self, table: TableId) -> None:
        """Read the registration of a table; there is none if the table does not exist, or is not in capture mode."""
        self._registrations[table] = self._catalog.list_registrations().get(table)

    def fetch_schema(self, table: TableId) -> TableSchema | None:
        """Read the present structure from the catalog; ``None`` without a registration."""
        registered = self._registrations[table]
        if registered is None:
            return None
        schema = self._catalog.read_registered_schemas({table: registered}).get(table)
        own = self._catalog.read_table_schemas([table]).get(table)
        if schema is None or own is None:
            return None
        self._dropped[table] = frozenset(schema.column_names) - frozenset(own.column_names)
        return schema

    def fetch_columns(self, table: TableId) -> CatalogRows:
        """Read the columns of a table and of its change table in the catalog; none without a registration."""
        registered = self._registrations[table]
        if registered is None:
            return ()
        names = (table.namespace, table.name, registered.change_owner, registered.change_table)
        return tuple(self._connection.fetch_rows(_COLUMNS, *names))

    def list_dropped_columns(self, table: TableId) -> frozenset[str]:
        """List the columns of the structure that only the change table has."""
        return self._dropped.get(table, frozenset())
