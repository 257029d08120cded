"""SELECTs of the configuration with which a snapshot reads tables (``snapshot.select.statement.overrides``)."""

from __future__ import annotations

from collections.abc import Callable, Container

from airflow_provider_cdc.core.config.select_overrides import LIST, name_parts
from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.config import MySqlConfig


def statements(config: MySqlConfig) -> dict[TableId, str]:
    """Table → its SELECT. Names are compared with regard to upper and lower case."""
    named = ((name_parts(name), sql) for name, sql in config.snapshot_select_statement_overrides.items())
    return {TableId(namespace=database, name=table): sql for (database, table), sql in named}


def override_findings(config: MySqlConfig, existing: Callable[[list[TableId]], Container[TableId]]) -> list[Finding]:
    """Statements of tables that do not exist: those of the tables that are meant would be read whole.

    :param existing: which of some tables there are
    """
    tables = list(statements(config))
    there = existing(tables) if tables else ()
    return [
        Finding(
            f"{LIST} names {table}, which does not exist: its SELECT is without effect.",
            "write database and table as the server has them, in upper and lower case too",
            fatal=False,
        )
        for table in tables
        if table not in there
    ]
