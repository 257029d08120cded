"""Connections by psycopg, the login of the replication stream, and translation of errors into those of this project."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import Connection

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    PrerequisiteError,
    QueryRejected,
    SourceBusy,
    SourceUnavailable,
    TransientError,
)
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.config_enums import SslMode
from airflow_provider_cdc.sources.postgresql.protocol.server_messages import ReplicationError

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import ReplicationLogin

_SETTINGS: Final = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false), set_config('IntervalStyle', 'postgres', false), "
    "set_config('extra_float_digits', '3', false), set_config('bytea_output', 'hex', false), set_config('xmloption', 'content', false), "
    # names are written with their schemas, and functions of users cannot stand in for those of the server
    "set_config('search_path', '', false), "
    # a policy that hides rows makes a query fail, and does not make it leave them out
    "set_config('row_security', 'off', false), "
    # a view stays open while its reader waits
    "set_config('idle_in_transaction_session_timeout', '0', false), set_config('lock_timeout', '0', false), "
    "set_config('default_transaction_isolation', 'read committed', false)"
)
"""Session settings that decide the results of a query; server, database or account may have set them otherwise."""

_DENIED: Final = ("28", "42501")
"""Invalid authorization, insufficient privilege."""
_BUSY: Final = frozenset({"40001", "40P01", "55P03", "55006", "57014", "25P02"})
"""A serialization failure, a deadlock, a lock that is not available, an object in use, a cancelled query."""
_UNKNOWN_DATABASE: Final = "3D000"
_TOO_MANY_SLOTS: Final = "53400"
_PASSING: Final = ("08", "53", "57", "58", "XX")
"""Classes of errors that are not about the statement: connection, resources, an operator's hand, the system."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server's version, identity and settings.

    :param version_number: as of ``server_version_num``: 170005
    :param system: identifier of the cluster; a copy of its files has the same
    :param timeline: of the log; a promotion counts it up
    :param is_standby: it replays the log of another server
    :param settings: those that capture depends on
    """

    version: str
    version_number: int
    system: str
    timeline: int
    is_standby: bool
    database: str
    settings: dict[str, str]

    @property
    def major(self) -> int:
        return self.version_number // 10_000


def connect(
    config: PostgresConfig, *, initial: bool = True, query_timeout: bool = True, replication: bool = False
) -> Connection[tuple[Any, ...]]:
    """Open a connection with autocommit, the time zone UTC, and the settings that decide the results of queries.

    :param initial: run ``database.initial.statements``
    :param query_timeout: end a statement after ``database.query.timeout.ms``
    :param replication: the connection takes commands of replication too, which have no parameters
    :raises AccessDenied: user or password is wrong
    :raises PrerequisiteError: the connection is not encrypted, or the server not verified, as ``database.sslmode`` demands
    :raises SourceUnavailable: no server answers, or the cloud gives no login token
    """
    with raise_cdc_errors(config):
        host, port = config.find_address()
        connection = psycopg.connect(
            host=config.database_hostname,
            hostaddr=host if host != config.database_hostname else None,
            port=port,
            user=config.database_user,
            password=config.make_password(),
            dbname=config.database_dbname,
            autocommit=True,
            client_encoding="UTF8",
            connect_timeout=max(1, config.connect_timeout_ms // 1000),
            application_name=config.parse_driver_options().get("application_name", "airflow_provider_cdc"),
            keepalives_idle=60,
            keepalives_interval=10,
            keepalives_count=6,
            **_optional_arguments(config, replication=replication),
        )
        try:
            connection.execute(_SETTINGS)
            timeout = config.database_query_timeout_ms if query_timeout else 0
            connection.execute(f"SET statement_timeout = {timeout}")
            for statement in config.split_initial_statements() if initial else ():
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
    return connection


def replication_login(config: PostgresConfig) -> ReplicationLogin:
    """Return address and account for the stream of a slot. A login token is made for each call, as tokens are valid for minutes.

    :raises SourceUnavailable: the cloud gives no login token, or the SSH tunnel cannot be opened
    """
    # its kernels are needed by a stream only
    from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import ReplicationLogin

    host, port = config.find_address()
    mode = config.database_sslmode
    context = None
    if mode not in (SslMode.DISABLE, SslMode.ALLOW):
        context = ssl.create_default_context(cafile=config.database_sslrootcert)
        context.check_hostname = mode is SslMode.VERIFY_FULL
        if mode not in (SslMode.VERIFY_CA, SslMode.VERIFY_FULL):
            context.verify_mode = ssl.CERT_NONE
        if config.database_sslcert:
            secret = config.database_sslpassword.get_secret_value()
            context.load_cert_chain(config.database_sslcert, config.database_sslkey, secret or None)
    return ReplicationLogin(
        host=host,
        port=port,
        user=config.database_user,
        password=config.make_password(),
        database=config.database_dbname,
        tls=context,
        require_tls=mode is not SslMode.PREFER,
        connect_timeout_s=config.connect_timeout_ms / 1000,
    )


def _optional_arguments(config: PostgresConfig, *, replication: bool) -> dict[str, Any]:
    named = {
        "replication": "database" if replication else "",
        "sslmode": config.database_sslmode.value,
        "sslrootcert": config.database_sslrootcert,
        "sslcert": config.database_sslcert,
        "sslkey": config.database_sslkey,
        "sslpassword": config.database_sslpassword.get_secret_value(),
    }
    return {name: value for name, value in named.items() if value}


_SERVER: Final = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(), current_database(),
       (SELECT system_identifier::text FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint())"""
