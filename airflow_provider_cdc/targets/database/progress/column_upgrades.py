"""Columns that tables of ours did not have in earlier releases."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn


def list_missing_columns(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> list[str]:
    """List those of some columns that a table in the database does not have."""
    # the names alone: not every dialect reads a catalog
    found = connection.execute(sa.select(sa.text("*")).select_from(table).where(sa.false()))
    there = {str(name).lower() for name in found.keys()}  # noqa: SIM118 -- of a result, not of a mapping
    return [name for name in names if name.lower() not in there]


def build_column_additions(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> list[str]:
    """Build the statements that give a table those of some columns that it does not have.

    In the rows that are there they are NULL.
    """
    name = connection.dialect.identifier_preparer.format_table(table)
    made = [
        CreateColumn(table.c[one]).compile(dialect=connection.dialect)
        for one in list_missing_columns(connection, table, names)
    ]
    return [f"ALTER TABLE {name} ADD {column}" for column in made]
