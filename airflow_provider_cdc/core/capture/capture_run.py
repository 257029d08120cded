"""Runs one attempt of a capture, under a lease: plan, read the pending tables, stream.

:class:`CaptureRun` composes a run. Each of its parts does one thing and knows only those below it:

=====================  ==============================================================
``RunPlanner``            decides which tables are read, and from where the log is read
``Snapshotter``        reads whole tables
``Streaming``          reads the log; ``LogItemWriter`` writes its items
``SchemaChangeHandler``      applies DDL in the log
``SignalProcessor``    takes signals; ``SignalActions`` carries them out
``IncrementalWriter``  writes the chunks that ``IncrementalCoordinator`` has read beside the stream
``Committer``          decides when a batch is committed
``EventWriter``        gives every event its sequence number, and puts it into the batch
``CaptureState``       the offset that the next commit makes durable
=====================  ==============================================================
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.control_poller import ControlPoller, StopCondition
from airflow_provider_cdc.core.capture.heartbeat import Heartbeats
from airflow_provider_cdc.core.capture.log_item_writer import LogItemWriter
from airflow_provider_cdc.core.capture.log_lag_poller import LogLagPoller
from airflow_provider_cdc.core.capture.log_streaming import Streaming
from airflow_provider_cdc.core.capture.resnapshot_scheduler import ResnapshotScheduler
from airflow_provider_cdc.core.capture.run_plan import RunPlan, RunPlanner
from airflow_provider_cdc.core.capture.schema_change_handler import SchemaChangeHandler
from airflow_provider_cdc.core.capture.signal_handling.signal_actions import SignalActions
from airflow_provider_cdc.core.capture.signal_handling.signal_processor import SignalProcessor
from airflow_provider_cdc.core.capture.signal_handling.snapshot_actions import SnapshotActions
from airflow_provider_cdc.core.capture.stopped_tables import StoppedTables
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.topic_names import TopicNames
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    NotGranted,
    QueryRejected,
    SourceBusy,
    TerminalError,
    UnreadableValue,
)
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator, writes_watermarks
from airflow_provider_cdc.core.incremental.incremental_writer import IncrementalWriter
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.notifications import INITIAL, NotificationType
from airflow_provider_cdc.core.model.run_metrics import RunMetrics, Value
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.source_fields import field_types
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.reporting.metrics_monitor import MetricsMonitor
from airflow_provider_cdc.core.signals.signal_table_reader import SignalTableReader
from airflow_provider_cdc.core.snapshot.snapshot_policy import reads_rows, snapshot_policy
from airflow_provider_cdc.core.snapshot.snapshotter import SnapshotStopped, Snapshotter
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
from airflow_provider_cdc.core.writing.batch_committer import Committer
from airflow_provider_cdc.core.writing.capture_state import CaptureState
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.core.writing.event_writer import EventWriter
from airflow_provider_cdc.core.writing.inferred_tables import ImplicitTables
from airflow_provider_cdc.core.writing.request_progress import RequestProgress
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import queue_notification

log = logging.getLogger(__name__)

_COMPACTED = 500
"""Schema changes that are read at a start before a new base is made of them."""
_TURNS = 10
"""Snapshots one after the other that may leave out tables which are altered before they are read."""


class CaptureRun:
    """An attempt of a capture run.

    :ivar batcher: the batches that the run has committed, and the one in progress
    """

    def __init__(
        self, inputs: RunInputs, stop: StopCondition, lease: Lease, monitor: MetricsMonitor, watch: LogLagPoller
    ) -> None:
        name, source, config, store = inputs.name, inputs.source, inputs.config, inputs.store
        self._inputs, self._stop, self._policy = inputs, stop, snapshot_policy(config)
        self._reads_rows, self._planned = reads_rows(self._policy), RunPlan(Offset())
        self._turns = 0  # snapshots one after the other that had to leave out tables, as these were altered meanwhile
        self.metrics, self._monitor, self._log_watch, self._failed = RunMetrics(), monitor, watch, False
        self._cpu_began_s = time.process_time()
        monitor.start_attempt()
        self.batcher = BatchBuilder(
            name, source.connector, config.to_public_properties(), store, inputs.changelog, lease,
            f"{lease.epoch}-{uuid.uuid4().hex[:12]}", inputs.notification_channels, field_types(source.source_fields),
        )  # fmt: skip
        self._carrier: StoredCarryOver | None = None
        if source.CARRIES:
            files, committed = inputs.changelog.open_carry_over(name), self.batcher.committed_offset.carried
            self._carrier = StoredCarryOver(
                files, committed, lease.epoch, config.to_public_properties(), lambda: stop.left_s
            )
        self._state = state = CaptureState(self.batcher.committed_offset, source.parse_position)
        if state.incremental_state.paused:
            self.metrics.chunks.pause()
        schemas = store.load_schemas(name)
        self.metrics.history.record_recovered(schemas.changes)
        self._history = SchemaHistory.from_stored(schemas)
        if len(schemas.changes) >= _COMPACTED:
            store.compact_schemas(lease, self._history.build_base(), schemas.upto)
        named = config.signal_data_collection
        self._signal_table = None if named is None else source.signal_table(named)
        tables = CapturedTables(
            self._filters, self._history, self._signal_table, lambda: state.snapshot_state.streamed_tables
        )
        self._topics = self._topics_of(self._history)
        envelope = Envelope(
            config, self._filters, source.connector, source.source_fields, hidden=self._signal_table, topics=self._topics,
            keys_overlap=source.KEYS_OVERLAP,
        )  # fmt: skip
        self._writer = EventWriter(envelope, self.batcher, self.metrics, structured=source.STRUCTURED)
        self._incremental = IncrementalCoordinator(
            source, config, self._filters, self._history, envelope, {str(t): t for t in self._history.current_tables},
            self._signal_table if writes_watermarks(config) else None,
        )  # fmt: skip
        self._compose(tables)

    def _compose(self, tables: CapturedTables) -> None:
        """Make the parts that work on the state, from the ground up."""
        inputs, state, history, incremental = self._inputs, self._state, self._history, self._incremental
        name, config, store, chunks = inputs.name, inputs.config, inputs.store, self.metrics.chunks
        signal_table = SignalTableReader(name, config, store, self._signal_table, inputs.source.signal_of)
        self._committer = committer = Committer(
            config, state, self.batcher, self._writer, signal_table, inputs.source.confirm_position, self._carrier
        )
        self._output = output = RunOutput(state, self.batcher, self._writer, committer)
        self._watch = watch = ControlPoller(name, store, self._stop, config.signal_poll_interval_ms / 1000)
        self._heartbeats = heartbeats = Heartbeats(config, inputs.source, committer.advance_offset)
        self._progress = progress = RequestProgress(name, store, state, inputs.changelog.open_progress_board(name))
        rereads = ResnapshotScheduler(state, history, incremental)
        self._stopped = stopped = StoppedTables(
            inputs, output, tables, incremental, history, reads_rows=self._reads_rows
        )
        snapshots = SnapshotActions(inputs, output, history, tables, incremental, rereads, chunks)
        actions = SignalActions(inputs, output, history, tables, incremental, snapshots)
        self._signals = signals = SignalProcessor(inputs, output, signal_table, actions, incremental, watch)
        changes = SchemaChangeHandler(
            inputs, output, history, tables, self._reads_rows, incremental, rereads, self.metrics.streaming
        )
        self._implicit_tables = implicit_tables = ImplicitTables(
            output.writer, history, self._signal_table, inputs.source, truncates="t" not in config.skipped_operations
        )
        items = LogItemWriter(output, changes, signal_table, incremental, implicit_tables)
        chunk_writer = IncrementalWriter(output, incremental, progress, chunks, implicit_tables)
        self._streaming = Streaming(
            inputs,
            output,
            tables,
            items,
            chunk_writer,
            heartbeats,
            signals,
            watch,
            self._report_if_due,
            self.metrics.streaming,
            stopped,
            self._carrier,
        )

    @property
    def _filters(self) -> Filters:
        return self._inputs.filters

    def _topics_of(self, history: SchemaHistory) -> TopicNames:
        """Return the connector's topics."""
        topics = TopicNames(self._inputs.config)
        topics.reserve_topics(table for table in history.ever_known_tables if table != self._signal_table)
        return topics

    def execute(self, run_for_s: float | None) -> None:
        """Run until there is nothing left to do, or for ``run_for_s`` seconds.

        :raises UnreadableValue: all others are captured, and tables are stopped
        """
        self._execute(run_for_s)
        self._stopped.check_none_stopped()

    def _execute(self, run_for_s: float | None) -> None:
        stop, state = self._stop, self._state
        stop.deadline = None if run_for_s is None else time.monotonic() + run_for_s
        try:
            self._signals.fail_lost()
            self._stopped.forget_gone()
            self._plan()
            while True:
                self._snapshot()
                if self._turns and state.snapshot_state.pending and not stop.is_due:
                    continue
                if stop.requested or not self._policy.should_stream():
                    return
                if not state.snapshot_state.pending:
                    self._heartbeats.beat_if_due()
                    self._signals.process_signals()
                    if not state.snapshot_state.pending:
                        self._streaming.stream_log(bounded=run_for_s is None)
                if not state.snapshot_state.pending or stop.is_due:
                    return
        except BaseException:
            self._failed = True
            try:
                self.batcher.discard_batch()
            except CdcError as e:  # the original error matters more
                log.warning(
                    "The files of the unfinished batch could not be deleted; the next commit deletes them. %s", e
                )
            raise
        finally:
            self._progress.close()
            self._incremental.close()

    @property
    def position_text(self) -> str:
        """The connector's position as text; empty if it has none."""
        return self._state.position_text if self._state.offset.position is not None else ""

    def collect_metrics(self) -> dict[str, dict[str, Value]]:
        """Return the run's metrics."""
        hidden, filters = self._signal_table, self._filters
        captured = [t for t in self._history.current_tables if filters.is_table_captured(t) and t != hidden]
        source, reached = self._inputs.source, self.batcher.committed_offset.position
        at = None if reached is None else source.parse_position(reached)
        window = self._log_watch.measure_lag(at, ask=not self._failed)
        return self.metrics.to_document(
            captured, {**source.collect_stream_metrics(), **window}, source.snapshot_metrics()
        )

    def report_metrics(self) -> None:
        """Report everything that was measured so far."""
        topics = {str(table): self._topics.resolve_topic(table) for table in self._history.current_tables}
        self._monitor.record_metrics(self.collect_metrics(), topics)
        self._monitor.set_total("run.TotalProcessorTimeInSeconds", round(time.process_time() - self._cpu_began_s, 3))
        for topic, files in self.batcher.committed.files.items():
            self._monitor.set_total("topic.TotalNumberOfEventsCaptured", files.events, topic)
        freshness, self.metrics.freshness = self.metrics.freshness, []
        for topic, seconds in freshness:
            self._monitor.observe_value("topic.CaptureFreshnessInSeconds", seconds, topic)

    def _report_if_due(self) -> None:
        if self._monitor.is_due:
            self.report_metrics()
            self._monitor.flush()

    # -- whole tables -------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        state = self._state
        first = state.offset.position is None
        planner = RunPlanner(self._inputs, self._history, self._policy, self._signal_table, self._topics)
        self._planned = plan = planner.build_plan(state.offset)
        state.offset = plan.offset
        if first and not state.snapshot_state.pending:
            queue_notification(self.batcher, INITIAL, NotificationType.SKIPPED)
        if plan.structures:
            names = {str(t) for t in plan.structures}
            self._snapshotter().run(data=False, at=state.current_position, only=names)

    def _snapshot(self) -> None:
        config, state = self._inputs.config, self._state
        if not state.snapshot_state.pending:
            return
        self._incremental.cancel_reads()  # chunks that were read may be older than the rows that are read now
        if config.snapshot_delay_ms:
            log.info("Waiting %.1f s before the snapshot (snapshot.delay.ms).", config.snapshot_delay_ms / 1000)
            time.sleep(config.snapshot_delay_ms / 1000)
        plan, planned, committed = self._planned, state.offset, self.batcher.committed_offset
        self._planned = RunPlan(state.offset, rows=self._reads_rows)  # for snapshots that come later in the run
        try:
            if state.snapshot_state.streamed_tables:  # shortens the time for which the view is kept open
                self._streaming.catch_up(self._inputs.source.current_position())
            snapshotter = self._snapshotter()
            snapshotter.run(data=plan.rows, added=plan.added, catch_up=self._streaming.catch_up)
            self._turns = self._turns + 1 if snapshotter.changed else 0
            if self._turns == _TURNS:
                raise _altered_all_the_time(snapshotter.changed)
        except SnapshotStopped:
            self._committer.discard_uncommitted()
            left = len(state.snapshot_state.pending) or "all"
            log.warning(
                "The run ended during the snapshot: %s tables are left, and the next run begins with them.", left
            )
        except (QueryRejected, AccessDenied, NotGranted) as e:
            self._refused(e)
        except UnreadableValue as e:
            self._planned = plan
            self._without_table(e, planned if self.batcher.committed_offset == committed else None)

    def _without_table(self, e: TerminalError, planned: Offset | None) -> None:
        """Continue with the tables that are left, without the one of a value that cannot be read.

        If a request asked for it, the request fails, and the captured rows of the table stay as they were.

        :param planned: the offset to continue with; ``None``: the committed one, as tables were read meanwhile
        :raises TerminalError: no table is left, or it is of no table that could be stopped alone
        """
        if e.table in self.batcher.committed_offset.snapshot.request_numbers:
            return self._refused(e)
        self._committer.discard_uncommitted()
        self._history.load_stored(self._inputs.store.load_schemas(self._inputs.name))
        state = self._state
        state.offset = planned or state.offset
        self._stopped.stop_table(e)
        if state.offset.position is not None:
            self._committer.commit()
        elif not state.snapshot_state.pending:
            raise e
        return None

    def _refused(self, e: TerminalError) -> None:
        """Fail the requests of pending tables, as the database rejects a statement or the account lacks a right.

        The request fails, and capture continues. Tables that are read after an event was set aside are stopped. If capture itself lacks a right, the run ends when it streams.

        :raises CdcError: the statement belongs to no request
        """
        committed = self.batcher.committed_offset.snapshot
        requests = set(committed.request_numbers.values())
        if not requests and committed.pending and committed.pending.keys() == committed.repaired_tables:
            for table in committed.pending:
                e.table = table
                self._without_table(e, None)
            return
        if not requests:
            raise e
        self._committer.discard_uncommitted()
        self._history.load_stored(self._inputs.store.load_schemas(self._inputs.name))
        log.exception("A blocking snapshot failed; streaming resumes where it stopped.")
        self._signals.fail_requests(requests, describe_error(e))
        self._state.snapshot_state = self._state.snapshot_state.without_requests()
        self._committer.commit()

    def _snapshotter(self) -> Snapshotter:
        return Snapshotter(
            self._inputs, self._output, self._history, self.metrics, self._implicit_tables, policy=self._policy, hidden=self._signal_table,
            stopped=self._watch.is_stop_requested, progress=self._read_on,
        )  # fmt: skip

    def _read_on(self, table: str, rows: int, total: int, left: int) -> None:
        self._progress.report_table(table, rows, total, left)
        self._report_if_due()


__all__ = ["CaptureRun"]


def _altered_all_the_time(tables: Collection[TableId]) -> SourceBusy:
    return SourceBusy(
        f"In {_TURNS} snapshots in a row, tables were altered or dropped before they could be read.",
        where=", ".join(sorted(map(str, tables))),
        safe="All other tables are read and captured; these tables are pending.",
        remedy="find the job that keeps altering these tables, and run the capture again when the job is idle; or leave the tables out with "
        "table.exclude.list",
    )
