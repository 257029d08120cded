"""Names by which rows of our own tables are found: in a collation that takes two of them as one, two topics or two connectors would share a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

_MYSQL, _MSSQL = "utf8mb4_bin", "Latin1_General_100_BIN2"
_COLLATIONS = (
    "SELECT COLUMN_NAME, COLLATION_NAME FROM INFORMATION_SCHEMA.COLUMNS "
    "WHERE TABLE_SCHEMA = COALESCE(:schema, {default}) AND TABLE_NAME = :name"
)
_DEFAULTS: Mapping[str, str] = {"mysql": "DATABASE()", "mariadb": "DATABASE()", "mssql": "SCHEMA_NAME()"}
"""Database whose collations take names as one that differ in case → its word for the schema of a connection. Others compare texts as they are."""
TRANSACTIONAL: Mapping[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("row_format", "DYNAMIC"))
}
"""Options of our own tables: without them, a server's default may have no transactions, or shorter keys."""


def exact_name(length: int, *, letters: bool = False) -> sa.String:
    """Build the type of a column of names, in which no two names are equal.

    :param letters: they may have other letters than those of ASCII
    """
    exact: Any = mysql.VARCHAR(length, charset="utf8mb4", collation=_MYSQL)
    return (
        sa.String(length)
        .with_variant(exact, "mysql", "mariadb")
        .with_variant((sa.Unicode if letters else sa.String)(length, collation=_MSSQL), "mssql")
    )


def collation_changes(connection: sa.Connection, table: sa.Table) -> list[str]:
    """Build the statements that give the key of an existing table the collation of :func:`exact_name`.

    An earlier version has made the table. There are none if it has one such.
    """
    default = _DEFAULTS.get(connection.dialect.name)
    if default is None:
        return []
    asked = sa.text(_COLLATIONS.format(default=default))
    found = connection.execute(asked, {"schema": table.schema, "name": table.name}).all()
    there = {str(name).lower(): str(collation) for name, collation in found}
    if not any(_merges(there.get(column.name)) for column in table.primary_key):
        return []
    return build_key_alterations(connection.dialect, table, _constraint(connection, table))


def build_key_alterations(dialect: sa.Dialect, table: sa.Table, constraint: str | None) -> list[str]:
    """Build the statements that give the key its collation.

    :param constraint: the name of the primary key; of SQL Server, which changes no column of one
    """
    quote = dialect.identifier_preparer
    full = quote.format_table(table)
    columns = [
        f"{quote.format_column(column)} {column.type.compile(dialect=dialect)} NOT NULL" for column in table.primary_key
    ]
    if dialect.name != "mssql":
        return [f"ALTER TABLE {full} {', '.join(f'MODIFY {column}' for column in columns)}"]
    names = ", ".join(quote.format_column(column) for column in table.primary_key)
    dropped = [f"ALTER TABLE {full} DROP CONSTRAINT {quote.quote(constraint)}"] if constraint else []
    changed = [f"ALTER TABLE {full} ALTER COLUMN {column}" for column in columns]
    return [*dropped, *changed, f"ALTER TABLE {full} ADD PRIMARY KEY ({names})"]


def _constraint(connection: sa.Connection, table: sa.Table) -> str | None:
    if connection.dialect.name != "mssql":
        return None
    name = sa.inspect(connection).get_pk_constraint(table.name, schema=table.schema)["name"]
    return str(name) if name else None


def _merges(collation: str | None) -> bool:
    return collation is not None and not collation.lower().endswith(("_bin", "_bin2"))
