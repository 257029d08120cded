"""A consistent view of tables: one SCN, several connections that read as of it.

Tables are locked in ROW SHARE MODE, which lets others read and write and keeps DDL out, while the SCN and the structures are
read, and no longer (Debezium Oracle connector, "Snapshots"). Rows come by flashback queries, ``AS OF SCN``, so that readers
need no transactions of their own.

**Open transactions.** A transaction that is open at the SCN and is committed later began before it: its first changes lie in
the log before the SCN. The position's ``scn``, where mining begins, is therefore the oldest beginning of the transactions in
``V$TRANSACTION``, and its ``read_scn`` is the SCN of the view: what was committed up to there is in the rows already. The view
is asked before the SCN is taken, and the SCN before that counts for transactions that began in between; so none is missed.
This is what ``log.mining.transaction.snapshot.boundary.mode=all`` asks for; it is always done, as the other modes lose rows.

**Undo.** A flashback query fails when the undo does not reach back any more (ORA-01555) or the table was changed by DDL
(ORA-01466). A chunk of which no row was handed over is read again, ``snapshot.database.errors.max.retries`` times. Later, rows
of it are in files, and the SCN cannot be another one for the rest: the run ends with a transient error. What it read of
unfinished tables is void, tables that are complete are kept, and the next run reads the others on a new view, at a new SCN; the
log brings all of them to one place (:class:`airflow_provider_cdc.core.position.SnapshotState`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import queue
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.events import READ, RowBlock
from airflow_provider_cdc.core.schema import TableId, TableSchema
from airflow_provider_cdc.core.source import Chunk, SnapshotSession
from airflow_provider_cdc.sources.oracle import rowids
from airflow_provider_cdc.sources.oracle.cells import Cells
from airflow_provider_cdc.sources.oracle.config import LockingMode, OracleConfig
from airflow_provider_cdc.sources.oracle.connect import (
    Connection,
    code_of,
    connect,
    current_scn,
    database_of,
    enter_container,
    rows,
    scalar,
    translated,
)
from airflow_provider_cdc.sources.oracle.dictionary import Dictionary, quoted
from airflow_provider_cdc.sources.oracle.errors import SNAPSHOT_TOO_OLD, TABLE_CHANGED
from airflow_provider_cdc.sources.oracle.overrides import as_of, override_of
from airflow_provider_cdc.sources.oracle.position import OraclePosition

log = logging.getLogger(__name__)

CHUNK_BLOCKS: Final = 16_384
"""Blocks of a chunk, 128 MB with the usual size."""
LOCK_SECONDS: Final = 60
LOB_ROWS: Final = 200
"""Rows that are fetched at a time where they have LOBs, each of which comes whole."""
MAX_BYTES: Final = 64 << 20
"""A batch of results that is larger is handed over in parts."""
_ROWS_IN_BLOCK: Final = 50
"""A guess, for tables without statistics."""

_TRANSACTIONS = "SELECT MIN(START_SCN) FROM V$TRANSACTION WHERE START_SCN > 0"
_NOW = "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM DUAL"
_EXTENTS = """
SELECT o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID, e.BLOCKS
FROM DBA_EXTENTS e
JOIN DBA_OBJECTS o
  ON o.OWNER = e.OWNER AND o.OBJECT_NAME = e.SEGMENT_NAME AND NVL(o.SUBOBJECT_NAME, ' ') = NVL(e.PARTITION_NAME, ' ')
