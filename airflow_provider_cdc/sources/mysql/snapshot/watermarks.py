"""The watermarks of a chunk: log positions before and after its rows are read. There are three kinds.

* Written watermarks: rows in the signal table. Transactions must become visible in the order in which they are logged.
* Read-only, MariaDB: the server reports the exact log position of a consistent view.
* Read-only, MySQL: a transaction in ``gtid_executed`` is visible, and a visible transaction is in the log.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, query_scalar
from airflow_provider_cdc.sources.mysql.log.log_end import end_of, show_log_end
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

_GTIDS = "SELECT @@GLOBAL.gtid_binlog_pos"
_NOW = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"
_SAFE = "Nothing was read; capture continues."

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class ChunkWatermarks:
    """The log positions of a chunk.

    :param position: the position for the ``source`` block of its rows
    :param ts_us: when the rows were read, µs since the epoch
    :param low: low watermark; ``None`` if watermarks are written to the signal table
    :param high: high watermark; ``None`` in the same case
    """

    position: MySqlPosition
    ts_us: int
    low: MySqlPosition | None = None
    high: MySqlPosition | None = None


class WatermarkStatements(abc.ABC):
    """The statements that determine the watermarks of a chunk.

    :ivar before: statements before the transaction in which the chunk is read
    :ivar begin: the statement that begins this transaction
    :ivar inside: statements in it, before the rows are read
    :ivar after: statements after it
    :ivar isolation: isolation level of the session
    :ivar log_end: statements that ask for the end of the log
    """

    before: tuple[str, ...] = ()
    begin = "START TRANSACTION"
    inside: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    isolation = "READ COMMITTED"

    def __init__(self, connection: Connection, server: MySqlServer) -> None:
        """Choose the statements and check the server.

        :raises PrerequisiteError: the server cannot give watermarks of this kind; the error says what to change
        """
        self._server = server
        # MariaDB gives the GTIDs separately; they may include transactions after the position
        self.log_end = (show_log_end(server), *([_GTIDS] if server.mariadb else []))
        self.check_server(connection)

    @abc.abstractmethod
    def compute_watermarks(
        self, results: Sequence[Rows], after: Sequence[Rows], *, transactional: bool
    ) -> ChunkWatermarks:
        """Return the watermarks, from the results of the statements.

        :param results: results of :attr:`before`, :attr:`begin`, the metadata lock, :attr:`inside` and others, in this order
        :param after: results of :attr:`after`
        :param transactional: the table's engine is transactional, so its rows come from a consistent view
        """

    def parse_log_end(self, results: Sequence[Rows]) -> MySqlPosition:
        """Return the end of the log, from the results of :attr:`log_end`."""
        return end_of(results[0], self._server, str(results[1][0][0] or "") if self._server.mariadb else "")

    def check_server(self, connection: Connection) -> None:  # noqa: B027 MariaDB's need nothing
        """Check the server's settings.

        :raises PrerequisiteError: with them, a watermark does not say which changes a chunk contains
        """


class WrittenWatermarks(WatermarkStatements):
    """Watermarks written as rows of the signal table."""

    def __init__(self, connection: Connection, server: MySqlServer) -> None:
        self.before = (_NOW, show_log_end(server))
        super().__init__(connection, server)

    def compute_watermarks(
        self, results: Sequence[Rows], after: Sequence[Rows], *, transactional: bool
    ) -> ChunkWatermarks:
        return ChunkWatermarks(end_of(results[1], self._server), int(results[0][0][0]))

    def check_server(self, connection: Connection) -> None:
        if not self._server.mariadb and not query_scalar(connection, "SELECT @@GLOBAL.binlog_order_commits"):
            raise PrerequisiteError(
                "binlog_order_commits is OFF: transactions become visible in another order than in the log, so "
                "watermarks in the signal table do not show which changes a chunk contains.",
                safe=_SAFE,
                remedy="SET GLOBAL binlog_order_commits = ON; or set read.only=true, which needs gtid_mode=ON",
            )


class ViewWatermarks(WatermarkStatements):
    """Read-only watermarks of MariaDB: the position of a consistent view."""

    before = (_NOW, _GTIDS)
    begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
    inside = ("SHOW SESSION STATUS LIKE 'binlog_snapshot_%'",)
    after = ("SHOW MASTER STATUS", _GTIDS)
    isolation = "REPEATABLE READ"

    def compute_watermarks(
        self, results: Sequence[Rows], after: Sequence[Rows], *, transactional: bool
    ) -> ChunkWatermarks:
        status = {str(name).lower(): str(value) for name, value in results[4]}
        position = MySqlPosition(status["binlog_snapshot_file"], int(status["binlog_snapshot_position"]))
        # GTIDs are compared if the stream's position is of another server: the view has at least the GTIDs executed before it was
        # opened, and none that were not executed afterwards
        low = replace(position, gtids=str(results[1][0][0] or ""), server=self._server.identity)
        high = replace(low, gtids=str(after[1][0][0] or ""))
        if not transactional:  # such a table has no views: its rows are those of the moment of reading
            high = end_of(after[0], self._server, high.gtids)
        return ChunkWatermarks(high, int(results[0][0][0]), low, high)


class GtidWatermarks(WatermarkStatements):
    """Read-only watermarks of MySQL: executed GTIDs before, the end of the log after."""

    before = (_NOW, "SELECT @@GLOBAL.gtid_executed")

    def __init__(self, connection: Connection, server: MySqlServer) -> None:
        self.after = (show_log_end(server),)
        super().__init__(connection, server)

    def compute_watermarks(
        self, results: Sequence[Rows], after: Sequence[Rows], *, transactional: bool
    ) -> ChunkWatermarks:
        # without a file and a server, positions are compared with it by their GTIDs only
        low = MySqlPosition("", 0, str(results[1][0][0] or "").replace("\n", ""))
        high = end_of(after[0], self._server)
        return ChunkWatermarks(high, int(results[0][0][0]), low, high)

    def check_server(self, connection: Connection) -> None:
        _verify_gtids(connection)


def _verify_gtids(connection: Connection) -> None:
    """Check the server's settings.

    :raises PrerequisiteError: ``gtid_executed`` does not say which transactions are visible
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL VARIABLES WHERE variable_name IN ('gtid_mode', 'replica_parallel_workers', "
            "'slave_parallel_workers', 'replica_preserve_commit_order', 'slave_preserve_commit_order')"
        )
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    if variables.get("gtid_mode") != "ON":
        raise PrerequisiteError(
            f"gtid_mode is {variables.get('gtid_mode')}: without GTIDs, incremental snapshots without writes to "
            "the database are not possible.",
            safe=_SAFE,
            remedy="enable gtid_mode and enforce_gtid_consistency on the server, or set signal.data.collection and "
            "read.only=false",
        )
    prefix = "replica" if "replica_parallel_workers" in variables else "slave"
    workers, preserve = f"{prefix}_parallel_workers", f"{prefix}_preserve_commit_order"
    if int(variables.get(workers) or 0) <= 1 or variables.get(preserve, "OFF").upper() in ("ON", "1"):
        return
    if query_scalar(connection, "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration"):
        raise PrerequisiteError(
            f"The server is a replica with {workers}={variables[workers]} and {preserve}=OFF: it commits in "
            "another order than its source.",
            safe=_SAFE,
            remedy=f"STOP REPLICA SQL_THREAD; SET GLOBAL {preserve} = ON; START REPLICA SQL_THREAD; and the same in the server's "
            "configuration",
        )


def watermarks_for(connection: Connection, server: MySqlServer, *, written: bool) -> WatermarkStatements:
    """Return the kind of watermarks to use; also set the session's isolation level.

    :param written: watermarks are written to the signal table
    :raises PrerequisiteError: the server cannot give them; the error says what to change
    """
    marks: WatermarkStatements
    if written:
        marks = WrittenWatermarks(connection, server)
    elif server.mariadb:
        marks = ViewWatermarks(connection, server)
    else:
        marks = GtidWatermarks(connection, server)
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {marks.isolation}")
    return marks
