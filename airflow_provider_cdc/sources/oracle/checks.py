"""Prerequisites of capture: modes of the database, its logging, and the account's privileges, each with its remedy.

See "Setting up Oracle" and "Creating users for the connector" of the Debezium Oracle connector document (spec ORA-022 to 048).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import oracledb
from oracledb import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError, TransientError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import read_whole
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from airflow_provider_cdc.sources.oracle.connect import (
    DatabaseStatus,
    connect,
    database_of,
    enter_container,
    pluggable_database,
    supplemental_logging,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.privileges import (
    CLUSTER_VIEWS,
    VIEWS,
    GrantBuilder,
    fetch_view_rows,
    log_view_findings,
    privileges_of,
    server_findings,
    table_findings,
    view_findings,
)
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.column_types import UNSUPPORTED, ColumnType
from airflow_provider_cdc.sources.oracle.signal_checks import signal_findings
from airflow_provider_cdc.sources.oracle.transactions.unreadable_row_check import may_be_unlogged
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

LONGEST_NAME: Final = 30
"""Bytes. LogMiner does not show tables with longer names, or with longer names of columns."""
SHORT_UNDO: Final = 3_600
SMALL_LOG: Final = 200 << 20
MINES_INSIDE: Final = (19,)
"""The first release whose LogMiner works in a pluggable database."""

_ROOT_FIRST: Final = (
    "; if that fails with ORA-31541, first run this in the root: ALTER DATABASE ADD SUPPLEMENTAL LOG DATA"
)
"""Logging of a pluggable database needs that of the root, but on Autonomous Database and, with local undo, from 23ai on."""
_RETENTION: Final = "SELECT VALUE FROM V$PARAMETER WHERE NAME = 'undo_retention'"


def check_prerequisites(config: OracleConfig) -> list[Finding]:
    """All findings about prerequisites that are not met; an empty list = ready.

    :raises SourceUnavailable: the database does not answer
    :raises AccessDenied: user or password is wrong
    """
    with contextlib.closing(connect(config)) as connection, translate_driver_errors(config):
        return _check(connection, config)


def _check(connection: Connection, config: OracleConfig) -> list[Finding]:
    grant, pdb = GrantBuilder(config), pluggable_database(connection)
    if pdb is None:
        findings = list(view_findings(connection, grant))
    else:
        findings = [*view_findings(connection, grant, VIEWS), *log_view_findings(connection, config, grant)]
    if any((f.fatal and "V_$DATABASE" in f.fix) or "V_$THREAD" in f.fix for f in findings):
        return findings
    database = database_of(connection)
    if len(database.threads) > 1:
        findings += view_findings(connection, grant, CLUSTER_VIEWS)
    findings += [
        *_modes(database, pdb),
        *_standby(connection, database, config),
        *_names(connection, database, config, pdb),
    ]
    findings += server_findings(connection, database, config, grant, inside=pdb is not None)
    if pdb is None:  # inside, LogMiner chooses the copies
        findings += _destination(connection, config)
    findings += _advice(connection, database, config)
    if any(f.fatal and "database.pdb.name" in f"{f.problem} {f.fix}" for f in findings):
        return findings
    try:
        enter_container(connection, config)
    except oracledb.DatabaseError as e:
        return [*findings, Finding(f"The pluggable database cannot be entered: {e}", grant("SET CONTAINER"))]
    return [*findings, *_tables(connection, database, config, grant)]


# -- the database -----------------------------------------------------------------------------------------------------


def _modes(database: DatabaseStatus, pdb: str | None) -> Iterator[Finding]:
    if database.log_mode != "ARCHIVELOG":
        yield Finding(
            f"The database does not archive its redo logs (LOG_MODE is {database.log_mode}): changes would "
            "be overwritten before they are captured.",
            "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN. On Amazon RDS: switch backups "
            "on, then EXEC rdsadmin.rdsadmin_util.set_configuration('archivelog retention hours', 24)",
        )
    if "MIN" not in database.supplemental:
        yield Finding(
            "The database has no supplemental logging: the log does not identify the row of a change.",
            f"ALTER {'PLUGGABLE ' if pdb else ''}DATABASE ADD SUPPLEMENTAL LOG DATA{_ROOT_FIRST if pdb else ''}. On Amazon RDS: "
            "EXEC rdsadmin.rdsadmin_util.alter_supplemental_logging('ADD')",
        )
    if database.version_numbers < (12, 1):
        yield Finding(
            f"Oracle {database.version} is older than 12.1.",
            "upgrade the database; 19c and newer are best",
            fatal=False,
        )


def _standby(connection: Connection, database: DatabaseStatus, config: OracleConfig) -> Iterator[Finding]:
    """Yield findings about the database's role, the mined standby, and the mining strategy."""
    host = config.log_mining_readonly_hostname
    if not database.is_primary and not host:
        yield Finding(
            f"{database.name} is a {database.role.lower()}, which is read-only.",
            "set database.hostname to the primary, and log.mining.readonly.hostname to this standby",
        )
    if not host:
        return
    if config.log_mining_strategy is not MiningStrategy.ONLINE_CATALOG:
        yield Finding(
            f"log.mining.strategy={config.log_mining_strategy} writes a dictionary to the redo log, which is "
            "not possible on a standby.",
            "set log.mining.strategy=online_catalog",
        )
    try:
        with contextlib.closing(connect(config, host=host)) as other:
            standby = database_of(other)
    except TransientError:
        raise
    except (CdcError, oracledb.DatabaseError) as e:
        yield Finding(
            f"The standby {host} cannot be read: {e}", "fix the problem, or correct log.mining.readonly.hostname"
        )
        return
    if standby.dbid != database.dbid:
        yield Finding(
            f"{host} has the DBID {standby.dbid}, but the primary has {database.dbid}: {host} is not a "
            "standby of this primary.",
            "correct log.mining.readonly.hostname",
        )


