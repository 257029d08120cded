"""Several connectors in one Spark session.

Each has separate threads, separate turns and a separate report, as if it were alone.

An error of one of them does not concern the others. In a continuous run, it is started again and again; the end names those that were in
trouble then. Only if Spark has ended, or if none works any more, all end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges, get_warm
from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec
from airflow_provider_cdc.targets.lake.jobs.continuous_apply import ContinuousApply
from airflow_provider_cdc.targets.lake.session.job_logging import speaks_of
from airflow_provider_cdc.targets.lake.session.spark_session import assign_scheduler_pool, refuse_ended

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.concurrent_connectors")

AT_ONCE = 4
"""Connectors that are applied at the same time by a run that ends when all is applied."""
WATCH_S = 5.0
"""Between two looks whether Spark is still there."""
SHORTEST_S, LONGEST_S = 1.0, 60.0
"""Pauses before a connector in trouble is started again: each is twice as long as the one before."""
POLL_S = 0.5
"""While it waits for that, how often it looks whether it is to end."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectorOutcome:
    """Outcome of a run for one connector.

    :param report: the results of its applies; ``None`` if it has failed, or if its turn never came
    :param error: why it has failed
    """

    connector: str
    report: ApplyRunReport | None = None
    error: Exception | None = None


class ConnectorRunner:
    """The connectors of a job.

    :param options: connector → fsspec options of its change log
    :param target: kind of all tables
    """

    def __init__(
        self, spark: SparkSession, specs: Sequence[ConnectorSpec], target: str, options: Mapping[str, dict[str, Any]]
    ) -> None:
        self.spark, self.target = spark, target
        self._specs, self._options = list(specs), options
        self._following: list[ContinuousConnector] = []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._ended: CdcError | None = None

    def open_changelog(self, spec: ConnectorSpec) -> ChangeLog:
        """Open the change log of a connector.

        :raises ConfigError: the change log cannot be opened
        """
        return ChangeLog(spec.changelog, self._options.get(spec.connector, {}))

    def create_apply_job(self, spec: ConnectorSpec, changelog: ChangeLog) -> ApplyChanges:
        """Create the job that applies a connector's changes, for a thread that works for this connector only."""
        speaks_of(spec.connector)
        assign_scheduler_pool(self.spark, spec.connector)
        return ApplyChanges.from_spec(self.spark, changelog, spec, self.target)

    def apply_once(self, owner: str = "") -> list[ConnectorOutcome]:
        """Bring all tables up to the last batches.

        :param owner: as in the reports
        :raises CdcError: Spark has ended
        """
        with ThreadPoolExecutor(AT_ONCE, "cdc-connector") as pool:
            futures = {spec.connector: pool.submit(self._once, spec, owner) for spec in self._specs}
        return self._outcomes(futures)

    def _once(self, spec: ConnectorSpec, owner: str) -> ApplyRunReport:
        job = self.create_apply_job(spec, self.open_changelog(spec))
        try:
            return job.run(owner)
        finally:
            job.close()

    def apply_continuously(self, seconds: float, owner: str) -> list[ConnectorOutcome]:
        """Apply each batch as soon as it is there, for so long.

        :param owner: names the run in the turns of all connectors
        :raises CdcError: Spark has ended
        """
        self._following = [ContinuousConnector(self, spec, seconds, owner) for spec in self._specs]
        if self._stop.is_set():
            self.stop()
        if any(connector.is_applied_elsewhere() for connector in self._following):
            get_warm(self.spark, self._specs[0], self.target)
        with ThreadPoolExecutor(len(self._following), "cdc-connector") as pool:
            futures = {connector.name: pool.submit(connector.run) for connector in self._following}
            while wait(futures.values(), WATCH_S).not_done and not self.spark_ended():
                pass
        return self._outcomes(futures)

    def stop(self) -> None:
        """End all after their present commits. May be called from a signal handler or another thread."""
        self._stop.set()
        for connector in self._following:
            connector.stop()

    def spark_ended(self) -> bool:
        """Return whether Spark has ended; then all connectors are stopped."""
        try:
            refuse_ended(self.spark)
        except CdcError as e:
            self._ended = e
            self.stop()
        return self._ended is not None

    def needs_restart(self, failed: ContinuousConnector) -> bool:
        """Return whether a connector that has failed is to be started again. If no connector works any more, all end."""
        if self.spark_ended():
            return False
        with self._lock:
            failed.failed_at = time.monotonic()
            if all(connector.ended or connector.is_failing for connector in self._following):
                log.error("No connector can be applied any more: the run ends.")
                self.stop()
        return not failed.is_ending

    def _outcomes(self, futures: Mapping[str, Future[Any]]) -> list[ConnectorOutcome]:
        outcomes = []
        for name, future in futures.items():
            try:
                outcomes.append(ConnectorOutcome(name, future.result()))
            except Exception as e:  # the others have done their work; the run fails at its end
                log.error("Connector %s failed.", name, exc_info=None if isinstance(e, CdcError) else e)
                outcomes.append(ConnectorOutcome(name, error=e))
        if self._ended is not None or (any(outcome.error for outcome in outcomes) and self.spark_ended()):
            assert self._ended is not None
            raise self._ended
        return outcomes


