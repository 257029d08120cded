"""The watermarks of a chunk: what is known of the log before and after its rows are read, in three ways.

* Written watermarks: rows of the signal table. Transactions have to become visible in the order of the log.
* Read ones, MariaDB: a consistent view knows its exact position, without any lock.
* Read ones, MySQL: a transaction whose GTID is executed is visible; one that is visible is in the log.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql.connect import Server, scalar
from airflow_provider_cdc.sources.mysql.log.log_end import end_of, show_log_end
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

_GTIDS = "SELECT @@GLOBAL.gtid_binlog_pos"
_NOW = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"
_SAFE = "Nothing was read; capture goes on."

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """The positions that belong to a chunk.

    :param position: one that the rows can be said to come from
    :param ts_us: when they were read
    :param low, high: see :class:`airflow_provider_cdc.core.spi.chunks.ChunkRows`
    """

    position: MySqlPosition
    ts_us: int
    low: MySqlPosition | None = None
    high: MySqlPosition | None = None


class Watermarks(abc.ABC):
    """What has to be asked around the reading of a chunk.

    :ivar before: statements before the transaction in which the chunk is read
    :ivar begin: the statement that begins it
    :ivar inside: statements in it, before the rows are read
    :ivar after: statements after it
    :ivar log_end: statements that ask where the log ends
    """

    before: tuple[str, ...] = ()
    begin = "START TRANSACTION"
    inside: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    isolation = "READ COMMITTED"

    def __init__(self, connection: Connection, server: Server) -> None:
        """:raises PrerequisiteError: the server cannot give them; the error says how it would"""
        self._server = server
        # MariaDB does not give the GTIDs with the position; they may be some that come later
        self.log_end = (show_log_end(server), *([_GTIDS] if server.mariadb else []))
        self.verify(connection)

    @abc.abstractmethod
    def marks(self, found: Sequence[Rows], after: Sequence[Rows], *, transactional: bool) -> Marks:
        """
        :param found: answers to :attr:`before`, ``begin``, a lock, :attr:`inside` and others
        :param after: answers to :attr:`after`
        :param transactional: the table's rows come from a view of committed ones
        """

    def end(self, found: Sequence[Rows]) -> MySqlPosition:
        """:param found: answers to :attr:`log_end`"""
        return end_of(found[0], self._server, str(found[1][0][0] or "") if self._server.mariadb else "")

    def verify(self, connection: Connection) -> None:  # noqa: B027 MariaDB's need nothing
        """:raises PrerequisiteError: the watermarks would not say what a chunk holds"""


class WrittenWatermarks(Watermarks):
    """Rows of the signal table."""

    def __init__(self, connection: Connection, server: Server) -> None:
        self.before = (_NOW, show_log_end(server))
        super().__init__(connection, server)

    def marks(self, found: Sequence[Rows], after: Sequence[Rows], *, transactional: bool) -> Marks:
        return Marks(end_of(found[1], self._server), int(found[0][0][0]))

    def verify(self, connection: Connection) -> None:
        if not self._server.mariadb and not scalar(connection, "SELECT @@GLOBAL.binlog_order_commits"):
            raise PrerequisiteError(
                "binlog_order_commits is OFF: transactions become visible in another order than they are logged in, so that "
                "watermarks in the signal table do not tell what a chunk holds.",
                safe=_SAFE,
                remedy="SET GLOBAL binlog_order_commits = ON; or set read.only=true, which needs gtid_mode=ON",
            )


class ViewWatermarks(Watermarks):
    """MariaDB: the position of a consistent view."""

    before = (_NOW, _GTIDS)
    begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
    inside = ("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'",)
    after = ("SHOW MASTER STATUS", _GTIDS)
    isolation = "REPEATABLE READ"

    def marks(self, found: Sequence[Rows], after: Sequence[Rows], *, transactional: bool) -> Marks:
        status = {str(name).lower(): str(value) for name, value in found[4]}
        position = MySqlPosition(status["binlog_snapshot_file"], int(status["binlog_snapshot_position"]))
        # the GTIDs count where the stream still stands in another server's log: the view has at least those that were there
        # before it, and none that were not there afterwards
        low = replace(position, gtids=str(found[1][0][0] or ""), server=self._server.identity)
        high = replace(low, gtids=str(after[1][0][0] or ""))
        if not transactional:  # rows are read as they are, not as they were when the view was opened
            high = end_of(after[0], self._server, high.gtids)
        return Marks(high, int(found[0][0][0]), low, high)


class GtidWatermarks(Watermarks):
    """MySQL: GTIDs before, the end of the log after."""

    before = (_NOW, "SELECT @@GLOBAL.gtid_executed")

    def __init__(self, connection: Connection, server: Server) -> None:
        self.after = (show_log_end(server),)
        super().__init__(connection, server)

    def marks(self, found: Sequence[Rows], after: Sequence[Rows], *, transactional: bool) -> Marks:
        # of no file and no server: only the GTIDs of a position can be compared with it
        low = MySqlPosition("", 0, str(found[1][0][0] or "").replace("\n", ""))
        high = end_of(after[0], self._server)
        return Marks(high, int(found[0][0][0]), low, high)

    def verify(self, connection: Connection) -> None:
        _verify_gtids(connection)


def _verify_gtids(connection: Connection) -> None:
    """:raises PrerequisiteError: GTIDs do not say what is visible"""
    with connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL VARIABLES WHERE variable_name IN ('gtid_mode', 'replica_parallel_workers', "
            "'slave_parallel_workers', 'replica_preserve_commit_order', 'slave_preserve_commit_order')"
        )
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    if variables.get("gtid_mode") != "ON":
        raise PrerequisiteError(
            f"gtid_mode is {variables.get('gtid_mode')}: without GTIDs, incremental snapshots that write nothing to the database "
            "are not possible.",
            safe=_SAFE,
            remedy="switch gtid_mode and enforce_gtid_consistency on at the server, or set signal.data.collection and read.only=false",
        )
    prefix = "replica" if "replica_parallel_workers" in variables else "slave"
    workers, preserve = f"{prefix}_parallel_workers", f"{prefix}_preserve_commit_order"
    if int(variables.get(workers) or 0) <= 1 or variables.get(preserve, "OFF").upper() in ("ON", "1"):
        return
    if scalar(connection, "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration"):
        raise PrerequisiteError(
            f"The server is a replica with {workers}={variables[workers]} and {preserve}=OFF: it commits in another order than its "
            "source did.",
            safe=_SAFE,
            remedy=f"STOP REPLICA SQL_THREAD; SET GLOBAL {preserve} = ON; START REPLICA SQL_THREAD; and the same in the server's "
            "configuration",
        )


def watermarks_for(connection: Connection, server: Server, *, written: bool) -> Watermarks:
    """The watermarks that this server can give.

    :raises PrerequisiteError: it can give none; the error says how it would
    """
    marks: Watermarks
    if written:
        marks = WrittenWatermarks(connection, server)
    elif server.mariadb:
        marks = ViewWatermarks(connection, server)
    else:
        marks = GtidWatermarks(connection, server)
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {marks.isolation}")
    return marks