def _names(
    connection: Connection, database: DatabaseStatus, config: OracleConfig, here: str | None
) -> Iterator[Finding]:
    """Yield findings about ``database.dbname`` and ``database.pdb.name``."""
    database_name = config.database_dbname.partition(".")[0].upper()
    pdb = config.database_pdb_name
    if not database.cdb:
        if pdb:
            yield Finding(
                f"{database.name} is not a container database, so the pluggable database {pdb} does not exist.",
                "remove database.pdb.name",
            )
    else:
        yield from _containers(connection, config) if here is None else _inside(here, database, config)
        if config.log_mining_path_dictionary:
            yield Finding(
                "LogMiner accepts no dictionary file in a container database, and from release 21c on every "
                "database is one.",
                "remove log.mining.path.dictionary: log.mining.strategy=hybrid does not need a dictionary "
                "in the logs either",
            )
    if here is None and database_name != database.name.upper() and not config.database_url:
        yield Finding(
            f"database.dbname is {config.database_dbname}, but the database is {database.name}.",
            f"set database.dbname={database.name}, unless {config.database_dbname} is a separate service",
            fatal=False,
        )


def _inside(here: str, database: DatabaseStatus, config: OracleConfig) -> Iterator[Finding]:
    """Yield findings about a connection to a pluggable database, where the log is mined then.

    :param here: its name
    """
    root = f"set database.dbname to the name of the root container, and database.pdb.name={here}"
    pdb = config.database_pdb_name
    if database.version_numbers < MINES_INSIDE:
        yield Finding(
            f"The connection points to the pluggable database {here}, but before release 19c LogMiner works "
            "only in the root.",
            root,
        )
    elif pdb and pdb.upper() != here:
        yield Finding(
            f"The connection points to the pluggable database {here}, but database.pdb.name is {pdb}.",
            f"set database.pdb.name={here}, or database.dbname to the service of {pdb}",
        )
    elif not pdb and config.database_dbname.upper() != here:
        yield Finding(
            f"Events contain the database name {config.database_dbname}, which is a service of {here}.",
            f"set database.pdb.name={here} before the first run; a connector that has run keeps its name",
            fatal=False,
        )
    if config.log_mining_strategy is MiningStrategy.REDO_LOG_CATALOG:
        yield Finding(
            f"log.mining.strategy={config.log_mining_strategy} writes a dictionary to the redo log, which is "
            "not possible in a pluggable database.",
            f"set log.mining.strategy=hybrid; or mine in the root: {root}",
        )
    if config.log_mining_readonly_hostname:
        yield Finding(
            "log.mining.readonly.hostname is set, but the connection points to a pluggable database: a "
            "standby can only be mined in the root.",
            f"remove log.mining.readonly.hostname; or {root}",
        )
    if config.log_mining_archive_destination_name:
        yield Finding(
            "log.mining.archive.destination.name has no effect: inside a pluggable database, LogMiner "
            "chooses the copies of logs itself.",
            "remove the property",
            fatal=False,
        )


