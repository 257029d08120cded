"""Writes the chunks that incremental snapshots have read, between the transactions of the stream."""

from __future__ import annotations

import logging
import time

from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator, ReadyWindow
from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import NotificationType, TableScanStatus
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import ChunkMetrics
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows
from airflow_provider_cdc.core.writing.inferred_tables import ImplicitTables
from airflow_provider_cdc.core.writing.request_progress import RequestProgress
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import incremental_ended, key_text, scan_ended

log = logging.getLogger(__name__)


class IncrementalWriter:
    """Writes the rows of chunks, and ends the signals that asked for them.

    :param metrics: counts chunks and their events
    """

    def __init__(
        self,
        output: RunOutput,
        incremental: IncrementalCoordinator,
        progress: RequestProgress,
        metrics: ChunkMetrics,
        tables: ImplicitTables,
    ) -> None:
        self._state, self._batcher = output.state, output.batcher
        self._writer, self._committer = output.writer, output.committer
        self._incremental, self._progress, self._metrics, self._tables = incremental, progress, metrics, tables

    @property
    def is_waiting(self) -> bool:
        """Return whether a chunk waits for the stream to pass it."""
        return self._incremental.is_waiting

    def start_stream(self, position: Position) -> None:
        """Record that the stream begins at a position."""
        self.schedule_tables()
        self._incremental.advance_position(position)

    def schedule_tables(self) -> None:
        """Have the next tables read; between transactions, as often as one likes."""
        self._incremental.schedule_tables(self._state.incremental_state)

    def write_ready_chunks(self) -> None:
        """Write the chunks that the stream has passed; between transactions."""
        state, ended = self._state, False
        if not state.incremental_state.is_active:
            return
        self.schedule_tables()  # after a large transaction, reading restarts; a scan may also have been added meanwhile
        for ready in self._incremental.iterate_ready_windows(lambda: state.incremental_state):
            for rows in self._tables.record_row_blocks(ready.blocks, state.offset.position or {}):
                self._writer.write_read_rows(
                    rows, state.current_position, snapshot="incremental", metrics=self._metrics
                )
            if ready.window.probe and ready.ended is None:
                self._empty(ready)
            else:
                self._count(ready)
            state.incremental_state = ready.state
            if ready.ended is not None:
                self._progress.scan_ended(ready.scan, self._incremental.chunk_rows)
                scan_ended(self._batcher, ready.scan, ready.ended)
                bad = ready.ended.status not in (TableScanStatus.SUCCEEDED, TableScanStatus.EMPTY)
                self._ended(ready.scan, f"{ready.scan.table}: {ready.ended.text}" if bad else "")
                ended = True
            self._progress.record_chunk_rows(self._incremental.chunk_rows)
            if self._committer.is_batch_full:
                self._committer.commit()
        if ended:
            self._committer.commit()
            self.schedule_tables()
        self._progress.record_chunk_rows(self._incremental.chunk_rows)

    def _empty(self, ready: ReadyWindow) -> None:
        """Empty a table in the targets before its rows are read again; by now it is known that it can be read."""
        schema = self._tables.resolve_schema(ready.window.schema, self._state.offset.position or {})
        if schema is not None:
            self._writer.write_truncate(schema, time.time_ns() // 1000, {}, snapshot="incremental")

    def _count(self, ready: ReadyWindow) -> None:
        window, scan = ready.window, ready.scan
        chunk = window.chunk or ChunkRows([], None)
        bounds = {"ChunkFrom": scan.after, "ChunkTo": chunk.last, "TableTo": window.upto}
        if scan.after is None:
            bounds["TableFrom"] = window.first_key
        texts = {name: key_text(key) for name, key in bounds.items()}
        self._metrics.record_chunk(window.number, scan.table, len(chunk), texts)

    def _ended(self, scan: TableScan, trouble: str) -> None:
        """End a table of a request, which is read or cannot be read.

        After the last table of a request, the signal that asked for it ends.
        """
        state, request = self._state, scan.request
        if trouble:
            log.warning("Incremental snapshot: %s", trouble)
            state.incremental_state = state.incremental_state.request_failed(request, trouble)
        if any(other.request == request for other in state.incremental_state.scans):
            return
        message, state.incremental_state = state.incremental_state.request_ended(request)
        self._batcher.end_signal(request, SignalState.FAILED if message else SignalState.DONE, message)
        if message:
            incremental_ended(self._batcher, scan, NotificationType.ABORTED, message=message)
        else:
            incremental_ended(self._batcher, scan, NotificationType.COMPLETED)
