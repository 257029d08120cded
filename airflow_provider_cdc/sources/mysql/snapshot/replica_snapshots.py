"""Snapshots that are read from a replica (``snapshot.hostname``), while the log is read from the primary.

The view is at GTIDs, so that the primary's log continues it, as after a failover. A replica shows the rows of the primary only if it
replicates all tables, and has no transactions of itself: both are checked. A blocking snapshot must not show older rows than the
stream has delivered, so the replica first catches up with the end of the primary's log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.log.gtid_continuity_check import find_missing_gtids
from airflow_provider_cdc.sources.mysql.log.log_end import log_end

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.connect import MySqlServer
    from airflow_provider_cdc.sources.mysql.position import MySqlPosition

log = logging.getLogger(__name__)

CATCH_UP_S: Final = 600.0
"""How long a replica may take to execute what the primary had committed when the snapshot began."""
_PAUSE_S: Final = 0.5
_REPORT_S: Final = 30.0
_DENIED: Final = 1227
_FILTERS: Final = "replicate_"
_NEITHER_FILTERS: Final = frozenset({"replicate_ignore_server_ids"})
_REMEDY: Final = "name another replica in snapshot.hostname, or remove it to read snapshots from the primary"


def check_replica(connection: Connection, replica: MySqlServer, primary: MySqlServer) -> list[Finding]:
    """Return findings about a replica that snapshots are read from.

    :param connection: to the replica
    """
    return [
        Finding(f"{problem}.", f"{remedy}; or {_REMEDY}") for problem, remedy in _problems(connection, replica, primary)
    ]


def _problems(connection: Connection, replica: MySqlServer, primary: MySqlServer) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a replica, and how it is mended."""
    for name, server in (("primary", primary), ("replica of snapshot.hostname", replica)):
        if not server.has_gtids:
            yield (
                f"The {name} has no GTIDs, so that positions of the replica have no meaning in the primary's log",
                "set gtid_mode=ON on both",
            )
    logged = "log_slave_updates" if replica.mariadb else "log_replica_updates"
    variables = replica.variables
    if variables.get("log_bin", "OFF").upper() not in ("ON", "1"):
        yield (
            "The replica of snapshot.hostname writes no binary log, so that the position of its rows is not known",
            "set log_bin",
        )
    elif variables.get(logged, variables.get("log_slave_updates", "ON")).upper() not in ("ON", "1"):
        yield (
            f"On the replica of snapshot.hostname, {logged} is OFF, so that the position of its rows is not known",
            f"set {logged}=ON",
        )
    try:
        states = _replication_states(connection, replica)
    except pymysql.err.OperationalError as e:
        if e.args[0] != _DENIED:
            raise
        yield (
            "The account may not read the state of the replica of snapshot.hostname, and whether it has filters",
            "GRANT REPLICA MONITOR ON *.* TO the account",
        )
        return
    if not states:
        yield "The server of snapshot.hostname is not a replica", "make it one"
    for state in states:
        filters = {
            name: value
            for name, value in state.items()
            if name.startswith(_FILTERS) and name not in _NEITHER_FILTERS and value
        }
        if filters:
            shown = ", ".join(f"{name}={value}" for name, value in sorted(filters.items()))
            yield (
                f"The replica of snapshot.hostname replicates only some tables ({shown}): its snapshot could lack rows",
                "remove its filters",
            )


def _replication_states(connection: Connection, server: MySqlServer) -> list[dict[str, Any]]:
    """Return the state of each connection of a replica to a primary, with names in lower case."""
    statement = "SHOW ALL SLAVES STATUS" if server.mariadb else "SHOW REPLICA STATUS"
    if not server.mariadb and server.version_tuple < (8, 0, 22):
        statement = "SHOW SLAVE STATUS"
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(statement)
        return [{str(name).lower(): value for name, value in row.items()} for row in cursor.fetchall()]


def refuse_unsuitable_replica(findings: list[Finding], address: str) -> None:
    """Refuse to read a snapshot from a replica with findings.

    :raises PrerequisiteError: there are findings
    """
    if findings:
        raise PrerequisiteError(
            " ".join(finding.problem for finding in findings),
            where=f"snapshot.hostname={address}",
            safe="Nothing was read; the offset is untouched.",
            remedy="; ".join(dict.fromkeys(finding.fix for finding in findings)),
        )


def wait_for_replica(connection: Connection, replica: MySqlServer, end: MySqlPosition, address: str) -> None:
    """Wait until a replica has executed everything up to a position of the primary.

    :raises SourceBusy: it has not after ten minutes
    """
    began = reported = time.monotonic()
    while not (reached := log_end(connection, replica)).has_reached(end):
        now = time.monotonic()
        if now - began > CATCH_UP_S:
            raise SourceBusy(
                f"The replica {address} has not executed all transactions that the primary had {CATCH_UP_S:.0f} s ago: it is at {reached}, and the primary was "
                f"at {end}.",
                where=f"snapshot.hostname={address}",
                safe="Nothing was read; the offset is untouched.",
                remedy=f"let the replica catch up, and run again; or {_REMEDY}",
            )
        if now - reported > _REPORT_S:
            log.info(
                "The snapshot waits until the replica %s has caught up: it is at %s, and the primary was at %s.",
                address,
                reached,
                end,
            )
            reported = now
        time.sleep(_PAUSE_S)


def refuse_own_transactions(primary: Connection, server: MySqlServer, position: MySqlPosition, address: str) -> None:
    """Refuse the rows of a replica that has transactions which its primary lacks.

    :param position: that of the replica's rows
    :raises PrerequisiteError: it has such transactions
    """
    if missing := find_missing_gtids(primary, server, position):
        raise PrerequisiteError(
            f"The replica {address} has transactions that the primary lacks: {missing}. Its rows are not those of the primary.",
            where=f"snapshot.hostname={address}",
            safe="Nothing was read; the offset is untouched.",
            remedy=f"make the replica again from the primary; or {_REMEDY}",
        )
