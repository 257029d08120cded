"""SELECT statements that replace the snapshot's own for some tables (``snapshot.select.statement.overrides``)."""

from __future__ import annotations

from collections.abc import Callable, Container

from airflow_provider_cdc.core.config.select_overrides import LIST, name_parts
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.config import MySqlConfig


def build_override_selects(config: MySqlConfig) -> dict[TableId, str]:
    """Table → its SELECT. Names are case-sensitive."""
    named = ((name_parts(name), sql) for name, sql in config.snapshot_select_statement_overrides.items())
    return {TableId(namespace=database, name=table): sql for (database, table), sql in named}


def override_findings(config: MySqlConfig, existing: Callable[[list[TableId]], Container[TableId]]) -> list[Finding]:
    """Return findings for overrides that name a table that does not exist.

    The table that is meant would be read without its SELECT.

    :param existing: returns those of the given tables that exist
    """
    tables = list(build_override_selects(config))
    there = existing(tables) if tables else ()
    return [
        Finding(
            f"{LIST} names {table}, which does not exist: its SELECT has no effect.",
            "write database and table exactly as the server does, including upper and lower case",
            fatal=False,
        )
        for table in tables
        if table not in there
    ]
