"""Connections by PyMySQL, and translation of its errors into those of this project."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, CR

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    PrerequisiteError,
    QueryRejected,
    SourceBusy,
    SourceUnavailable,
)
from airflow_provider_cdc.sources.mysql.config import MySqlConfig, SslMode
from airflow_provider_cdc.sources.mysql.dump_errors import dump_error
from airflow_provider_cdc.sources.mysql.server_login import log_in

ENCRYPTED: Final = frozenset({SslMode.REQUIRED, SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY})
"""Modes of ``database.ssl.mode`` in which every connection must be encrypted."""
_DENIED = {1044, 1045, 1142, 1143, 1227, 1370, 1698, 3118, 3159}
_DUMP_ENDED = 1236
_SAME_REPLICA = 4052
_SAME_REPLICA_TEXT = "with the same server_"
"""MySQL has one error code for everything that ends a binlog dump. Only the text distinguishes this case; ``dump_errors`` has the others."""
SEVERAL = {"client_flag": CLIENT.MULTI_STATEMENTS}
"""Connection options that :func:`execute_statements` needs: several statements in one request."""
_PASSING = {1040, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1927, 1969, 3024, 4031}
"""Errors that are not about the statement: the server is shutting down or too busy, or the statement was killed."""
_BUSY = {1205, 1213, 1317, 1969, 3024}
"""Those of ``_PASSING`` after which the connection is usable: a lock was not granted, or the statement was killed."""
_UNKNOWN_DATABASE = 1049
_SETTINGS = (
    "SET time_zone = '+00:00'"
    # PyMySQL trusts the greeting, which does not show the server's setting: writes would not be committed
    ", autocommit = 1"
    # limits that omit rows without an error, or end a SELECT in the middle of a table
    ", sql_select_limit = 18446744073709551615"
    ", sql_big_selects = 1"  # in place of max_join_size
    ", sql_auto_is_null = 0"  # IS NULL would find the row that was inserted last
    # texts with the same first max_sort_length bytes are sorted as equal, but chunks need a total order
    ", max_sort_length = 8388608"
    # otherwise COMMIT begins a transaction at once, whose view would be too old, or closes the connection
    ", completion_type = 'NO_CHAIN'"
    # signals are deleted by their id, whether it has an index or not
    ", sql_safe_updates = 0"
    ", sql_quote_show_create = 1"
    # the first mode pads CHAR values with blanks, the second makes '' NULL in our statements; users' SQL may rely on the others
    ", sql_mode = REPLACE(REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', ''), 'EMPTY_STRING_IS_NULL', '')"
    # reading a table may take long, and a view stays open while its reader waits
    "/*!80000 , max_execution_time = 0 */"
    "/*M!100500 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0 */"
    # the data in a secondary engine lag behind the table
    "/*!80013 , use_secondary_engine = OFF */"
    # a generated invisible primary key is a column in the log
    "/*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
    # read current rows of system-versioned tables, whatever the server's default time is
    "/*M!100500 , system_versioning_asof = DEFAULT */"
    # MariaDB sorts LONGTEXT only if the buffer holds 15 values of max_sort_length; unused memory is not touched
    "/*M!100500 , sort_buffer_size = 134217728 */"
)
"""Session settings that decide the results of a SELECT; the server's global settings or ``init_connect`` may have set them otherwise.