class ContinuousConnector:
    """A connector of a continuous run.

    :param seconds: for how long
    :param owner: who has its turns
    """

    def __init__(self, all_: ConnectorRunner, spec: ConnectorSpec, seconds: float, owner: str) -> None:
        self.name, self.ended = spec.connector, False
        self.failed_at = 0.0
        """When it failed for the last time, on the monotonic clock."""
        self._all, self._spec, self._owner = all_, spec, owner
        self._deadline, self._stop = time.monotonic() + seconds, threading.Event()
        self._warm: ContinuousApply | None = None

    def stop(self) -> None:
        self._stop.set()
        if self._warm is not None:
            self._warm.stop()

    def is_applied_elsewhere(self) -> bool:
        """Return whether another process applies it now."""
        try:
            return self._turns(self._all.open_changelog(self._spec)).has_live_turn()
        except Exception as e:  # its own thread will say so too, and try again
            log.warning("It is unknown whether another process applies connector %s: %s", self.name, e)
            return False

    @property
    def is_ending(self) -> bool:
        over = self._stop.is_set() or time.monotonic() >= self._deadline
        return over or (self._warm is not None and self._warm.is_ending)

    @property
    def is_failing(self) -> bool:
        """True if it has failed, and nothing has worked since."""
        return self.failed_at > (0.0 if self._warm is None else self._warm.read_at)

    def run(self) -> ApplyRunReport | None:
        """Run the applies of the connector, and return their report; ``None`` if its turn never came.

        :raises Exception: it was in trouble at the end
        """
        speaks_of(self.name)
        try:
            changelog = self._patiently(lambda: self._all.open_changelog(self._spec))
            job = self._patiently(lambda: self._all.create_apply_job(self._spec, changelog))
            try:
                if self.is_applied_elsewhere():
                    self._patiently(job.preload_table_states)
                return self._follow(job, changelog)
            finally:
                job.close()
        finally:
            self.ended = True

    def _follow(self, job: ApplyChanges, changelog: ChangeLog) -> ApplyRunReport | None:
        with contextlib.ExitStack() as stack:
            turn = self._patiently(lambda: stack.enter_context(self._turns(changelog).open_turn(self._owner)))
            left = self._deadline - time.monotonic()
            warm = self._warm = ContinuousApply(job, changelog, self.name, turn)
            if self._stop.is_set():  # stopped just before there was a connector to stop
                warm.stop()
            try:
                return self._patiently(lambda: warm.run(left), warm.reset_for_retry)
            finally:
                if turn.is_stopped:  # the task that has started this run ends it as a whole
                    self._all.stop()

    def _turns(self, changelog: ChangeLog) -> ApplyTurns:
        return ApplyTurns(changelog.storage, self.name, self._all.target, self._spec.location)

    def _patiently(self, action: Callable[[], T], again: Callable[[], None] = lambda: None) -> T:
        """Try something until it works, or this connector is to end.

        :param again: called before it is tried again
        :raises Exception: its last error
        """
        pause = SHORTEST_S
        while True:
            began = time.monotonic()
            try:
                result = action()
            except Exception as e:
                if self.is_ending or not self._all.needs_restart(self):
                    raise
                if time.monotonic() - began > LONGEST_S:
                    pause = SHORTEST_S  # it has worked meanwhile
                cause = None if isinstance(e, CdcError) else e
                log.warning("The apply restarts in %.0f s: %s", pause, e, exc_info=cause)
                self._rest(pause)
                if self.is_ending:
                    raise
                pause = min(2 * pause, LONGEST_S)
            else:
                self.failed_at = 0.0
                return result
            again()

    def _rest(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        while not self.is_ending and (left := due - time.monotonic()) > 0:
            self._stop.wait(min(left, POLL_S))
