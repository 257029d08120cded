"""The chunk reader: reads chunks of tables for incremental snapshots.

Rows are read by plain queries, of committed rows (Debezium Db2 connector, "Incremental snapshots"). The changes that the capture agent has
published are seconds behind the rows that such a query sees; the watermarks take that into account:

* read-only: ``low`` is the LSN up to which the agent had published before the rows were read; they contain everything up to it. ``high`` is a mark written
  afterwards (:mod:`..asn.marks`); all rows had committed before it, and a stream passes it when the agent has published it.
* written: the row in the signal table is committed before the rows are read, and everything committed before it is visible.

The table's columns in the catalog, and those of its change table, are compared before and after each chunk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import check_mark_grant, write_mark
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, read_agent_progress
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Error, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.snapshot.event_to_chunk_key import event_key
from airflow_provider_cdc.sources.db2.snapshot.key_range_query import Db2KeyRangeQuery, build_condition_check
from airflow_provider_cdc.sources.db2.snapshot.registered_tables import Db2RegisteredTables
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import set_lock_timeout
from airflow_provider_cdc.sources.db2.snapshot.snapshot_row_blocks import read_block, source_of
from airflow_provider_cdc.sources.db2.snapshot.watermarks import Db2WatermarkWriter
from airflow_provider_cdc.sources.relational.chunk_reader import CatalogRows, ReadMoment, RelationalChunkReader
from airflow_provider_cdc.sources.relational.event_key_decoder import keys_of_rows
from airflow_provider_cdc.sources.relational.fetch_size import CHUNK_PARTS, FetchSize


class Db2ChunkReader(RelationalChunkReader[Db2KeyRangeQuery, Db2Position]):
    """Reads chunks, and writes watermarks (:class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`).

    :param signals: the signal table, if watermarks are written to it; ``None`` = read-only watermarks
    :raises PrerequisiteError: the signal table does not exist, cannot be written to, or is not in capture mode; or the account may not write marks
    """

    MISSING: ClassVar[str] = "no longer exists, or is no longer in capture mode"

    def __init__(self, config: Db2Config, signals: TableId | None) -> None:
        super().__init__(signals)
        self._config = config
        self._connection = connect_database(config)
        self._registered = Db2RegisteredTables(self._connection, config)
        self._fetch_sizes: dict[tuple[TableId, int], FetchSize] = {}
        try:
            with self._asking("opening a chunk reader"):
                set_lock_timeout(self._connection, config.snapshot_lock_timeout_ms)
                check_mark_grant(self._connection, config)
                self._marks = None if signals is None else Db2WatermarkWriter(self._connection, config, signals)
        except BaseException:
            self.close()
            raise

    # -- structures ---------------------------------------------------------------------------------------------------

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        with self._asking(str(table)):
            self._registered.read_registration(table)
        return super().read_table_schema(table)

    def _fetch_schema(self, table: TableId) -> TableSchema | None:
        return self._registered.fetch_schema(table)

    def _fetch_columns(self, table: TableId) -> CatalogRows:
        return self._registered.fetch_columns(table)

    # -- reading ------------------------------------------------------------------------------------------------------

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        key_columns = [table.get_column(name) for name in columns]
        return keys_of_rows(table.id, key_columns, keys, lambda column, value: event_key(column, value, self._config))

    def _build_query(self, rows: KeyRange) -> Db2KeyRangeQuery:
        return Db2KeyRangeQuery(rows, self._config, self._registered.list_dropped_columns(rows.table.id))

    def _find_last_key(self, query: Db2KeyRangeQuery) -> Key | None:
        values = query.find_last_key(self._connection)
        return None if values is None else [c.to_json(value) for c, value in zip(query.key, values, strict=True)]

    def _read_blocks(
        self, query: Db2KeyRangeQuery, limit: int, max_bytes: int, moment: ReadMoment[Db2Position], first: int
    ) -> Iterator[tuple[RowBlock, Key]]:
        sizes = self._fetch_sizes.setdefault(
            (query.rows.table.id, max_bytes),
            FetchSize(self._config.snapshot_fetch_size, lobs=query.columns.lobs),
        )
        for condition, ordered in query.build_conditions():
            with query.open_cursor(self._connection, condition, ordered, limit) as cursor:
                while limit > 0 and (fetched := cursor.fetch_rows(min(sizes.rows, limit))):
                    block = read_block(query.columns, fetched, moment.position.commit_lsn, moment.ts_us, first)
                    sizes.adapt_size(block, max_bytes // CHUNK_PARTS)
                    limit, first = limit - len(block), first + len(block)
                    yield block, query.key_of(fetched[-1])
            if limit <= 0:
                break

    def _parse_condition(self, rows: KeyRange) -> None:
        self._connection.fetch_rows(build_condition_check(rows))

    # -- positions, and the end ---------------------------------------------------------------------------------------

    def _read_moment(self) -> ReadMoment[Db2Position]:
        low = self._published()
        return ReadMoment(Db2Position(low.lsn, low.synch_us), low.now_us, source_of(low.lsn))

    def _read_log_end(self) -> Db2Position:
        """Return the end of the log: a reader reaches it when the agent has published everything committed by now."""
        mark = write_mark(self._connection, self._config)
        return Db2Position(self._published().lsn, awaits=mark)

    def _published(self) -> AgentProgress:
        now = read_agent_progress(self._connection, self._config.capture_schema)
        self._connection.rollback()
        return now

    @contextlib.contextmanager
    def _translate_errors(self, where: str) -> Iterator[None]:
        """Translate the driver's errors, and end the transaction."""
        with translate_driver_errors(self._config, where):
            try:
                yield
            except BaseException:
                with contextlib.suppress(Db2Error):  # the first error matters more
                    self._connection.rollback()
                raise
            self._connection.rollback()

    def close(self) -> None:
        self._closed = True
        self._connection.cancel()
        self._connection.close()
