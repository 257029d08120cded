"""Connections by python-oracledb in thin mode; identity, role and modes of a database."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.core.errors import ConfigError, SourceUnavailable
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import NetworkProtocol
from airflow_provider_cdc.sources.oracle.error_translation import bare_url, code_of, translate_error, without_secrets

__all__ = [
    "Connection",
    "DatabaseStatus",
    "code_of",
    "connect",
    "current_scn",
    "database_of",
    "enter_container",
    "fetch_rows",
    "fetch_scalar",
    "pluggable_database",
    "translate_driver_errors",
    "utc_offset",
]  # fmt: skip

CONNECT_SECONDS: Final = 20.0
KEEP_ALIVE_MINUTES: Final = 2
"""Network gateways drop idle connections after some minutes (Debezium Oracle connector, "Frequently asked questions")."""

_DEFAULT_OPTIONS: Final[dict[str, Any]] = {
    "tcp_connect_timeout": CONNECT_SECONDS, "expire_time": KEEP_ALIVE_MINUTES, "program": "airflow_provider_cdc",
}  # fmt: skip

SESSION: Final = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'SYYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'SYYYY-MM-DD HH24:MI:SS.FF9'"
    " NLS_TIMESTAMP_TZ_FORMAT = 'SYYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM' NLS_NUMERIC_CHARACTERS = '.,'",
    "ALTER SESSION SET TIME_ZONE = '00:00'",
)
"""The session's formats, which the readers of redo statements and of snapshots expect. ``SYYYY`` gives years BC a minus sign; ``YYYY``
does not distinguish them."""

ROOT: Final = "CDB$ROOT"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_$#]*")
_HOST = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?")


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Identity, role and modes of a database.

    :param name: name of the database (of the root of a container database)
    :param role: ``PRIMARY``, ``PHYSICAL STANDBY``, ``LOGICAL STANDBY`` …
    :param open_mode: ``READ WRITE``, ``READ ONLY``, ``READ ONLY WITH APPLY`` …
    :param resetlogs: SCN of the database's incarnation (``RESETLOGS_CHANGE#``)
    :param threads: redo threads in use, including those of instances that are down
    :param open_threads: redo threads of running instances
    :param supplemental: kinds of the database's supplemental logging, of all containers: ``MIN``, ``ALL``, ``PK`` …
    :param utc_offset: seconds that the server's clock (``SYSDATE``, LogMiner's ``TIMESTAMP``) is ahead of UTC
    """

    name: str
    dbid: int
    version: str
    cdb: bool
    role: str
    open_mode: str
    log_mode: str
    resetlogs: int
    threads: tuple[int, ...]
    open_threads: tuple[int, ...]
    supplemental: frozenset[str]
    utc_offset: int

    @property
    def is_primary(self) -> bool:
        return self.role == "PRIMARY"

    @property
    def is_writable(self) -> bool:
        """Check whether rows can be written here, as the flush table's are."""
        return self.open_mode == "READ WRITE"

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """Version as numbers: ``19.3.0.0.0`` → (19, 3, 0, 0, 0)."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


def connect(config: OracleConfig, *, host: str | None = None, container: bool = False) -> Connection:
    """Open a connection with the formats of :data:`SESSION` and the time zone UTC.

    :param host: instead of ``database.hostname`` or ``database.url``: a node of ``rac.nodes``, or
        ``log.mining.readonly.hostname``; ``host`` or ``host:port``
    :param container: enter ``database.pdb.name``, as the catalog and snapshots need; LogMiner works in the container that the connection leads to
    :raises AccessDenied: user or password is wrong
    :raises SourceUnavailable: no server answers
    :raises PrerequisiteError: the pluggable database cannot be entered
    :raises ConfigError: host or URL cannot be understood
    """
    settings = _target(config, host)
    with translate_driver_errors(config, host or ""):
        connection = oracledb.connect(
            user=config.database_user,
            password=config.database_password.get_secret_value(),
            **{**_DEFAULT_OPTIONS, **config.parse_driver_options(), **settings},
        )
        try:
            connection.call_timeout = config.database_query_timeout_ms
            with connection.cursor() as cursor:
                for statement in SESSION:
                    cursor.execute(statement)
            if container:
                enter_container(connection, config)
        except BaseException:
            connection.close()
            raise
    return connection


def enter_container(connection: Connection, config: OracleConfig) -> None:
    """Switch the session to ``database.pdb.name``, if it is set. A local user is there already, and may not switch."""
    name = config.database_pdb_name
    if name and pluggable_database(connection) != name.upper():
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER SESSION SET CONTAINER = {_identifier(name)}")


def pluggable_database(connection: Connection) -> str | None:
    """Return the pluggable database of a connection; ``None`` in the root, and in a database without containers."""
    name, number = fetch_rows(connection, _CONTAINER)[0]
    return None if not int(number) or name == ROOT else str(name)


def container_id(connection: Connection, config: OracleConfig) -> int | None:
    """Return the number of the captured container, as in ``SRC_CON_ID``.

    The number is ``None`` if LogMiner shows no other container.

    :param connection: is in the same container afterwards
    """
    here, number = fetch_rows(connection, _CONTAINER)[0]
    if not int(number) or here != ROOT:
        return None
    if config.database_pdb_name:
        enter_container(connection, config)
        number = fetch_scalar(connection, "SELECT SYS_CONTEXT('USERENV', 'CON_ID') FROM DUAL")
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER SESSION SET CONTAINER = {ROOT}")
    return int(number)


def _target(config: OracleConfig, host: str | None) -> dict[str, Any]:
    """Return the address to connect to, as arguments of the driver."""
    url = bare_url(config.database_url) if config.database_url else None
    service, protocols = config.database_dbname, {config.database_protocol.value}
    if url is not None:
        parsed = oracledb.ConnectParams()
        with contextlib.suppress(oracledb.Error):  # a TNS name that is not known here has no service to take over
            parsed.parse_connect_string(url)
            service = str(parsed.service_name or service)
            protocols = _listed(parsed.protocol)
        if config.database_protocol is NetworkProtocol.TCPS and protocols != {"tcps"}:
            raise ConfigError(
                f"database.protocol is tcps, but database.url uses {', '.join(sorted(protocols))}.",
                where="database.url",
                safe="Nothing was read, and no password was sent; the offset is untouched.",
                remedy="write database.url as tcps://host:port/service, or with (PROTOCOL=TCPS) in each of its addresses",
            )
    tls = _tls(config)
    if host is None and url is not None:
        return {"dsn": url, **tls}
    name = host or config.database_hostname
    match = _HOST.fullmatch(name.strip())
    if match is None:
        raise ConfigError(
            f"{name!r} is neither a host nor host:port.",
            where="database.hostname, rac.nodes or log.mining.readonly.hostname",
            safe="Nothing was read; the offset is untouched.",
            remedy="write it as host or host:port",
        )
    address, port = config.find_address(match["v6"] or match["host"], int(match["port"] or config.database_port))
    # connect to a node of a cluster by the protocol of the common address
    protocol = "tcps" if "tcps" in protocols else "tcp"
    return {
        "host": address, "port": port, "service_name": service, "protocol": protocol, **tls,
    }  # fmt: skip


def _listed(protocols: Any) -> set[str]:
    """Return the protocols of all addresses; the driver gives one text or a list."""
    return {str(p).lower() for p in (protocols if isinstance(protocols, list) else [protocols])}


def _tls(config: OracleConfig) -> dict[str, Any]:
    """Return the arguments for TLS (tcps); those in a URL take precedence."""
    settings: dict[str, Any] = {"ssl_server_dn_match": config.database_ssl_server_dn_match}
    if config.database_ssl_server_cert_dn:
        settings["ssl_server_cert_dn"] = config.database_ssl_server_cert_dn
    if config.database_ssl_wallet:
        settings["wallet_location"] = config.database_ssl_wallet
        settings["wallet_password"] = config.database_ssl_wallet_password.get_secret_value() or None
    if config.database_ssl_ca:
        settings["ssl_context"] = ssl.create_default_context(cafile=config.database_ssl_ca)
    return settings


def _identifier(name: str) -> str:
    escaped = name.replace('"', '""')
    return name if _IDENTIFIER.fullmatch(name) else f'"{escaped}"'


@contextlib.contextmanager
def translate_driver_errors(config: OracleConfig, where: str = "") -> Iterator[None]:
    """Translate the driver's errors; they never contain the password or the credentials of a URL.

    :param where: table, SCN or host, for the error's text; by default the server's address
    """
    try:
        yield
    except (oracledb.Error, OSError, EOFError) as e:
        shown = without_secrets(str(e), config) == str(e)
        raise translate_error(e, config, where) from (e if shown else None)


def fetch_rows(connection: Connection, sql: str, **binds: Any) -> list[tuple[Any, ...]]:
    """All rows of a query; LOBs as values."""
    with connection.cursor() as cursor:
        cursor.arraysize = 1_000
        cursor.execute(sql, binds, fetch_lobs=False)
        return list(cursor.fetchall())


def fetch_scalar(connection: Connection, sql: str, **binds: Any) -> Any:
    """First value of a query, ``None`` without a row."""
    rows = fetch_rows(connection, sql, **binds)
    return rows[0][0] if rows else None


def current_scn(connection: Connection) -> int:
    """Return the database's current SCN; on a standby the SCN up to which redo is applied.

    :raises SourceUnavailable: the database is not open
    """
    scn = fetch_scalar(connection, "SELECT CURRENT_SCN FROM V$DATABASE")
    if not scn:
        raise SourceUnavailable(
            "The database has no current SCN: it is mounted but not open.",
            where="V$DATABASE",
            safe="The offset is untouched.",
            remedy="ALTER DATABASE OPEN, or wait until the standby is open",
        )
    return int(scn)


def utc_offset(connection: Connection) -> int:
    """Offset of the server's clock from UTC, seconds; it changes with daylight saving time."""
    text = str(fetch_scalar(connection, "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL")).strip()
    sign = -1 if text.startswith("-") else 1
    hours, _, minutes = text.lstrip("+-").partition(":")
    return sign * (int(hours) * 3600 + int(minutes or 0) * 60)


