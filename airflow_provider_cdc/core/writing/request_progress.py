"""Records the progress of the tables that signals asked for."""

from __future__ import annotations

import time
from typing import Any, Final

from airflow_provider_cdc.core.model.offset import Scan
from airflow_provider_cdc.core.model.signal import SignalState
from airflow_provider_cdc.core.spi.interfaces import StateStore
from airflow_provider_cdc.core.writing.state import CaptureState

_INTERVAL_S: Final = 1.0
"""How often progress is written to the state tables."""


class RequestProgress:
    """Writes the progress of snapshots to the states of the signals that asked for them."""

    def __init__(self, connector: str, store: StateStore, state: CaptureState) -> None:
        self._connector, self._store, self._state = connector, store, state
        self._shown_at = 0.0
        self._rows_then: tuple[float, int] = (time.monotonic(), 0)

    def table(self, table: str, rows: int, total: int, left: int) -> None:
        """Progress of a table that is read whole.

        :param total: estimated rows
        :param left: tables that are left
        """
        for number in set(self._state.snapshot.requests.values()):
            shown = {"table": table, "rows": rows, "of_about": total, "left": left}
            self._store.set_signal_state(self._connector, number, SignalState.RUNNING, progress=shown)

    def chunks(self, chunk_rows: int) -> None:
        """Progress of the table that is read in chunks; written at most once a second.

        :param chunk_rows: rows of a chunk, if the signal does not set them
        """
        scans = self._state.incremental.scans
        if not scans or time.monotonic() - self._shown_at < _INTERVAL_S:
            return
        scan = scans[0]
        self._shown_at = now = time.monotonic()
        then, rows = self._rows_then
        rate = max(scan.rows - rows, 0) / max(now - then, 1e-3)
        self._rows_then = now, scan.rows
        keys = (
            {} if scan.key else {"after": scan.after, "upto": scan.upto}
        )  # within a range they say nothing about the table
        self._show(scan, chunk_rows, rows_per_s=round(rate), **keys)

    def scan_ended(self, scan: Scan, chunk_rows: int) -> None:
        """A table is not read in chunks any more."""
        self._rows_then = time.monotonic(), 0
        self._show(scan, chunk_rows)

    def _show(self, scan: Scan, chunk_rows: int, **more: Any) -> None:
        left = sum(other.request == scan.request for other in self._state.incremental.scans)
        chunk_rows = scan.chunk_rows or chunk_rows
        shown = {"table": scan.table, "tables": scan.tables, "left": left, "rows": scan.rows, "chunk_rows": chunk_rows}
        if scan.key:
            shown |= {"ranges": len(scan.ranges), "deleted": scan.deleted}
        self._store.set_signal_state(self._connector, scan.request, SignalState.RUNNING, progress=shown | more)
