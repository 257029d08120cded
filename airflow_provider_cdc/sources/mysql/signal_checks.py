"""Checks of the signal table, for signals and watermarks. Its findings are not fatal: only incremental snapshots need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.property_enums import WatermarkStrategy
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, query_scalar
from airflow_provider_cdc.sources.mysql.log.server_database_filters import BinlogFilters
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import quote_table, quoted_name
from airflow_provider_cdc.sources.mysql.snapshot.signal_table import ENGINE, column_names, signal_table_sql

_TEXTS: Final = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_NEEDED: Final = (("the ids of watermarks", 42), ("the types of signals", 32))
_COLUMNS = """
SELECT column_name, data_type, column_type, COALESCE(character_maximum_length, 0) FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position LIMIT 3"""


def signal_findings(
    connection: Connection, server: MySqlServer, config: MySqlConfig, table: TableId, account: str
) -> Iterator[Finding]:
    """Return findings about the signal table, each with the statement that mends it.

    :param table: the signal table
    :param account: as ``GRANT`` takes it: ``'cdc'@'%'``
    """
    writes = not config.read_only
    if not writes and "source" not in config.signal_enabled_channels:
        return
    names = column_names(connection, table)
    if len(names) < 3:
        has = f"has {len(names)} columns instead of three" if names else "does not exist"
        yield _advice(f"The signal table {table} {has}.", signal_table_sql(table, account))
        return
    yield from _columns(connection, table)
    yield from _logged(connection, server, table)
    engine = _row(connection, ENGINE, table)
    if writes and engine is not None and engine[0] != "InnoDB":
        yield _advice(
            f"The signal table {table} uses the engine {engine[0]}: writes to it are not part of a transaction.",
            f"ALTER TABLE {quote_table(table)} ENGINE = InnoDB",
        )
    if writes:
        yield from _rights(connection, config, table, names, account)
        if not server.mariadb and not query_scalar(connection, "SELECT @@GLOBAL.binlog_order_commits"):
            yield _advice(
                "binlog_order_commits is OFF: watermarks in the signal table would not show which changes a chunk "
                "contains, so incremental snapshots are rejected.",
                "SET GLOBAL binlog_order_commits = ON; and the same in the server's configuration; or set read.only=true",
            )


def _columns(connection: Connection, table: TableId) -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, (table.namespace, table.name))
        columns = list(cursor.fetchall())
    for (name, kind, declared, length), (content, needed) in zip(columns, _NEEDED, strict=False):
        if str(kind).lower() not in _TEXTS or int(length) < needed:
            yield _advice(
                f"{table}.{name} is {declared}, which is too small for {content}.",
                f"ALTER TABLE {quote_table(table)} MODIFY {quoted_name(str(name))} VARCHAR({64 if needed > 32 else 32}) NOT NULL",
            )
    name, kind, declared, length = columns[2]
    if str(kind).lower() not in _TEXTS | {"json"} or int(length or 1 << 30) < 2048:
        yield _advice(
            f"{table}.{name} is {declared}, which is too small for the data of signals.",
            f"ALTER TABLE {quote_table(table)} MODIFY {quoted_name(str(name))} TEXT NULL",
        )


def _logged(connection: Connection, server: MySqlServer, table: TableId) -> Iterator[Finding]:
    """Return a finding if the server does not log the table's database."""
    logged = BinlogFilters.from_server(connection, server)
    if (setting := logged.excluded_by(table.namespace)) is not None:
        yield _advice(
            f"The server does not log the database of the signal table {table} ({setting}): the log contains "
            "neither signals nor watermarks.",
            f"{logged.suggest_remedy(table.namespace)}, or set signal.data.collection to a table of a logged database",
        )


def _rights(
    connection: Connection, config: MySqlConfig, table: TableId, names: list[str], account: str
) -> Iterator[Finding]:
    """Return findings for missing privileges.

    They are found by EXPLAIN of INSERT and DELETE: it needs the same privileges and writes nothing.
    """
    columns, marks = ", ".join(map(quoted_name, names)), "'', '', NULL"
    tried = {"INSERT": f"EXPLAIN INSERT INTO {quote_table(table)} ({columns}) VALUES ({marks})"}
    if config.incremental_snapshot_watermarking_strategy is WatermarkStrategy.INSERT_DELETE:
        tried["DELETE"] = f"EXPLAIN DELETE FROM {quote_table(table)} WHERE {quoted_name(names[0])} = ''"
    missing = []
    for action, statement in tried.items():
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.err.Error as e:
            if e.args[0] in (1142, 1143, 1044):
                missing.append(action)
            elif e.args[0] in (1290, 1836):
                yield _advice(
                    f"The server is read-only: no watermarks can be written to {table} ({e.args[1]}).",
                    "set read.only=true",
                )
                return
            else:
                raise
    if missing:
        if "DELETE" in missing:
            missing.append("SELECT")
        yield _advice(
            f"Account {account} lacks {' and '.join(missing[:2])} on {table}, which incremental snapshots need to "
            "write watermarks.",
            f"GRANT {', '.join(missing)} ON {quote_table(table)} TO {account}; or set read.only=true",
        )
    if query_scalar(connection, "SELECT @@GLOBAL.read_only") and not missing:
        yield _advice(
            f"The server has read_only=ON: only privileged accounts can write watermarks to {table}.",
            "set read.only=true",
        )


def _row(connection: Connection, sql: str, table: TableId) -> tuple[object, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, (table.namespace, table.name))
        row = cursor.fetchone()
    return tuple(row) if row else None


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
