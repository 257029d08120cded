"""The connection for the stream's questions. Each question ends its transaction, so that nothing is held (spec DB2-406)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, connect_database, translate_driver_errors

_T = TypeVar("_T")


class QueryConnection:
    """Asks the database. The connection is opened at the first question.

    :param open_connection: by default, of the configuration
    :ivar count: questions so far
    """

    def __init__(self, config: Db2Config, open_connection: Callable[[], Db2Connection] | None = None) -> None:
        self._config, self._open = config, open_connection or (lambda: connect_database(config))
        self._connection: Db2Connection | None = None
        self.count = 0

    def run_query(self, question: Callable[[Db2Connection], _T], where: str = "") -> _T:
        """Ask a question.

        :param where: table or LSN, for the text of an error
        :raises CdcError: the database does not answer it
        """
        if self._connection is None:
            self._connection = self._open()
        self.count += 1
        with translate_driver_errors(self._config, where):
            try:
                return question(self._connection)
            finally:
                self._connection.rollback()

    def close(self) -> None:
        """Close the connection; may be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
