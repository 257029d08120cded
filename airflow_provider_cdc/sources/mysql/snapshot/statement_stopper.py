"""Ending a statement whose rows are not wanted any more, while its connection and its transaction go on."""

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
        """Have the server end the statement that runs. ``False``: that cannot be; its rows come to the last one.

        It is ended only where the server that answers has this very statement under the connection's number: behind a proxy
        another one may.
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
        """A statement was ended, or had come to its end before: in that case the order to end must not meet the next one."""
        try:
            scalar(self._connection, "SELECT 1")
        except pymysql.err.Error as e:
            if e.args[:1] != (INTERRUPTED,):
                raise
