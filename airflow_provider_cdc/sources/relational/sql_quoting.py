"""Names and texts in the SQL of databases that quote names with double quotes, and CREATE TABLE statements."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema


def quote_table(table: TableId) -> str:
    """Quote the table's name as SQL takes it.

    >>> quote_table(TableId(namespace="SHOP", name='odd"name'))
    '"SHOP"."odd""name"'
    """
    return f"{quoted_name(table.namespace)}.{quoted_name(table.name)}"


def quoted_name(name: str) -> str:
    """Quote a name as SQL takes it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quote_literal(text: str) -> str:
    """Quote a text as SQL takes it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def build_create_statement(schema: TableSchema, define: Callable[[Column], str]) -> str:
    """Build a CREATE TABLE statement for a schema.

    :param define: gives the definition of a column
    """
    lines = [define(column) for column in schema.columns]
    if schema.key:
        lines.append(f"PRIMARY KEY ({', '.join(quoted_name(n) for n in schema.key)})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {quote_table(schema.id)} (\n  {body}\n)"
