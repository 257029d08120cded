"""KILL QUERY for a statement whose remaining rows are not needed; its connection and transaction continue."""

from __future__ import annotations

import logging

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, query_scalar
from airflow_provider_cdc.sources.mysql.snapshot.result_set_reader import INTERRUPTED

log = logging.getLogger(__name__)


class StatementStopper:
    """Kills running statements of one connection, over another connection.

    :param connection: the connection that runs the statements
    """

    def __init__(self, config: MySqlConfig, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def stop(self, sql: str) -> bool:
        """Kill the running statement; ``False`` if that was not possible, so that all rows will be sent.

        It is killed only if the server's process list has this very statement under the connection's id: behind a proxy, the second
        connection may reach another server.
        """
        number = self._connection.thread_id()
        try:
            with connect(self._config, initial=False) as other, other.cursor() as cursor:
                cursor.execute("SHOW FULL PROCESSLIST")
                at = [str(column[0]).lower() for column in cursor.description or ()]
                statements = {row[at.index("id")]: str(row[at.index("info")] or "") for row in cursor.fetchall()}
                if statements.get(number, "").strip() != sql.strip():
                    return False
                cursor.execute(f"KILL QUERY {number}")
        except (CdcError, pymysql.err.Error, ValueError) as e:
            log.debug("A statement cannot be killed, so its remaining rows are discarded: %s", e)
            return False
        return True

    def wait_for_kill(self) -> None:
        """Wait until KILL QUERY took effect, so that it cannot end the next statement."""
        try:
            query_scalar(self._connection, "SELECT 1")
        except pymysql.err.Error as e:
            if e.args[:1] != (INTERRUPTED,):
                raise
