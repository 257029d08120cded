"""Prerequisites of capture: the database, the capture agent, the tables in capture mode, and the account's privileges, each with its remedy.

See "Setting up Db2" of the Debezium Db2 connector document (spec DB2-208 to 233, DB2-369 to 378).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import check_mark_grant
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, capture_parameters, read_agent_progress
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import (
    Db2Connection,
    Db2DatabaseIdentity,
    Db2Error,
    connect_database,
    database_of,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.db2.error_translation import FORBIDDEN, UNDEFINED
from airflow_provider_cdc.sources.db2.privileges import Db2AccountPrivileges
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.signal_checks import signal_findings
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import is_locking
from airflow_provider_cdc.sources.db2.table_checks import table_findings
from airflow_provider_cdc.sources.relational.sql_quoting import quoted_name

OLDEST: Final = (10, 5)
LATE_S: Final = 60
"""The check reports an agent that is as many seconds behind, or :data:`PAUSES` times its own pause, if that is longer."""
PAUSES: Final = 3
SHORT_RETENTION_MINUTES: Final = 1_440

_LOGARCHMETH1: Final = """SELECT t."VALUE" FROM SYSIBMADM.DBCFG t WHERE t.NAME = 'logarchmeth1'"""
_CONTROL: Final = ("IBMSNAP_REGISTER", "IBMSNAP_UOW", "IBMSNAP_CAPPARMS")


def check_prerequisites(config: Db2Config) -> list[Finding]:
    """All findings about prerequisites that are not met; an empty list = ready.

    :raises SourceUnavailable: the database does not answer
    :raises AccessDenied: user or password is wrong
    """
    with contextlib.closing(connect_database(config)) as connection, translate_driver_errors(config):
        findings = [*_platform(database_of(connection)), *_log(connection, config)]
        if any(f.fatal for f in findings):
            return findings
        missing = [*_control_tables(connection, config)]
        if missing:
            return findings + missing
        findings += _agent(connection, config)
        return findings + _tables(connection, config)


# -- the database -----------------------------------------------------------------------------------------------------


def _platform(database: Db2DatabaseIdentity) -> Iterator[Finding]:
    if database.is_zos or database.product == "AS":
        yield Finding(
            f"{database.name} is a database of Db2 for {'z/OS' if database.is_zos else 'i'}, which has a "
            "different catalog.",
            "capture from Db2 for Linux, UNIX and Windows",
        )
    elif database.version_numbers and database.version_numbers[:2] < OLDEST:
        yield Finding(
            f"Db2 {database.version} is older than 10.5 and lacks catalog columns that the connector reads.",
            "upgrade the database",
        )


def _log(connection: Db2Connection, config: Db2Config) -> Iterator[Finding]:
    """Check whether the database archives its log, without which the agent does not start."""
    try:
        method = str(connection.fetch_scalar(_LOGARCHMETH1) or "").strip()
    except Db2Error as e:
        if e.code not in FORBIDDEN | UNDEFINED:
            raise
        connection.rollback()
        return  # not every user may see the configuration
    if method.upper() == "OFF":
        name = config.database_dbname
        yield Finding(
            "The database does not archive its log (LOGARCHMETH1 is OFF): the capture agent cannot read it.",
            f"db2 update db cfg for {name} using LOGARCHMETH1 DISK:<folder>; db2 backup db {name} to <folder>; db2 restart db {name}",
        )


# -- the agent --------------------------------------------------------------------------------------------------------


def _control_tables(connection: Db2Connection, config: Db2Config) -> Iterator[Finding]:
    schema = config.asn_capture_schema
    for name in _CONTROL:
        try:
            connection.fetch_rows(f"SELECT 1 FROM {config.capture_schema}.{name} FETCH FIRST 1 ROWS ONLY WITH UR")
        except Db2Error as e:
            connection.rollback()
            if e.code in UNDEFINED:
                yield Finding(
                    f"The control table {schema}.{name} of the capture agent does not exist.",
                    "run asncdctables.sql and asncdcaddremove.sql on the database, or set "
                    "asn.capture.schema to the schema of the agent",
                )
                return
            if e.code not in FORBIDDEN:
                raise
            yield Finding(
                f"The account may not read {schema}.{name}.",
                f"GRANT SELECT ON TABLE {config.capture_schema}.{quoted_name(name)} TO USER {config.database_user.upper()}",
            )


def _agent(connection: Db2Connection, config: Db2Config) -> Iterator[Finding]:
    """Check whether the agent runs and is near the end of the log, and the effect of its parameters on capture."""
    schema = config.asn_capture_schema
    start = (
        f"VALUES {schema}.ASNCDCSERVICES('start','asncdc'), and run the command that it returns: asncap "
        f"capture_schema={schema} "
    )
    start += f"capture_server={config.database_dbname}"
    now, parameters = (
        read_agent_progress(connection, config.capture_schema),
        capture_parameters(connection, config.capture_schema),
    )
    connection.rollback()
    if not now.lsn:
        yield Finding("The capture agent has not published anything yet, so the log has no position.", start)
        return
    pause_s = 0
    if parameters is not None:
        pause_s = (parameters.commit_interval or 0) + (parameters.sleep_interval or 0)
        retention = parameters.retention_limit
        if parameters.autoprune and retention is not None and retention < SHORT_RETENTION_MINUTES:
            yield Finding(
                f"The agent prunes changes after {retention:,} minutes: changes that are not captured by "
                "then are lost.",
                f"UPDATE {schema}.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 10080, and restart the agent",
                fatal=False,
            )
        if parameters.autostop:
            yield Finding(
                "The agent stops automatically at the end of the log (AUTOSTOP is Y).",
                f"UPDATE {schema}.IBMSNAP_CAPPARMS SET AUTOSTOP = 'N', and restart the agent",
                fatal=False,
            )
    yield from _lateness(now, pause_s, start)


def _lateness(now: AgentProgress, pause_s: int, start: str) -> Iterator[Finding]:
    behind_us = now.latency_us
    if behind_us is not None and behind_us > max(LATE_S, PAUSES * pause_s) * 1_000_000:
        yield Finding(
            f"The capture agent has published nothing for {behind_us / 1e6:,.0f} s: it is behind, it does "
            "not run, or no changes were written to the database.",
            start,
            fatal=False,
        )


# -- tables -----------------------------------------------------------------------------------------------------------


def _marks(connection: Db2Connection, config: Db2Config) -> Iterator[Finding]:
    """Check that the account may write the signals that show snapshots how far the agent is."""
    try:
        check_mark_grant(connection, config)
    except PrerequisiteError as e:
        yield Finding(e.message, e.remedy or "")


def _tables(connection: Db2Connection, config: Db2Config) -> list[Finding]:
    filters, catalog = Filters(config), Db2CatalogReader(connection, config)
    rights, registered = Db2AccountPrivileges(connection, config), catalog.list_registrations()
    captured = {t: registration for t, registration in registered.items() if filters.is_table_captured(t)}
    findings = [*table_findings(catalog, captured, registered, filters, config, rights)]
    reads = not never_reads(config)
    if reads and not is_locking(config.snapshot_isolation_mode):
        for table, schema in catalog.read_registered_schemas(captured).items():
            if not schema.key:
                findings.append(
                    Finding(
                        f"{table} has no key: it cannot be read with "
                        f"snapshot.isolation.mode={config.snapshot_isolation_mode.value}.",
                        "set snapshot.isolation.mode=repeatable_read, give the table a primary key, or "
                        "exclude it with table.exclude.list",
                    )
                )
    if reads and is_locking(config.snapshot_isolation_mode):
        findings += _marks(connection, config)
    findings += signal_findings(catalog, config, rights, registered)
    connection.rollback()
    return findings
