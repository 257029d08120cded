"""Runs the capture of one connector once, as callers see it: takes the lease, runs, and returns the result.

:class:`Capture` takes a source, the state store and the change log; it knows nothing of Airflow.
``core/capture/capture_run.py`` and ``core/writing/batch_builder.py`` decide which rows become durable, and when.

    >>> with source:
    ...     result = Capture(RunInputs("shop", source, config, filters, store, changelog)).run()
    >>> result.events
    1204
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.capture.capture_remedies import with_command
from airflow_provider_cdc.core.capture.control_poller import StopCondition
from airflow_provider_cdc.core.capture.log_lag_poller import LogLagPoller
from airflow_provider_cdc.core.capture.pending_work_check import RunPrecheck
from airflow_provider_cdc.core.config.capture_filters import WHOLE, Filters
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import (
    CdcError,
    CommitConflict,
    ConnectorHalted,
    LeaseHeld,
    LeaseLost,
    PrerequisiteError,
)
from airflow_provider_cdc.core.model.run_metrics import Value, shorten_metrics
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.pandas_import_guard import without_pandas
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.reporting.metrics_monitor import MetricsMonitor, run_ended
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.spi.state_records import RunFailure, TaskRun
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState, Lease
from airflow_provider_cdc.core.writing.committed_totals import BatchTotals

if TYPE_CHECKING:
    from airflow_provider_cdc.core.capture.capture_run import CaptureRun

log = logging.getLogger(__name__)

_KEPT = 1000
"""How many entries of a list or a map are kept in the recorded metrics of a run."""
_M_MMAP_THRESHOLD = -3
"""``M_MMAP_THRESHOLD`` of ``malloc.h``."""
_CONFLICTS = 3
"""How many attempts a run makes when another run commits in between, before it gives up."""


@dataclass(slots=True)
class TableCaptureResult:
    """The durable result of a run for one table.

    :param schema: its captured columns, by the run's last batch with its events
    :param dataset: namespace and name, see :meth:`airflow_provider_cdc.core.config.connector_config.ConnectorConfig.build_dataset_name`
    :param lengths: column → how many characters of its texts are captured, of columns that are masked (0) or cut
    :param bytes: of the files of the change log
    """

    schema: TableSchema
    dataset: tuple[str, str]
    lengths: dict[str, int]
    events: int = 0
    bytes: int = 0
    files: int = 0

    def merge_later_result(self, later: TableCaptureResult) -> TableCaptureResult:
        """Both as one."""
        events, bytes_, files = self.events + later.events, self.bytes + later.bytes, self.files + later.files
        return dataclasses.replace(later, events=events, bytes=bytes_, files=files)


@dataclass(slots=True)
class CaptureResult:
    """The durable result of a run.

    :param position: the connector's position after the run, as the source writes it
    :param events: change events committed by this run
    :param topics: topic → events
    :param batches: numbers of the batches committed
    :param metrics: context → name → value; see :mod:`airflow_provider_cdc.core.model.run_metrics`
    :param tables: topic → the capture result of its table
    """

    connector: str
    position: str
    seq: int
    events: int
    topics: dict[str, int]
    batches: list[int]
    seconds: float
    metrics: dict[str, dict[str, Value]] = field(default_factory=dict)
    tables: dict[str, TableCaptureResult] = field(default_factory=dict)

    def merge_later_result(self, later: CaptureResult) -> CaptureResult:
        """Two runs, one after the other, as one; the metrics are those of the later one."""
        topics = Counter(self.topics)
        topics.update(later.topics)
        return dataclasses.replace(
            later,
            events=self.events + later.events,
            topics=dict(topics),
            batches=[*self.batches[:1], *(later.batches or self.batches)[-1:]],
            seconds=self.seconds + later.seconds,
            tables=self.tables
            | {
                t: self.tables[t].merge_later_result(result) if t in self.tables else result
                for t, result in later.tables.items()
            },
        )


class Capture:
    """Captures the changes of one connector.

    :param owner: names the run, in its lease and in errors
    :param lease_wait_s: how long to wait while another run of this connector is alive
    :param task_run: the task's try, which is recorded with a failure
    """

    def __init__(
        self,
        inputs: RunInputs,
        *,
        owner: str | None = None,
        lease_wait_s: float = 60.0,
        task_run: TaskRun | None = None,
    ) -> None:
        self.name, self._source, self._store, self._changelog = (
            inputs.name,
            inputs.source,
            inputs.store,
            inputs.changelog,
        )
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._lease_wait_s, self._task_run = lease_wait_s, task_run
        self._inputs, self._stop = inputs, StopCondition()
        self._run_now: CaptureRun | None = None
        self._watch: LogLagPoller | None = None
        self._monitor = MetricsMonitor(inputs.name, "capture", inputs.sinks, inputs.config.custom_metric_tags)

    def stop(self) -> None:
        """End the run at the next boundary between two transactions, in a snapshot after the last complete tables.

        May be called from a signal handler or another thread.
        """
        self._stop.requested = True

    def run(self, *, run_for_s: float | None = None) -> CaptureResult:
        """Capture up to the end of the log as it is now, or with ``run_for_s`` for that long.

        :raises PrerequisiteError: the database is not set up for capture
        :raises PositionLost: the log does not reach back to the offset
        :raises LeaseHeld: another run of this connector is alive
        :raises LeaseLost: another run took over while this one was slow
        :raises ConnectorHalted: people have paused or stopped the connector
        """
        began = time.monotonic()
        self._halted()
        try:
            result = self._run(began, run_for_s)
        except BaseException as e:
            if isinstance(e, CdcError):
                e.remedy = with_command(e, self.name)
            if isinstance(e, LeaseHeld | LeaseLost):  # how the connector stands says the run that has the lease
                raise
            self._ended(
                describe_error(e), self._measured(), RunFailure.from_error(e, self._inputs.definition, self._task_run)
            )
            run_ended(self._monitor, "run", failed=True, seconds=time.monotonic() - began)
            raise
        self._ended(None, result.metrics)
        run_ended(self._monitor, "run", failed=False, seconds=result.seconds)
        return result

    def _run(self, began: float, run_for_s: float | None) -> CaptureResult:
        self._check()
        before = self._store.find_connector(self.name)
        with self._store.acquire_lease(self.name, self._owner, wait_s=self._lease_wait_s) as lease:
            self._register()
            self._verify_store(lease)
            self._watch = watch = LogLagPoller(self._source, {} if before is None else before.metrics)
            if run_for_s is None and not self._stop.requested:
                precheck = RunPrecheck(self._inputs, lease, before)
                if (reason := precheck.find_run_reason()) is None:
                    return self._nothing(precheck, watch, time.monotonic() - began)
                log.info("Capturing: %s.", reason)
            return self._whole(lease, watch, began, run_for_s)

    def _nothing(self, precheck: RunPrecheck, watch: LogLagPoller, seconds: float) -> CaptureResult:
        """Return the result of a run that has asked first, and found nothing to do."""
        assert precheck.offset.position is not None
        at = self._source.parse_position(precheck.offset.position)
        position = str(at)
        log.info("Nothing to capture: the log has not advanced from %s.", position)
        metrics = precheck.build_metrics(watch.measure_lag(at))
        self._monitor.start_attempt()
        self._monitor.record_metrics(metrics, {})
        return CaptureResult(self.name, position, precheck.offset.seq, 0, {}, [], seconds, metrics)

    def _whole(self, lease: Lease, watch: LogLagPoller, began: float, run_for_s: float | None) -> CaptureResult:
        without_pandas()
        from airflow_provider_cdc.core.capture.capture_run import CaptureRun

        with _flat_memory():
            for attempt in range(_CONFLICTS):
                try:
                    self._run_now = run = CaptureRun(self._inputs, self._stop, lease, self._monitor, watch)
                    run.execute(run_for_s)
                    run.report_metrics()
                    return _result(run, self._inputs, time.monotonic() - began)
                except CommitConflict:
                    if attempt == _CONFLICTS - 1:
                        raise
                    log.warning("Another process committed first; reading the offset again.")
                    self._store.confirm_lease(lease)
        raise AssertionError("unreachable")

    def _register(self) -> None:
        """Record that another DAG captures from now on: users who may see it may see the connector."""
        if self._inputs.register is not None:
            log.warning("Another DAG captures connector %s from now on; rights on it follow this DAG.", self.name)
            self._inputs.register()

    def _verify_store(self, lease: Lease) -> None:
        """Test the change log's store.

        Two runs that test it at once delete each other's files: the one that has lost its lease gets that as its error, the
        other one tests again.

        :raises LeaseLost: another run took over
        """
        try:
            self._changelog.check_exclusive_commit(self.name)
        except CdcError:
            self._store.confirm_lease(lease)
            self._changelog.check_exclusive_commit(self.name)

    def _halted(self) -> None:
        control = self._store.load_control(self.name)
        self._stop.restarts = control.restarts
        if control.desired_state is DesiredState.RUNNING:
            return
        since = f" since {control.changed_at:%Y-%m-%d %H:%M:%S} UTC" if control.changed_at else ""
        raise ConnectorHalted(
            f"Connector {self.name} is {control.desired_state}{since}"
            + (f", by {control.by}" if control.by else "")
            + (f": {control.reason}" if control.reason else "."),
            safe="Nothing was read; the offset is untouched.",
            remedy=format_cdc_command("resume", self.name),
        )

    def _measured(self) -> dict[str, dict[str, Value]] | None:
        """Return the metrics of a run that has failed."""
        if self._run_now is None:
            return None
        try:
            self._run_now.report_metrics()
            return self._run_now.collect_metrics()
        except Exception as e:  # the result of the run itself matters more
            log.warning("The metrics of the run are not available: %s", e)
            return None

    def _ended(
        self, error: str | None, metrics: dict[str, dict[str, Value]] | None, failure: RunFailure | None = None
    ) -> None:
        shown = None if metrics is None else shorten_metrics(metrics, _KEPT)
        for context, values in (shown or {}).items():
            log.info("Metrics, %s: %s", context, ", ".join(f"{name}={value}" for name, value in values.items()))
        stored = shown if shown is None or self._watch is None else self._watch.to_stored_metrics(shown)
        try:
            self._store.record_run_end(self.name, error, stored, failure)
        except Exception as e:  # the result of the run itself matters more
            log.warning("The result of the run could not be recorded: %s", e)

    def _check(self) -> None:
        findings = self._source.check_prerequisites()
        for finding in findings:
            if not finding.fatal:
                log.warning("%s Advice: %s", finding.problem, finding.fix)
        if fatal := [f for f in findings if f.fatal]:
            lines = "\n".join(f"  - {f.problem}\n    {f.fix}" for f in fatal)
            raise PrerequisiteError(
                f"The database is not ready for capture:\n{lines}",
                where=f"connector {self.name}",
                safe="Nothing was read; the offset is untouched.",
                remedy=f"run the statements above on the source, check it with `{format_cdc_command('check', self.name)}`, and run the capture again",
            )


@contextlib.contextmanager
def _flat_memory() -> Iterator[None]:
    """Use the system's allocator. Arrow's own ones keep memory that several threads have freed: a quarter more at the peak of a snapshot."""
    import pyarrow as pa

    _give_large_buffers_back()
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


@functools.cache
def _give_large_buffers_back() -> None:
    """Let the allocator of glibc return each buffer of 4 MB or more when it is freed, for the rest of the process.

    By itself it keeps ever larger ones once such have been freed, between others that are in use, and the peak of a table with wide rows
    depended on luck: 440 to 570 MB, now 380 to 390. Other systems' allocators do not have this habit, nor this function.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 4 << 20)


