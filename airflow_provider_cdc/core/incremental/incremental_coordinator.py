"""Incremental snapshots: tables are read in chunks beside the stream, and neither waits for the other.

:class:`IncrementalCoordinator` is used by the streaming thread. It gets every event that is written and the stream's position, and
decides which chunks may be written now. Only :class:`~.connector_offset.IncrementalState` is durable, as part of the offset: after a
kill, each table continues behind the last row that a batch holds.

See "Incremental snapshots" of the Debezium connector documents. Here, unlike there, chunks are read ahead, several windows are
open at once, each may hold several small chunks, and the watermarks of a window may be positions instead of rows in a signal table
(:mod:`~.chunk_reader`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.incremental.chunk_reader_thread import ChunkReaderThread
from airflow_provider_cdc.core.incremental.chunk_windows import ChunkWindow, TouchedKeys
from airflow_provider_cdc.core.incremental.pending_key_ranges import order_of_ranges
from airflow_provider_cdc.core.model.connector_offset import IncrementalState, TableScan
from airflow_provider_cdc.core.model.log_items import LogBlock, RowBlock
from airflow_provider_cdc.core.model.notifications import ScanProblem, TableScanStatus
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.signals.signal_table_reader import WatermarkRow
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, KeyRange
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.writing.event_envelope import Envelope

log = logging.getLogger(__name__)

HELD: Final = 1_000_000
"""Keys of an open transaction that are kept in memory; if it has more, chunks wait until it is complete."""
_MISMATCHES: Final = 20
"""How often a chunk is read again because its schema is not the one in force."""


@dataclass(slots=True)
class ReadyWindow:
    """A window that may be written.

    :param blocks: rows that no event has superseded
    :param state: the state that becomes durable with them
    :param scan: the table's scan before this window
    :param ended: how reading the table has ended; ``None`` = it continues
    """

    window: ChunkWindow
    blocks: list[RowBlock]
    scan: TableScan
    state: IncrementalState
    ended: ScanProblem | None = None


class IncrementalCoordinator:
    """Knows which chunks are read, which events have superseded their rows, and which of them may be written now.

    :param signals: the signal table, where watermarks are written there
    """

    def __init__(
        self,
        source: Source,
        config: ConnectorConfig,
        filters: Filters,
        history: SchemaHistory,
        envelope: Envelope,
        tables: dict[str, TableId],
        signals: TableId | None,
    ) -> None:
        """
        :param tables: names of tables → ids; grows as tables become known
        """
        self._source, self._config, self._filters = source, config, filters
        self._history, self._envelope, self.tables = history, envelope, tables
        self._signals = signals
        self._thread: ChunkReaderThread | None = None
        self._fed = 0
        self._reading: set[TableId] = set()
        self._held: list[tuple[TableId, TouchedKeys]] = []
        self._held_rows = 0
        self._mismatches = 0
        self._at: Position | None = None
        self._keys: dict[TableId, tuple[TableSchema, tuple[str, ...]]] = {}

    @property
    def is_waiting(self) -> bool:
        """Return whether a chunk waits for the stream's position."""
        return self._thread is not None and bool(self._thread.windows)

    @property
    def chunk_rows(self) -> int:
        return self._thread.chunk_rows if self._thread is not None else self._config.incremental_snapshot_chunk_size

    def schedule_tables(self, state: IncrementalState) -> None:
        """Read the tables of a state; to be called between transactions, whenever the state has changed.

        Tables whose rows are to be replaced are read when everything before them is done.
        """
        if state.paused or not state.scans or self._held_rows > HELD:
            return
        if self._thread is None:
            self._thread = ChunkReaderThread(
                self._config, self._open, self._order_of, written=self._signals is not None
            )
        for scan in state.scans[self._fed :]:
            if scan.replace and self._fed:
                break
            self._reading.add(self.resolve_table(scan.table))
            self._thread.read(self.resolve_table(scan.table), scan)
            self._fed += 1

    def cancel_reads(self) -> None:
        """Cancel all reads. When the tables are fed again, they are read from the last keys of their scans."""
        self._fed = 0
        self._reading.clear()
        if self._thread is not None:
            self._thread.cancel_reads()

    def close(self) -> None:
        """End the reading thread; it is started again when there is something to read."""
        thread, self._thread = self._thread, None
        self._fed = 0
        if thread is not None:
            thread.close()

    # -- events and positions of the stream ---------------------------------------------------------------------------

    def record_events(self, block: LogBlock) -> None:
        """Events of a block were written."""
        if self._thread is None:
            return
        for rows in block.rows:
            if len(rows) and rows.table.id in self._reading:
                touched = TouchedKeys.from_rows(rows, self._key(rows.table), self._envelope.build_row_mask(rows))
                self._hold(rows.table.id, touched, len(rows))
        if not block.open:
            self.advance_position(block.position)
        elif self._held_rows > HELD:
            self.cancel_reads()
            self._held.clear()

    def record_schema_changes(self, changes: Iterable[TableChange]) -> None:
        """Record that tables have a new schema, or a new name.

        A window that was open meanwhile is read again in any case: its rows may have the old schema and events the new one, and
        both may look alike (a column that was dropped and added again, another table under the name).
        """
        if any(id_ in self._reading for change in changes for id_ in (change.id, change.previous_id)):
            self.cancel_reads()

    def record_truncate(self, table: TableId) -> None:
        """Record that a table was emptied by the database."""
        if self._thread is not None:
            self._hold(table, TouchedKeys.from_truncate(), 0)

    def rollback(self) -> None:
        """Record that the open transaction was rolled back."""
        self._held.clear()
        self._held_rows = 0

    def advance_position(self, position: Position) -> None:
        """Everything up to a position is written, and no transaction is open."""
        if self._thread is None:
            return
        self._at = position
        windows = self._thread.advance_position(position)
        for table, touched in self._held:
            for window in windows:
                if window.table == table:
                    window.record_events(touched)
        self.rollback()
        for window in windows:
            high = window.chunk.high if window.chunk is not None else None
            # the row that closes a window of written watermarks may never come, as when the signal table was emptied
            if any(at is not None and position.has_reached(at) for at in (high, window.bound)):
                window.closed = True

    def record_watermark(self, watermark: WatermarkRow) -> None:
        """Record that a row of the signal table was inserted or deleted."""
        for window in [*self._thread.windows] if self._thread is not None else ():
            if window.marker is not None and watermark.id.startswith(window.marker):
                window.marked = True
                if watermark.id == f"{window.marker}-{'close' if watermark.inserted else 'open'}":
                    window.closed = True

    def _hold(self, table: TableId, touched: TouchedKeys, rows: int) -> None:
        self._held.append((table, touched))
        self._held_rows += rows

    # -- windows that may be written ----------------------------------------------------------------------------------

    def iterate_ready_windows(self, present: Callable[[], IncrementalState]) -> Iterator[ReadyWindow]:
        """Yield the windows that the stream has passed, in order; between transactions only.

        The caller writes each, and takes over its state, before it asks for the next.

        :param present: returns the present state
        """
        while self._thread is not None and self._thread.windows:
            state, window = present(), self._thread.windows[0]
            if window.chunk is None or not (window.closed or self._need_not_wait(window)):
                return
            scan = state.scans[0] if state.scans else None
            if scan is None or (scan.table, scan.request) != (str(window.table), window.request):
                log.debug("A chunk of %s is no longer needed.", window.table)
                self._thread.release_window(window)
                continue
            if window.is_unmarked:
                window.problem, window.final = ScanProblem(TableScanStatus.SKIPPED, self._unlogged(window)), True
                yield self._moved(window, [], scan, state)
                self.cancel_reads()  # the rest of the table
                self.schedule_tables(present())
                return
            blocks = self._blocks(window)
            if blocks is not None and (again := self._as_now(window)) is not None:
                blocks += again
            elif blocks is not None:  # the stream is too far behind
                self.cancel_reads()
                self.schedule_tables(state)
                return
            if blocks is None:
                self._mismatches += 1
                if self._mismatches < _MISMATCHES:
                    self.cancel_reads()
                    self.schedule_tables(state)
                    return
                window.problem = ScanProblem(
                    TableScanStatus.UNKNOWN_SCHEMA, _differs(window, self._history.find_schema(window.table))
                )
                window.final, blocks = True, []
            self._mismatches = 0
            yield self._moved(window, blocks, scan, state)
            self._thread.release_window(window)
            if window.final:
                self._fed -= 1
            self.schedule_tables(present())

    @staticmethod
    def _need_not_wait(window: ChunkWindow) -> bool:
        """Return whether a window may be written before the stream has passed it.

        It has no row, and no position at which that is true.
        """
        chunk = window.chunk
        return window.problem is not None or (
            window.marker is None and (chunk is None or (window.is_empty and chunk.high is None))
        )

    def _unlogged(self, window: ChunkWindow) -> str:
        return (
            f"the log does not contain the rows written to the signal table {self._signals}, so the chunks of {window.table} cannot be "
            "merged with concurrent changes: make sure that neither the database nor a filter excludes the signal table from the log, or "
            "set read.only=true"
        )

    def _blocks(self, window: ChunkWindow) -> list[RowBlock] | None:
        """Return the rows of a window that no event has superseded, and deletes of keys that have neither row nor event.

        Returns ``None`` if rows or events have another schema than the one in force.
        """
        schema = self._history.find_schema(window.table)
        if window.is_empty or window.problem is not None:
            return []
        if not self._source.STRUCTURED:  # rows get the columns in force where they are written
            schema = window.schema
        if schema is None or window.schema is None or _shape(schema) != _shape(window.schema):
            return None
        key = self._key_names(schema)
        if not key or not window.keyed_by(tuple((name, schema.get_column(name).type) for name in key)):
            return None
        blocks = []
        for rows in window.iterate_remaining_rows(key):
            block = _renumbered(rows, schema if self._source.STRUCTURED else rows.table)
            block.ts_us = np.where(block.ts_us > 0, block.ts_us, 0)
            blocks.append(block)
        if (gone := window.build_deletes()) is not None and window.chunk is not None:
            block, source = _renumbered(gone, schema), window.chunk.source
            fields = [own for own in self._source.source_fields if own.name in source]
            block.source = {own.name: pa.array([source[own.name]] * len(block), own.type) for own in fields}
            blocks.append(block)
        return blocks

    def _as_now(self, window: ChunkWindow) -> list[RowBlock] | None:
        """Read the stale rows as they are at the position that the stream has come to.

        Returns ``None`` if the database does not know that any more.
        """
        names = () if window.schema is None else self._key_names(window.schema)
        if window.schema is None or self._at is None or not (keys := window.stale_keys(names)):
            return []
        with self._open() as reader:
            source_keys = tuple(reader.to_source_keys(window.schema, names, keys))
            return reader.read_at_position(KeyRange(window.schema, window.order, keys=source_keys), self._at)

    def _moved(
        self, window: ChunkWindow, blocks: list[RowBlock], scan: TableScan, state: IncrementalState
    ) -> ReadyWindow:
        chunk = window.chunk
        assert chunk is not None
        if window.probe and window.problem is None:
            return ReadyWindow(window, [], scan, state.advance_first_scan(scan.record_emptied()))
        rows = scan.rows + len(chunk)
        deleted = scan.deleted + sum(len(block) for block in blocks if block.after is None)
        if not window.final and window.next is not None:
            return ReadyWindow(window, blocks, scan, state.advance_first_scan(window.next.with_counts(rows, deleted)))
        ended = window.problem
        if ended is None:
            ended = ScanProblem(TableScanStatus.SUCCEEDED if rows or deleted else TableScanStatus.EMPTY, "")
        return ReadyWindow(window, blocks, scan.with_counts(rows, deleted), state.remove_first_scan(), ended)

    # -- tables -------------------------------------------------------------------------------------------------------

    def _open(self) -> ChunkReader:
        return self._source.open_chunk_reader(signals=self._signals)

    def resolve_table(self, name: str) -> TableId:
        """Return the table of a scan."""
        if name not in self.tables:
            namespace, _, table = name.partition(".")
            self.tables[name] = TableId(namespace=namespace, name=table)
        return self.tables[name]

    def _key(self, schema: TableSchema) -> tuple[int, ...]:
        names = self._key_names(schema)
        return tuple(schema.column_names.index(name) for name in names)

    def _key_names(self, schema: TableSchema) -> tuple[str, ...]:
        cached = self._keys.get(schema.id)
        if cached is None or cached[0] is not schema:
            cached = self._keys[schema.id] = schema, self._filters.select_key_columns(schema)
        return cached[1]

    def _order_of(self, schema: TableSchema, scan: TableScan) -> tuple[str, ...] | ScanProblem:
        """Return the columns by which a table's rows are ordered."""
        key = schema.key or self._filters.select_key_columns(schema)
        if not self._filters.select_key_columns(schema):
            return ScanProblem(
                TableScanStatus.NO_PRIMARY_KEY,
                f"{schema.id} has no key, so events cannot be matched with rows: add a primary key, name the key "
                f"columns with message.key.columns={schema.id}:<columns>, or read the whole table with a blocking snapshot",
            )
        first = (scan.surrogate,) if scan.surrogate else ()
        order = tuple(dict.fromkeys((*first, *key)))
        if first and self._source.orders_by(first[0]):
            return first
        if scan.key:
            ranges_order = order_of_ranges(schema, scan, self._filters.select_key_columns(schema))
            if isinstance(ranges_order, ScanProblem):
                return ranges_order
            order = ranges_order
        nullable = {c.name: c.nullable for c in schema.columns}
        for name in order:
            if name not in nullable:
                role = "surrogate key" if name in first else "key column"
                return ScanProblem(
                    TableScanStatus.SKIPPED,
                    f"{schema.id} has no column {name}, the {role}; it has {', '.join(nullable)}",
                )
            if nullable[name]:
                return ScanProblem(
                    TableScanStatus.SKIPPED,
                    f"column {name} of {schema.id} is nullable and cannot bound chunks: rows with NULL would be missing",
                )
        return order


