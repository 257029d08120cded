"""Keys that a database takes as equal although the source does not: by their case, their accents, or spaces at their end. Two rows would become one."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import kind_of

_TEXTS = frozenset({"text", "enum", "set", "json", "xml", "ltree"})
"""Kinds whose values may differ in no more than that: texts that a program makes, as those of UUIDs and intervals, do not."""
_PREFIXES = ("varchar", "char", "nvarchar", "longtext", "enum", "set")
_COLUMNS = (
    "SELECT COLUMN_NAME, COLLATION_NAME, {type} FROM INFORMATION_SCHEMA.COLUMNS "
    "WHERE TABLE_SCHEMA = COALESCE(:schema, {default}) AND TABLE_NAME = :name"
)


def is_text(type_: str) -> bool:
    """Check whether values of a type have a collation.

    >>> is_text("varchar(20)"), is_text("varbinary(20)")
    (True, False)
    """
    return type_.startswith(_PREFIXES)


def read_collations(
    connection: sa.Connection, name: TargetTableName, *, default: str, type_: str
) -> dict[str, tuple[str | None, str]]:
    """Read the columns of a table: their collation, ``None`` if they have none, and their type.

    :param default: in SQL, the schema of the connection
    :param type_: in SQL, the type of a column in that view
    """
    statement = sa.text(_COLUMNS.format(default=default, type=type_))
    rows = connection.execute(statement, {"schema": name.schema, "name": name.table})
    return {str(column): (collation, str(kind)) for column, collation, kind in rows}


def text_keys(table: DatabaseTargetTable) -> list[DatabaseColumn]:
    """List the key columns of a table whose values a collation may take as equal."""
    return [field for field in table.key_columns if kind_of(field.column).name in _TEXTS]


def refuse_merging(
    dialect: TargetDialect,
    table: DatabaseTargetTable,
    there: Sequence[tuple[str, str, str]],
    *,
    rebuild: str,
    equal: str,
    alter: str,
) -> None:
    """Refuse a table that would merge rows.

    :param there: column, its collation, and its required definition
    :param rebuild: the command that builds the table again
    :param equal: which values it may take as equal, for people
    :param alter: how a column is changed, with ``{column}``
    :raises TargetError: there is a column
    """
    if not there:
        return
    columns = ", ".join(f"{name} ({collation})" for name, collation, _ in there)
    changes = ", ".join(
        alter.format(column=f"{dialect.quote_name(name)} {definition}") for name, _, definition in there
    )
    raise TargetError(
        f"The table {table.name} may treat two keys of the source as equal: the collation of {columns} ignores differences in {equal}.",
        where=f"topic {table.topic}",
        safe="The table was not changed; other tables continue.",
        remedy=f"run ALTER TABLE {dialect.format_table_name(table.name)} {changes}; then run the apply again. "
        f"If the table was applied before, it may have lost rows: restore them with `{rebuild}`",
    )
