"""Tables as a reader of chunks knows them: their structure, and what the catalog said when it was read."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.registrations import Registration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Connection
from airflow_provider_cdc.sources.db2.schema.catalog import Catalog

_COLUMNS: Final = """
SELECT t.TABSCHEMA, t.TABNAME, t.COLNO, t.COLNAME, t.TYPESCHEMA, t.TYPENAME, t.LENGTH, t.SCALE, t.CODEPAGE, t."NULLS", t."DEFAULT"
FROM SYSCAT.COLUMNS t WHERE (t.TABSCHEMA = ? AND t.TABNAME = ?) OR (t.TABSCHEMA = ? AND t.TABNAME = ?)
ORDER BY t.TABSCHEMA, t.TABNAME, t.COLNO"""
_ATTEMPTS: Final = 5
_Structure = tuple[tuple[Any, ...], ...]


class _Known(NamedTuple):
    schema: TableSchema
    gone: frozenset[str]
    registration: Registration
    structure: _Structure


class KnownTables:
    """The structures of tables, each as it was read last."""

    def __init__(self, connection: Connection, config: Db2Config) -> None:
        self._connection, self._catalog = connection, Catalog(connection, config)
        self._known: dict[TableId, _Known] = {}

    def read(self, table: TableId) -> TableSchema | None:
        """The present structure; ``None`` if the table does not exist, or is not in capture mode."""
        self._known.pop(table, None)
        registered = self._catalog.registrations().get(table)
        if registered is None:
            return None
        for _ in range(_ATTEMPTS):
            before = self._structure(table, registered)
            schema = self._catalog.captured({table: registered}).get(table)
            own = self._catalog.structures([table]).get(table)
            if before == self._structure(table, registered):
                break
        if schema is None or own is None:
            return None
        self._known[table] = _Known(schema, frozenset(schema.names) - frozenset(own.names), registered, before)
        return schema

    def known(self, table: TableId) -> TableSchema | None:
        """The structure as it was read last."""
        found = self._known.get(table)
        return found.schema if found is not None else None

    def gone(self, table: TableId) -> frozenset[str]:
        """Columns of the structure that only the change table has."""
        found = self._known.get(table)
        return found.gone if found is not None else frozenset()

    def is_as_known(self, table: TableId) -> bool:
        """Whether the catalog says the same as when the structure was read."""
        found = self._known.get(table)
        return found is not None and found.structure == self._structure(table, found.registration)

    def _structure(self, table: TableId, registered: Registration) -> _Structure:
        """The columns of a table and of its change table in the catalog, for comparison."""
        names = (table.namespace, table.name, registered.change_owner, registered.change_table)
        return tuple(self._connection.rows(_COLUMNS, *names))
