"""Connections by ``ibm_db``, IBM's driver; identity of a database.

The driver's functions are called as they are, without ``ibm_db_dbi``, which converts each value by itself. A call that fails raises :class:`Db2Error`,
with the code that the database gave; :func:`translate_driver_errors` makes this project's errors of it.

Nothing is left open: a connection does not commit by itself, statements are freed when they are read, and a caller that has run a query ends its
transaction (:meth:`Db2Connection.rollback`). Otherwise tables could not be put into and out of capture mode (spec DB2-406).

The driver has no call that ends a running statement. :meth:`Db2Connection.cancel` therefore ends a reading at its next fetch.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import ibm_db

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import Db2SslMode
from airflow_provider_cdc.sources.db2.error_translation import Db2Error, ReadingCancelled, build_cdc_error

__all__ = [
    "ColumnDescription", "Db2Connection", "Db2Cursor", "Db2DatabaseIdentity", "Db2Error", "connect_database", "database_of", "translate_driver_errors",
]  # fmt: skip

CONNECT_SECONDS: Final = 20
LOB_CACHE_BYTES: Final = 16 << 20
"""LOBs of up to so many bytes come with their row; larger ones, one by one."""
FETCH_ROWS: Final = 10_000
_MOST_SECONDS: Final = 32_767
"""Longest time-out that the driver takes."""


class ColumnDescription(NamedTuple):
    """A column of a result, as the driver describes it."""

    name: str
    type: str
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Db2DatabaseIdentity:
    """Identity of a database.

    :param name: its name (``CURRENT SERVER``)
    :param product: as the driver has it: ``DB2/LINUXX8664``, ``DB2`` (z/OS), ``AS`` (i)
    :param version: as the driver has it: ``11.05.0800``
    """

    name: str
    product: str
    version: str

    @property
    def is_zos(self) -> bool:
        """True for Db2 for z/OS, whose catalog and commands are others."""
        return self.product in ("DB2", "DSN")

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """Version as numbers: ``11.05.0800`` → (11, 5, 800)."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


class Db2Connection:
    """A connection; one thread at a time uses it, except for :meth:`cancel` and :meth:`close`.

    :param text: connection string
    :raises Db2Error: no connection
    """

    def __init__(self, text: str) -> None:
        self._busy, self._cancelled, self._closed = threading.RLock(), False, False
        with _of_driver():
            self._handle: Any = ibm_db.connect(text, "", "", {ibm_db.SQL_ATTR_AUTOCOMMIT: ibm_db.SQL_AUTOCOMMIT_OFF})

    def open_cursor(self, sql: str, *params: Any, size: int = FETCH_ROWS) -> Db2Cursor:
        """Run a query; its rows are fetched in batches.

        :param size: rows per batch
        """
        with self._using():
            return Db2Cursor(self, _executed(self._handle, sql, params), size)

    def fetch_rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._using():
            statement = _executed(self._handle, sql, params)
            try:
                return _rows_of(statement)
            finally:
                _free(statement)

    def fetch_scalar(self, sql: str, *params: Any) -> Any:
        """First value of a query; ``None`` without a row."""
        rows = self.fetch_rows(sql, *params)
        return rows[0][0] if rows else None

    def execute(self, sql: str, *params: Any) -> int:
        """Run a statement; gives the number of rows that it has changed."""
        with self._using():
            statement = _executed(self._handle, sql, params)
            try:
                with _of_driver():
                    return int(ibm_db.num_rows(statement))
            finally:
                _free(statement)

    def commit(self) -> None:
        with self._using(), _of_driver():
            ibm_db.commit(self._handle)

    def rollback(self) -> None:
        """End the transaction, and with it whatever it holds."""
        with self._using(), _of_driver():
            ibm_db.rollback(self._handle)

    @property
    def server_identity(self) -> tuple[str, str]:
        """Product and version of the server."""
        with self._using(), _of_driver():
            info = ibm_db.server_info(self._handle)
            return str(info.DBMS_NAME), str(info.DBMS_VER)

    def is_healthy(self) -> bool:
        """Check whether the server answers."""
        try:
            self.fetch_rows("VALUES 1")
            self.rollback()
        except Db2Error:
            return False
        return True

    def cancel(self) -> None:
        """Let the thread that uses the connection go no further than the next fetch; callable from another thread."""
        self._cancelled = True

    def close(self) -> None:
        """Close the connection; twice, and from another thread, too. A statement that runs ends first."""
        self._cancelled = True
        with self._busy:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(Db2Error), _of_driver():  # gone already
                    ibm_db.rollback(self._handle)
                with contextlib.suppress(Db2Error), _of_driver():
                    ibm_db.close(self._handle)
                self._handle = None

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._busy:
            if self._cancelled or self._closed:
                raise ReadingCancelled
            yield