def _result(run: CaptureRun, inputs: RunInputs, seconds: float) -> CaptureResult:
    tables = _tables(run.batcher.committed, inputs)
    topics = {topic: result.events for topic, result in tables.items()}
    offset = run.batcher.committed_offset
    return CaptureResult(
        connector=run.batcher.connector,
        position=run.position_text,
        seq=offset.seq,
        events=sum(topics.values()),
        topics=topics,
        batches=list(run.batcher.committed.batches),
        seconds=seconds,
        metrics=run.collect_metrics(),
        tables=tables,
    )


def _tables(totals: BatchTotals, inputs: RunInputs) -> dict[str, TableCaptureResult]:
    """Return the capture result of each table that has events."""
    results = {}
    for topic, files in totals.files.items():
        schema = totals.schemas[topic]
        lengths, dataset = _lengths(schema, inputs.filters), inputs.config.build_dataset_name(schema.id)
        results[topic] = TableCaptureResult(schema, dataset, lengths, files.events, files.bytes, files.files)
    return results


def _lengths(schema: TableSchema, filters: Filters) -> dict[str, int]:
    limits = {column.name: filters.compute_text_limit(schema, column) for column in schema.columns}
    return {name: int(length) for name, length in limits.items() if length != WHOLE}


__all__ = ["Capture", "CaptureResult", "TableCaptureResult"]
