"""Prerequisites of capture: settings of the server and privileges of the account, each with the statement that mends it."""

from __future__ import annotations

import re

from pymysql.connections import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.columns.supported_charsets import is_known
from airflow_provider_cdc.sources.mysql.config import LockingMode, MySqlConfig, SslMode
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, inspect_encryption, query_scalar
from airflow_provider_cdc.sources.mysql.log.server_database_filters import BinlogFilters
from airflow_provider_cdc.sources.mysql.log_retention import check_log_retention
from airflow_provider_cdc.sources.mysql.schema.column_types import SYSTEM_DATABASES
from airflow_provider_cdc.sources.mysql.signal_checks import signal_findings
from airflow_provider_cdc.sources.mysql.unlogged_changes import unlogged_changes

_REPLICATION_CLIENT = {"REPLICATION CLIENT", "BINLOG MONITOR"}
_REPLICATION_SLAVE = {"REPLICATION SLAVE", "REPLICATION REPLICA"}


def check_prerequisites(
    connection: Connection, server: MySqlServer, config: MySqlConfig, signals: TableId | None = None
) -> list[Finding]:
    """All findings about the server and the account; see "Setting up" in the Debezium MySQL connector's document.

    :param signals: the signal table, if there is one
    """
    findings = [
        *_encryption(connection, config),
        *_settings(server, config),
        *check_log_retention(connection),
        *_replica(connection, server),
        *_privileges(connection, config),
    ]
    findings += _logged(connection, server, config, signals)
    findings += unlogged_changes(connection, server, config, signals)
    findings += _character_sets(connection, config)
    if signals is not None:
        findings += signal_findings(connection, server, config, signals, query_account(connection))
    return findings


def _encryption(connection: Connection, config: MySqlConfig) -> list[Finding]:
    """Return a finding if ``database.ssl.mode=preferred`` has fallen back to plain text."""
    if config.database_ssl_mode is not SslMode.PREFERRED or inspect_encryption(connection):
        return []
    return [
        Finding(
            "The connection is not encrypted: database.ssl.mode is preferred, and the server does not offer "
            "TLS, or a proxy in between removes it.",
            "enable TLS on the server (ssl_cert, ssl_key) and set database.ssl.mode=required, or verify_identity; "
            "or set database.ssl.mode=disabled to allow plain text",
            fatal=False,
        )
    ]


def _settings(server: MySqlServer, config: MySqlConfig) -> list[Finding]:
    v = server.variables
    findings = []
    if v.get("log_bin", "OFF").upper() not in ("ON", "1"):
        findings.append(
            Finding(
                "The server writes no binary log (log_bin=OFF).",
                "add log_bin=binlog, binlog_format=ROW and server_id=<unique number> to its configuration and restart it",
            )
        )
    settings = (
        ("binlog_format", "ROW", "changes are logged as statements, which cannot be captured"),
        ("binlog_row_image", "FULL", "rows are logged without all of their columns"),
    )
    for name, value, why in settings:
        have = v.get(name)
        if have is not None and have.upper() != value:
            findings.append(
                Finding(
                    f"{name} is {have}: {why}.",
                    f"SET GLOBAL {name} = '{value}'; and the same in the server's configuration",
                )
            )
    findings += _row_metadata(server)
    if "PARTIAL_JSON" in v.get("binlog_row_value_options", ""):
        findings.append(
            Finding(
                "binlog_row_value_options is PARTIAL_JSON: changed JSON documents are logged only partially.",
                "SET GLOBAL binlog_row_value_options = ''; and the same in the server's configuration",
            )
        )
    if v.get("server_id") == str(config.database_server_id):
        findings.append(
            Finding(
                f"database.server.id is {config.database_server_id}, which is the server's own number.",
                "choose a number that no server and no replica of this topology uses",
            )
        )
    return findings


def _row_metadata(server: MySqlServer) -> list[Finding]:
    """Return a finding if rows are logged without the names of their columns: a warning if the schema history can give them."""
    have = server.variables.get("binlog_row_metadata")
    if have is None:
        return [
            Finding(
                f"The server {server.version} has no setting binlog_row_metadata: rows are logged without the names and "
                "types of their columns.",
                "upgrade it to MySQL 8.0.1, MariaDB 10.5 or newer",
            )
        ]
    if have.upper() == "FULL":
        return []
    fix = "SET GLOBAL binlog_row_metadata = 'FULL'; and the same in the server's configuration"
    if have.upper() == "MINIMAL":
        problem = (
            "binlog_row_metadata is MINIMAL: rows are logged without the names of their columns. The schema history has "
            "the names; a table is stopped where the history does not match the catalog."
        )
        return [Finding(problem, fix, fatal=False)]
    return [
        Finding(f"binlog_row_metadata is {have}: rows are logged without the names and types of their columns.", fix)
    ]


