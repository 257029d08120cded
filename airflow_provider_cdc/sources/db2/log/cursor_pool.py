"""The results that are open while a window is read: few at a time over one connection, whatever the number of change tables.

The query that has not fetched for longest gives way: its result is closed, and it runs again behind the last row when more is wanted.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any, Final, Protocol

from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Cursor, Db2Error

MOST_OPEN: Final = 64


class ResumableQuery(Protocol):
    """A query that can be run again from where it was left."""

    def query(self) -> tuple[str, tuple[Any, ...]]:
        """Return the query for the rows that were not fetched yet, and its parameters."""


class CursorPool:
    """The open results of one window.

    :param connection: used by nothing else meanwhile
    :ivar opened: queries so far
    """

    def __init__(self, connection: Db2Connection, most: int = MOST_OPEN) -> None:
        self._connection, self._most = connection, most
        self._open: OrderedDict[ResumableQuery, Db2Cursor] = OrderedDict()
        self.opened = 0

    def fetch_rows(self, query: ResumableQuery, rows: int) -> list[tuple[Any, ...]]:
        """Fetch the next rows of a query; fewer than asked for at its end, where its result is closed."""
        cursor = self._open.get(query)
        if cursor is None:
            while len(self._open) >= self._most:
                self._open.popitem(last=False)[1].close()
            sql, parameters = query.query()
            cursor = self._open[query] = self._connection.open_cursor(sql, *parameters, size=rows)
            self.opened += 1
        self._open.move_to_end(query)
        fetched = cursor.fetch_rows(rows)
        if len(fetched) < rows:
            self._open.pop(query).close()
        return fetched

    def close(self) -> None:
        """Close all results and end the transaction."""
        while self._open:
            self._open.popitem()[1].close()
        with contextlib.suppress(Db2Error):  # the connection is lost: the next caller gets the error
            self._connection.rollback()
