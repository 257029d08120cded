"""A consistent snapshot of tables: several connections that see the same rows, at one log position.

The global read lock is held while the readers' transactions are opened and the position and the table definitions are read. It is
released before the first row is read (Debezium MySQL connector, "Initial snapshots that use a global read lock"). Where the server
does not allow this lock, the tables themselves are locked for the same time.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.snapshot.snapshot_policy import lock_refused, lock_statements
from airflow_provider_cdc.core.spi.remote_readers import ViewMeeting
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.mysql.config import LockingMode, MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import (
    MySqlServer,
    connect,
    query_scalar,
    raise_cdc_errors,
    server_of,
)
from airflow_provider_cdc.sources.mysql.log.log_end import log_end
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog, quote_table, quoted_name
from airflow_provider_cdc.sources.mysql.schema.column_types import (
    INTEGERS,
    SYSTEM_DATABASES,
    TRANSACTIONAL,
    MySqlColumnType,
)
from airflow_provider_cdc.sources.mysql.snapshot.consistent_views import open_at_one_position, open_at_rest, open_view
from airflow_provider_cdc.sources.mysql.snapshot.select_overrides import build_override_selects
from airflow_provider_cdc.sources.mysql.snapshot.view_rows import (
    GONE,
    IDLE_S,
    LOCK_TIMEOUT,
    PATIENCE_S,
    SELECT,
    find_table_change,
    read_view_rows,
)

log = logging.getLogger(__name__)

CHUNK_ROWS = 250_000
FEWEST_SHARED_ROWS, SHARED_CHUNK_ROWS = 50_000, 4_000_000
"""Rows of the smallest and of the largest chunks for readers of other processes: each chunk is a file, and the last ones decide how long all wait."""
_NO_LOCK_RIGHTS = {1044, 1045, 1142, 1227}
_POLL_S = 0.05
_LOCK_TRIES = 5


class MySqlSnapshot(SnapshotSession):
    """A :class:`~airflow_provider_cdc.core.spi.source.SnapshotSession`: opened when it is made, to be closed by :meth:`close`.

    :param readers: number of connections that read tables in parallel
    :param created_of: returns when a log file was created, seconds since the epoch
    :param selects: SELECTs of an ad hoc snapshot, which take precedence over those of the configuration
    :param meeting: has readers of other processes open their views of the same rows
    :raises SourceBusy: a lock, or a moment without writes, was not to be had in time
    """

    position: MySqlPosition

    def __init__(
        self,
        config: MySqlConfig,
        tables: Sequence[TableId],
        readers: int,
        created_of: Callable[[str], int],
        selects: Mapping[TableId, str] = MappingProxyType({}),
        metrics: LogMetrics | None = None,
        meeting: ViewMeeting | None = None,
    ) -> None:
        configured = build_override_selects(config)
        self._config, self._selects, self._metrics = config, configured | dict(selects), metrics or LogMetrics()
        self._configured = configured.keys() - selects.keys()
        self._connections: list[Connection] = []
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._created_of = created_of
        self.changed: set[TableId] = set()
        self.urgent: frozenset[TableId] = frozenset()
        self._guard = threading.Lock()
        self._unread: Counter[TableId] = Counter()
        self._begun: dict[TableId, set[Connection]] = {}  # readers that DDL waits for
        self._awaited: set[TableId] = set()  # DDL waits, and lets no further reader in
        self._held: Connection | None = None
        self._meeting, self._shared_by = meeting, 0
        self._all_cut = False  # no further table without transactions will be cut
        try:
            with raise_cdc_errors(config, "opening a snapshot"):
                self._open(list(tables), readers)
        except BaseException:
            self.close()
            raise

    def _open(self, tables: list[TableId], readers: int) -> None:
        lock, connections = self._connect(), [self._connect() for _ in range(readers)]
        for connection in connections:
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION lock_wait_timeout = {PATIENCE_S}")
        server, mode = server_of(lock), self._config.snapshot_locking_mode
        self._catalog = catalog = MySqlCatalog(lock, self._config, mariadb=server.mariadb)
        locked = mode is not LockingMode.NONE
        if mode is LockingMode.CUSTOM:
            locked = self._lock_otherwise(lock, tables)
        elif locked:
            self._lock(lock, tables)
        self._metrics.set_locked(locked)
        began = time.monotonic()
        if mode is not LockingMode.EXTENDED and not self.urgent:
            self._hold(catalog.read_engines(tables))
        position = self._view(connections, lock, server, locked=locked)
        self.ts_us = int(query_scalar(lock, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"))
        self.schemas = catalog.read_tables(tables)
        if mode is LockingMode.MINIMAL:
            with lock.cursor() as cursor:
                cursor.execute("UNLOCK TABLES")
            self._metrics.set_locked(False)
            log.info("The snapshot's locks were held for %.2f s.", time.monotonic() - began)
        if mode is LockingMode.CUSTOM:
            lock.close()  # releases whatever the custom statements have locked
            lock = self._connect()
            self._catalog = catalog = MySqlCatalog(lock, self._config, mariadb=server.mariadb)
            self._metrics.set_locked(False)
            log.info("The snapshot's locks were held for %.2f s.", time.monotonic() - began)
        self.ddl = {t: self._create_statement(t) for t in self.schemas}
        self.position = replace(position, created=self._created_of(position.file))
        self.source = {
            "server_id": 0, "gtid": None, "file": self.position.file, "pos": self.position.pos, "row": 0, "thread": None,
            "query": None,
        }  # fmt: skip
        self._rows = catalog.estimate_row_counts(self.schemas)
        for connection in connections:
            self._idle.put(connection)

    def _create_statement(self, table: TableId) -> str:
        """``SHOW CREATE TABLE``; empty if the table was dropped meanwhile."""
        try:
            return self._catalog.create_statement(table)
        except pymysql.err.MySQLError as e:
            if e.args[0] not in GONE:
                raise
            return ""

    def _hold(self, engines: Mapping[TableId, str]) -> None:
        """Lock the tables of engines without transactions against writes until they are read: no view shows them as they were.

        :raises PrerequisiteError: the account may not
        """
        names = sorted((t for t, engine in engines.items() if engine and engine not in TRANSACTIONAL), key=str)
        names = [t for t in names if t.namespace not in SYSTEM_DATABASES]
        if not names:
            return
        if self._config.snapshot_locking_mode is LockingMode.NONE:
            log.warning(
                "Tables without transactions are read without a lock (snapshot.locking.mode=none): changes that "
                "are made during the read may be captured twice: %s.",
                ", ".join(map(str, names)),
            )
            return
        self._held = self._connect()
        seconds = max(round(self._config.snapshot_lock_timeout_ms / 1000), 1)
        statement = "LOCK TABLES " + ", ".join(f"{quote_table(t)} READ" for t in names)
        with self._held.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {seconds}")
            try:
                cursor.execute(statement)
            except pymysql.err.MySQLError as e:
                if e.args[0] in LOCK_TIMEOUT:
                    raise self._not_locked(seconds, statement[:500]) from e
                if e.args[0] not in _NO_LOCK_RIGHTS:
                    raise
                raise PrerequisiteError(
                    "Tables of engines without transactions must be locked until they are read, but the "
                    f"account may not lock them: {e.args[1]}",
                    where=", ".join(f"{t} ({engines[t]})" for t in names),
                    safe="Nothing was read; the offset is untouched.",
                    remedy="GRANT LOCK TABLES ON *.* to the account; or set snapshot.locking.mode=extended, which blocks "
                    "all writes until all tables are read; or exclude the tables with table.exclude.list",
                ) from e
        self.urgent = frozenset(names)
        log.info("Tables without transactions are locked until they are read: %s.", ", ".join(map(str, names)))

    def _release(self, *, others: bool) -> None:
        """Free the tables without transactions when all of their rows are read.

        :param others: another table's turn has come
        """
        with self._guard:
            self._all_cut |= others or self._unread.keys() >= self.urgent
            if self._held is not None and self._all_cut and not +self._unread:
                self._held._force_close()
                self._held = None

    def _view(
        self, connections: list[Connection], lock: Connection, server: MySqlServer, *, locked: bool
    ) -> MySqlPosition:
        """Open the readers' views, all at one log position.

        :param locked: the tables are locked against writes
        """
        others = set if self._meeting is None else self._open_shared_views
        if server.mariadb and self._config.snapshot_locking_mode in (LockingMode.NONE, LockingMode.CUSTOM):
            return open_at_one_position(connections, server, others)
        if not locked:
            patience_s = self._config.snapshot_lock_timeout_ms / 1000
            return open_at_rest(connections, lambda: log_end(lock, server), patience_s, others)
        for connection in connections:
            open_view(connection)
        if len(positions := others()) > 1:
            raise SourceUnavailable(
                f"The views of the readers are at different log positions, although writers are kept away: {sorted(positions)}.",
                where="snapshot.locking.mode",
                safe="Nothing was read; the offset is untouched.",
                remedy="let all readers connect to the same server, and run the capture again",
            )
        return log_end(lock, server)

    def _open_shared_views(self) -> set[tuple[str, int]]:
        """Have readers of other processes open their views, and return the positions that they have reported."""
        if self._meeting is None:
            return set()
        facts = self._meeting.open_views()
        self._shared_by = len(facts)
        return {(str(fact["file"]), int(fact["pos"])) for fact in facts if "file" in fact}

    def _connect(self) -> Connection:
        connection = connect(self._config)
        self._connections.append(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION wait_timeout = {IDLE_S}")
        return connection

    def _lock(self, connection: Connection, tables: list[TableId]) -> None:
        """Take the global read lock; if the account or a hosted server does not allow it, read locks on the tables."""
        seconds = max(round(self._config.snapshot_lock_timeout_ms / 1000), 1)
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {seconds}")
            try:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
            except pymysql.err.MySQLError as e:
                if e.args[0] in LOCK_TIMEOUT:
                    raise self._not_locked(seconds) from e
                if e.args[0] not in _NO_LOCK_RIGHTS:
                    raise
                log.info("The global read lock is not allowed (%s); the tables are locked instead.", e.args[1])
                self._lock_each(connection, tables, seconds)

    def _lock_each(self, connection: Connection, tables: list[TableId], seconds: int) -> None:
        """Lock those of the tables that are there; a table may be dropped at any time before it is locked.

        Those without transactions are locked once, until they are read: on MariaDB, a writer that waits for one lock holds up the next.
        """
        for left in reversed(range(_LOCK_TRIES)):
            engines = self._catalog.read_engines(tables)
            try:
                if self._config.snapshot_locking_mode is not LockingMode.EXTENDED and not self.urgent:
                    self._hold(engines)
                there = [t for t in tables if t in engines and t not in self.urgent]
                with connection.cursor() as cursor:
                    if there:
                        cursor.execute("LOCK TABLES " + ", ".join(f"{quote_table(t)} READ" for t in there))
                return
            except pymysql.err.MySQLError as e:
                if e.args[0] in LOCK_TIMEOUT:
                    raise self._not_locked(seconds) from e
                if e.args[0] not in GONE or not left:
                    raise

    def _lock_otherwise(self, connection: Connection, tables: list[TableId]) -> bool:
        """Run the lock statements of ``snapshot.locking.mode=custom``.

        :return: whether there was a statement for each table
        """
        timeout_s = self._config.snapshot_lock_timeout_ms / 1000
        statements = lock_statements(self._config, timeout_s, tables).values()
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {max(round(timeout_s), 1)}")
            for statement in dict.fromkeys(filter(None, statements)):
                try:
                    cursor.execute(statement)
                except pymysql.err.MySQLError as e:
                    if e.args[0] in LOCK_TIMEOUT:
                        raise self._not_locked(max(round(timeout_s), 1), statement) from e
                    raise lock_refused(statement, str(e.args[-1]), LockingMode.MINIMAL) from e
        return all(statements)

    def _not_locked(self, seconds: int, statement: str = "FLUSH TABLES WITH READ LOCK") -> SourceBusy:
        return SourceBusy(
            f"The lock for a consistent snapshot was not granted within {seconds} s: a long transaction or "
            "statement blocks it.",
            where=statement,
            safe="Nothing was read; the offset is untouched.",
            remedy="run the snapshot at a quieter time, raise snapshot.lock.timeout.ms, or end the statement that SHOW "
            "PROCESSLIST reports as running",
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        chunks = self._cut(table)
        if table in self.urgent:
            with self._guard:
                self._unread[table] = len(chunks)
        else:
            self._release(others=True)
        return chunks

    def _cut(self, table: TableId) -> list[SnapshotChunk]:
        rows = self._rows.get(table, 0)
        if table in self._selects:
            return [SnapshotChunk(table, None, rows)]
        schema = self.schemas[table]
        first = schema.get_column(schema.key[0]) if schema.key else None
        most = CHUNK_ROWS
        if self._shared_by and table not in self.urgent:
            most = min(max(rows // (self._shared_by * 8), min(CHUNK_ROWS, FEWEST_SHARED_ROWS)), SHARED_CHUNK_ROWS)
        if first is None or rows <= most or MySqlColumnType.from_column(first).base not in INTEGERS:
            return [SnapshotChunk(table, None, rows)]
        name = quoted_name(first.name)
        connection = self._reader(table)
        if connection is None:
            return []
        try:
            with raise_cdc_errors(self._config, str(table)), connection.cursor() as cursor:
                cursor.execute(f"{SELECT} MIN({name}), MAX({name}) FROM {quote_table(table)}")
                low, high = cursor.fetchone() or (None, None)
        finally:
            self._idle.put(connection)
        if low is None:
            return [SnapshotChunk(table, None, 0)]
        count = min(-(-rows // most), high - low + 1)
        edges = [low + (high - low + 1) * i // count for i in range(1, count)]
        if not edges:
            return [SnapshotChunk(table, None, rows)]
        conditions = [f"{name} < {edges[0]}"]
        conditions += [f"{name} >= {a} AND {name} < {z}" for a, z in itertools.pairwise(edges)]
        conditions += [f"{name} >= {edges[-1]}"]
        return [SnapshotChunk(table, condition, rows // count) for condition in conditions]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        schema, select = self.schemas[chunk.table], self._selects.get(chunk.table)
        connection = self._reader(chunk.table)
        try:
            if connection is None:
                return
            yield from read_view_rows(
                connection, self._config, schema, chunk, self.position, self.ts_us,
                select=select, configured=chunk.table in self._configured,
            )  # fmt: skip
        finally:
            if connection is not None:
                self._idle.put(connection)
            if chunk.table in self.urgent:
                with self._guard:
                    self._unread[chunk.table] -= 1
                self._release(others=False)

    def _reader(self, table: TableId) -> Connection | None:
        """Return an idle reader that sees a table as it was at the position; ``None`` if none does.

        A statement that waits to alter the table lets in no reader that has not read of it yet. It waits for those that have: they read
        the table to its end.
        """
        while True:
            connection = self._idle.get()
            with self._guard:
                kept_out = table in self._awaited and connection not in self._begun[table]
            try:
                if not kept_out:
                    with raise_cdc_errors(self._config, str(table)):
                        if self._is_as_it_was(connection, table):
                            return connection
            except BaseException:
                self._idle.put(connection)
                raise
            self._idle.put(connection)
            with self._guard:
                if table in self.changed:
                    return None
            time.sleep(_POLL_S)

    def _is_as_it_was(self, connection: Connection, table: TableId) -> bool:
        """Check whether a table has the structure that it had at the position.

        It keeps it then until the reader's view is closed: DDL waits.

        If not, it is one of :attr:`changed`, or other readers see it as it was.
        """
        with self._guard:
            if table in self.changed:
                return False
        why, waits = find_table_change(connection, table)
        with self._guard:
            if waits and connection not in self._begun.get(table, {connection}):
                self._awaited.add(table)
                return False
        with self._guard:
            if why is None and self._catalog.read_columns(table) != self.schemas[table].columns:
                why = "its columns differ"
            if why is not None and table not in self.changed:
                log.info("Table %s was changed before it could be read (%s): it is read later.", table, why)
                self.changed.add(table)
            if why is None:
                self._begun.setdefault(table, set()).add(connection)
        return why is None

    def close(self) -> None:
        for connection in self._connections:
            connection._force_close()
        self._connections.clear()
        self._metrics.set_locked(False)
