"""Writes the chunks that incremental snapshots have read, between the transactions of the stream."""

from __future__ import annotations

import logging
import time

from airflow_provider_cdc.core.incremental.coordinator import IncrementalCoordinator, ReadyWindow
from airflow_provider_cdc.core.model.metrics import ChunkMetrics
from airflow_provider_cdc.core.model.notifications import ScanStatus, Type
from airflow_provider_cdc.core.model.offset import Scan
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.signal import SignalState
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows
from airflow_provider_cdc.core.writing.implicit_tables import NewTables
from airflow_provider_cdc.core.writing.request_progress import RequestProgress
from airflow_provider_cdc.core.writing.run_output import Output
from airflow_provider_cdc.core.writing.snapshot_notifications import incremental_ended, key_text, scan_ended

log = logging.getLogger(__name__)


class IncrementalWriter:
    """Writes the rows of chunks, and ends the signals that asked for them.

    :param metrics: counts chunks and their events
    """

    def __init__(
        self,
        output: Output,
        incremental: IncrementalCoordinator,
        progress: RequestProgress,
        metrics: ChunkMetrics,
        tables: NewTables,
    ) -> None:
        self._state, self._batcher = output.state, output.batcher
        self._writer, self._committer = output.writer, output.committer
        self._incremental, self._progress, self._metrics, self._tables = incremental, progress, metrics, tables

    @property
    def waiting(self) -> bool:
        """Whether a chunk waits for the stream to pass it."""
        return self._incremental.waiting

    def begin(self, position: Position) -> None:
        """The stream begins at a position."""
        self.feed()
        self._incremental.arrive(position)

    def feed(self) -> None:
        """Have the next tables read; between transactions, as often as one likes."""
        self._incremental.feed(self._state.incremental)

    def write(self) -> None:
        """Write the chunks that the stream has passed; between transactions."""
        state, ended = self._state, False
        if not state.incremental.active:
            return
        self.feed()  # after a large transaction reading begins anew; a scan may also have been added meanwhile
        for found in self._incremental.ready(lambda: state.incremental):
            for rows in self._tables.of(found.blocks, state.offset.position or {}):
                self._writer.read(rows, state.position, snapshot="incremental", metrics=self._metrics)
            if found.window.probe and found.ended is None:
                self._empty(found)
            else:
                self._count(found)
            state.incremental = found.state
            if found.ended is not None:
                self._progress.scan_ended(found.scan, self._incremental.chunk_rows)
                scan_ended(self._batcher, found.scan, found.ended)
                bad = found.ended.status not in (ScanStatus.SUCCEEDED, ScanStatus.EMPTY)
                self._ended(found.scan, f"{found.scan.table}: {found.ended.text}" if bad else "")
                ended = True
            self._progress.chunks(self._incremental.chunk_rows)
            if self._committer.full:
                self._committer.commit()
        if ended:
            self._committer.commit()
            self.feed()
        self._progress.chunks(self._incremental.chunk_rows)

    def _empty(self, found: ReadyWindow) -> None:
        """Empty a table in the targets before its rows are read again; by now it is known that it can be read."""
        schema = self._tables.schema(found.window.schema, self._state.offset.position or {})
        if schema is not None:
            self._writer.truncate(schema, time.time_ns() // 1000, {}, snapshot="incremental")

    def _count(self, found: ReadyWindow) -> None:
        window, scan = found.window, found.scan
        chunk = window.chunk or ChunkRows([], None)
        bounds = {"ChunkFrom": scan.after, "ChunkTo": chunk.last, "TableTo": window.upto}
        if scan.after is None:
            bounds["TableFrom"] = window.first
        texts = {name: key_text(key) for name, key in bounds.items()}
        self._metrics.chunk(window.number, scan.table, len(chunk), texts)

    def _ended(self, scan: Scan, trouble: str) -> None:
        """A table of a request is read, or cannot be read. After the last one of a request, the signal that asked for it ends."""
        state, request = self._state, scan.request
        if trouble:
            log.warning("Incremental snapshot: %s", trouble)
            state.incremental = state.incremental.request_failed(request, trouble)
        if any(other.request == request for other in state.incremental.scans):
            return
        message, state.incremental = state.incremental.request_ended(request)
        self._batcher.end_signal(request, SignalState.FAILED if message else SignalState.DONE, message)
        if message:
            incremental_ended(self._batcher, scan, Type.ABORTED, message=message)
        else:
            incremental_ended(self._batcher, scan, Type.COMPLETED)
