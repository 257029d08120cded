"""Connections and transactions of the state database. The other modules of this package use the tables."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, ProgrammingError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from airflow_provider_cdc.core.errors import StateError, StateUnavailable, StorageFull
from airflow_provider_cdc.core.full_disk import is_disk_full
from airflow_provider_cdc.core.remedy_commands import format_cdc_command, name_cdc_command
from airflow_provider_cdc.state.models import FENCE, REVISION, VERSION_TABLE, Base, LeaseRow

log = logging.getLogger(__name__)

_NOW_MS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
}
"""The database's own clock, in UTC: leases must not depend on how well the workers' clocks agree, and local time goes back for an hour in autumn."""

_AIRFLOWS = frozenset(["alembic_version", "dag_run"])
"""Tables by which the metadata DB of Airflow is known."""

_LOGGED_EVERY_S = 10.0
"""Interval of the lines of the log while one operation is tried again."""


class StateDatabase:
    """The state database: one engine, transactions, and retries while the database cannot be reached.

    :param url: SQLAlchemy URL
    :param schema: database schema of the tables, where it is not the default one
    :param idle_ms: after this time PostgreSQL ends a transaction in which nothing happens
    :param patience_s: how long an unreachable database is tried again
    :ivar now_ms: the statement that asks for the database's own clock, in milliseconds
    :raises StateError: the URL cannot be used
    """

    def __init__(self, url: str, *, schema: str | None = None, idle_ms: int = 30_000, patience_s: float = 60.0) -> None:
        try:
            parsed = sa.make_url(url)
            if parsed.get_backend_name() not in _NOW_MS:
                raise NoSuchModuleError(parsed.get_backend_name())
            options: dict[str, Any] = {"schema_translate_map": {None: schema}} if schema else {}
            # a pooler may give each transaction another session: nothing may be kept in one, prepared statements neither
            unprepared = {"prepare_threshold": None} if parsed.get_driver_name() == "psycopg" else {}
            self.engine = sa.create_engine(
                parsed, pool_pre_ping=True, execution_options=options, connect_args=unprepared
            )
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as e:
            # the URL may hold a password: its text is not repeated
            raise StateError(
                f"The state database's URL cannot be used ({type(e).__name__}).",
                safe="Nothing was read or changed.",
                remedy="give a SQLAlchemy URL of PostgreSQL, MySQL or SQLite, for example postgresql+psycopg://user:password@host/airflow",
            ) from None
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _sqlite_connect)
            sa.event.listen(self.engine, "begin", _sqlite_begin)
        sa.event.listen(self.engine, "handle_error", self._refuse_full_disk)
        self.now_ms = sa.text(f"SELECT {_NOW_MS[self.engine.dialect.name]}")
        self._schema, self._idle_ms, self._patience_s = schema, idle_ms, patience_s

    def create_tables(self) -> None:
        """Create the tables where they are missing. Airflow deployments use migrations instead."""
        Base.metadata.create_all(self.engine)

    def check_tables(self) -> None:
        """Check that the state tables exist, are of this release, and were not moved.

        :raises StateError: they do not exist, are of another release, or were moved to another database
        """
        self.check_tables_exist()
        for attempt in self.iterate_attempts("check that the tables were not moved"):
            with attempt, self.engine.connect() as c:
                self.check_fence(c)

    def check_tables_exist(self) -> None:
        """Check that the state tables exist, and are of this release.

        :raises StateError: they do not exist, or are of another release
        """
        for attempt in self.iterate_attempts("check the tables"):
            with attempt:
                names = set(sa.inspect(self.engine).get_table_names(schema=self._schema))
                revision = self._read_revision() if VERSION_TABLE in names else None
        if revision is not None and revision > REVISION:
            raise StateError(
                f"The state tables are of a newer release: their revision is {revision}, and this release knows {REVISION}.",
                where=self.place,
                safe="Nothing was read or changed.",
                remedy="install the release of airflow-provider-cdc that upgraded them, in this environment too",
            )
        missing = sorted(set(Base.metadata.tables) - names)
        if missing or (revision is not None and revision < REVISION):
            problem = f"missing: {', '.join(missing)}" if missing else f"of an older release: revision {revision}"
            raise StateError(
                f"The state tables are {problem}.",
                where=self.place,
                safe="Nothing was read or changed.",
                remedy=self._migration_command(names),
            )

    def check_fence(self, c: sa.Connection) -> None:
        """Check within a transaction that the tables were not moved.

        :raises StateError: they were moved
        """
        statement = sa.select(LeaseRow.owner).where(LeaseRow.connector == FENCE)
        if self.engine.dialect.name in ("mysql", "mariadb"):  # a plain read shows the rows of the transaction's begin
            statement = statement.with_for_update(read=True)
        if (moved := c.scalar(statement)) is not None:
            raise StateError(
                f"The state was moved: {moved}.",
                where=self.place,
                safe="Nothing was changed here. The copy has everything that was committed.",
                remedy="use that connection, or give this one the new database's URL: "
                + f"`{format_cdc_command('setup', url='-', replace=True)}`",
            )

    @property
    def place(self) -> str:
        """The address of the database, without a password."""
        return self.engine.url.set(query={}).render_as_string(hide_password=True)

    def is_airflows(self) -> bool:
        """Check whether the database is visibly Airflow's metadata DB."""
        return set(sa.inspect(self.engine).get_table_names(schema=self._schema)) >= _AIRFLOWS

    def _read_revision(self) -> str | None:
        """Return the revision of the tables, if it is recorded and may be read."""
        table = sa.table(VERSION_TABLE, sa.column("version_num"))
        try:
            with self.engine.connect() as c:
                found = c.scalar(sa.select(table.c.version_num))
        except ProgrammingError as e:  # a role of an earlier release has no right to read it
            log.debug("The revision of the state tables cannot be read: %s", e.orig)
            return None
        return None if found is None else str(found)

    def _migration_command(self, names: Collection[str]) -> str:
        """Return the command that creates and upgrades the tables.

        A login of MySQL sees only tables that it has rights on. It cannot know a metadata DB in which it has none.
        """
        if set(names) >= _AIRFLOWS:
            return "airflow db migrate"
        command = f"`{format_cdc_command('state migrate')}`, with --conn-id if the connection is not cdc_state_default"
        if self.engine.dialect.name in ("mysql", "mariadb"):
            setup = name_cdc_command("setup")
            command += f". If the database is Airflow's metadata DB: `airflow db migrate`, then the GRANTs that `{setup}` prints"
        return command

    def close(self) -> None:
        self.engine.dispose()

    @contextlib.contextmanager
    def open_transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction that writes.

        It is committed at the end of the block, and rolled back after an error.

        :raises StateError: the tables were moved to another database
        """
        with self.engine.connect().execution_options(cdc_write=True) as c, c.begin():
            if self.engine.dialect.name == "postgresql":
                # a run that is frozen within a transaction must not lock the others out
                c.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {self._idle_ms}")
            yield c
            self.check_fence(c)  # at the end: a copy of the state may have kept this transaction waiting

    def _refuse_full_disk(self, context: sa.engine.ExceptionContext) -> None:
        """Replace an error of the driver: a retry does not help, and no one needs the statement.

        :raises StorageFull: the disk of the database is full
        """
        error = context.original_exception
        if not is_disk_full(error):
            return
        url = self.engine.url
        file = url.database if url.get_backend_name() == "sqlite" else None
        disk = f"the disk of {file}" if file else "the disk of the database server"
        retention = format_cdc_command("maintain", "CONNECTOR", only="retention")
        raise StorageFull(
            f"No space is left where the state database is written ({_first_line(error)}).",
            where=f"{disk}: {self.place}",
            safe="The transaction was rolled back, so that the offset was not moved. The next run finds a batch that was being committed.",
            remedy=f"free space on {disk}, or enlarge it, then run the task again. `{retention}` removes old batches and old rows of the state tables",
        ) from error

    def iterate_attempts(self, operation: str) -> Retrying:
        """Yield attempts at one piece of work, until one succeeds.

        The next one comes while the database cannot be reached, or is locked.

            >>> for attempt in database.iterate_attempts("load the offset"):
            ...     with attempt, database.open_transaction() as c:
            ...         c.execute(statement)

        :param operation: the work as a verb and an object, for the log
        :raises StateUnavailable: ``patience_s`` is over
        :raises StorageFull: the disk of the database is full; this is not tried again
        """
        return Retrying(
            retry=retry_if_exception(is_retryable_error),
            stop=stop_after_delay(self._patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            before_sleep=self._retry_logger(operation),
            retry_error_callback=self._unavailable,
        )

    def _retry_logger(self, operation: str) -> Callable[[RetryCallState], None]:
        """Build the function that logs the first retry of an operation, and then one in some seconds."""
        logged_at = float("-inf")

        def log_retry(attempts: RetryCallState) -> None:
            nonlocal logged_at
            if time.monotonic() - logged_at < _LOGGED_EVERY_S:
                return
            logged_at = time.monotonic()
            left_s = max(self._patience_s - (attempts.seconds_since_start or 0.0), 0.0)
            log.warning(
                "The state database does not answer: %s. Trying to %s again for up to %.0f s.",
                _first_line(_driver_error(attempts)), operation, left_s,
            )  # fmt: skip

        return log_retry

    def _unavailable(self, attempts: RetryCallState) -> NoReturn:
        reason = _driver_error(attempts)
        raise StateUnavailable(
            f"The state database cannot be reached, or is locked, for {self._patience_s:g} s: {reason}",
            where=self.place,
            safe="Committed data stays; the next run finds a batch that was being committed.",
            remedy="check the database, then run the capture again",
        ) from reason

    def qualify_table(self, table: str) -> str:
        """Return a table's name with its schema, quoted where it has one."""
        return f'"{self._schema}"."{table}"' if self._schema else table

    @property
    def schema(self) -> str | None:
        """The database schema of the tables, where it is not the default one."""
        return self._schema


def _driver_error(attempts: RetryCallState) -> BaseException | None:
    """Return the driver's error of the last attempt. That of SQLAlchemy, around it, has the statement and its values in its text."""
    error = attempts.outcome.exception() if attempts.outcome is not None else None
    return getattr(error, "orig", None) or error


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def is_retryable_error(e: BaseException) -> bool:
    """Check whether to try again: the database is not reachable or locked, or has closed the connection."""
    return isinstance(e, OperationalError) or (isinstance(e, DBAPIError) and e.connection_invalidated)


def _sqlite_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy's "begin" event says BEGIN, not the driver
    connection.execute("PRAGMA busy_timeout = 30000")


def _sqlite_begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("cdc_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def to_storable_text(text: str, limit: int) -> str:
    """Convert an external text to a form that every database can store.

    It is cut to ``limit`` characters, without invalid ones.

    A NUL, which PostgreSQL does not keep, becomes another control character, which JSON does not allow either.
    """
    return text[:limit].replace("\0", "\x01").encode("utf-8", "replace").decode()