def _containers(connection: Connection, config: OracleConfig) -> Iterator[Finding]:
    rows = fetch_view_rows(connection, "SELECT NAME, OPEN_MODE FROM V$PDBS")
    modes = {str(name): str(mode) for name, mode in rows or []}
    there = ", ".join(sorted(name for name in modes if name != "PDB$SEED"))
    pdb = config.database_pdb_name
    if not pdb:
        yield Finding(
            "The database is a container database, and no pluggable database is configured.",
            f"set database.pdb.name to one of {there or 'the names in V$PDBS'}",
        )
    elif not rows:
        return
    elif pdb.upper() not in modes:
        yield Finding(f"The pluggable database {pdb} does not exist.", f"set database.pdb.name to one of {there}")
    elif modes[pdb.upper()] not in ("READ WRITE", "READ ONLY"):
        yield Finding(
            f"The pluggable database {pdb} is not open ({modes[pdb.upper()]}).", f"ALTER PLUGGABLE DATABASE {pdb} OPEN"
        )


def _destination(connection: Connection, config: OracleConfig) -> Iterator[Finding]:
    """Yield findings about the archive destination."""
    sql = "SELECT DEST_NAME, STATUS, TYPE FROM V$ARCHIVE_DEST_STATUS"
    rows = fetch_view_rows(connection, sql)
    if rows is None:
        return
    destinations = {str(name): (str(status), str(kind)) for name, status, kind in rows}
    usable = sorted(name for name, facts in destinations.items() if facts == ("VALID", "LOCAL"))
    configured = [n.strip() for n in (config.log_mining_archive_destination_name or "").upper().split(",") if n.strip()]
    if not configured and not usable:
        yield Finding(
            "No archive destination of the database is valid and local.",
            "ALTER SYSTEM SET LOG_ARCHIVE_DEST_1 = 'LOCATION=USE_DB_RECOVERY_FILE_DEST'",
        )
    if configured and not set(configured) & set(usable):  # of several, the first that has a log is read
        status = ", ".join("/".join(destinations.get(name, ("unknown",))) for name in configured)
        yield Finding(
            f"The archive destination {', '.join(configured)} is not valid and local ({status}).",
            "set log.mining.archive.destination.name to one of "
            f"{', '.join(usable) or 'the valid and local destinations'}, or fix the destination",
        )


def _advice(connection: Connection, database: DatabaseStatus, config: OracleConfig) -> Iterator[Finding]:
    """Yield findings that are not fatal: heartbeats, undo retention, size of redo logs."""
    if database.cdb and config.heartbeat_interval_ms and not config.heartbeat_action_query:
        yield Finding(
            "heartbeat.interval.ms is set without heartbeat.action.query: while the pluggable database is quiet "
            "and others are not, the position does not advance, and the logs that it needs may be deleted.",
            "set heartbeat.action.query to a statement that changes a captured table, such as UPDATE "
            "<schema>.<table> SET TS = SYSTIMESTAMP",
            fatal=False,
        )
    ((retention,),) = fetch_view_rows(connection, _RETENTION) or ((None,),)
    if retention is not None and int(retention) < SHORT_UNDO and not never_reads(config):
        yield Finding(
            f"Undo is kept for {int(retention):,} s: a longer snapshot may fail with ORA-01555.",
            "ALTER SYSTEM SET UNDO_RETENTION = 86400, until the snapshot has ended",
            fatal=False,
        )
    ((smallest,),) = fetch_view_rows(connection, "SELECT MIN(BYTES) FROM V$LOG") or ((None,),)
    if smallest is not None and int(smallest) < SMALL_LOG:
        why = (
            ""
            if config.log_mining_strategy is MiningStrategy.ONLINE_CATALOG
            else ", and each log must contain a dictionary"
        )
        yield Finding(
            f"The redo logs are small ({int(smallest) >> 20} MB): they are switched often{why}.",
            "ALTER DATABASE ADD LOGFILE GROUP <n> SIZE 1G, and drop the small groups",
            fatal=False,
        )