class Db2Cursor:
    """The result of a query; a context manager, which frees it.

    :ivar description: its columns
    """

    def __init__(self, connection: Db2Connection, statement: Any, size: int) -> None:
        self._connection, self._statement, self._size = connection, statement, size
        self.description = [_described(statement, i) for i in range(ibm_db.num_fields(statement))]

    def iterate_batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows, up to so many at a time as the cursor was opened for; at the end the result is freed."""
        while batch := self.fetch_rows(self._size):
            yield batch
        self.close()

    def fetch_rows(self, rows: int) -> list[tuple[Any, ...]]:
        """Fetch the next rows; fewer at the end, and then none."""
        with self._connection._using(), _of_driver():
            return list(ibm_db.fetchmany(self._statement, rows)) if self._statement is not None else []

    def close(self) -> None:
        """Free the result; may be called twice."""
        statement, self._statement = self._statement, None
        if statement is not None and not self._connection._closed:
            _free(statement)

    def __enter__(self) -> Db2Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_database(config: Db2Config) -> Db2Connection:
    """Open a connection.

    :raises AccessDenied: user or password is wrong
    :raises SourceUnavailable: no server answers
    :raises ConfigError: the address or the database is not known, or the password cannot be sent
    """
    with translate_driver_errors(config):
        return Db2Connection(_connection_string(config))


def database_of(connection: Db2Connection) -> Db2DatabaseIdentity:
    """Ask a database for its identity."""
    product, version = connection.server_identity
    return Db2DatabaseIdentity(str(connection.fetch_scalar("VALUES CURRENT SERVER")).strip(), product, version)


@contextlib.contextmanager
def translate_driver_errors(config: Db2Config, where: str = "") -> Iterator[None]:
    """Translate errors of the driver; they never contain the password.

    :param where: table, LSN or statement, for the error's text; by default the server's address
    """
    try:
        yield
    except Db2Error as e:
        error = build_cdc_error(e, config, where)
        raise error from (e if e.shows_nothing(config) else None)


def _connection_string(config: Db2Config) -> str:
    """Build the connection string of the driver.

    :raises ConfigError: it cannot hold the password
    :raises CdcError: the SSH tunnel cannot be opened
    """
    host, port = config.find_address()
    seconds = min(math.ceil(config.database_query_timeout_ms / 1000), _MOST_SECONDS)
    keywords = {
        "DATABASE": config.database_dbname,
        "HOSTNAME": host,
        "PORT": str(port),
        "PROTOCOL": "TCPIP",
        "UID": config.database_user,
        "PWD": _password(config.database_password.get_secret_value()),
        "ConnectTimeout": str(CONNECT_SECONDS),
        "ReceiveTimeout": str(seconds),
        "LOBCacheSize": str(LOB_CACHE_BYTES),
        "PATCH2": "15",  # numbers have a point, whatever the process's locale
        "ClientApplName": "airflow_provider_cdc",
    }
    keywords |= config.parse_driver_options()
    if config.database_authentication is not None:
        keywords["Authentication"] = config.database_authentication.value.upper()
    if config.database_ssl_mode is Db2SslMode.REQUIRED:
        keywords["Security"] = "SSL"
        keywords["SSLClientHostnameValidation"] = "Basic" if config.database_ssl_hostname_validation else "Off"
        if config.database_ssl_ca:
            keywords["SSLServerCertificate"] = config.database_ssl_ca
    return "".join(f"{name}={value};" for name, value in keywords.items())


def _password(password: str) -> str:
    """Return a password as a connection string has it.

    The driver takes the part before the semicolon, without blanks at the ends; it knows no quotes.
    """
    if ";" in password or password != password.strip():
        raise ConfigError(
            "The password contains a semicolon, or starts or ends with a blank, which IBM's driver does not support.",
            safe="Nothing was read; the offset is untouched.",
            remedy="change the password of the account, and update the Airflow connection",
        )
    return password


def _executed(handle: Any, sql: str, params: tuple[Any, ...]) -> Any:
    """Run a statement and return it."""
    with _of_driver(sql):
        if not params:
            return ibm_db.exec_immediate(handle, sql)
        statement = ibm_db.prepare(handle, _whole(sql))
        if not ibm_db.execute(statement, params):
            raise Db2Error(str(ibm_db.stmt_errormsg(statement)), sql)
        return statement


def _whole(sql: str) -> str:
    """Pad a statement so that the driver prepares all of it.

    The driver counts a character beyond U+FFFF as one unit of UTF-16 instead of two, and cuts as many units off the end.
    """
    return sql + " " * sum(letter > "\uffff" for letter in sql)


def _rows_of(statement: Any) -> list[tuple[Any, ...]]:
    with _of_driver():
        return list(ibm_db.fetchall(statement)) if ibm_db.num_fields(statement) else []


def _described(statement: Any, i: int) -> ColumnDescription:
    with _of_driver():
        return ColumnDescription(
            str(ibm_db.field_name(statement, i)),
            str(ibm_db.field_type(statement, i)),
            int(ibm_db.field_precision(statement, i)),
            int(ibm_db.field_scale(statement, i)),
        )


def _free(statement: Any) -> None:
    with contextlib.suppress(Db2Error), _of_driver():  # the connection is lost: the next call says so
        ibm_db.free_result(statement)
        ibm_db.free_stmt(statement)


@contextlib.contextmanager
def _of_driver(sql: str = "") -> Iterator[None]:
    """Errors of the driver, which are bare ``Exception``, as :class:`Db2Error`."""
    try:
        yield
    except Db2Error:
        raise
    except SystemError as e:
        # where the driver forgets to say that a call failed, Python does
        raise Db2Error(str(e.__cause__ or e), sql) from None
    except Exception as e:
        # the driver's own class is Exception itself: an exception of a subclass is a mistake of this program
        if type(e) is not Exception:
            raise
        raise Db2Error(str(e), sql) from None
