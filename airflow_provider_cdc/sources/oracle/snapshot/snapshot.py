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

from airflow_provider_cdc.core.errors import PrerequisiteError, TransientError
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
from airflow_provider_cdc.sources.oracle.error_translation import translate_error
from airflow_provider_cdc.sources.oracle.open_database_transactions import open_transactions
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.snapshot import rowid_ranges
from airflow_provider_cdc.sources.oracle.snapshot.flashback_rows import FlashbackRows
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import (
    now_us,
    read_extents,
)
from airflow_provider_cdc.sources.oracle.snapshot.select_overrides import override_of
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

CHUNK_BLOCKS: Final = 16_384
"""Database blocks per chunk: 128 MB with the usual block size."""
_MOST_SHARED_PARTS: Final = 4096
"""Chunks of a table for readers of other processes, about: each is a file."""
LOCK_SECONDS: Final = 60
_ROWS_IN_BLOCK: Final = 50
"""Estimate of the rows per block, for tables without statistics."""


class OracleSnapshot(SnapshotSession):
    """A snapshot of tables as of one SCN (:class:`airflow_provider_cdc.core.spi.source.SnapshotSession`).

    :param readers: number of connections that read tables in parallel
    :param selects: table → SELECT that a signal gives for its rows
    :param shared: readers of other processes read parts of tables, as of the SCN
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
        *,
        shared: bool = False,
    ) -> None:
        self._config, self._selects = config, selects
        self._cut, self._most_parts = shared or readers > 1, _MOST_SHARED_PARTS if shared else None
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
        self._rows = FlashbackRows(self._config, self.scn, self.ts_us)
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
        if not self._cut or 0 < blocks <= CHUNK_BLOCKS or self._statement(table) is not None:
            return [SnapshotChunk(table, None, count or blocks * _ROWS_IN_BLOCK)]
        extents = self._extents(table)
        blocks = sum(extent[3] for extent in extents)
        count = count or blocks * _ROWS_IN_BLOCK
        most = CHUNK_BLOCKS if self._most_parts is None else max(CHUNK_BLOCKS, blocks // self._most_parts)
        cuts = rowid_ranges.split_extents(extents, most)
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
        connection, select = self._idle.get(), self._selects.get(chunk.table)
        try:
            yield from self._rows.read(connection, self.schemas[chunk.table], chunk, select)
        except (oracledb.Error, OSError) as e:
            error = self._rows.explain_error(e, chunk.table, select)
            raise error from error.__cause__
        finally:
            self._idle.put(connection)

    def _statement(self, table: TableId) -> str | None:
        """Return the SELECT of a signal or of the configuration for a table, if there is one."""
        return self._selects.get(table) or override_of(table, self._config.snapshot_select_statement_overrides)

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