The isolation level is set when a view is opened, the character set by PyMySQL.
"""


@dataclass(frozen=True, slots=True)
class MySqlServer:
    """A server's version, identity and variables.

    :param identity: ``server_uuid``; with MariaDB ``id-<server_id>``
    :param variables: the global variables that capture depends on, names in lower case
    """

    version: str
    mariadb: bool
    identity: str
    variables: dict[str, str]

    @property
    def has_gtids(self) -> bool:
        """Check whether transactions have global ids."""
        return self.mariadb or self.variables.get("gtid_mode", "OFF") == "ON"

    @property
    def version_tuple(self) -> tuple[int, int, int]:
        """Version as numbers: ``10.11.6-MariaDB-log`` → (10, 11, 6)."""
        parts = self.version.split("-")[0].split(".")
        return int(parts[0]), int(parts[1]), int(parts[2])

    @property
    def version_number(self) -> int:
        """Version as executable comments spell it: ``10.11.6-MariaDB-log`` → 101106."""
        major, minor, patch = self.version_tuple
        return major * 10_000 + minor * 100 + patch


def connect(config: MySqlConfig, *, initial: bool = True, **options: Any) -> Connection:
    """Open a connection with the time zone UTC, the character set utf8mb4, and without limits on the size of results.

    :param initial: run ``database.initial.statements``
    :param options: further arguments of ``pymysql.connect``
    :raises AccessDenied: user or password is wrong
    :raises PrerequisiteError: the connection is not encrypted, or the server not verified, as ``database.ssl.mode`` demands
    :raises SourceUnavailable: no server answers, or the cloud gives no login token
    """
    seconds = config.connect_timeout_ms / 1000
    settings: dict[str, Any] = {
        "host": config.database_hostname,
        "port": config.database_port,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": seconds,
        "read_timeout": seconds,  # of the greeting and the login; queries have their own
        "program_name": "airflow_provider_cdc",
        **config.parse_driver_options(),
    }
    with raise_cdc_errors(config):
        connection = log_in(config, settings | options)
        connection._read_timeout = config.database_query_timeout_ms / 1000 or None
        if config.database_ssl_mode in ENCRYPTED and not inspect_encryption(connection):
            connection._force_close()
            raise _not_encrypted(config)
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
            for statement in config.split_initial_statements() if initial else ():
                cursor.execute(statement)
    return connection


def inspect_encryption(connection: Connection) -> str:
    """Protocol and cipher of a connection; empty if it is not encrypted on the whole way to the server.

    Both ends are asked: the client sees TLS up to a proxy, the server sees TLS from the proxy on. A proxy that removes TLS on one side
    is found by the other end.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS WHERE variable_name IN ('Ssl_cipher', 'Ssl_version')")
        status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    ours = isinstance(connection._sock, ssl.SSLSocket)
    return (
        f"{status.get('ssl_version', '')} {status['ssl_cipher']}".strip() if ours and status.get("ssl_cipher") else ""
    )


@contextlib.contextmanager
def raise_cdc_errors(config: MySqlConfig, where: str | None = None) -> Iterator[None]:
    """Raise PyMySQL's errors as errors of this project. They never contain the password."""
    try:
        yield
    except pymysql.err.Error as e:
        raise translate_error(e, config, where) from e
    except (OSError, EOFError) as e:
        raise _unavailable(config, str(e), where) from e


def translate_error(e: pymysql.err.Error, config: MySqlConfig, where: str | None) -> CdcError:
    """Return the error of this project for an error of the server or of the connection."""
    code = e.args[0] if e.args and isinstance(e.args[0], int) else 0
    message = str(e.args[1]) if len(e.args) > 1 else str(e)
    if code in _DENIED:
        return AccessDenied(
            f"The database rejected user {config.database_user!r}: {message}",
            where=where or f"{config.database_hostname}:{config.database_port}",
            safe="Nothing was read; the offset is untouched.",
            remedy=f"{config.login_remedy}, or grant the missing privileges: GRANT SELECT, RELOAD, "
            "LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "
            f"'{config.database_user}'@'%'",
        )
    if code == CR.CR_SSL_CONNECTION_ERROR:
        return _not_encrypted(config)
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return _not_trusted(config, message)
    if code == _SAME_REPLICA or (code == _DUMP_ENDED and _SAME_REPLICA_TEXT in message):
        return _thrown_off(config, message, where)
    if code == _DUMP_ENDED:
        return dump_error(message, where or f"{config.database_hostname}:{config.database_port}")
    if code == _UNKNOWN_DATABASE:
        return PrerequisiteError(
            f"The database does not exist: {message}",
            where=where or f"{config.database_hostname}:{config.database_port}",
            safe="Nothing was read; the offset is untouched.",
            remedy="correct database.include.list",
        )
    if code in _BUSY:
        return SourceBusy(
            f"The database answers, but has ended a statement: {message} (error {code})",
            where=where or f"{config.database_hostname}:{config.database_port}",
            safe="Changes that were not committed to the change log are captured again by the next run.",
            remedy="SHOW FULL PROCESSLIST shows who holds a lock (LOCK TABLES, ALTER TABLE, an open transaction); a retry resumes "
            "where this run stopped",
        )
    return _unavailable(config, message, where)


