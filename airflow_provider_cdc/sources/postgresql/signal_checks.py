"""Checks of the signal table, for signals and watermarks. Its findings are not fatal: only incremental snapshots need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.config.property_enums import WatermarkStrategy
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.privileges import build_grant_statement, build_schema_grant
from airflow_provider_cdc.sources.postgresql.publication import publish_statement, read_publication
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

_COLUMNS: Final = """
SELECT c.oid, a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid::regtype::text, a.atttypmod - 4
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum LIMIT 3"""
_TEXTS: Final = {"character varying", "text", "character"}
_NEEDED: Final = (("the ids of watermarks", 42), ("the types of signals", 32), ("the data of signals", 2048))


def signal_findings(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, table: TableId
) -> Iterator[Finding]:
    """Return findings about the signal table, each with the statement that mends it."""
    writes = not config.read_only
    if not writes and "source" not in config.signal_enabled_channels:
        return
    columns = connection.execute(_COLUMNS, [table.namespace, table.name]).fetchall()
    if len(columns) < 3:
        has = f"has {len(columns)} columns instead of three" if columns else "does not exist"
        yield _advice(
            f"The signal table {table} {has}.",
            f"CREATE TABLE {quote_table(table)} (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        )
        return
    for (_, name, declared, kind, length), (content, needed) in zip(columns, _NEEDED, strict=True):
        if kind not in _TEXTS or (0 < length < needed):
            yield _advice(
                f"{table}.{name} is {declared}, which is too small for {content}.",
                f'ALTER TABLE {quote_table(table)} ALTER COLUMN "{name}" TYPE TEXT',
            )
    published = read_publication(connection, config)
    if published is not None and table not in published.tables:
        yield _advice(
            f"The publication {published.name} does not contain the signal table {table}: the stream has neither signals nor watermarks.",
            publish_statement(config, [table], published),
        )
    if writes:
        yield from _rights(connection, config, table, columns[0][0])


def _rights(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, table: TableId, oid: int
) -> Iterator[Finding]:
    needed = ["INSERT"]
    if config.incremental_snapshot_watermarking_strategy is WatermarkStrategy.INSERT_DELETE:
        needed += ["SELECT", "DELETE"]  # the condition of a DELETE reads the id
    # by number: a name is resolved with USAGE on its schema only
    missing = [
        action
        for action in needed
        if not _scalar(connection, "SELECT has_table_privilege(%s::oid, %s)", [str(oid), action])
    ]
    usage = "SELECT has_schema_privilege(relnamespace, 'USAGE') FROM pg_class WHERE oid = %s::oid"
    grants = [] if _scalar(connection, usage, [str(oid)]) else [build_schema_grant(table, config)]
    grants += [build_grant_statement(", ".join(missing), table, config)] if missing else []
    if grants:
        lacks = [*(["USAGE on the schema"] if len(grants) > bool(missing) else []), *missing]
        yield _advice(
            f"The account lacks {', '.join(lacks)} for the signal table {table}: incremental snapshots cannot write watermarks.",
            f"{'; '.join(grants)}; or set read.only=true",
        )
    if _scalar(connection, "SELECT pg_is_in_recovery()", []):
        yield _advice(f"The server is a standby: no watermarks can be written to {table}.", "set read.only=true")


def _scalar(connection: Connection[tuple[Any, ...]], query: str, values: list[str]) -> object:
    row = connection.execute(query, values or None).fetchone()
    return row[0] if row is not None else None


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
