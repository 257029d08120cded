"""The account's privileges on tables.

The catalog lists privileges of the account and of PUBLIC (``SYSCAT.TABAUTH``, ``SYSCAT.DBAUTH``). It does not show all that the account has through a role, a
group, a schema or an authority of these. So the database compiles statements that change nothing, and refuses those without a privilege.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_cdc.core.model.table_schema import Column, TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.error_translation import FORBIDDEN
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_DATABASE: Final = """
SELECT a.DBADMAUTH, a.DATAACCESSAUTH FROM SYSCAT.DBAUTH a WHERE (a.GRANTEETYPE = 'U' AND a.GRANTEE = ?) OR a.GRANTEE = 'PUBLIC'"""
_TABLES: Final = """
SELECT a.TABSCHEMA, a.TABNAME, a.CONTROLAUTH, a.SELECTAUTH, a.INSERTAUTH, a.DELETEAUTH FROM SYSCAT.TABAUTH a
WHERE (a.GRANTEETYPE = 'U' AND a.GRANTEE = ?) OR a.GRANTEE = 'PUBLIC'"""
_ALL: Final = ("SELECT", "INSERT", "DELETE")


class Db2AccountPrivileges:
    """The account's privileges, from the catalog and from trial statements."""

    def __init__(self, connection: Db2Connection, config: Db2Config) -> None:
        self._connection, user = connection, config.database_user.upper()
        rows = connection.fetch_rows(_DATABASE, user)
        self._everything = any("Y" in authorities for authorities in rows)
        self._certain: set[tuple[str, str, str]] = set()
        for schema, name, control, *rights in connection.fetch_rows(_TABLES, user):
            for action, right in zip(_ALL, rights, strict=True):
                if control == "Y" or right in ("Y", "G"):
                    self._certain.add((action, str(schema).rstrip(), str(name).rstrip()))

    def has_privilege(self, action: str, table: TableId, columns: Sequence[Column] = ()) -> bool:
        """Check whether an action is allowed on a table that exists.

        :param action: ``SELECT``, ``INSERT`` or ``DELETE``
        :param columns: of an ``INSERT``: the columns that get values
        """
        if self._everything or (action, table.namespace, table.name) in self._certain:
            return True
        try:
            self._connection.execute(_nothing(action, quote_table(table), columns))
        except Db2Error as e:
            if e.code not in FORBIDDEN:
                raise
            return False
        finally:
            self._connection.rollback()
        return True


def build_grant_statement(privileges: str, table: TableId, config: Db2Config) -> str:
    """Return the statement that grants the account something on a table."""
    return f"GRANT {privileges} ON TABLE {quote_table(table)} TO USER {config.database_user.upper()}"


def _nothing(action: str, table: str, columns: Sequence[Column]) -> str:
    if action == "INSERT":
        names = ", ".join(quoted_name(c.name) for c in columns)
        values = ", ".join(f"CAST(NULL AS {Db2ColumnType.from_column(c).ddl_expression})" for c in columns)
        return f"INSERT INTO {table} ({names}) SELECT {values} FROM SYSIBM.SYSDUMMY1 WHERE 1 = 0"
    return f"{'DELETE' if action == 'DELETE' else 'SELECT 1'} FROM {table} WHERE 1 = 0"
