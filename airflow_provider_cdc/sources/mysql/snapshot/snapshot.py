"""A consistent snapshot of tables: several connections that see the same rows, at one log position.

The global read lock is held while the readers' transactions are opened and the position and the table definitions are read. It is
released before the first row is read (Debezium MySQL connector, "Initial snapshots that use a global read lock"). Where the server
does not allow this lock, the tables themselves are locked for the same time.
"""

from __future__ import annotations

import itertools
import logging
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.select_overrides import LIST
from airflow_provider_cdc.core.errors import QueryRefused, SourceUnavailable
from airflow_provider_cdc.core.model.events import RowBlock
from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from airflow_provider_cdc.core.snapshot.policy import lock_refused, lock_statements
from airflow_provider_cdc.core.spi.source import Chunk, SnapshotSession
from airflow_provider_cdc.sources.mysql.config import LockingMode, MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server, connect, refusing, scalar, server_of, translated
from airflow_provider_cdc.sources.mysql.log.log_end import log_end
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog import Catalog, quoted, quoted_name
from airflow_provider_cdc.sources.mysql.schema.types import INTEGERS, ColumnType
from airflow_provider_cdc.sources.mysql.snapshot.consistent_views import open_at_one_position, open_at_rest, open_view
from airflow_provider_cdc.sources.mysql.snapshot.read_blocks import read_block
from airflow_provider_cdc.sources.mysql.snapshot.result_columns import UnexpectedColumn, result_columns
from airflow_provider_cdc.sources.mysql.snapshot.result_reader import ResultReader
from airflow_provider_cdc.sources.mysql.snapshot.select_overrides import statements
from airflow_provider_cdc.sources.mysql.snapshot.sql_fragments import checked_fragment

log = logging.getLogger(__name__)

CHUNK_ROWS = 250_000
_IDLE_S = 86_400
"""``wait_timeout`` of the readers: one may wait long for its next chunk, and a closed connection has lost the shared view."""
_NO_LOCK_RIGHTS = {1044, 1045, 1142, 1227}
_LOCK_TIMEOUT = {1205, 1969, 3024}


