"""Consistent views at one known position of the log, without a lock that keeps writers out.

* MariaDB: a consistent view knows its exact position: views are opened until all of them have the same.
* MySQL: a view does not know its position. A moment without writes helps: what is in the log by then is visible,
  and when the log has not grown until the views are open, they hold just that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.sources.mysql.connect import Server, scalar
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

log = logging.getLogger(__name__)

SETTLE_S: Final = 0.02
"""MySQL writes a transaction to the log before it becomes visible, microseconds as a rule."""
_TRIES: Final = 50
"""How often several views are opened with MariaDB before one has to do."""
OPEN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


def open_view(connection: Connection) -> None:
    """Begin a transaction that sees what is committed now."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(OPEN)


def open_at_one_position(connections: list[Connection], server: Server) -> MySqlPosition:
    """MariaDB: open views at one position of the log; if that is not possible for all, only the first one.

    :param connections: those without a view are closed and taken out
    :return: the position
    """
    for _ in range(_TRIES):
        for connection in connections:
            open_view(connection)
        positions = {_position(connection) for connection in connections}
        if len(positions) == 1:
            break
    else:
        log.info(
            "Writers leave no moment for %s views of one place: one connection reads all tables.", len(connections)
        )
        for connection in connections[1:]:
            connection.close()
        del connections[1:]
        open_view(connections[0])
        positions = {_position(connections[0])}
    file, pos = positions.pop()
    gtids = str(scalar(connections[0], f"SELECT BINLOG_GTID_POS('{file}', {pos})") or "")
    return MySqlPosition(file, pos, gtids if server.gtids else "", server=server.identity)


def open_at_rest(connections: list[Connection], end: Callable[[], MySqlPosition], patience_s: float) -> MySqlPosition:
    """MySQL: open views while nothing is written.

    :param end: gives where the server writes next
    :param patience_s: how long to wait for such a moment
    :return: the position
    :raises SourceUnavailable: there was none
    """
    until = time.monotonic() + patience_s
    while True:
        before = end()
        time.sleep(SETTLE_S)
        if end() == before:
            for connection in connections:
                open_view(connection)
            if end() == before:
                return before
        if time.monotonic() >= until:
            raise SourceUnavailable(
                f"The place of the snapshot in the log cannot be told: writers left no moment of rest within {patience_s:.0f} s, and "
                "without a lock nothing else tells it.",
                where="snapshot.locking.mode",
                safe="Nothing was read; the offset is untouched.",
                remedy="set snapshot.locking.mode=minimal, which locks for a moment; or run the snapshot at a quieter time (or raise "
                "snapshot.lock.timeout.ms); or set snapshot.mode=no_data and send execute-snapshot, which reads beside the stream and "
                "needs no lock",
            )


def _position(connection: Connection) -> tuple[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'")
        status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    return status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
