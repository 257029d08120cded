"""The thread that reads chunks, a few windows ahead of the stream."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import WatermarkStrategy
from airflow_provider_cdc.core.errors import CdcError, SourceBusy, TransientError
from airflow_provider_cdc.core.incremental.chunk_windows import ChunkWindow, deletes_of
from airflow_provider_cdc.core.incremental.chunks_per_window import WindowSize
from airflow_provider_cdc.core.incremental.pending_key_ranges import (
    advance_scan,
    rest_of_first_range,
    waiting_keys,
    whole_range,
)
from airflow_provider_cdc.core.incremental.table_scan_progress import (
    OrderOf,
    TableProgress,
    build_lag_problem,
    problem_of,
)
from airflow_provider_cdc.core.incremental.watermark_writer import WatermarkWriter
from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.notifications import ScanProblem, TableScanStatus
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.row_rate_limit import RowRateLimit
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange, StructureChanged

log = logging.getLogger(__name__)

AHEAD: Final = 32
"""Windows that are open at a time."""
AHEAD_ROWS: Final = 65_536
"""Rows that may wait in windows; while there are more, only two are open."""
KEYS: Final = 500
"""Keys that are looked up at a time."""
AHEAD_CHUNKS: Final = 4
"""All windows together may hold this many times the bytes of a chunk; while they hold more, none is added."""
_LARGEST: Final = 200_000
"""Most rows of a chunk that grows (``incremental.snapshot.chunk.target.ms``)."""
_TRIES: Final = 8
_CATCH_UP_S: Final = 30.0
"""Seconds within which a database must show rows whose events the stream has delivered already."""
_LONGEST_S: Final = 5.0
"""Seconds between two tries."""


class _ReadCancelled(Exception):
    """The read was cancelled."""


class ChunkReaderThread:
    """Reads tables, one after the other, into windows.

    :param open_reader: opens a reader of chunks
    :param order_of: returns the columns by which a table's rows are ordered
    :param written: watermarks are written to the signal table
    """

    def __init__(
        self,
        config: ConnectorConfig,
        open_reader: Callable[[], ChunkReader],
        order_of: OrderOf,
        *,
        written: bool,
    ) -> None:
        self._open_reader, self._order_of = open_reader, order_of
        strategy = config.incremental_snapshot_watermarking_strategy
        self._watermarks = WatermarkWriter(written=written, by_deletion=strategy is WatermarkStrategy.INSERT_DELETE)
        self._target_s = config.incremental_snapshot_chunk_target_ms / 1000
        self.chunk_rows = config.incremental_snapshot_chunk_size
        self._max_bytes = config.incremental_snapshot_chunk_max_bytes
        self._size, self._limit = WindowSize(), RowRateLimit(config.snapshot_max_rows_per_second)
        self._changed = threading.Condition()
        self._queue: deque[TableProgress] = deque()
        self.windows: deque[ChunkWindow] = deque()
        self._position: Position | None = None
        self._generation = self._number = 0
        self._ended = False
        self._error: BaseException | None = None
        self._reader: ChunkReader | None = None
        self._failures = self._tries = 0
        self._thread = threading.Thread(target=self._work, name="cdc-chunks", daemon=True)
        self._thread.start()

    # -- the streaming thread's side ----------------------------------------------------------------------------------

    def read(self, table: TableId, scan: TableScan) -> None:
        """Read a table, after those that were requested before, from the last key of its scan."""
        with self._changed:
            self._queue.append(TableProgress(table, scan, probe=scan.replace))
            self._changed.notify_all()

    def cancel_reads(self) -> None:
        """Cancel all reads, and drop the open windows."""
        with self._changed:
            self._generation += 1
            self._queue.clear()
            self.windows.clear()
            self._changed.notify_all()

    def advance_position(self, position: Position) -> list[ChunkWindow]:
        """Record that the stream has written all events up to a position.

        Returns the windows that were registered before, oldest first: each must get those events. Windows that come later are
        read when the events are visible in the table.

        :raises BaseException: the error that ended the thread
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            self._position = position
            self._changed.notify_all()
            return list(self.windows)

    def release_window(self, window: ChunkWindow) -> None:
        """Release a window whose rows are written."""
        with self._changed:
            if self.windows and self.windows[0] is window:
                self.windows.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """End the thread, in the middle of a chunk if need be."""
        with self._changed:
            self._ended = True
            self._generation += 1
            reader = self._reader
            self._changed.notify_all()
        self._thread.join(timeout=1)
        if self._thread.is_alive() and reader is not None:
            reader.close()
            self._thread.join(timeout=30)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (work := self._next()) is not None:
                window, progress, generation = work
                try:
                    self._fill(window, progress, generation)
                    self._failures = self._tries = 0
                except _ReadCancelled:
                    continue
                except TransientError as e:
                    self._again(window, progress, generation, e)
                except Exception as e:
                    log.warning("Chunks of %s cannot be read.", progress.table, exc_info=not isinstance(e, CdcError))
                    with contextlib.suppress(_ReadCancelled):
                        self._settle(window, progress, generation, problem=problem_of(e))
        except BaseException as e:  # the streaming thread raises it
            with self._changed:
                self._error = e
        finally:
            self._drop_reader()

    def _next(self) -> tuple[ChunkWindow, TableProgress, int] | None:
        """Register the next window, as soon as there is room for it. ``None`` = the end."""
        with self._changed:
            while not self._ended:
                pause_s = self._limit.compute_pause()
                if self._queue and self._position is not None and self._room() and not pause_s:
                    progress = self._queue[0]
                    self._number += 1
                    window = ChunkWindow(
                        self._number, progress.table, progress.scan.request, floor=self._position, probe=progress.probe
                    )
                    self.windows.append(window)
                    return window, progress, self._generation
                self._changed.wait(min(pause_s, 1.0) or 1.0)
        return None

    def _room(self) -> bool:
        if any(window.probe for window in self.windows):
            return False  # events before the table is emptied supersede no row that is read afterwards
        chunks = [w.chunk for w in self.windows if w.chunk is not None]
        if sum(chunk.memory_bytes for chunk in chunks) > (AHEAD_CHUNKS - 1) * self._max_bytes:  # one more may come
            return not self.windows
        return len(self.windows) < (AHEAD if sum(map(len, chunks)) < AHEAD_ROWS else 2)

    def _fill(self, window: ChunkWindow, progress: TableProgress, generation: int) -> None:
        """Read a chunk into its window."""
        reader = self._opened()
        for attempt in range(_TRIES):
            if generation != self._generation:
                raise _ReadCancelled
            try:
                problem = progress.load_structure(reader, self._order_of) if progress.schema is None else None
                if problem is not None:
                    return self._settle(window, progress, generation, problem=problem)
                if absent := waiting_keys(progress.scan, KEYS):
                    return self._look_up(reader, window, progress, generation, absent)
                if progress.scan.upto is None:
                    progress.scan = progress.scan.with_last_key(
                        reader.read_last_key(whole_range(reader, progress.scan, progress.build_next_range()))
                    )
                if progress.probe:
                    self._try(reader, progress)
                    progress.probe, progress.scan = False, progress.scan.record_emptied()
                    return self._settle(window, progress, generation)
                if progress.scan.upto is None:
                    return self._settle(window, progress, generation, chunk=ChunkRows([], None), last=True)
                return self._read(reader, window, progress, generation)
            except StructureChanged:
                progress.schema = None
                time.sleep(0.05 * attempt)
        problem = ScanProblem(TableScanStatus.UNKNOWN_SCHEMA, f"the structure of {progress.table} keeps changing")
        self._settle(window, progress, generation, problem=problem)
        return None

    def _read(self, reader: ChunkReader, window: ChunkWindow, progress: TableProgress, generation: int) -> None:
        """Read the next rows of the table, or of its first range."""
        rows = rest_of_first_range(reader, progress.scan, progress.build_next_range())
        requested = progress.scan.chunk_rows
        limit = requested or self.chunk_rows
        grows = bool(self._target_s) and requested is None
        queries = 1 if grows else self._size.compute_chunk_count(limit)
        started = time.monotonic()
        self._watermarks.open_window(reader, window)
        began = time.monotonic()
        chunk = self._visible(reader, window, progress, generation, rows, limit, queries)
        if chunk is None:
            return
        self._limit.record_rows(len(chunk))
        if grows and len(chunk) >= limit:
            self._adapt(time.monotonic() - began)
        last = chunk.complete or chunk.last is None or chunk.last == progress.scan.upto
        self._settle(window, progress, generation, chunk=chunk, last=last)
        self._watermarks.close_window(reader, window)
        self._size.record_window(time.monotonic() - started - chunk.reading_s, chunk.reading_s, len(chunk), limit)

    def _look_up(
        self, reader: ChunkReader, window: ChunkWindow, progress: TableProgress, generation: int, absent: list[Key]
    ) -> None:
        """Look up keys that may have no row."""
        assert progress.schema is not None
        schema, scan = progress.schema, progress.scan
        keys = reader.to_source_keys(schema, scan.key, absent)
        self._watermarks.open_window(reader, window)
        while True:
            rows = KeyRange(schema, tuple(scan.order), keys=tuple(keys))
            chunk = self._visible(reader, window, progress, generation, rows, len(keys) + 1, 1)
            if chunk is None:
                return
            if chunk.complete or len(keys) == 1:
                break
            keys = keys[: len(keys) // 2]  # wide rows: the others are looked up next
        looked_up = absent[: len(keys)]
        if chunk.complete:  # otherwise the one key has so large rows that not all of them came, and so it is not absent
            window.gone, window.key = (
                deletes_of(schema, scan.key, reader.as_events(looked_up), chunk.ts_us or time.time_ns() // 1000),
                scan.key,
            )
        self._settle(window, progress, generation, chunk=chunk, looked_up=len(looked_up))
        self._watermarks.close_window(reader, window)

    def _visible(
        self,
        reader: ChunkReader,
        window: ChunkWindow,
        progress: TableProgress,
        generation: int,
        rows: KeyRange,
        limit: int,
        queries: int,
    ) -> ChunkRows | None:
        """Rows in which everything is visible that the stream delivered before; ``None``: the database does not show it."""
        began, pause = time.monotonic(), 0.002
        chunk = reader.read(rows, limit, queries, self._max_bytes)
        while chunk.low is not None and window.floor is not None and not chunk.low.has_reached(window.floor):
            # the stream is ahead of the visible rows: for a moment, as a log is written before it is committed; for longer, or for
            # ever, where the connector has come to another server that lacks rows of the one before
            if time.monotonic() - began > _CATCH_UP_S:
                problem = build_lag_problem(
                    progress.table, reader.describe_missing_log(chunk.low, window.floor), _CATCH_UP_S
                )
                self._settle(window, progress, generation, problem=problem)
                return None
            if not self._wait(pause, generation):
                raise _ReadCancelled
            pause = min(2 * pause, 1.0)
            chunk = reader.read(rows, limit, queries, self._max_bytes)
        return chunk

    def _settle(
        self,
        window: ChunkWindow,
        progress: TableProgress,
        generation: int,
        *,
        chunk: ChunkRows | None = None,
        last: bool = False,
        looked_up: int = 0,
        problem: ScanProblem | None = None,
    ) -> None:
        """Hand a window over, and move on.

        :param last: the table, or its first range, has no more rows
        :param looked_up: how many keys were looked up
        """
        with self._changed:
            if generation != self._generation:
                raise _ReadCancelled
            scan = progress.scan
            window.schema, window.order, window.upto = progress.schema, tuple(scan.order), scan.upto
            if chunk is not None:
                window.next = advance_scan(scan, chunk.last, last=last, lookups=looked_up)
            window.problem = problem
            window.final = problem is not None or (last and len(scan.ranges) <= 1)
            # otherwise the chunk is there, and the marker that closes its window cannot be written
            if chunk is not None or window.chunk is None:
                window.chunk = chunk if chunk is not None else ChunkRows([], None)
                progress.before = scan
            if window.final and self._queue and self._queue[0] is progress:
                self._queue.popleft()
            elif window.next is not None and chunk is not None:
                progress.scan = window.next

    def _try(self, reader: ChunkReader, progress: TableProgress) -> None:
        """Do everything that reading the table takes, for one row, which is not captured."""
        assert progress.schema is not None
        self._watermarks.check_writable(reader)
        if progress.scan.upto is not None:
            reader.read(replace(progress.build_next_range(), after=None), 1)

    def _adapt(self, seconds: float) -> None:
        """Adapt the size of chunks to the time that a chunk may take, in small steps."""
        factor = min(max(self._target_s / max(seconds, 1e-4), 0.5), 2.0)
        self.chunk_rows = min(max(int(self.chunk_rows * factor), 256), _LARGEST)

    def _again(self, window: ChunkWindow, progress: TableProgress, generation: int, e: TransientError) -> None:
        """Read the chunk again over another connection, as the one before was lost.

        The log's own reader meets the same error, and decides whether the run continues. If only this table is blocked by another
        session, the stream continues, and the chunk waits until it is free.
        """
        self._drop_reader()
        self._tries += 1
        if not isinstance(e, SourceBusy):
            self._failures += 1
        if self._failures > _TRIES:
            raise e
        log.warning("A chunk of %s could not be read and is retried: %s", window.table, e)
        with self._changed:
            if generation == self._generation and self.windows and self.windows[-1] is window:
                self.windows.pop()
                if window.chunk is not None and progress.before is not None:
                    progress.scan = progress.before
                if window.final:  # its closing marker is what could not be written
                    self._queue.appendleft(progress)
        self._wait(min(0.1 * 2 ** min(self._tries - 1, 10), _LONGEST_S), generation)

    def _wait(self, seconds: float, generation: int) -> bool:
        """Wait, but no longer than until the read is cancelled. Returns whether it is not."""
        with self._changed:
            return not self._changed.wait_for(lambda: generation != self._generation, seconds)

    def _opened(self) -> ChunkReader:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(Exception):  # it is gone already
                reader.close()