# -- tables -----------------------------------------------------------------------------------------------------------


def _tables(
    connection: Connection, database: DatabaseStatus, config: OracleConfig, grant: GrantBuilder
) -> Iterator[Finding]:
    filters, rights = Filters(config), privileges_of(connection, config)
    captured = [*OracleCatalog(connection, config).needed_tables(filters.is_table_captured).values()]
    if not captured and (rights.has_any_privilege("SELECT ANY TABLE") or never_reads(config)):
        yield Finding(
            "No table that the account can see is captured.",
            "correct schema.include.list and table.include.list, or " + grant("SELECT ANY TABLE"),
            fatal=False,
        )
    yield from table_findings(captured, config, rights, grant)

    findings, signals = signal_findings(OracleCatalog(connection, config), config, rights, grant)
    yield from findings
    if signals is not None and not filters.is_table_captured(signals.id):
        captured.append(signals)
    yield from _logging(connection, config, captured)
    yield from _types(connection, config, captured)
    for schema in captured:
        names = [name for name in (schema.id.name, *schema.column_names) if len(name.encode()) > LONGEST_NAME]
        if names:
            yield Finding(
                f"LogMiner does not return rows of {schema.id}, because these names are longer than "
                f"{LONGEST_NAME} bytes: {', '.join(names)}.",
                f"shorten the names, or exclude the table: table.exclude.list={schema.id}",
            )


def _types(connection: Connection, config: OracleConfig, captured: list[TableSchema]) -> Iterator[Finding]:
    """Yield findings about tables whose changes LogMiner does not show.

    They are not fatal: the stream stops such a table alone.
    """
    fix = (
        "exclude the table with table.exclude.list={name}, drop the columns, or snapshot the whole table "
        "whenever you need its rows: `{read}`"
    )
    unlogged = OracleCatalog(connection, config).find_unlogged_columns(
        schema.id for schema in captured if may_be_unlogged(schema)
    )
    for schema in captured:
        unsupported = [
            f"{c.name} ({base})" for c in schema.columns if (base := ColumnType.from_column(c).base) in UNSUPPORTED
        ]
        if columns := unlogged.get(schema.id) or unsupported:
            problem = "returns no changes" if schema.id in unlogged else "cannot return the changes"
            again = read_whole(config.connector_name, schema.id)
            yield Finding(
                f"LogMiner {problem} of {schema.id}, because of the columns {', '.join(columns)}: capture of "
                "the table is stopped.",
                fix.format(name=format_exact_pattern(schema.id), read=again),
                fatal=False,
            )


def _logging(connection: Connection, config: OracleConfig, captured: list[TableSchema]) -> Iterator[Finding]:
    """Yield findings about supplemental logging of all columns, of the container or of each table."""
    container = supplemental_logging(connection)
    if "ALL" in container:
        return
    kinds = OracleCatalog(connection, config).log_groups(schema.id for schema in captured)
    for schema in captured:
        has = kinds.get(schema.id, set())
        if "ALL COLUMN LOGGING" in has:
            continue
        keyed = bool(schema.key) and ("PK" in container or "PRIMARY KEY LOGGING" in has)
        outcome = (
            "events lack the columns that a change did not modify"
            if keyed
            else "the log does not identify the row of a change"
        )
        yield Finding(
            f"{schema.id} has no supplemental logging of all columns: {outcome}.",
            f"ALTER TABLE {quote_table(schema.id)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
            fatal=not keyed,
        )
