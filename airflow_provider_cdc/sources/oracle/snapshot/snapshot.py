"""A consistent snapshot of tables: several connections that read as of one SCN.

While the SCN and the table definitions are read, tables are locked in ROW SHARE MODE, which allows others to read and write, but keeps
DDL out (Debezium Oracle connector, "Snapshots"). Rows are read by flashback queries (``AS OF SCN``), so readers need no transactions
of their own.

**Open transactions.** A transaction that is open at the snapshot's SCN and commits later has changes in the log before this SCN. So
the position's ``scn``, at which mining begins, is the oldest ``START_SCN`` in ``V$TRANSACTION``; its ``read_scn`` is the snapshot's SCN,
since the rows contain everything that was committed up to it. ``V$TRANSACTION`` is read before the snapshot's SCN is taken. For
transactions that begin in between, an SCN taken even earlier counts as a start, so none is missed. This is
``log.mining.transaction.snapshot.boundary.mode=all``; it is always done, as the other modes lose rows.

**Undo.** A flashback query fails when the undo does not reach back any more (ORA-01555), or after DDL on the table (ORA-01466). A
chunk of which no row was delivered is read again, ``snapshot.database.errors.max.retries`` times. Once rows were delivered, the rest
of the chunk cannot be read at another SCN: the run ends with a transient error. Rows of incomplete tables are discarded, complete tables
are kept. The next run reads the others at a new SCN, and the log is streamed until all tables are at the same position
(:class:`airflow_provider_cdc.core.model.connector_offset.SnapshotState`).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, TransientError
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.snapshot.snapshot_policy import lock_refused, lock_statements
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import LockingMode
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    code_of,
    connect,
    current_scn,
    database_of,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.oracle.error_translation import SNAPSHOT_TOO_OLD, TABLE_CHANGED, translate_error
from airflow_provider_cdc.sources.oracle.open_database_transactions import open_transactions
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.snapshot import rowid_ranges
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import (
    now_us,
    read_block,
    read_extents,
    split_fetched_rows,
)
from airflow_provider_cdc.sources.oracle.snapshot.select_overrides import as_of, override_of
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused
from airflow_provider_cdc.sources.relational.fetch_size import LOB_ROWS
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

CHUNK_BLOCKS: Final = 16_384
"""Database blocks per chunk: 128 MB with the usual block size."""
LOCK_SECONDS: Final = 60
_ROWS_IN_BLOCK: Final = 50
"""Estimate of the rows per block, for tables without statistics."""


class OracleSnapshot(SnapshotSession):
    """A snapshot of tables as of one SCN (:class:`airflow_provider_cdc.core.spi.source.SnapshotSession`).

    :param readers: number of connections that read tables in parallel
    :param selects: table → SELECT that a signal gives for its rows
    :raises PrerequisiteError: a privilege is missing that the snapshot needs
    :raises SourceUnavailable: no server answers, or a lock was not granted in time
    """

    position: OraclePosition

    def __init__(
        self,
        config: OracleConfig,
        tables: Sequence[TableId],
        readers: int,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> None:
        self._config, self._readers, self._selects = config, readers, selects
        self._connections: list[Connection] = []
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        try:
            main = self._connect()
            for _ in range(readers):
                self._idle.put(self._connect())
            with translate_driver_errors(config, "opening a snapshot"):
                self._open(main, list(tables))
        except BaseException:
            self.close()
            raise

    def _open(self, main: Connection, tables: list[TableId]) -> None:
        database, catalog = database_of(main), OracleCatalog(main, self._config)
        began = time.monotonic()
        if self._config.snapshot_locking_mode is LockingMode.CUSTOM:
            self._lock_otherwise(main, tables)
        elif self._config.snapshot_locking_mode is LockingMode.SHARED and database.is_writable:
            _lock(main, tables)
        oldest = self._oldest_change(main)
        self.scn = current_scn(main)
        self.ts_us = now_us(main)
        self.schemas = catalog.read_table_schemas(tables)
        main.rollback()
        log.info("The snapshot is at SCN %d; its locks were held for %.2f s.", self.scn, time.monotonic() - began)
        self._sizes = catalog.read_table_sizes(self.schemas)
        self.ddl = {t: catalog.create_statement(schema) for t, schema in self.schemas.items()}
        start = min(oldest, self.scn)
        self.position = OraclePosition(start, self.scn, resetlogs=database.resetlogs, dbid=database.dbid)
        if start < self.scn:
            log.info("Mining starts at SCN %d, the start of the oldest open transaction.", start)
        self.source = {
            "txId": None, "scn": str(self.scn), "commit_scn": None, "lcr_position": None, "rs_id": None, "ssn": 0,
            "redo_thread": None, "user_name": None, "row_id": None,
        }  # fmt: skip

    def _lock_otherwise(self, main: Connection, tables: list[TableId]) -> None:
        """Run the lock statements of ``snapshot.locking.mode=custom``."""
        statements = lock_statements(self._config, LOCK_SECONDS, tables).values()
        with main.cursor() as cursor:
            for statement in dict.fromkeys(filter(None, statements)):
                try:
                    cursor.execute(statement.strip().rstrip(";"))
                except oracledb.DatabaseError as e:
                    meaning = translate_error(e, self._config)
                    if isinstance(meaning, TransientError):
                        raise
                    raise lock_refused(statement, meaning.message, LockingMode.SHARED) from e

    def _connect(self) -> Connection:
        connection = connect(self._config, container=True)
        self._connections.append(connection)
        return connection

    def _oldest_change(self, main: Connection) -> int:
        """Return an SCN at or before the first change of every transaction that is open now or begins later.

        Transactions do not cross containers, so those of the tables' container count.
        """
        now = current_scn(main)
        return min([now, *open_transactions(main, self._config).values()])

    # -- reading ------------------------------------------------------------------------------------------------------

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        count, blocks = self._sizes.get(table, (0, 0))
        if self._readers < 2 or 0 < blocks <= CHUNK_BLOCKS or self._statement(table) is not None:
            return [SnapshotChunk(table, None, count or blocks * _ROWS_IN_BLOCK)]
        extents = self._extents(table)
        blocks = sum(extent[3] for extent in extents)
        count = count or blocks * _ROWS_IN_BLOCK
        cuts = rowid_ranges.split_extents(extents, CHUNK_BLOCKS)
        conditions = rowid_ranges.build_part_conditions(cuts) if cuts else [None]
        return [SnapshotChunk(table, condition, count // len(conditions)) for condition in conditions]

    def _extents(self, table: TableId) -> list[tuple[int, int, int, int]]:
        """Return the extents of a table, see :func:`.row_blocks_and_extents.read_extents`; empty if the user may not see them."""
        connection = self._idle.get()
        try:
            with translate_driver_errors(self._config, str(table)):
                return read_extents(connection, table)
        except PrerequisiteError as e:
            log.info("%s is read by one reader, because its extents cannot be read: %s", table, e.message)
            return []
        finally:
            self._idle.put(connection)

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        connection = self._idle.get()
        try:
            retries = self._config.snapshot_database_errors_max_retries
            for left in range(retries, -1, -1):
                handed_over = False
                try:
                    for block in self._blocks(connection, chunk):
                        handed_over = True
                        yield block
                    return
                except (oracledb.Error, OSError) as e:
                    if handed_over or not left or code_of(e) not in SNAPSHOT_TOO_OLD | TABLE_CHANGED:
                        self._refused(e, chunk.table)
                        with translate_driver_errors(self._config, f"{chunk.table} as of SCN {self.scn}"):
                            raise
                    log.warning("%s as of SCN %d is read again: %s", chunk.table, self.scn, e)
        finally:
            self._idle.put(connection)

    def _statement(self, table: TableId) -> str | None:
        """Return the SELECT of a signal or of the configuration for a table, if there is one."""
        return self._selects.get(table) or override_of(table, self._config.snapshot_select_statement_overrides)

    def _refused(self, e: Exception, table: TableId) -> None:
        """Raise :class:`QueryRejected` if the database refuses a signal's SELECT.

        :raises QueryRejected: it does
        """
        if table not in self._selects:
            return
        meaning = translate_error(e, self._config)
        if not isinstance(meaning, TransientError):
            raise build_query_refused(
                f"The database rejects the statement for {table}", meaning.message, self._selects[table]
            ) from e

    def _source(self, table: TableId) -> str:
        """Return the FROM clause of a table.

        :raises ConfigError: the configured SELECT cannot be used
        :raises QueryRejected: the signal's SELECT cannot be used
        """
        statement = self._statement(table)
        if statement is None:
            return f"{quote_table(table)} AS OF SCN {self.scn}"
        try:
            return f"({as_of(statement, table, self.scn, self._config.database_user)}\n)"
        except ConfigError as e:
            if table not in self._selects:
                raise
            raise build_query_refused(f"The statement for {table} cannot be used", e.message, statement) from None

    def _blocks(self, connection: Connection, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        schema = self.schemas[chunk.table]
        columns = QueryColumns(schema, self._config)
        source = self._source(chunk.table)
        sql = f"SELECT {', '.join(columns.expressions)} FROM {source} t"
        sql += f" WHERE {chunk.condition}" if chunk.condition else ""
        size = self._config.snapshot_fetch_size
        frames = connection.fetch_df_batches(sql, size=min(size, LOB_ROWS) if columns.lobs else size)
        for frame in frames:
            for part in split_fetched_rows(pa.table(frame)):
                yield read_block(columns, part, self.scn, self.ts_us)

    def close(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(oracledb.Error):  # gone already, or in use by a reader that was given up
                connection.close()
        self._connections.clear()


def _lock(connection: Connection, tables: list[TableId]) -> None:
    """Lock the tables against DDL; a table that was dropped meanwhile is no error."""
    with connection.cursor() as cursor:
        for table in tables:
            try:
                cursor.execute(f"LOCK TABLE {quote_table(table)} IN ROW SHARE MODE WAIT {LOCK_SECONDS}")
            except oracledb.DatabaseError as e:
                if code_of(e) != 942:
                    raise
                log.info("%s is not locked: it no longer exists, or the user may not see it.", table)