@contextlib.contextmanager
def raise_query_refused(config: MySqlConfig, where: str, remedy: str) -> Iterator[None]:
    """Like :func:`raise_cdc_errors`, for SQL that users write, or that writes to the database: an error of the statement itself is theirs to mend.

    :raises QueryRejected: the server refuses the statement; with its message
    """
    try:
        with raise_cdc_errors(config, where):
            yield
    except CdcError as e:
        code, message = _error(e.__cause__)
        if not (1000 <= code < 2000 or 3000 <= code < 6000) or code in _PASSING:
            raise
        raise QueryRejected(
            f"The database rejects a statement: {message} (error {code})",
            where=where,
            safe="The statement read and wrote no data; capture continues.",
            remedy=remedy,
        ) from e.__cause__


def _error(e: BaseException | None) -> tuple[int, str]:
    """Code and text of an error of the server; 0 for any other."""
    if isinstance(e, pymysql.err.Error) and len(e.args) > 1 and isinstance(e.args[0], int):
        return e.args[0], str(e.args[1])
    return 0, str(e)


def _not_encrypted(config: MySqlConfig) -> PrerequisiteError:
    return PrerequisiteError(
        "The connection to the database would not be encrypted, although "
        f"database.ssl.mode={config.database_ssl_mode.value} requires it: the server does not offer TLS, or a "
        "proxy in between removes it.",
        where=f"{config.database_hostname}:{config.database_port}",
        safe="Nothing was read; the offset is untouched.",
        remedy="enable TLS on the server (ssl_cert, ssl_key), and check proxies in between; "
        "database.ssl.mode=verify_identity with database.ssl.ca also verifies the identity of the server",
    )


def _not_trusted(config: MySqlConfig, message: str) -> PrerequisiteError:
    mode = config.database_ssl_mode.value
    return PrerequisiteError(
        f"The database's certificate does not satisfy database.ssl.mode={mode}: {message}",
        where=f"{config.database_hostname}:{config.database_port}",
        safe="No password was sent, and nothing was read; the offset is untouched.",
        remedy="name the authority that signed the server's certificate in database.ssl.ca, and with verify_identity use "
        "the host name in the certificate in the Airflow connection",
    )


def _thrown_off(config: MySqlConfig, message: str, where: str | None) -> SourceUnavailable:
    number = config.database_server_id
    return SourceUnavailable(
        f"Another replica with server id {number} connected, so the server closed this connection to its "
        f"log: {message}",
        where=where or f"{config.database_hostname}:{config.database_port}",
        safe="Nothing is lost: the log is intact, and changes that were not committed to the change log are "
        "captured again by the next run.",
        remedy=f"find the client that uses {number} (SHOW REPLICAS, or SHOW SLAVE HOSTS; other connectors) and give this "
        "connector its own database.server.id; a retry resumes where this run stopped, but disconnects the other "
        "client",
    )


def _unavailable(config: MySqlConfig, message: str, where: str | None) -> SourceUnavailable:
    return SourceUnavailable(
        f"The database does not answer or closed the connection: {message}",
        where=where or f"{config.database_hostname}:{config.database_port}",
        safe="Changes that were not committed to the change log are captured again by the next run.",
        remedy="check that the server is up and reachable from this worker; a retry resumes where this run stopped",
    )


_VARIABLES = (
    "version", "server_id", "server_uuid", "gtid_mode", "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata",
    "binlog_row_value_options", "binlog_checksum", "lower_case_table_names", "gtid_binlog_pos", "log_slave_updates",
    "log_replica_updates", "collation_server", "character_set_server", "read_only", "encrypt_binlog",
    "replica_parallel_workers", "binlog_expire_logs_seconds", "expire_logs_days", "innodb_native_foreign_keys",
)  # fmt: skip


def server_of(connection: Connection) -> MySqlServer:
    """Ask a server for its version, identity and the variables that capture depends on."""
    names = ", ".join(f"'{n}'" for n in _VARIABLES)
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    version = variables.get("version", "")
    mariadb = "mariadb" in version.lower()
    identity = variables.get("server_uuid") or f"id-{variables.get('server_id', '0')}"
    return MySqlServer(version, mariadb, identity, variables)


def execute_statements(connection: Connection, statements: Sequence[str]) -> list[tuple[tuple[Any, ...], ...]]:
    """Run several statements in one round trip; returns the rows of each. The first error ends them.

    :param connection: opened with the options :data:`SEVERAL`
    """
    with connection.cursor() as cursor:
        cursor.execute("; ".join(statements))
        results = [tuple(cursor.fetchall())]
        while cursor.nextset():
            results.append(tuple(cursor.fetchall()))
    return results


def query_scalar(connection: Connection, sql: str) -> Any:
    """First value of a query, ``None`` without a row."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
    return row[0] if row else None