_CONTAINER = "SELECT SYS_CONTEXT('USERENV', 'CON_NAME'), SYS_CONTEXT('USERENV', 'CON_ID') FROM DUAL"
_DATABASE = """
SELECT NAME, DBID, CDB, DATABASE_ROLE, OPEN_MODE, LOG_MODE, RESETLOGS_CHANGE# FROM V$DATABASE"""
_SUPPLEMENTAL = """
SELECT SUPPLEMENTAL_LOG_DATA_MIN, SUPPLEMENTAL_LOG_DATA_ALL, SUPPLEMENTAL_LOG_DATA_PK, SUPPLEMENTAL_LOG_DATA_UI, SUPPLEMENTAL_LOG_DATA_FK
FROM V$DATABASE"""
_SUPPLEMENTAL_INSIDE = """
SELECT MINIMAL, ALL_COLUMN, PRIMARY_KEY, UNIQUE_INDEX, FOREIGN_KEY FROM DBA_SUPPLEMENTAL_LOGGING"""
_THREADS = "SELECT THREAD#, STATUS FROM V$THREAD WHERE ENABLED <> 'DISABLED' ORDER BY THREAD#"


def supplemental_logging(connection: Connection) -> frozenset[str]:
    """Return the kinds of supplemental logging in a connection's container: ``MIN``, ``ALL``, ``PK`` and others.

    A pluggable database has those of the root, and may have others besides, which the root does not show.
    """
    rows = fetch_rows(connection, _SUPPLEMENTAL)
    if pluggable_database(connection) is not None:
        with contextlib.suppress(oracledb.DatabaseError):  # before 19c, or without the right to read it
            rows += fetch_rows(connection, _SUPPLEMENTAL_INSIDE)
    kinds = ("MIN", "ALL", "PK", "UI", "FK")
    return frozenset(
        kind for row in rows for kind, value in zip(kinds, row, strict=True) if value in ("YES", "IMPLICIT")
    )


def database_of(connection: Connection) -> DatabaseStatus:
    """Ask a database for its identity, role and modes."""
    row = fetch_rows(connection, _DATABASE)[0]
    name, dbid, cdb, role, open_mode, log_mode, resetlogs = row
    threads = fetch_rows(connection, _THREADS)
    return DatabaseStatus(
        name=str(name),
        dbid=int(dbid),
        version=connection.version,
        cdb=cdb == "YES",
        role=str(role),
        open_mode=str(open_mode),
        log_mode=str(log_mode),
        resetlogs=int(resetlogs),
        threads=tuple(int(n) for n, _ in threads),
        open_threads=tuple(int(n) for n, status in threads if status == "OPEN"),
        supplemental=supplemental_logging(connection),
        utc_offset=utc_offset(connection),
    )
