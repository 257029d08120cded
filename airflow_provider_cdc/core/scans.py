"""The tables that the incremental snapshots of a run have to read: part of its offset, and written beside the stream's events."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.chunks import ChunkRows
from airflow_provider_cdc.core.incremental import Written
from airflow_provider_cdc.core.notifications import ScanStatus, Type
from airflow_provider_cdc.core.position import IncrementalState, Scan
from airflow_provider_cdc.core.signals import Fate
from airflow_provider_cdc.core.telling import incremental_ended, key_text, scan_ended

if TYPE_CHECKING:
    from airflow_provider_cdc.core.run import Run

log = logging.getLogger(__name__)


class Scans:
    """What a run has still to read beside its stream."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def state(self) -> IncrementalState:
        """The incremental snapshots as they stand."""
        return self._run.offset.incremental

    @state.setter
    def state(self, state: IncrementalState) -> None:
        self._run.offset = self._run.offset.model_copy(update={"incremental": state})

    @property
    def go_on(self) -> bool:
        """Whether there is something to read now."""
        return bool(self.state.scans) and not self.state.paused

    def feed(self) -> None:
        """Have the next tables read; between transactions, as often as one likes."""
        self._run.incremental.feed(self.state)

    def write(self) -> None:
        """Write the chunks that the stream has passed; between transactions."""
        if not self.go_on:
            return
        run, ended = self._run, False
        self.feed()  # a large transaction has made reading begin anew, or a scan has come in another way
        for found in run.incremental.written(lambda: self.state):
            for rows in found.blocks:
                place = run.position(run.offset.position)
                batches, run.batcher.seq = run.envelope.encode_read(
                    rows, place, run.batcher.seq, snapshot="incremental"
                )
                for batch in batches:
                    run.batcher.add(batch)
                run.metrics.chunks.events(batches)
            if found.window.probe and found.ended is None:
                self._empty(found.scan)
            else:
                self._count(found)
            self.state = found.state
            if found.ended is not None:
                run.desk.scan_ended(found.scan)
                scan_ended(run.batcher, found.scan, found.ended)
                bad = found.ended.status not in (ScanStatus.SUCCEEDED, ScanStatus.EMPTY)
                self._ended(found.scan, f"{found.scan.table}: {found.ended.text}" if bad else "")
                ended = True
            if run.batcher.rows >= run.config.batch_max_rows or run.batcher.bytes >= run.config.batch_max_bytes:
                run.commit()
        if ended:
            run.commit()
            self.feed()
        run.desk.report()

    def _empty(self, scan: Scan) -> None:
        """The rows of a table are replaced by those that are read now: it is known by now that it can be read."""
        run = self._run
        schema = run.history.get(run.incremental.id(scan.table))
        if schema is not None:
            run.add_truncate(schema, time.time_ns() // 1000, {})

    def _count(self, found: Written) -> None:
        window, scan = found.window, found.scan
        chunk = window.chunk or ChunkRows([], None)
        bounds = {"ChunkFrom": scan.after, "ChunkTo": chunk.last, "TableTo": window.upto}
        if scan.after is None:
            bounds["TableFrom"] = window.first
        texts = {name: key_text(key) for name, key in bounds.items()}
        self._run.metrics.chunks.chunk(window.number, scan.table, len(chunk), texts)

    def _ended(self, scan: Scan, trouble: str) -> None:
        """A table of a request is read, or will not be; when it was the last one, the request has its answer."""
        run, state, request = self._run, self.state, scan.request
        failed = dict(state.failed)
        if trouble:
            log.warning("Incremental snapshot: %s", trouble)
            failed[str(request)] = "; ".join(filter(None, [failed.get(str(request)), trouble]))
        if not any(other.request == request for other in state.scans):
            message = failed.pop(str(request), "")
            run.batcher.answer(request, Fate.FAILED if message else Fate.DONE, message)
            if message:
                incremental_ended(run.batcher, scan, Type.ABORTED, message=message)
            else:
                incremental_ended(run.batcher, scan, Type.COMPLETED)
        self.state = state.model_copy(update={"failed": failed})
