"""SELECT statements that replace the snapshot's own for some tables (``snapshot.select.statement.overrides``)."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_cdc.core.config.select_overrides import name_parts
from airflow_provider_cdc.core.model.table_schema import TableId


def override_of(table: TableId, overrides: Mapping[str, str]) -> str | None:
    """Return the statement for a table.

    Names without quotes are in capitals, as in SQL, or as the catalog spells them; the database may stand before them.
    """
    exact = ((table.namespace, table.name), (table.catalog, table.namespace, table.name))
    for name, statement in overrides.items():
        parts = name_parts(name)
        if parts in exact or ('"' not in name and tuple(part.upper() for part in parts) in exact):
            return statement
    return None


def as_table(statement: str) -> str:
    """Return a statement as a table of another one; the line break ends a comment at its end.

    >>> as_table("SELECT * FROM SHOP.ORDERS ORDER BY ID;")
    '(SELECT * FROM SHOP.ORDERS ORDER BY ID\\n)'
    """
    return f"({statement.strip().rstrip(';').rstrip()}\n)"
