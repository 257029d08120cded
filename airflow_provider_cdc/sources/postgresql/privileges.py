"""The privileges of the account, and the statements that give it the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_REPLICATION: Final = """
SELECT r.rolreplication OR r.rolsuper OR EXISTS (
  SELECT FROM pg_roles m WHERE m.rolname IN ('rds_replication', 'rds_superuser', 'cloudsqlreplica')
  AND pg_has_role(current_user, m.oid, 'MEMBER'))
FROM pg_roles r WHERE r.rolname = current_user"""
_TABLES: Final = """
SELECT n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (
         SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')),
       row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_OWNERSHIP: Final = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE pg_has_role(c.relowner, 'USAGE') AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""


def may_replicate(connection: Connection[tuple[Any, ...]]) -> bool:
    """Check whether the account may read replication slots."""
    row = connection.execute(_REPLICATION).fetchone()
    return row is not None and bool(row[0])


def read_table_rights(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, tables: Iterable[TableId]
) -> Mapping[TableId, tuple[bool, bool, bool]]:
    """Return by table: whether the account may use its schema, may select all of its columns, and whether policies hide rows from it."""
    rows = connection.execute(_TABLES, _names(tables)).fetchall()
    return {_table_id(config, schema, name): (usage, select, hidden) for schema, name, usage, select, hidden in rows}


def list_owned(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, tables: Iterable[TableId]
) -> frozenset[TableId]:
    """Return the tables that the account owns, by itself or by a role."""
    rows = connection.execute(_OWNERSHIP, _names(tables)).fetchall()
    return frozenset(_table_id(config, schema, name) for schema, name in rows)


def build_grant_statement(privileges: str, table: TableId, config: PostgresConfig) -> str:
    """Return the statement that grants the account something on a table."""
    return f"GRANT {privileges} ON {quote_table(table)} TO {quoted_name(config.database_user)}"


def build_schema_grant(table: TableId, config: PostgresConfig) -> str:
    """Return the statement that lets the account use a table's schema."""
    return f"GRANT USAGE ON SCHEMA {quoted_name(table.namespace)} TO {quoted_name(config.database_user)}"


def _names(tables: Iterable[TableId]) -> list[list[str]]:
    listed = [*tables]
    return [[t.namespace for t in listed], [t.name for t in listed]]


def _table_id(config: PostgresConfig, schema: str, name: str) -> TableId:
    return TableId(catalog=config.database_dbname, namespace=schema, name=name)
