"""A thin wrapper of IBM's own driver, for the server itself and for tests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

LOG = logging.getLogger("db2.driver")
T = TypeVar("T")
DATABASE = "TESTDB"
LOCKED, DEADLOCK = "SQL0911N", 'Reason code "2"'
"""What is in the error of a transaction that was undone since others have locks, and which of these are deadlocks."""
DEADLOCKS = 5
"""So many a transaction may meet."""
Row = tuple[Any, ...]
_CONNECTING = threading.Lock()  # the driver's first connections load what is not safe among threads


def _whole_text(sql: str) -> str:
    """Make a statement one of which the driver prepares all: it counts a character beyond U+FFFF as one unit of UTF-16 instead of two, and cuts as many
    units off the end."""
    return sql + " " * sum(letter > "\uffff" for letter in sql)


def connection_string(host: str, port: int, user: str, password: str, **more: Any) -> str:
    """Format the string that the driver connects with.

    ``AUTHENTICATION=SERVER``: the engine has no encrypted passwords. ``LOBCacheSize``: values of LOBs come with their rows, as the
    engine has no locators that the driver understands.
    """
    words = {
        "DATABASE": DATABASE, "HOSTNAME": host, "PORT": port, "PROTOCOL": "TCPIP", "AUTHENTICATION": "SERVER", "LOBCacheSize": 16777216,
        "UID": user, "PWD": password, **more,
    }  # fmt: skip
    return "".join(f"{name}={value};" for name, value in words.items())


class Connection:
    """A connection; its changes are lost unless it commits."""

    def __init__(self, dsn: str, *, autocommit: bool = False) -> None:
        import ibm_db
        import ibm_db_dbi

        mode = ibm_db.SQL_AUTOCOMMIT_ON if autocommit else ibm_db.SQL_AUTOCOMMIT_OFF
        with _CONNECTING:
            self.handle = ibm_db.connect(dsn, "", "", {ibm_db.SQL_ATTR_AUTOCOMMIT: mode})
        self._connection = ibm_db_dbi.Connection(self.handle)
        self.closed = False

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement; the rows of its result, none where it has none."""
        cursor, sql = self._connection.cursor(), _whole_text(sql)
        try:
            cursor.execute(sql, tuple(parameters)) if parameters else cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; how many rows it has changed."""
        cursor, sql = self._connection.cursor(), _whole_text(sql)
        try:
            cursor.execute(sql, tuple(parameters)) if parameters else cursor.execute(sql)
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The only value of a result."""
        return self.rows(sql, parameters)[0][0]

    def columns(self, sql: str) -> list[Any]:
        """The description of a result's columns, as the DB-API has it."""
        cursor, sql = self._connection.cursor(), _whole_text(sql)
        try:
            cursor.execute(sql)
            return list(cursor.description)
        finally:
            cursor.close()

    def commit(self) -> None:
        """End the transaction; others see what it has changed."""
        self._connection.commit()

    def rollback(self) -> None:
        """End the transaction; what it has changed is gone."""
        self._connection.rollback()

    def close(self) -> None:
        """Disconnect; nothing where the server is gone."""
        import ibm_db

        if not self.closed:
            self.closed = True
            if ibm_db.active(self.handle):
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def run_atomically(connection: Connection) -> Iterator[None]:
    """A transaction that fails leaves nothing: neither changes nor locks."""
    try:
        yield
    except BaseException:
        connection.rollback()
        raise


def retry_transaction(work: Callable[[], T], *, patience_s: float = 0.0) -> T:
    """Do a transaction, which undoes itself where it fails, and do it again after a deadlock, as Db2 asks for.

    :param patience_s: for how many seconds others may have locks
    """
    end, deadlocks = time.monotonic() + patience_s, 0
    while True:
        try:
            return work()
        except Exception as error:
            deadlocks += DEADLOCK in str(error)
            few = DEADLOCK in str(error) and deadlocks <= DEADLOCKS
            if not few and not (LOCKED in str(error) and time.monotonic() < end):
                raise
            LOG.info("the transaction is done again: %s", error)
