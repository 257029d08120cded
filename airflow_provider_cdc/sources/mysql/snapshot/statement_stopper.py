"""Ends a statement whose rows are not needed any more; its connection and its transaction go on."""

from __future__ import annotations

import logging

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, scalar
from airflow_provider_cdc.sources.mysql.snapshot.result_reader import INTERRUPTED

log = logging.getLogger(__name__)


class StatementStopper:
    """Ends statements of one connection, over another one.

    :param connection: whose statements they are
    """

    def __init__(self, config: MySqlConfig, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def stop(self, sql: str) -> bool:
        """Have the server end the running statement. ``False``: it could not; all rows will come.

        It is ended only if the answering server runs this very statement under the connection's id: behind a proxy, another server
        may answer.
        """
        number = self._connection.thread_id()
        try:
            with connect(self._config, initial=False) as other, other.cursor() as cursor:
                cursor.execute("SHOW FULL PROCESSLIST")
                at = [str(column[0]).lower() for column in cursor.description or ()]
                found = {row[at.index("id")]: str(row[at.index("info")] or "") for row in cursor.fetchall()}
                if found.get(number, "").strip() != sql.strip():
                    return False
                cursor.execute(f"KILL QUERY {number}")
        except (CdcError, pymysql.err.Error, ValueError) as e:
            log.debug("A statement cannot be ended, its rows are passed over: %s", e)
            return False
        return True

    def settle(self) -> None:
        """Wait until KILL QUERY took effect, so that it cannot end the next statement."""
        try:
            scalar(self._connection, "SELECT 1")
        except pymysql.err.Error as e:
            if e.args[:1] != (INTERRUPTED,):
                raise
