"""Tables as a reader of chunks knows them: their structure, and what the catalog said when it was read."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader

_COLUMNS: Final = """
SELECT t.TABSCHEMA, t.TABNAME, t.COLNO, t.COLNAME, t.TYPESCHEMA, t.TYPENAME, t.LENGTH, t.SCALE, t.CODEPAGE, t."NULLS", t."DEFAULT"
FROM SYSCAT.COLUMNS t WHERE (t.TABSCHEMA = ? AND t.TABNAME = ?) OR (t.TABSCHEMA = ? AND t.TABNAME = ?)
ORDER BY t.TABSCHEMA, t.TABNAME, t.COLNO"""
_ATTEMPTS: Final = 5
_Structure = tuple[tuple[Any, ...], ...]


class _CachedStructure(NamedTuple):
    schema: TableSchema
    gone: frozenset[str]
    registration: TableRegistration
    structure: _Structure


class Db2StructureCache:
    """The structures of tables, each as it was read last."""

    def __init__(self, connection: Db2Connection, config: Db2Config) -> None:
        self._connection, self._catalog = connection, Db2CatalogReader(connection, config)
        self._known: dict[TableId, _CachedStructure] = {}

    def read_structure(self, table: TableId) -> TableSchema | None:
        """Read the present structure; ``None`` if the table does not exist, or is not in capture mode."""
        self._known.pop(table, None)
        registered = self._catalog.list_registrations().get(table)
        if registered is None:
            return None
        for _ in range(_ATTEMPTS):
            before = self._structure(table, registered)
            schema = self._catalog.read_registered_schemas({table: registered}).get(table)
            own = self._catalog.read_table_schemas([table]).get(table)
            if before == self._structure(table, registered):
                break
        if schema is None or own is None:
            return None
        self._known[table] = _CachedStructure(
            schema, frozenset(schema.column_names) - frozenset(own.column_names), registered, before
        )
        return schema

    def find_structure(self, table: TableId) -> TableSchema | None:
        """Return the structure as it was read last."""
        found = self._known.get(table)
        return found.schema if found is not None else None

    def list_dropped_columns(self, table: TableId) -> frozenset[str]:
        """Columns of the structure that only the change table has."""
        found = self._known.get(table)
        return found.gone if found is not None else frozenset()

    def is_as_known(self, table: TableId) -> bool:
        """Check whether the catalog says the same as when the structure was read."""
        found = self._known.get(table)
        return found is not None and found.structure == self._structure(table, found.registration)

    def _structure(self, table: TableId, registered: TableRegistration) -> _Structure:
        """Read the columns of a table and of its change table in the catalog, for comparison."""
        names = (table.namespace, table.name, registered.change_owner, registered.change_table)
        return tuple(self._connection.fetch_rows(_COLUMNS, *names))
