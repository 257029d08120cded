"""A snapshot of tables: several connections that read while their tables are locked, or while others write.

Db2 has no view of the past. So a snapshot is of one moment only while no connection writes to its tables: with ``snapshot.isolation.mode`` ``exclusive``
and ``repeatable_read``, they are locked from before the position is known until the last row was read, and writers wait. The position is the LSN
up to which the capture agent has published, as soon as that is everything from before the locks.

A connection that asks for another lock queues behind the writers that wait. So each reader takes its lock at once, or not at all: then it reads over
the connection that has the locks, in turns with others; with ``exclusive`` all do.

With ``read_committed`` and ``read_uncommitted`` no writer waits. Rows may then be newer than the position, and what made them so comes again in the
stream: for a table with a key that ends in the right rows. A table without a key cannot be read so.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError, TransientError
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, read_agent_progress
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.error_translation import build_cdc_error
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_text
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.schema.create_statement import create_statement
from airflow_provider_cdc.sources.db2.snapshot.key_partitions import build_partition_conditions
from airflow_provider_cdc.sources.db2.snapshot.select_overrides import as_table, override_of
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import (
    is_locking,
    lock_tables,
    resolve_isolation_level,
    set_lock_timeout,
    try_share_locks,
    wait_for_agent,
)
from airflow_provider_cdc.sources.db2.snapshot.snapshot_row_blocks import read_block
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused
from airflow_provider_cdc.sources.relational.fetch_size import MAX_BYTES, FetchSize
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

ALIAS: Final = "t"


class Db2Snapshot(SnapshotSession):
    """A snapshot of tables (:class:`airflow_provider_cdc.core.spi.source.SnapshotSession`).

    :param readers: number of connections that read tables in parallel
    :param selects: table → SELECT that a signal gives for its rows
    :raises PrerequisiteError: the agent does not run, or a table without a key would be read without locks
    :raises SourceUnavailable: no server answers, or a lock was not granted in time
    """

    position: Db2Position

    def __init__(
        self,
        config: Db2Config,
        tables: Sequence[TableId],
        readers: int,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> None:
        self._config, self._readers, self._selects = config, readers, selects
        self._connections: list[Db2Connection] = []
        self._idle: queue.SimpleQueue[Db2Connection] = queue.SimpleQueue()
        try:
            main, *others = (self._connect() for _ in range(max(readers, 1)))
            with translate_driver_errors(config, "opening a snapshot"):
                self._open(main, others, list(tables))
        except BaseException:
            self.close()
            raise

    def _open(self, main: Db2Connection, others: list[Db2Connection], tables: list[TableId]) -> None:
        mode, catalog, began = (
            self._config.snapshot_isolation_mode,
            Db2CatalogReader(main, self._config),
            time.monotonic(),
        )
        schemas, mark = catalog.read_captured_schemas(tables), 0
        main.rollback()
        if is_locking(mode):
            beside = self._connect()
            wait_for_agent(beside, self._config)  # so that no lock waits for an agent that is stopped or far behind
            set_lock_timeout(main, self._config.snapshot_lock_timeout_ms)
            lock_tables(main, schemas, mode)
            others = [
                *itertools.takewhile(lambda c: try_share_locks(c, schemas, mode), others)
            ]  # writers that wait keep out the next one, too
            schemas = catalog.read_captured_schemas(tables)  # their structures cannot change any more
            now, mark = wait_for_agent(beside, self._config)
        else:
            self._refuse_bags(schemas)
            now = self._published(main)
        self.schemas, self._own = schemas, catalog.read_table_schemas(schemas)
        self._sizes = catalog.estimate_row_counts(schemas)
        self.ts_us = now.now_us
        self.lsn = now.lsn
        created = {
            str(registration.table): registration.created_us
            for registration in catalog.list_registrations().values()
            if registration.table in schemas
        }
        self.position = Db2Position(now.lsn, now.synch_us, mark, created_us=created)
        self.source = {"change_lsn": None, "commit_lsn": lsn_text(now.lsn)}
        self.ddl = {t: create_statement(schema) for t, schema in self._own.items()}
        self._end(main)
        for i in range(self._readers):
            self._idle.put(others[i] if i < len(others) else main)
        log.info("The snapshot is at %s; %s, after %.2f s.", self.position, mode.value, time.monotonic() - began)

    def _end(self, connection: Db2Connection) -> None:
        """End a connection's question, unless the locks would end with it."""
        if not is_locking(self._config.snapshot_isolation_mode):
            connection.rollback()

    def _published(self, main: Db2Connection) -> AgentProgress:
        now = read_agent_progress(main, self._config.capture_schema)
        if not now.lsn:
            raise PrerequisiteError(
                "The capture agent has not published anything yet, so a snapshot would have no position.",
                where=f"{self._config.asn_capture_schema}.IBMSNAP_REGISTER",
                safe="Nothing was read; the offset is untouched.",
                remedy=f"VALUES {self._config.asn_capture_schema}.ASNCDCSERVICES('start','asncdc'), and wait until "
                "it has started",
            )
        return now

    def _refuse_bags(self, schemas: Mapping[TableId, object]) -> None:
        bags = [str(t) for t, schema in schemas.items() if not getattr(schema, "key", ())]
        if bags:
            raise PrerequisiteError(
                f"{', '.join(bags)} cannot be read without locks: rows may already contain changes that are made "
                "during the read, and without a key the stream cannot correct them.",
                where=f"snapshot.isolation.mode={self._config.snapshot_isolation_mode.value}",
                safe="Nothing was read; the offset is untouched.",
                remedy="set snapshot.isolation.mode=repeatable_read, give the table a primary key, or exclude it "
                "with table.exclude.list",
            )

    def _connect(self) -> Db2Connection:
        connection = connect_database(self._config)
        self._connections.append(connection)
        return connection

    # -- reading ------------------------------------------------------------------------------------------------------

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        count = self._sizes.get(table, 0)
        if self._readers < 2 or self._statement(table) is not None:
            return [SnapshotChunk(table, None, count)]
        connection = self._idle.get()
        try:
            with translate_driver_errors(self._config, str(table)):
                parts = build_partition_conditions(connection, self.schemas[table], count, self._readers, ALIAS)
                self._end(connection)
        finally:
            self._idle.put(connection)
        return [SnapshotChunk(table, condition, count // len(parts)) for condition in parts]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        connection = self._idle.get()
        try:
            with translate_driver_errors(self._config, str(chunk.table)):
                try:
                    yield from self._blocks(connection, chunk)
                except Db2Error as e:
                    self._refused(e, chunk.table)
                    raise
                self._end(connection)
        finally:
            self._idle.put(connection)

    def _statement(self, table: TableId) -> str | None:
        """Return the SELECT of a signal or of the configuration for a table, if there is one."""
        return self._selects.get(table) or override_of(table, self._config.snapshot_select_statement_overrides)

    def _refused(self, e: Db2Error, table: TableId) -> None:
        """Raise :class:`QueryRejected` if the database refuses a signal's SELECT.

        :raises QueryRejected: it does
        """
        if table not in self._selects:
            return
        meaning = build_cdc_error(e, self._config)
        if not isinstance(meaning, TransientError):
            raise build_query_refused(
                f"The database rejects the statement for {table}", meaning.message, self._selects[table]
            ) from e

    def _blocks(self, connection: Db2Connection, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        schema, statement = self.schemas[chunk.table], self._statement(chunk.table)
        gone = set(schema.column_names) - set(self._own[chunk.table].column_names)
        columns = SelectList(schema, self._config, ALIAS, absent=gone)
        source = quote_table(chunk.table) if statement is None else as_table(statement)
        sql = f"SELECT {', '.join(columns.expressions)} FROM {source} {ALIAS}"
        sql += f" WHERE {chunk.condition}" if chunk.condition else ""
        sql += f" FOR READ ONLY WITH {resolve_isolation_level(self._config.snapshot_isolation_mode)}"
        size = FetchSize(self._config.snapshot_fetch_size, lobs=columns.lobs)
        with connection.open_cursor(sql) as cursor:
            while rows := cursor.fetch_rows(size.rows):
                block = read_block(columns, rows, self.lsn, self.ts_us)
                size.adapt_size(block, MAX_BYTES)
                yield block

    def close(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(Db2Error):  # gone already
                connection.close()
        self._connections.clear()