WHERE e.OWNER = :owner AND e.SEGMENT_NAME = :name AND o.OBJECT_TYPE LIKE 'TABLE%' AND o.DATA_OBJECT_ID IS NOT NULL
ORDER BY o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID"""
_NO_RIGHTS: Final = {942, 1031}


class OracleSnapshot(SnapshotSession):
    """See :class:`airflow_provider_cdc.core.source.SnapshotSession`.

    :raises PrerequisiteError: a privilege is missing that the snapshot needs
    :raises SourceUnavailable: no server answers, or a lock is not to be had
    """

    position: OraclePosition

    def __init__(self, config: OracleConfig, tables: Sequence[TableId], readers: int) -> None:
        self._config, self._readers = config, readers
        self._connections: list[Connection] = []
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        try:
            main = self._connect()
            for _ in range(readers):
                self._idle.put(self._connect())
            with translated(config, "opening a snapshot"):
                self._open(main, list(tables))
        except BaseException:
            self.close()
            raise

    def _open(self, main: Connection, tables: list[TableId]) -> None:
        database, dictionary = database_of(main), Dictionary(main, self._config)
        began = time.monotonic()
        if self._config.snapshot_locking_mode is LockingMode.SHARED and database.writable:
            _lock(main, tables)
        oldest = self._oldest_change(main)
        self.scn = current_scn(main)
        self.ts_us = _micros(str(scalar(main, _NOW)))
        self.schemas = dictionary.tables(tables)
        main.rollback()
        log.info("The snapshot is of SCN %d; its locks were held for %.2f s.", self.scn, time.monotonic() - began)
        self._sizes = dictionary.sizes(self.schemas)
        self.ddl = {t: dictionary.create_statement(schema) for t, schema in self.schemas.items()}
        start = min(oldest, self.scn)
        self.position = OraclePosition(start, self.scn, resetlogs=database.resetlogs, dbid=database.dbid)
        if start < self.scn:
            log.info("Mining begins at SCN %d, where the oldest open transaction did.", start)
        self.source = {
            "txId": None, "scn": str(self.scn), "commit_scn": None, "lcr_position": None, "rs_id": None, "ssn": 0,
            "redo_thread": None, "user_name": None, "row_id": None,
        }  # fmt: skip

    def _connect(self) -> Connection:
        connection = connect(self._config, container=True)
        self._connections.append(connection)
        return connection

    def _oldest_change(self, main: Connection) -> int:
        """An SCN at or before the first change of every transaction that is open at any later SCN.

        Each node of a cluster knows its own transactions only, and root and pluggable database may know different ones.
        """
        found = [current_scn(main)]
        for host in self._config.rac_nodes or (None,):
            with contextlib.closing(connect(self._config, host=host)) as connection:
                try:
                    scns = [scalar(connection, _TRANSACTIONS)]
                    if self._config.database_pdb_name:
                        enter_container(connection, self._config)
                        scns.append(scalar(connection, _TRANSACTIONS))
                except oracledb.DatabaseError as e:
                    if code_of(e) not in _NO_RIGHTS:
                        raise
                    raise self._blind(e) from e
            found += [int(scn) for scn in scns if scn is not None]
        return min(found)

    def _blind(self, e: oracledb.DatabaseError) -> PrerequisiteError:
        everywhere = " CONTAINER=ALL" if self._config.database_pdb_name else ""
        return PrerequisiteError(
            f"Transactions that are open now cannot be seen, and their changes would be lost: {e}",
            where="V$TRANSACTION",
            safe="Nothing was read; the offset is untouched.",
            remedy=f"GRANT SELECT ON V_$TRANSACTION TO {self._config.database_user}{everywhere}",
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def chunks(self, table: TableId) -> list[Chunk]:
        count, blocks = self._sizes.get(table, (0, 0))
        overridden = override_of(table, self._config.snapshot_select_statement_overrides) is not None
        if self._readers < 2 or 0 < blocks <= CHUNK_BLOCKS or overridden:
            return [Chunk(table, None, count or blocks * _ROWS_IN_BLOCK)]
        extents = self._extents(table)
        blocks = sum(extent[3] for extent in extents)
        count = count or blocks * _ROWS_IN_BLOCK
        cuts = rowids.cuts(extents, CHUNK_BLOCKS)
        conditions = rowids.conditions(cuts) if cuts else [None]
        return [Chunk(table, condition, count // len(conditions)) for condition in conditions]

    def _extents(self, table: TableId) -> list[tuple[int, int, int, int]]:
        """Object, file, first block and number of blocks of each part of a table; none where the user may not ask."""
        connection = self._idle.get()
        try:
            with translated(self._config, str(table)):
                found = rows(connection, _EXTENTS, owner=table.namespace, name=table.name)
        except PrerequisiteError as e:
            log.info("%s is read by one reader, as its extents cannot be seen: %s", table, e.what)
            found = []
        finally:
            self._idle.put(connection)
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in found]

    def read(self, chunk: Chunk) -> Iterator[RowBlock]:
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
                        with translated(self._config, f"{chunk.table} as of SCN {self.scn}"):
                            raise
                    log.warning("%s as of SCN %d is read again: %s", chunk.table, self.scn, e)
        finally:
            self._idle.put(connection)

    def _blocks(self, connection: Connection, chunk: Chunk) -> Iterator[RowBlock]:
        schema = self.schemas[chunk.table]
        cells = Cells(schema, self._config)
        override = override_of(chunk.table, self._config.snapshot_select_statement_overrides)
        source = f"{quoted(chunk.table)} AS OF SCN {self.scn}"
        if override is not None:
            source = f"({as_of(override, chunk.table, self.scn, self._config.database_user)})"
        sql = f"SELECT {', '.join(cells.expressions)} FROM {source} t"
        sql += f" WHERE {chunk.condition}" if chunk.condition else ""
        size = self._config.snapshot_fetch_size
        frames = connection.fetch_df_batches(sql, size=min(size, LOB_ROWS) if cells.lobs else size)
        for frame in frames:
            for part in _parts(pa.table(frame)):
                yield self._block(schema, cells, part)

    def _block(self, schema: TableSchema, cells: Cells, part: pa.Table) -> RowBlock:
        n = len(part)
        scn = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([str(self.scn)]))
        return RowBlock(
            table=schema,
            op=np.full(n, READ, np.int8),
            before=None,
            after=cells.read(part),
            order=np.arange(n),
            transaction=None,
            ts_us=np.full(n, self.ts_us, np.int64),
            source={"scn": scn, "ssn": pa.array(np.zeros(n, np.int64))},
            unavailable_after=cells.unavailable(n),
        )

    def close(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(oracledb.Error):  # gone already, or in use by a reader that was given up
                connection.close()
        self._connections.clear()


def _lock(connection: Connection, tables: list[TableId]) -> None:
    """Keep DDL away from the tables; one that was dropped meanwhile is no error."""
    with connection.cursor() as cursor:
        for table in tables:
            try:
                cursor.execute(f"LOCK TABLE {quoted(table)} IN ROW SHARE MODE WAIT {LOCK_SECONDS}")
            except oracledb.DatabaseError as e:
                if code_of(e) != 942:
                    raise
                log.info("%s is not locked: it does not exist any more, or may not be seen.", table)


def _micros(text: str) -> int:
    """Microseconds since the epoch of a time in UTC."""
    moment = dt.datetime.fromisoformat(text.strip()).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _parts(batch: pa.Table) -> Iterator[pa.Table]:
    """A batch in parts of bounded size."""
    n = len(batch)
    if n > 1 and batch.nbytes > MAX_BYTES:
        yield from _parts(batch.slice(0, n // 2))
        yield from _parts(batch.slice(n // 2))
    elif n:
        yield batch