class MySqlSnapshot(SnapshotSession):
    """A :class:`~airflow_provider_cdc.core.spi.source.SnapshotSession`: opened when it is made, to be closed by :meth:`close`.

    :param readers: number of connections that read tables in parallel
    :param created_of: returns when a log file was created, seconds since the epoch
    :param selects: SELECTs of an ad hoc snapshot, which take precedence over those of the configuration
    :raises SourceUnavailable: a lock, or a moment without writes, was not to be had in time
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
    ) -> None:
        configured = statements(config)
        self._config, self._selects, self._metrics = config, configured | dict(selects), metrics or LogMetrics()
        self._configured = configured.keys() - selects.keys()
        self._connections: list[Connection] = []
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._created_of = created_of
        try:
            with translated(config, "opening a snapshot"):
                self._open(list(tables), readers)
        except BaseException:
            self.close()
            raise

    def _open(self, tables: list[TableId], readers: int) -> None:
        lock, connections = self._connect(), [self._connect() for _ in range(readers)]
        server, mode = server_of(lock), self._config.snapshot_locking_mode
        catalog = Catalog(lock, self._config, mariadb=server.mariadb)
        locked = mode is not LockingMode.NONE
        if mode is LockingMode.CUSTOM:
            locked = self._lock_otherwise(lock, tables)
        elif locked:
            self._lock(lock, tables)
        self._metrics.set_locked(locked)
        began = time.monotonic()
        position = self._view(connections, lock, server, locked=locked)
        self.ts_us = int(scalar(lock, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"))
        self.schemas = catalog.tables(tables)
        self.ddl = {t: catalog.create_statement(t) for t in self.schemas}
        if mode is LockingMode.MINIMAL:
            with lock.cursor() as cursor:
                cursor.execute("UNLOCK TABLES")
            self._metrics.set_locked(False)
            log.info("The snapshot's locks were held for %.2f s.", time.monotonic() - began)
        self.position = replace(position, created=self._created_of(position.file))
        self.source = {
            "server_id": 0, "gtid": None, "file": self.position.file, "pos": self.position.pos, "row": 0, "thread": None,
            "query": None,
        }  # fmt: skip
        self._rows = catalog.rows(self.schemas)
        if mode is LockingMode.CUSTOM:
            lock.close()  # releases whatever the custom statements have locked
            self._metrics.set_locked(False)
            log.info("The snapshot's locks were held for %.2f s.", time.monotonic() - began)
        for connection in connections:
            self._idle.put(connection)

    def _view(self, connections: list[Connection], lock: Connection, server: Server, *, locked: bool) -> MySqlPosition:
        """Open the readers' views, all at one log position.

        :param locked: the tables are locked against writes
        """
        if server.mariadb and self._config.snapshot_locking_mode in (LockingMode.NONE, LockingMode.CUSTOM):
            return open_at_one_position(connections, server)
        if not locked:
            return open_at_rest(
                connections, lambda: log_end(lock, server), self._config.snapshot_lock_timeout_ms / 1000
            )
        for connection in connections:
            open_view(connection)
        return log_end(lock, server)

    def _connect(self) -> Connection:
        connection = connect(self._config)
        self._connections.append(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION wait_timeout = {_IDLE_S}")
        return connection

    def _lock(self, connection: Connection, tables: list[TableId]) -> None:
        """Take the global read lock; if the account or a hosted server does not allow it, read locks on the tables."""
        seconds = max(round(self._config.snapshot_lock_timeout_ms / 1000), 1)
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {seconds}")
            try:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
            except pymysql.err.MySQLError as e:
                if e.args[0] in _LOCK_TIMEOUT:
                    raise self._not_locked(seconds) from e
                if e.args[0] not in _NO_LOCK_RIGHTS or not tables:
                    raise
                log.info("The global read lock is not allowed (%s); the tables are locked instead.", e.args[1])
                try:
                    cursor.execute("LOCK TABLES " + ", ".join(f"{quoted(t)} READ" for t in tables))
                except pymysql.err.MySQLError as e2:
                    if e2.args[0] in _LOCK_TIMEOUT:
                        raise self._not_locked(seconds) from e2
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
                    if e.args[0] in _LOCK_TIMEOUT:
                        raise self._not_locked(max(round(timeout_s), 1), statement) from e
                    raise lock_refused(statement, str(e.args[-1]), LockingMode.MINIMAL) from e
        return all(statements)

    def _not_locked(self, seconds: int, statement: str = "FLUSH TABLES WITH READ LOCK") -> SourceUnavailable:
        return SourceUnavailable(
            f"The lock for a consistent snapshot was not granted within {seconds} s: a long transaction or statement holds it up.",
            where=statement,
            safe="Nothing was read; the offset is untouched.",
            remedy="run the snapshot at a quieter time, raise snapshot.lock.timeout.ms, or end the statement that "
            "SHOW PROCESSLIST shows running",
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def chunks(self, table: TableId) -> list[Chunk]:
        rows = self._rows.get(table, 0)
        if table in self._selects:
            return [Chunk(table, None, rows)]
        schema = self.schemas[table]
        first = schema.column(schema.key[0]) if schema.key else None
        if first is None or rows <= CHUNK_ROWS or ColumnType.of(first).base not in INTEGERS:
            return [Chunk(table, None, rows)]
        name = quoted_name(first.name)
        connection = self._idle.get()
        try:
            with translated(self._config, str(table)), connection.cursor() as cursor:
                cursor.execute(f"SELECT MIN({name}), MAX({name}) FROM {quoted(table)}")
                low, high = cursor.fetchone() or (None, None)
        finally:
            self._idle.put(connection)
        if low is None:
            return [Chunk(table, None, 0)]
        count = min(-(-rows // CHUNK_ROWS), high - low + 1)
        edges = [low + (high - low + 1) * i // count for i in range(1, count)]
        if not edges:
            return [Chunk(table, None, rows)]
        conditions = [f"{name} < {edges[0]}"]
        conditions += [f"{name} >= {a} AND {name} < {z}" for a, z in itertools.pairwise(edges)]
        conditions += [f"{name} >= {edges[-1]}"]
        return [Chunk(table, condition, rows // count) for condition in conditions]

    def read(self, chunk: Chunk) -> Iterator[RowBlock]:
        schema, select = self.schemas[chunk.table], self._selects.get(chunk.table)
        columns = ", ".join(quoted_name(c.name) for c in schema.columns)
        sql = f"SELECT {columns} FROM {quoted(chunk.table)}" + (f" WHERE {chunk.condition}" if chunk.condition else "")
        connection = self._idle.get()
        try:
            if select is not None:
                yield from self._selected(connection, schema, columns, select)
                return
            with translated(self._config, f"{chunk.table} {chunk.condition or ''}"):
                for images in ResultReader(schema, self._config).read(connection, sql):
                    yield read_block(schema, images, self.position, self.ts_us)
        finally:
            self._idle.put(connection)

    def _selected(self, connection: Connection, schema: TableSchema, columns: str, select: str) -> Iterator[RowBlock]:
        """The rows that an override SELECT gives, decoded with the table's schema."""
        which = f"{LIST}.{schema.id}" if schema.id in self._configured else "the SELECT"
        again = "run the capture again" if schema.id in self._configured else "send the signal again"
        remedy = f"correct {which}, which has to give the table's own columns as they are; then {again}"
        with refusing(self._config, f"{schema.id}: {select}", remedy):
            statement = checked_fragment(
                connection, self._config, select, within="{}", where=f"{schema.id}: {select}", remedy=remedy
            )
            like = result_columns(connection, f"SELECT {columns} FROM {quoted(schema.id)}")
            sql = f"SELECT {columns} FROM ({statement}\n) AS `selected`"
            try:
                for images in ResultReader(schema, self._config).read(connection, sql, like):
                    yield read_block(schema, images, self.position, self.ts_us)
            except UnexpectedColumn as e:
                connection._force_close()
                raise QueryRefused(
                    f"The SELECT gives another column than the table has: {e}.",
                    where=f"{schema.id}: {select}",
                    safe="No row of it was taken.",
                    remedy=remedy,
                ) from None

    def close(self) -> None:
        for connection in self._connections:
            connection._force_close()
        self._connections.clear()
        self._metrics.set_locked(False)
