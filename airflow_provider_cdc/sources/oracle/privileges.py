"""The account's privileges, and findings about missing ones, each with its GRANT.

(Debezium Oracle connector, "Creating users for the connector".)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import LockingMode, MiningStrategy
from airflow_provider_cdc.sources.oracle.connect import DatabaseStatus, code_of, fetch_rows, fetch_scalar

_MERE_STATISTICS: Final = ("V$MYSTAT", "V$STATNAME")
VIEWS: Final = (
    "V$DATABASE", "V$LOGMNR_LOGS", "V$LOGMNR_CONTENTS", "V$LOGMNR_PARAMETERS", "V$TRANSACTION", "V$THREAD", *_MERE_STATISTICS,
)  # fmt: skip
LOG_VIEWS: Final = ("V$LOG", "V$LOG_HISTORY", "V$LOGFILE", "V$ARCHIVED_LOG", "V$ARCHIVE_DEST_STATUS")
"""The views that list redo logs. Inside a pluggable database LogMiner finds them without."""
CLUSTER_VIEWS: Final = ("GV$TRANSACTION",)
_EXTENT_VIEWS: Final = ("DBA_EXTENTS", "DBA_OBJECTS")
_FORBIDDEN: Final = {942, 1031}


class GrantBuilder:
    """Makes GRANT statements for the capture user.

    >>> GrantBuilder(config)("SELECT ANY TABLE")
    'GRANT SELECT ANY TABLE TO c##cdc CONTAINER=ALL'
    """

    def __init__(self, config: OracleConfig) -> None:
        self._rest = f" TO {config.database_user}{config.grant_suffix}"

    def __call__(self, privilege: str) -> str:
        return f"GRANT {privilege}{self._rest}"


@dataclass(frozen=True, slots=True)
class AccountPrivileges:
    """The account's privileges in one container.

    :param privileges: system privileges and roles
    :param objects: object privileges: (privilege, owner, name)
    :param user: the account, which has all privileges on its own tables
    """

    privileges: frozenset[str]
    objects: frozenset[tuple[str, str, str]]
    user: str

    def has_any_privilege(self, *names: str) -> bool:
        return not self.privileges.isdisjoint(names)

    def has_object_privilege(self, action: str, owner: str, name: str) -> bool:
        return (action, owner, name) in self.objects

    def on_table(self, actions: Iterable[str], table: TableId) -> bool:
        """Check whether the account has one of the object privileges on a table."""
        return table.namespace == self.user or any(
            self.has_object_privilege(a, table.namespace, table.name) for a in actions
        )

    def can_access_table(self, action: str, table: TableId) -> bool:
        """Check whether an action is allowed on a table, by an object privilege or by a system privilege."""
        return self.has_any_privilege(f"{action} ANY TABLE") or self.on_table([action], table)


def fetch_view_rows(connection: Connection, sql: str, **binds: Any) -> list[tuple[Any, ...]] | None:
    """Return the rows of a view; ``None`` if the account may not read it.

    Other checks report a view that may not be read, where it matters.
    """
    try:
        return fetch_rows(connection, sql, **binds)
    except oracledb.DatabaseError as e:
        if code_of(e) not in _FORBIDDEN:
            raise
        return None


def log_view_findings(connection: Connection, config: OracleConfig, grant: GrantBuilder) -> Iterator[Finding]:
    """Yield a finding for views of redo logs that the account may not read inside a pluggable database."""
    hidden = [name for name in LOG_VIEWS if fetch_view_rows(connection, f"SELECT 1 FROM {name} WHERE 1 = 0") is None]
    if "V$ARCHIVED_LOG" in hidden and config.log_mining_archive_log_only_mode:
        yield Finding(
            "The account may not read V$ARCHIVED_LOG, which log.mining.archive.log.only.mode needs to find "
            "the end of the archived logs.",
            grant("SELECT ON V_$ARCHIVED_LOG") + ", or remove log.mining.archive.log.only.mode",
        )
    elif hidden:
        yield Finding(
            f"The account may not read {', '.join(hidden)}: only LogMiner knows which redo exists.",
            f"no action is needed on Autonomous Database; on other databases {grant('SELECT_CATALOG_ROLE')}, "
            "so that errors name missing logs",
            fatal=False,
        )


def view_findings(
    connection: Connection, grant: GrantBuilder, names: Sequence[str] = (*VIEWS, *LOG_VIEWS)
) -> Iterator[Finding]:
    """Yield findings for ``V$`` views that the account may not read."""
    for name in names:
        try:
            fetch_rows(connection, f"SELECT 1 FROM {name} WHERE 1 = 0")
        except oracledb.DatabaseError as e:
            if code_of(e) not in _FORBIDDEN:
                continue  # another error than missing rights: V$LOGMNR_CONTENTS needs a LogMiner session
            yield Finding(
                f"The account may not read {name}.",
                grant(f"SELECT ON {name.replace('V$', 'V_$')}"),
                fatal=name not in _MERE_STATISTICS,
            )


def privileges_of(connection: Connection, config: OracleConfig) -> AccountPrivileges:
    """Return the account's privileges in the connection's current container."""
    names = {str(name) for (name,) in fetch_rows(connection, "SELECT PRIVILEGE FROM SESSION_PRIVS")}
    names |= {str(name) for (name,) in fetch_rows(connection, "SELECT ROLE FROM SESSION_ROLES")}
    sql = "SELECT PRIVILEGE, TABLE_SCHEMA, TABLE_NAME FROM ALL_TAB_PRIVS"
    return AccountPrivileges(
        frozenset(names),
        frozenset((str(p), str(o), str(n)) for p, o, n in fetch_rows(connection, sql)),
        config.database_user.upper(),
    )


def server_findings(
    connection: Connection, database: DatabaseStatus, config: OracleConfig, grant: GrantBuilder, *, inside: bool = False
) -> Iterator[Finding]:
    """Yield findings for missing privileges where the log is mined: LogMiner, its dictionary, and the flush table.

    :param inside: in a pluggable database, where no dictionary is written
    """
    rights = privileges_of(connection, config)

    def missing(privilege: str, why: str, *, fatal: bool = True) -> Finding:
        return Finding(f"The account lacks {privilege}, {why}.", grant(privilege), fatal=fatal)

    if config.database_pdb_name and not inside and not rights.has_any_privilege("SET CONTAINER"):
        yield missing("SET CONTAINER", "which is required to enter the pluggable database")
    if database.version_numbers >= (12, 1) and not rights.has_any_privilege("LOGMINING"):
        yield missing("LOGMINING", "which LogMiner requires")
    if not rights.has_any_privilege("SELECT_CATALOG_ROLE", "SELECT ANY DICTIONARY"):
        if not rights.has_any_privilege("LOGMINING"):
            yield missing("SELECT_CATALOG_ROLE", "which LogMiner requires to read the dictionary")
        elif not never_reads(config):
            yield from _extents(connection, grant)
    # no other strategy writes a dictionary, and none is written to be read from a file or on a standby
    builds = config.log_mining_strategy is MiningStrategy.REDO_LOG_CATALOG and not config.log_mining_path_dictionary
    builds = builds and not config.log_mining_readonly_hostname
    packages = rights.has_any_privilege("EXECUTE_CATALOG_ROLE")
    if not packages and not inside:
        yield missing("EXECUTE_CATALOG_ROLE", "which is required to write a dictionary to the log", fatal=builds)
    for package in ("DBMS_LOGMNR",) if inside else ("DBMS_LOGMNR", "DBMS_LOGMNR_D"):
        if not (
            packages or rights.has_any_privilege("LOGMINING") or rights.has_object_privilege("EXECUTE", "SYS", package)
        ):
            yield missing(f"EXECUTE ON {package}", "which LogMiner requires")
    yield from _flush_table(connection, database, config, rights, grant)
    if not inside and not rights.has_any_privilege("CREATE SEQUENCE"):
        yield missing(
            "CREATE SEQUENCE", "which Debezium's documentation requires, but this connector does not use", fatal=False
        )


def _extents(connection: Connection, grant: GrantBuilder) -> Iterator[Finding]:
    """Yield a finding if a snapshot cannot divide tables: the only use of the catalog role that no other finding names."""
    hidden = [v for v in _EXTENT_VIEWS if fetch_view_rows(connection, f"SELECT 1 FROM {v} WHERE 1 = 0") is None]
    if hidden:
        yield Finding(
            f"The account may not read {' and '.join(hidden)}: a snapshot reads each table with one reader. SELECT on "
            f"{' and '.join(_EXTENT_VIEWS)} is enough in place of the role.",
            grant("SELECT_CATALOG_ROLE"),
            fatal=False,
        )


def _flush_table(
    connection: Connection,
    database: DatabaseStatus,
    config: OracleConfig,
    rights: AccountPrivileges,
    grant: GrantBuilder,
) -> Iterator[Finding]:
    """Yield findings if the log buffer cannot be flushed: the instance is unknown, or the flush table cannot be created."""
    if not database.is_writable or config.log_mining_readonly_hostname:
        return
    yield from view_findings(connection, grant, ("V$INSTANCE",))
    if rights.has_any_privilege("CREATE TABLE"):
        return
    name = config.log_mining_flush_table_name
    sql = "SELECT COUNT(*) FROM ALL_TABLES WHERE OWNER = :owner AND TABLE_NAME = :name"
    if not fetch_scalar(connection, sql, owner=config.database_user.upper(), name=name.upper()):
        yield Finding(
            f"The account lacks CREATE TABLE, and the flush table {name}, which is needed to flush the log "
            "buffer, does not exist.",
            grant("CREATE TABLE"),
        )


def table_findings(
    captured: list[TableSchema], config: OracleConfig, rights: AccountPrivileges, grant: GrantBuilder
) -> Iterator[Finding]:
    """Yield findings for missing privileges to read, flashback and lock the captured tables."""
    reads = not never_reads(config)
    locks = reads and config.snapshot_locking_mode is LockingMode.SHARED
    needed = [
        ("SELECT ANY TABLE", ("SELECT", "READ"), "or SELECT on each table, which a snapshot needs to read rows", reads),
        ("FLASHBACK ANY TABLE", ("FLASHBACK",), "or FLASHBACK on each table, which a snapshot needs to read rows as of one SCN", reads),
        ("LOCK ANY TABLE", ("SELECT", "INSERT", "UPDATE", "DELETE"), "which a snapshot needs to block DDL while it starts", locks),
    ]  # fmt: skip
    for privilege, actions, why, used in needed:
        if not used or rights.has_any_privilege(privilege):
            continue
        without = [s for s in captured if not rights.on_table(actions, s.id)]
        if without or not captured:
            yield Finding(f"The account lacks {privilege}, {why}{_shown(without)}.", grant(privilege))
    if reads and not rights.has_any_privilege("SELECT ANY TRANSACTION"):
        yield Finding(
            "The account lacks SELECT ANY TRANSACTION, which Debezium's documentation requires in addition "
            "to FLASHBACK ANY TABLE.",
            grant("SELECT ANY TRANSACTION"),
            fatal=False,
        )


def _shown(tables: list[TableSchema]) -> str:
    names = [str(schema.id) for schema in tables]
    rest = f" and {len(names) - 5:,} others" if len(names) > 5 else ""
    return f" ({', '.join(names[:5])}{rest})" if names else ""
