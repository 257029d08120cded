"""Records the progress of the tables that signals asked for."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressBoard, ProgressReporter
from airflow_provider_cdc.core.spi.state_records import SignalProgress, part_of
from airflow_provider_cdc.core.spi.store_interfaces import StateStore
from airflow_provider_cdc.core.writing.capture_state import CaptureState

log = logging.getLogger(__name__)

_INTERVAL_S: Final = 1.0
"""How often progress is written to the state tables."""


class RequestProgress:
    """Writes the progress of snapshots to the states of the signals that asked for them."""

    def __init__(self, connector: str, store: StateStore, state: CaptureState, board: ProgressBoard) -> None:
        self._connector, self._store, self._state, self._board = connector, store, state, board
        self._work: ProgressReporter | None = None
        self._read = 0
        self._shown_at = 0.0
        self._rows_then: tuple[float, int] = (time.monotonic(), 0)

    def report_table(self, table: str, rows: int, total: int, left: int) -> None:
        """Progress of a table that is read whole.

        :param total: estimated rows
        :param left: tables that are left
        """
        for number in set(self._state.snapshot_state.request_numbers.values()):
            shown = {"table": table, "rows": rows, "of_about": total, "left": left}
            self._store.set_signal_state(self._connector, number, SignalState.RUNNING, progress=shown)

    def record_chunk_rows(self, chunk_rows: int) -> None:
        """Progress of the table that is read in chunks; written at most once a second.

        :param chunk_rows: rows of a chunk, if the signal does not set them
        """
        scans = self._state.incremental_state.scans
        if not scans:
            self.close()
            return
        self._work = self._work or ProgressReporter("Incremental snapshot", "rows", board=self._board, logger=log)
        if time.monotonic() - self._shown_at < _INTERVAL_S:
            return
        scan = scans[0]
        self._shown_at = now = time.monotonic()
        then, rows = self._rows_then
        rate = max(scan.rows - rows, 0) / max(now - then, 1e-3)
        self._rows_then = now, scan.rows
        keys = (
            {} if scan.key else {"after": scan.after, "upto": scan.upto}
        )  # within a range they say nothing about the table
        shown = self._show(scan, chunk_rows, rows_per_s=round(rate), **keys)
        if self._work.is_due:
            self._report_progress(self._work, scan, shown)

    def scan_ended(self, scan: TableScan, chunk_rows: int) -> None:
        """Record that a table is not read in chunks any more."""
        self._rows_then, self._read = (time.monotonic(), 0), self._read + scan.rows
        self._show(scan, chunk_rows)

    def close(self) -> None:
        """No table is read in chunks any more, or for now."""
        work, self._work, self._read = self._work, None, 0
        if work is not None:
            work.close()

    def _report_progress(self, work: ProgressReporter, scan: TableScan, shown: SignalProgress) -> None:
        scans = self._state.incremental_state.scans
        left, tables = len(scans), max(scan.tables, len(scans))
        part = part_of(shown)
        of = None if part is None else (part, 1.0)
        at = f"now {scan.table}" + (f", {left} of {tables} tables left" if tables > 1 else "")
        work.report_progress(self._read + scan.rows, span=of, now=at)

    def _show(self, scan: TableScan, chunk_rows: int, **more: Any) -> SignalProgress:
        left = sum(other.request == scan.request for other in self._state.incremental_state.scans)
        chunk_rows = scan.chunk_rows or chunk_rows
        shown = {"table": scan.table, "tables": scan.tables, "left": left, "rows": scan.rows, "chunk_rows": chunk_rows}
        if scan.key:
            shown |= {"ranges": len(scan.ranges), "deleted": scan.deleted}
        progress: SignalProgress = shown | more  # type: ignore[assignment]
        self._store.set_signal_state(self._connector, scan.request, SignalState.RUNNING, progress=dict(progress))
        return progress