_NAMES: Final = (
    "wal_level", "max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size", "wal_sender_timeout", "server_encoding",
    "synchronous_standby_names", "hot_standby_feedback", "idle_replication_slot_timeout", "logical_decoding_work_mem",
)  # fmt: skip


def server_of(connection: Connection[tuple[Any, ...]]) -> PostgresServer:
    """Ask a server for its version, identity and settings."""
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    settings = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [[*_NAMES]]
    )
    version, number, standby, database, system, timeline = row
    return PostgresServer(version, number, system, timeline, standby, database, dict(settings.fetchall()))


@contextlib.contextmanager
def raise_cdc_errors(config: PostgresConfig, where: str | None = None) -> Iterator[None]:
    """Raise the errors of psycopg, of the stream and of sockets as errors of this project. They never contain the password."""
    try:
        yield
    except (psycopg.Error, ReplicationError, OSError, EOFError) as e:
        raise translate_error(e, config, where) from e


@contextlib.contextmanager
def raise_query_refused(config: PostgresConfig, where: str, remedy: str) -> Iterator[None]:
    """Like :func:`raise_cdc_errors`, for SQL that users write, or that writes to the database: an error of the statement itself is theirs to mend.

    :raises QueryRejected: the server refuses the statement; with its message
    """
    try:
        with raise_cdc_errors(config, where):
            yield
    except CdcError as e:
        state = sqlstate_of(e.__cause__)
        if isinstance(e, TransientError) or not state or state.startswith(_PASSING):
            raise
        raise QueryRejected(
            f"The database rejects a statement: {_first_line(e.__cause__)} (SQLSTATE {state})",
            where=where,
            safe="The statement read and wrote no data; capture continues.",
            remedy=remedy,
        ) from e.__cause__


def sqlstate_of(e: BaseException | None) -> str:
    """Return the SQLSTATE of an error of the server; empty for any other."""
    if isinstance(e, ReplicationError):
        return e.state
    return (e.sqlstate or "") if isinstance(e, psycopg.Error) else ""


def translate_error(e: BaseException, config: PostgresConfig, where: str | None = None) -> CdcError:
    """Return the error of this project for an error of the server or of the connection."""
    state, message = sqlstate_of(e), _first_line(e)
    address = f"{config.database_hostname}:{config.database_port}"
    untouched = "Nothing was read; the offset is untouched."
    if state.startswith(_DENIED) or (not state and "password authentication failed" in message):
        return AccessDenied(
            f"The database rejected user {config.database_user!r}: {message}",
            where=where or address,
            safe=untouched,
            remedy=f"{config.login_remedy}, or grant what is missing: `airflow cdc grants` prints the statements",
        )
    if state == _UNKNOWN_DATABASE or (not state and 'database "' in message and "does not exist" in message):
        return PrerequisiteError(
            f"The database does not exist: {message}", where=where or address, safe=untouched,
            remedy="correct the database of the Airflow connection",
        )  # fmt: skip
    if state == _TOO_MANY_SLOTS:
        return PrerequisiteError(
            f"The server has no place for another replication slot or sender: {message}",
            where=where or address,
            safe=untouched,
            remedy="raise max_replication_slots and max_wal_senders, or drop slots that are not used (pg_drop_replication_slot)",
        )
    if not state and ("SSL" in message or "certificate" in message.lower()):
        return PrerequisiteError(
            f"The connection does not satisfy database.sslmode={config.database_sslmode.value}: {message}",
            where=where or address,
            safe="No password was sent, and nothing was read; the offset is untouched.",
            remedy="turn TLS on at the server, and name the authority that signed its certificate in database.sslrootcert; with verify-full, "
            "use the host name in the certificate in the Airflow connection",
        )
    if state in _BUSY:
        return SourceBusy(
            f"The database answers, but has ended a statement: {message} (SQLSTATE {state})",
            where=where or address,
            safe="Changes that were not committed to the change log are captured again by the next run.",
            remedy="pg_stat_activity and pg_locks show who holds a lock; a retry resumes where this run stopped",
        )
    if state and not state.startswith(_PASSING):
        return PrerequisiteError(
            f"The database rejects a statement: {message} (SQLSTATE {state})",
            where=where or address,
            safe="Changes that were not committed to the change log are captured again by the next run.",
            remedy="run `airflow cdc check`, correct the cause, and run again",
        )
    return SourceUnavailable(
        f"The database does not answer or closed the connection: {message}",
        where=where or address,
        safe="Changes that were not committed to the change log are captured again by the next run.",
        remedy="check that the server is up and reachable from this worker; a retry resumes where this run stopped",
    )


def _first_line(e: BaseException | None) -> str:
    return " ".join(str(e).split()) if e is not None else ""
