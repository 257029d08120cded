"""The files of the binary log, and its end: the position at which the server writes next."""

from __future__ import annotations

from collections.abc import Sequence

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, query_scalar
from airflow_provider_cdc.sources.mysql.position import MySqlPosition


def log_end(connection: Connection, server: MySqlServer) -> MySqlPosition:
    """Return the position at which the server writes next.

    :raises SourceUnavailable: the server has no binary log
    """
    with connection.cursor() as cursor:
        cursor.execute(show_log_end(server))
        rows = cursor.fetchall()
    gtids = str(query_scalar(connection, "SELECT @@gtid_binlog_pos") or "") if server.mariadb else ""
    return end_of(rows, server, gtids)


def show_log_end(server: MySqlServer) -> str:
    """Return the statement that shows the end of the log; its name differs between versions."""
    return (
        "SHOW BINARY LOG STATUS" if not server.mariadb and server.version_tuple >= (8, 2, 0) else "SHOW MASTER STATUS"
    )


def end_of(rows: Sequence[Sequence[object]], server: MySqlServer, gtids: str = "") -> MySqlPosition:
    """Return the position in the result of :func:`show_log_end`.

    :param gtids: ``gtid_binlog_pos`` of MariaDB, whose result has no GTIDs
    :raises SourceUnavailable: the server has no binary log
    """
    if not rows:
        raise SourceUnavailable(
            "The server has no binary log.", remedy="enable the binary log: log_bin, binlog_format=ROW"
        )
    row = rows[0]
    if not server.mariadb and len(row) > 4:
        gtids = str(row[4]).replace("\n", "")
    return MySqlPosition(str(row[0]), int(str(row[1])), gtids if server.has_gtids else "", server=server.identity)


def log_files(connection: Connection) -> dict[str, int]:
    """Return the files that the server keeps, oldest first, with their sizes in bytes."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        return {str(row[0]): int(row[1]) for row in cursor.fetchall()}