def check_form(config: ConnectorConfig) -> None:
    """Make sure that the configuration says where watermarks go.

    :raises PrerequisiteError: it contradicts itself
    """
    if config.read_only is False and config.signal_data_collection is None:
        raise PrerequisiteError(
            "read.only=false writes watermarks to the signal table, but no signal table is configured.",
            safe="Nothing was read; capture resumes after the configuration is fixed.",
            remedy="set signal.data.collection, or leave read.only out",
        )


def writes_watermarks(config: ConnectorConfig) -> bool:
    """Return whether incremental snapshots write to the signal table."""
    return config.signal_data_collection is not None and not config.read_only


def _shape(schema: TableSchema) -> list[tuple[str, str]]:
    return [(c.name, c.type) for c in schema.columns]


def _differs(window: ChunkWindow, recorded: TableSchema | None) -> str:
    there = {} if window.schema is None else dict(_shape(window.schema))
    here = {} if recorded is None else dict(_shape(recorded))
    names = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
    return (
        f"the structure of {window.table} in the log differs from the structure of the table in {', '.join(names) or 'the key or the order of columns'}; "
        "read the table with a blocking snapshot, which adopts the current structure"
    )


def _renumbered(rows: RowBlock, schema: TableSchema) -> RowBlock:
    return replace(rows, table=schema, order=np.arange(len(rows), dtype=np.int64), transaction=None)
