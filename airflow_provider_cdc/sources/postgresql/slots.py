"""Creates replication slots with an exported snapshot, and drops them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import Connection

from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError, SourceBusy
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect, raise_cdc_errors
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, parse_lsn

log = logging.getLogger(__name__)

_OPTIONS_SINCE: Final = 150_000
"""Version whose command takes options in parentheses."""
_FAILOVER_SINCE: Final = 170_000
_OLDEST: Final = """
SELECT coalesce(string_agg('pid ' || pid || ' for ' || coalesce(age::text, '?') || ' s', ', '), '') FROM (
  SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int8 AS age FROM pg_stat_activity
  WHERE backend_xid IS NOT NULL AND pid <> %s ORDER BY xact_start NULLS LAST LIMIT 5) AS oldest"""
_PREPARED: Final = "SELECT coalesce(string_agg(gid, ', '), '') FROM (SELECT gid FROM pg_prepared_xacts ORDER BY prepared LIMIT 5) AS oldest"


@dataclass(slots=True)
class ExportedSlot:
    """A slot that was created now, with the view of the database at its consistent point.

    :ivar snapshot: name for ``SET TRANSACTION SNAPSHOT``; valid until :meth:`close`
    """

    name: str
    temporary: bool
    position: PostgresPosition
    snapshot: str
    connection: Connection[tuple[Any, ...]]

    def close(self) -> None:
        """End the connection: the view cannot be joined any more, and a temporary slot is gone. May be called twice."""
        self.connection.close()


def slot_exists(connection: Connection[tuple[Any, ...]], name: str) -> bool:
    """Check whether the server has a slot with this name, of any database."""
    return connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", [name]).rowcount > 0


def drop_slot(connection: Connection[tuple[Any, ...]], name: str) -> None:
    """Drop a slot; it need not be there."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [name]
    )


def create_slot(config: PostgresConfig, name: str, *, temporary: bool) -> ExportedSlot:
    """Create a slot of pgoutput, and export the view of its consistent point.

    The server waits until all transactions that are running now have ended.

    :raises SourceBusy: they have not within ``database.query.timeout.ms``
    :raises PrerequisiteError: the server has no place for another slot
    """
    connection = connect(config, replication=True, initial=False)
    try:
        with raise_cdc_errors(config, f"replication slot {name}"):
            system, timeline = _identify(connection)
            row = _run_bounded(connection, config, _command(connection, config, name, temporary=temporary))
        position = PostgresPosition(parse_lsn(row[1]), system, timeline)
        log.info("The replication slot %s begins at %s.", name, position)
        return ExportedSlot(name, temporary, position, str(row[2]), connection)
    except BaseException:
        connection.close()
        raise


def _identify(connection: Connection[tuple[Any, ...]]) -> tuple[str, int]:
    row = connection.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


def _command(connection: Connection[tuple[Any, ...]], config: PostgresConfig, name: str, *, temporary: bool) -> str:
    version = connection.info.server_version
    kind = " TEMPORARY" if temporary else ""
    begin = f'CREATE_REPLICATION_SLOT "{name}"{kind} LOGICAL pgoutput'
    if version < _OPTIONS_SINCE:
        return f"{begin} EXPORT_SNAPSHOT"
    failover = ", FAILOVER true" if config.slot_failover and not temporary and version >= _FAILOVER_SINCE else ""
    return f"{begin} (SNAPSHOT 'export'{failover})"


def _run_bounded(connection: Connection[tuple[Any, ...]], config: PostgresConfig, command: str) -> tuple[Any, ...]:
    """Run a command that no ``statement_timeout`` of the server ends."""
    timeout_s = config.database_query_timeout_ms / 1000
    timer = threading.Timer(timeout_s, connection.cancel)
    if timeout_s:
        timer.daemon = True
        timer.start()
    try:
        row = connection.execute(command.encode()).fetchone()
        assert row is not None
        return row
    except psycopg.errors.QueryCanceled as e:
        raise _too_long(config, connection.info.backend_pid, timeout_s) from e
    except psycopg.errors.ObjectInUse as e:
        raise PrerequisiteError(
            f"The replication slot cannot be created: {e}",
            where=command,
            safe="Nothing was read; the offset is untouched.",
            remedy="raise max_replication_slots and restart the server, or drop slots that are not used (pg_drop_replication_slot)",
        ) from e
    finally:
        timer.cancel()


def _too_long(config: PostgresConfig, own_pid: int, timeout_s: float) -> SourceBusy:
    """Return the error that names the transactions that the server waits for."""
    standby, running = False, "unknown"
    try:
        with connect(config, initial=False) as connection, raise_cdc_errors(config):
            standby = bool((connection.execute("SELECT pg_is_in_recovery()").fetchone() or (False,))[0])
            rows = [connection.execute(_OLDEST, [own_pid]).fetchone(), connection.execute(_PREPARED).fetchone()]
            running = "; prepared: ".join(str(row[0]) for row in rows if row is not None and row[0]) or "none seen"
    except CdcError as e:
        log.warning("The running transactions cannot be listed: %s", e)
    remedy = (
        "run SELECT pg_log_standby_snapshot() on the primary, from which a standby knows which transactions are running"
        if standby
        else "end the transactions (SELECT pg_terminate_backend(pid), ROLLBACK PREPARED), or raise database.query.timeout.ms"
    )
    return SourceBusy(
        f"The replication slot was not created within {timeout_s:.0f} s: the server waits for running transactions: {running}.",
        where=f"{config.database_hostname}:{config.database_port}",
        safe="Nothing was read; the offset is untouched.",
        remedy=remedy,
    )
