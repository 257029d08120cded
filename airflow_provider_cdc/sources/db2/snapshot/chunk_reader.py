"""The chunk reader: reads chunks of tables for incremental snapshots.

Rows are read by plain queries, of committed rows (Debezium Db2 connector, "Incremental snapshots"). What the capture agent has published is behind
what such a query sees, by seconds; the watermarks take that into account:

* read-only: ``low`` is the LSN up to which the agent had published before the rows were read; they contain everything up to it. ``high`` is a mark written
  afterwards (:mod:`..asn.marks`); all rows had committed before it, and a stream passes it when the agent has published it.
* written: the row in the signal table is committed before the rows are read, and everything committed before it is visible.

The table's columns in the catalog, and those of its change table, are compared before and after each chunk.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import (
    CdcError,
    QueryRejected,
    SourceUnavailable,
    TransientError,
    UnreadableValue,
)
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import check_mark_grant, write_mark
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, read_agent_progress
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Error, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.error_translation import build_cdc_error
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.schema.sql_names import quote_table, quoted_name
from airflow_provider_cdc.sources.db2.snapshot.event_to_chunk_key import event_key
from airflow_provider_cdc.sources.db2.snapshot.key_range_query import Db2KeyRangeQuery
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import set_lock_timeout
from airflow_provider_cdc.sources.db2.snapshot.snapshot_row_blocks import Db2FetchSize, read_block, source_of
from airflow_provider_cdc.sources.db2.snapshot.structure_cache import Db2StructureCache
from airflow_provider_cdc.sources.db2.snapshot.watermarks import Db2WatermarkWriter
from airflow_provider_cdc.sources.relational.event_key_decoder import build_query_refused, keys_of_rows, no_watermark

log = logging.getLogger(__name__)

_PARTS: Final = 4
"""Number of fetches for a full chunk of wide rows."""


class Db2ChunkReader(ChunkReader):
    """Reads chunks, and writes watermarks (:class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`).

    :param signals: the signal table, if watermarks are written to it; ``None`` = read-only watermarks
    :raises PrerequisiteError: the signal table does not exist, cannot be written to, or is not in capture mode; or the account may not write marks
    """

    def __init__(self, config: Db2Config, signals: TableId | None) -> None:
        self._config, self._signals = config, signals
        self._connection = connect_database(config)
        self._closed = False
        self._tables = Db2StructureCache(self._connection, config)
        self._fetch_sizes: dict[tuple[TableId, int], Db2FetchSize] = {}
        self._conditions: set[tuple[TableId, str]] = set()
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
            return self._tables.read_structure(table)

    def _expect(self, schema: TableSchema) -> None:
        """Check that a schema is the one last read from the catalog.

        :raises StructureChanged: the table has another definition
        """
        known = self._tables.find_structure(schema.id)
        if known is None or not known.same_structure(schema):
            self._compare(schema)

    def _unchanged(self, schema: TableSchema) -> None:
        """Check that the table's definition has not changed since it was last read from the catalog.

        :raises StructureChanged: it has
        """
        with self._asking(str(schema.id)):
            same = self._tables.is_as_known(schema.id)
        if not same:  # the difference may be one that capture does not see
            self._compare(schema)

    def _compare(self, schema: TableSchema) -> None:
        present = self.read_table_schema(schema.id)
        if present is None or not present.same_structure(schema):
            raise StructureChanged(
                f"{schema.id} "
                f"{'no longer exists, or is no longer in capture mode' if present is None else 'now has a different definition'}"
            )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_last_key(self, rows: KeyRange) -> Key | None:
        self._expect(rows.table)
        query = self._query(rows)
        with self._reading(rows, query):
            found = query.find_last_key(self._connection)
        self._unchanged(rows.table)
        return None if found is None else [c.to_json(value) for c, value in zip(query.key, found, strict=True)]

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        self._expect(rows.table)
        query = self._query(rows)
        blocks: list[RowBlock] = []
        last, size, complete, left = rows.after, 0, False, limit * queries
        with self._reading(rows, query):
            low = self._published()
            began = time.monotonic()
            while left > 0 and not complete and size < max_bytes:
                asked, came = min(limit, left), 0
                query = self._query(replace(rows, after=last, first=rows.first if last is None else None))
                for block, key in self._first(query, asked, max_bytes, low, sum(map(len, blocks))):
                    blocks.append(block)
                    last = key
                    came, size = came + len(block), size + (block.after.nbytes if block.after is not None else 0)
                    if size >= max_bytes:
                        break
                complete, left = came < asked and size < max_bytes, left - came
            reading_s = time.monotonic() - began
            high = None if self._signals is not None else self._end()
        self._unchanged(rows.table)
        bound = None if high is None else Db2Position(low.lsn, low.synch_us)
        return ChunkRows(
            blocks, last if blocks else None, bound, high, complete, reading_s, low.now_us, source_of(low.lsn)
        )

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        given = [table.get_column(name) for name in columns]
        return keys_of_rows(table.id, given, keys, lambda column, value: event_key(column, value, self._config))

    def _query(self, rows: KeyRange) -> Db2KeyRangeQuery:
        return Db2KeyRangeQuery(rows, self._config, self._tables.list_dropped_columns(rows.table.id))

    def _first(
        self, query: Db2KeyRangeQuery, limit: int, max_bytes: int, low: AgentProgress, first: int
    ) -> Iterator[tuple[RowBlock, Key]]:
        """Yield the first rows of a range, each block with its last key.

        :param first: ``order`` of the first row
        """
        sizes = self._fetch_sizes.setdefault(
            (query.rows.table.id, max_bytes),
            Db2FetchSize(self._config.snapshot_fetch_size, lobs=query.columns.lobs, max_bytes=max_bytes // _PARTS),
        )
        for condition, ordered in query.build_conditions():
            with query.open_cursor(self._connection, condition, ordered, limit) as cursor:
                while limit > 0 and (fetched := cursor.fetch_rows(min(sizes.rows, limit))):
                    block = read_block(query.columns, fetched, low.lsn, low.now_us, first)
                    sizes.adapt_size(block)
                    limit, first = limit - len(block), first + len(block)
                    yield block, query.key_of(fetched[-1])
            if limit <= 0:
                break

    def _published(self) -> AgentProgress:
        now = read_agent_progress(self._connection, self._config.capture_schema)
        self._connection.rollback()
        return now

    # -- watermarks ---------------------------------------------------------------------------------------------------

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        with self._marking() as marks:
            marks.insert_watermark(id_, type_, data)

    def delete_signal_row(self, id_: str) -> None:
        with self._marking() as marks:
            marks.delete_watermark(id_)

    def end_of_log(self) -> Db2Position:
        with self._asking("the end of the log"):
            return self._end()

    def _end(self) -> Db2Position:
        """Return the end of the log: a reader reaches it when the agent has published everything committed by now."""
        mark = write_mark(self._connection, self._config)
        return Db2Position(self._published().lsn, awaits=mark)

    @contextlib.contextmanager
    def _marking(self) -> Iterator[Db2WatermarkWriter]:
        assert self._marks is not None, "opened for read-only watermarks"
        assert self._signals is not None
        try:
            with self._asking(str(self._signals)):
                yield self._marks
        except TransientError:
            raise
        except CdcError as e:
            remedy = (
                f"GRANT SELECT, INSERT, DELETE ON {quote_table(self._signals)} TO USER {quoted_name(self._config.database_user.upper())}, give the "
                "table the columns id VARCHAR(42), type VARCHAR(32) and data VARCHAR(2048), or set read.only=true"
            )
            raise no_watermark(e, self._signals, remedy) from e

    # -- errors, and the end ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        """Translate the driver's errors, and end the transaction; after :meth:`close` every error becomes :class:`SourceUnavailable`."""
        try:
            with translate_driver_errors(self._config, where):
                try:
                    yield
                except BaseException:
                    with contextlib.suppress(Db2Error):  # the first error matters more
                        self._connection.rollback()
                    raise
                self._connection.rollback()
        except CdcError as e:
            if self._closed:
                raise SourceUnavailable("The chunk reader was closed.", where=where, safe="Nothing is lost.") from e
            raise

    @contextlib.contextmanager
    def _reading(self, rows: KeyRange, query: Db2KeyRangeQuery) -> Iterator[None]:
        """Translate the errors of a query: a lost connection, a changed table, or a wrong condition of the user."""
        table = rows.table.id
        try:
            with self._asking(str(table)):
                self._check_condition(rows, query)
                yield
        except (TransientError, QueryRejected):
            raise
        except CdcError as e:
            self._unchanged(rows.table)
            if isinstance(e, UnreadableValue) and rows.condition is None:
                raise
            raise build_query_refused(
                f"The database rejects the read of {table}", e.what, rows.condition or str(table)
            ) from e

    def _check_condition(self, rows: KeyRange, query: Db2KeyRangeQuery) -> None:
        """Have the database read the condition by itself.

        :raises QueryRejected: the database refuses it
        """
        asked = (rows.table.id, rows.condition or "")
        if rows.condition is None or asked in self._conditions:
            return
        try:
            self._connection.fetch_rows(query.condition_check())
        except Db2Error as e:
            meaning = build_cdc_error(e, self._config)
            if isinstance(meaning, TransientError):
                raise
            self._unchanged(rows.table)
            raise build_query_refused(
                f"The database rejects the condition for {rows.table.id}", meaning.what, rows.condition
            ) from e
        self._conditions.add(asked)

    def close(self) -> None:
        self._closed = True
        self._connection.cancel()
        self._connection.close()
