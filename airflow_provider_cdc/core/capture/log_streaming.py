"""Streams the log: writes each of its items, and runs everything else between transactions.

The log is read in phases. A table that was read at a later position than the others joins when the stream has reached that position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.control_poller import ControlPoller
from airflow_provider_cdc.core.capture.heartbeat import Heartbeats
from airflow_provider_cdc.core.capture.log_item_writer import LogItemWriter
from airflow_provider_cdc.core.capture.signal_handling.signal_processor import SignalProcessor
from airflow_provider_cdc.core.capture.stopped_tables import StoppedTables
from airflow_provider_cdc.core.capture.stream_progress_reporter import StreamProgress
from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.core.incremental.incremental_writer import IncrementalWriter
from airflow_provider_cdc.core.model.log_items import LogItem
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import EventMetrics
from airflow_provider_cdc.core.snapshot.snapshotter import SnapshotStopped
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver
from airflow_provider_cdc.core.writing.run_output import RunOutput

log = logging.getLogger(__name__)

_SHORT_WAIT_S: Final = 0.005
"""Seconds to wait on a quiet log while a chunk waits for the stream's position."""


class Streaming:
    """Streams the log of one run.

    :param tables: the tables that the log reader may decode
    :param report: is called between two transactions
    :param metrics: of the stream
    :param stopped: takes tables with an event or a value that cannot be read
    :param carrier: keeps the state that the source carries over from one stream to the next; ``None``: it carries nothing
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        tables: CapturedTables,
        items: LogItemWriter,
        incremental: IncrementalWriter,
        heartbeats: Heartbeats,
        signals: SignalProcessor,
        watch: ControlPoller,
        report: Callable[[], None],
        metrics: EventMetrics,
        stopped: StoppedTables,
        carrier: StoredCarryOver | None = None,
    ) -> None:
        self._source, self._tables, self._items, self._incremental = inputs.source, tables, items, incremental
        self._state = output.state
        self._writer, self._committer = output.writer, output.committer
        self._heartbeats, self._signals, self._watch = heartbeats, signals, watch
        self._report, self._carrier, self._stopped = report, carrier, stopped
        self._patience_s = inputs.config.poll_interval_ms / 1000
        board, batcher, state = inputs.changelog.open_progress_board(inputs.name), output.batcher, output.state
        self._progress = StreamProgress(board, lambda: batcher.event_count, metrics, lambda: state.position_text, log)

    def stream_log(self, *, bounded: bool) -> None:
        """Stream until tables are to be read whole, or the run is to end.

        :param bounded: end at the present end of the log, and when incremental snapshots are complete
        """
        self._progress.start_stretch(bounded=bounded)
        try:
            self._stream(bounded=bounded)
        finally:
            self._progress.end_stretch()

    def _stream(self, *, bounded: bool) -> None:
        state = self._state
        end = self._end() if bounded else None
        while True:
            start = state.current_position
            ahead = self._hold_back()
            reads_chunks, state.repositioned = state.incremental_state.is_active, False
            if end is not None and start.has_reached(end) and not ahead and not reads_chunks:
                break
            try:
                self._phase(start, ahead[0][1] if ahead else None if reads_chunks else end, bounded and reads_chunks)
            except TerminalError as e:
                self._leave_out_table(e)
                if not state.snapshot_state.pending:
                    continue
            if state.snapshot_state.pending or self._watch.is_stop_due:
                break
            if (reads_chunks or state.repositioned) and bounded:
                end = self._end()
            elif not ahead and not state.repositioned:
                break
        self._end_of_log()

    def catch_up(self, end: Position) -> None:
        """Stream up to a position at which tables are read again, so that their earlier events come first.

        Everything up to there is committed.

        :raises SnapshotStopped: the run was asked to end; the streamed rows are committed
        """
        self._progress.start_stretch(bounded=True)
        try:
            while True:
                start = self._state.current_position
                ahead = self._hold_back()
                try:
                    self._catch_up(start, ahead[0][1] if ahead else end)
                except TerminalError as e:
                    self._leave_out_table(e)
                    continue
                if not ahead:
                    break
            self._end_of_log()
        finally:
            self._progress.end_stretch()

    def _end(self) -> Position:
        return self._state.find_latest_position(self._source.current_position())

    def _end_of_log(self) -> None:
        if self._writer.open:  # inside a transaction, which is read again
            self._items.rollback()
        self._committer.commit()

    def _leave_out_table(self, e: TerminalError) -> None:
        """Continue without the table that an error names, from the last transaction that is whole.

        :raises TerminalError: it names no table that could be left out alone
        """
        if e.table is None:
            raise e
        self._items.rollback()
        self._stopped.leave_out_table(e)
        self._committer.commit()

    def _hold_back(self) -> list[tuple[str, Position]]:
        """Leave out the events of tables that are read at a later position.

        Returns these tables, with the position of each, nearest first.
        """
        ahead = self._state.list_later_tables()
        held = {name for name, _ in ahead} | self._state.snapshot_state.waiting_tables
        self._tables.hold_back(held | self._state.offset.stopped.keys())
        return ahead

    def _phase(self, start: Position, end: Position | None, until_read: bool) -> None:
        """Stream from one position up to another.

        :param until_read: end when the incremental snapshots are complete
        """
        state = self._state
        self._incremental.start_stream(start)
        for item in self._read(start, end):
            self._items.write_item(item)
            if not self._writer.open:
                if state.snapshot_state.pending:
                    return
                self._incremental.write_ready_chunks()
                self._committer.commit_if_due()
                self._heartbeats.beat_if_due()
                self._report()
                self._signals.process_if_due()
                if self._watch.is_stop_due or state.repositioned or state.snapshot_state.pending:
                    return
                if until_read and not state.incremental_state.is_active:
                    return
            self._progress.report_if_due()

    def _catch_up(self, start: Position, end: Position) -> None:
        for item in self._read(start, end):
            self._items.write_item(item)
            if self._writer.open:
                continue
            self._committer.commit_if_due()
            self._heartbeats.beat_if_due()
            if self._watch.is_stop_requested():
                self._committer.commit()
                raise SnapshotStopped
            self._progress.report_if_due(f"streaming to {end}, where the snapshot of tables begins")

    def _read(self, start: Position, end: Position | None) -> Iterator[LogItem]:
        if self._carrier is not None:
            self._carrier.start_stream(self._state.offset.carried, self._tables.held_back)
            self._source.receive_carry_over(self._carrier)
        return self._source.stream_log(start, self._tables, until=end, patience=self._patience)

    def _patience(self) -> float:
        """Seconds to wait on a quiet log before everything else has its turn."""
        if self._incremental.is_waiting:
            return min(self._patience_s, _SHORT_WAIT_S)
        if self._committer.has_uncommitted_events:
            return min(self._patience_s, max(self._committer.due_in_s, _SHORT_WAIT_S))
        return self._patience_s
