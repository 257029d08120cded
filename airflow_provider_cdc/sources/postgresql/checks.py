"""Prerequisites of capture: settings of the server, the account, the slot, and the tables, each with the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.errors import AccessDenied, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.config_enums import SslMode
from airflow_provider_cdc.sources.postgresql.connect import PostgresServer, connect
from airflow_provider_cdc.sources.postgresql.privileges import may_replicate
from airflow_provider_cdc.sources.postgresql.signal_checks import signal_findings
from airflow_provider_cdc.sources.postgresql.slot_state import PLUGIN, read_slot
from airflow_provider_cdc.sources.postgresql.table_checks import table_findings
from airflow_provider_cdc.sources.relational.sql_quoting import quoted_name

OLDEST: Final = 14
_STANDBY: Final = 16
"""Version since which a standby decodes its log."""
_FAILOVER: Final = 17
_MUCH_BYTES: Final = 10 << 30
_WAL_LEVEL: Final = (
    "ALTER SYSTEM SET wal_level = 'logical', and restart the server; Amazon RDS and Aurora: rds.logical_replication = 1 in the parameter group; "
    "Cloud SQL: the flag cloudsql.logical_decoding = on; Azure Database: wal_level in the server parameters; Neon: logical replication in the "
    "project's settings; Supabase has it"
)


def check_prerequisites(
    connection: Connection[tuple[Any, ...]], server: PostgresServer, config: PostgresConfig, signals: TableId | None
) -> list[Finding]:
    """Return all findings about the server, the account and the tables.

    :param signals: the signal table, if there is one
    """
    findings = [*_platform(server), *_encryption(connection, config), *_settings(server, config)]
    findings += _account(connection, config)
    findings += _slot(connection, server, config)
    findings += table_findings(connection, config)
    if signals is not None:
        findings += signal_findings(connection, config, signals)
    return findings


def _platform(server: PostgresServer) -> Iterator[Finding]:
    if server.major < OLDEST:
        yield Finding(
            f"PostgreSQL {server.version} is older than {OLDEST}: it does not send values in binary form.",
            "upgrade the server",
        )
    if server.is_standby and server.major < _STANDBY:
        yield Finding(
            f"The server is a standby, and PostgreSQL {server.version} decodes its log on the primary only.",
            "connect to the primary, or upgrade to PostgreSQL 16",
        )
    if server.settings.get("server_encoding") == "SQL_ASCII":
        yield _advice(
            "The database has no encoding (SQL_ASCII): texts that are not UTF-8 stop the capture.",
            "load the database into one with the encoding UTF8, or exclude such columns with column.exclude.list",
        )


def _encryption(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> Iterator[Finding]:
    if config.database_sslmode in (SslMode.PREFER, SslMode.ALLOW) and not connection.pgconn.ssl_in_use:
        yield _advice(
            f"The connection is not encrypted: database.sslmode is {config.database_sslmode.value}, and the server offers no TLS, or a proxy "
            "in between removes it.",
            "turn TLS on at the server (ssl = on) and set database.sslmode=verify-full; or set database.sslmode=disable to allow plain text",
        )


def _settings(server: PostgresServer, config: PostgresConfig) -> Iterator[Finding]:
    settings = server.settings
    if (level := settings.get("wal_level")) != "logical":
        yield Finding(f"wal_level is {level}: the log does not contain what logical decoding needs.", _WAL_LEVEL)
    limit = settings.get("max_slot_wal_keep_size", "-1")
    if limit == "-1":
        yield _advice(
            "max_slot_wal_keep_size is -1: while no capture runs, the log grows until the server's disk is full.",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '…', to what the disk has free, and SELECT pg_reload_conf(); or alert on SlotHeldLogBytes",
        )
    if settings.get("wal_sender_timeout") in ("0", "0ms"):
        yield _advice(
            "wal_sender_timeout is 0: the server does not notice that a reader is gone, and keeps the slot busy.",
            "ALTER SYSTEM SET wal_sender_timeout = '60s', and SELECT pg_reload_conf()",
        )
    if config.slot_failover and server.major < _FAILOVER:
        yield Finding(
            f"slot.failover=true needs PostgreSQL {_FAILOVER}, and the server is {server.version}.",
            "upgrade the server, or set slot.failover=false",
        )
    if server.is_standby and settings.get("hot_standby_feedback") == "off":
        yield _advice(
            "hot_standby_feedback is off: the primary removes rows of the catalog that the slot needs, which invalidates the slot.",
            "ALTER SYSTEM SET hot_standby_feedback = on, on the standby",
        )


def _account(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> Iterator[Finding]:
    user = quoted_name(config.database_user)
    if not may_replicate(connection):
        yield Finding(
            f"The account {config.database_user} may not read replication slots: it lacks the attribute REPLICATION.",
            f"ALTER ROLE {user} REPLICATION; Amazon RDS and Aurora: GRANT rds_replication TO {user}",
        )
        return
    try:
        with connect(config, initial=False, replication=True) as stream:
            stream.execute("IDENTIFY_SYSTEM")
    except (AccessDenied, PrerequisiteError, SourceUnavailable) as e:
        yield Finding(
            f"The server refuses a replication connection: {e.message}",
            f"add `hostssl {config.database_dbname} {config.database_user} <address>/32 scram-sha-256` to pg_hba.conf and SELECT pg_reload_conf(); "
            "connect to the server itself and not to a pooler such as PgBouncer (Supabase, Neon: the direct address)",
        )


def _slot(connection: Connection[tuple[Any, ...]], server: PostgresServer, config: PostgresConfig) -> Iterator[Finding]:
    slot, name = read_slot(connection, config), config.slot_name
    if slot is None:
        yield from _places(connection, server)
        return
    if slot.slot_type != "logical" or slot.plugin != PLUGIN or slot.database != config.database_dbname:
        yield Finding(
            f"The replication slot {name} belongs to another reader: it is {slot.slot_type}, of the plugin {slot.plugin} and the database "
            f"{slot.database}.",
            "set slot.name to a name that no slot has",
        )
        return
    if slot.is_lost:
        yield Finding(
            f"The server has invalidated the replication slot {name}{f' ({slot.reason})' if slot.reason else ''}: changes are lost.",
            f"SELECT pg_drop_replication_slot('{name}'), and set snapshot.mode=when_needed to snapshot all tables again",
        )
    elif slot.wal_status == "unreserved":
        yield _advice(
            f"The server is about to invalidate the replication slot {name}: it holds more log than max_slot_wal_keep_size.",
            "run the capture now, and raise max_slot_wal_keep_size",
        )
    if slot.held_bytes is not None and slot.held_bytes > _MUCH_BYTES:
        yield _advice(
            f"The replication slot {name} holds {slot.held_bytes >> 30:,} GiB of log on the server.",
            "run the capture more often; a long transaction also holds the log (pg_stat_activity.xact_start)",
        )


def _places(connection: Connection[tuple[Any, ...]], server: PostgresServer) -> Iterator[Finding]:
    """Return findings if there is no place for another slot or sender."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_stat_replication)"
    ).fetchone()
    assert row is not None
    for used, setting in zip(row, ("max_replication_slots", "max_wal_senders"), strict=True):
        allowed = int(server.settings.get(setting, 0))
        # a snapshot beside the stream takes a second, temporary one
        if allowed - used < 2:
            yield Finding(
                f"{setting} is {allowed}, and {used} are in use: the connector needs one, and a snapshot beside its stream a second one.",
                f"ALTER SYSTEM SET {setting} = {used + 10}, and restart the server; or drop slots that are not used (pg_drop_replication_slot)",
                fatal=allowed - used < 1,
            )


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