def _replica(connection: Connection, server: MySqlServer) -> list[Finding]:
    """Return a finding if the server is a replica that does not log the changes that it receives."""
    v = server.variables
    if v.get("log_replica_updates", v.get("log_slave_updates", "ON")).upper() in ("ON", "1"):
        return []
    if server.mariadb:
        question = "SELECT @@GLOBAL.gtid_slave_pos <> ''"
    else:
        question = "SELECT COUNT(*) > 0 FROM performance_schema.replication_connection_configuration"
    if not query_scalar(connection, question):
        return []
    name = "log_slave_updates" if server.mariadb else "log_replica_updates"
    # MariaDB only shows whether it has ever been a replica
    return [
        Finding(
            f"The server is a replica, or was one, and {name} is OFF: changes that it replicates are not in its log.",
            f"add {name}=ON to its configuration and restart it, or capture from the primary",
            fatal=not server.mariadb,
        )
    ]


def _logged(connection: Connection, server: MySqlServer, config: MySqlConfig, signals: TableId | None) -> list[Finding]:
    """Return findings for databases with captured tables that the server does not log.

    Such tables would never have a change.
    """
    logged, filters = BinlogFilters.from_server(connection, server), Filters(config)
    if not logged.do_db and not logged.ignore_db:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables")
        tables = [TableId(namespace=str(schema), name=str(name)) for schema, name in cursor.fetchall()]
    captured = {t.namespace for t in tables if filters.is_table_captured(t) and t != signals} - SYSTEM_DATABASES
    return [
        Finding(
            f"The server does not log the database {name} ({setting}), which contains captured tables: their "
            "changes would be lost.",
            f"{logged.suggest_remedy(name)}, then snapshot its tables again; or exclude it with database.exclude.list",
        )
        for name in sorted(captured)
        if (setting := logged.excluded_by(name)) is not None
    ]


def _character_sets(connection: Connection, config: MySqlConfig) -> list[Finding]:
    """Return findings for captured columns in a character set that is not known here.

    A later server may have one: the snapshot would read such columns, and the first change could not be read.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT character_set_name FROM information_schema.character_sets")
        unknown = sorted(str(name) for (name,) in cursor.fetchall() if not is_known(str(name)))
        if not unknown:
            return []
        cursor.execute(
            "SELECT table_schema, table_name, column_name, character_set_name FROM information_schema.columns "
            f"WHERE character_set_name IN ({', '.join(['%s'] * len(unknown))})",
            unknown,
        )
        columns = [tuple(map(str, row)) for row in cursor.fetchall()]
    filters = Filters(config)
    findings = []
    for namespace, name, column, charset in columns:
        table = TableId(namespace=namespace, name=name)
        if namespace not in SYSTEM_DATABASES and filters.is_table_captured(table) and filters.in_images(table, column):
            findings.append(
                Finding(
                    f"Texts of {table}.{column} are in the character set {charset}, which is not supported: "
                    "changes of them cannot be read.",
                    f"ALTER TABLE `{namespace}`.`{name}` CONVERT TO CHARACTER SET utf8mb4; or exclude the "
                    "column with column.exclude.list",
                )
            )
    return findings


def _privileges(connection: Connection, config: MySqlConfig) -> list[Finding]:
    """Return findings for missing privileges.

    LOCK TABLES can replace RELOAD: the tables are locked one by one then. With ``snapshot.locking.mode=custom`` it is not known
    which privileges the statements need.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW GRANTS")
        grants = [str(row[0]) for row in cursor.fetchall()]
    everywhere, somewhere = _granted(grants)
    if "ALL PRIVILEGES" in everywhere:
        return []
    needed = [("REPLICATION SLAVE", _REPLICATION_SLAVE), ("REPLICATION CLIENT", _REPLICATION_CLIENT)]
    missing = [name for name, any_of in needed if not any_of & everywhere]
    if not never_reads(config):
        missing += [] if {"SELECT", "ALL PRIVILEGES"} & (everywhere | somewhere) else ["SELECT"]
        lockers = {"RELOAD", "LOCK TABLES", "FLUSH_TABLES", "ALL PRIVILEGES"}
        locks = config.snapshot_locking_mode in (LockingMode.MINIMAL, LockingMode.EXTENDED)
        missing += ["RELOAD"] if locks and not lockers & (everywhere | somewhere) else []
    return [
        Finding(
            f"Account {query_account(connection)} lacks the privilege {name}.",
            f"GRANT {name} ON *.* TO {query_account(connection)}",
        )
        for name in missing
    ]


def query_account(connection: Connection) -> str:
    """Return the account that the server uses for this connection, as ``GRANT`` takes it: ``'cdc'@'%'``."""
    user, _, host = str(query_scalar(connection, "SELECT CURRENT_USER()")).rpartition("@")
    return f"'{user}'@'{host}'"


def _granted(grants: list[str]) -> tuple[set[str], set[str]]:
    """Privileges on ``*.*``, and privileges on databases or tables."""
    everywhere: set[str] = set()
    somewhere: set[str] = set()
    for grant in grants:
        m = re.match(r"GRANT (.+?) ON (\S+) TO", grant)
        if m:
            names = {part.strip().upper() for part in re.sub(r"\([^)]*\)", "", m[1]).split(",")}
            (everywhere if m[2] == "*.*" else somewhere).update(names)
    return everywhere, somewhere
