"""Opens consistent views (read views of several connections) at one known log position, without a lock that blocks writers.

* MariaDB reports the exact log position of a view (``binlog_snapshot_position``): views are opened until all have the same one.
* MySQL does not report it. So the views are opened between two looks at the end of the log: if the log has not grown in between, they
  are at this position. A transaction is in the log before its rows can be seen: for as long as the disk takes, or a replica that has to acknowledge it
  (semisynchronous replication waits ten seconds by default). So it is also looked at whether any transaction that has changed rows is at work meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, query_scalar
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

log = logging.getLogger(__name__)

SETTLE_S: Final = 0.02
"""Between two looks at the end of MySQL's log."""
_AT_WORK: Final = """
SELECT COUNT(*) FROM performance_schema.data_locks l JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID
WHERE l.LOCK_TYPE = 'TABLE' AND (l.LOCK_MODE LIKE 'IX%' OR l.LOCK_MODE LIKE 'X%') AND t.PROCESSLIST_COMMAND <> 'Sleep'
"""
"""Transactions that have changed rows, and whose sessions do something, which may be a commit. InnoDB shows committed rows before it frees their locks."""
_NO_RIGHT: Final = frozenset({1044, 1142, 1227})
_SHARED_TRIES: Final = 10
_TRIES: Final = 50
"""How often views are opened with MariaDB before one connection has to read all tables."""
OPEN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


def open_view(connection: Connection) -> None:
    """Begin a transaction that sees the rows committed by now."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(OPEN)


def open_at_one_position(
    connections: list[Connection],
    server: MySqlServer,
    open_others: Callable[[], set[tuple[str, int]]] = set,
) -> MySqlPosition:
    """MariaDB: open views at one log position; if that is not possible for all connections, only for the first one.

    :param connections: those left without a view are closed and removed from the list
    :param open_others: opens views of other processes, and returns their positions
    :return: the position
    :raises SourceBusy: the views of other processes are not at one position
    """
    for _ in range(_TRIES if open_others is set else _SHARED_TRIES):
        for connection in connections:
            open_view(connection)
        positions = {view_position(connection) for connection in connections} | open_others()
        if len(positions) == 1:
            break
    else:
        if open_others is not set:
            raise SourceBusy(
                f"Because of concurrent writes, the views of several processes cannot be opened at one log position ({_SHARED_TRIES} attempts).",
                where="snapshot.locking.mode",
                safe="Nothing was read; the offset is untouched.",
                remedy="set snapshot.locking.mode=minimal, which locks only until all views are open; or run the snapshot at a quieter time",
            )
        log.info(
            "Because of concurrent writes, %s views cannot be opened at one log position: one connection "
            "reads all tables.",
            len(connections),
        )
        for connection in connections[1:]:
            connection.close()
        del connections[1:]
        open_view(connections[0])
        positions = {view_position(connections[0])}
    file, pos = positions.pop()
    gtids = str(query_scalar(connections[0], f"SELECT BINLOG_GTID_POS('{file}', {pos})") or "")
    return MySqlPosition(file, pos, gtids if server.has_gtids else "", server=server.identity)


def open_at_rest(
    connections: list[Connection],
    end: Callable[[], MySqlPosition],
    patience_s: float,
    open_others: Callable[[], object] = set,
) -> MySqlPosition:
    """Open views of MySQL while nothing is written to the log, and all that is in it can be seen.

    :param end: returns the end of the log
    :param patience_s: how long to wait for a moment without writes, seconds
    :param open_others: opens views of other processes
    :return: the position
    :raises SourceBusy: there was no such moment
    :raises PrerequisiteError: the server does not say whether a transaction is at work
    """
    until = time.monotonic() + patience_s
    while True:
        before = end()
        time.sleep(SETTLE_S)
        if end() == before and not _at_work(connections[0]):
            for connection in connections:
                open_view(connection)
            open_others()
            if end() == before:
                return before
        if time.monotonic() >= until:
            raise SourceBusy(
                "The log position of the snapshot cannot be determined: without a lock, a moment without writes "
                f"is needed, and none occurred within {patience_s:.0f} s.",
                where="snapshot.locking.mode",
                safe="Nothing was read; the offset is untouched.",
                remedy="set snapshot.locking.mode=minimal, which locks only briefly; or run the snapshot at a quieter "
                "time (or raise snapshot.lock.timeout.ms); or set snapshot.mode=no_data and send "
                "execute-snapshot, which reads beside the stream and needs no lock",
            )


def _at_work(connection: Connection) -> bool:
    try:
        if query_scalar(connection, "SELECT @@performance_schema"):
            return bool(query_scalar(connection, _AT_WORK))
        reason = "performance_schema is disabled"
    except pymysql.err.MySQLError as e:
        if e.args[0] not in _NO_RIGHT:
            raise
        reason = str(e.args[1])
    raise PrerequisiteError(
        "Without a lock, the snapshot may miss changes that are in the log: transactions that are being "
        f"committed are not visible ({reason}).",
        where="snapshot.locking.mode",
        safe="Nothing was read; the offset is untouched.",
        remedy="set snapshot.locking.mode=minimal, which locks only briefly; or GRANT SELECT ON "
        "performance_schema.* to the account, and enable performance_schema",
    )


def view_position(connection: Connection) -> tuple[str, int]:
    """Return the log position of a view of MariaDB: file and offset."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'")
        status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    return status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
