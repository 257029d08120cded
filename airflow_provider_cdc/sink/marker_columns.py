"""Columns that tables of ours did not have in earlier releases."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn


def lacking(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> list[str]:
    """Those of some columns that a table in the database does not have."""
    # the names alone: not every dialect reads a catalog
    found = connection.execute(sa.select(sa.text("*")).select_from(table).where(sa.false()))
    there = {str(name).lower() for name in found.keys()}  # noqa: SIM118 -- of a result, not of a mapping
    return [name for name in names if name.lower() not in there]


def add_columns(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> None:
    """Give a table those of some columns that it does not have. In the rows that are there they are NULL."""
    name = connection.dialect.identifier_preparer.format_table(table)
    for column in lacking(connection, table, names):
        made = CreateColumn(table.c[column]).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD {made}")
