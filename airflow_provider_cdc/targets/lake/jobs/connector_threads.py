"""Several connectors in one Spark session: each in threads of its own, with its own turns and its own report, as if it were alone.

What goes wrong with one of them concerns nobody else. In a run that goes on, it is begun anew again and again; the end names those that were in
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
from airflow_provider_cdc.changelog.reports.apply_turns import Turns
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.lake.apply.run_report import Report
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges, get_warm
from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec
from airflow_provider_cdc.targets.lake.jobs.continuous_apply import WarmApply
from airflow_provider_cdc.targets.lake.session.job_logging import speaks_of
from airflow_provider_cdc.targets.lake.session.spark_session import refuse_ended, share

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.connector_threads")

AT_ONCE = 4
"""Connectors that are applied at the same time by a run that ends when all is applied."""
WATCH_S = 5.0
"""Between two looks whether Spark is still there."""
SHORTEST_S, LONGEST_S = 1.0, 60.0
"""Pauses before a connector in trouble is begun anew: each is twice as long as the one before."""
LOOK_S = 0.5
"""While it waits for that, how often it looks whether it is to end."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended for one connector.

    :param report: what was applied; ``None`` if it has failed, or if its turn never came
    :param error: why it has failed
    """

    connector: str
    report: Report | None = None
    error: Exception | None = None


class Connectors:
    """The connectors of a job.

    :param options: connector → fsspec options of its change log
    :param target: kind of all tables
    """

    def __init__(
        self, spark: SparkSession, specs: Sequence[ConnectorSpec], target: str, options: Mapping[str, dict[str, Any]]
    ) -> None:
        self.spark, self.target = spark, target
        self._specs, self._options = list(specs), options
        self._following: list[Following] = []
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._ended: CdcError | None = None

    def open(self, spec: ConnectorSpec) -> ChangeLog:
        """:raises ConfigError: the change log cannot be opened"""
        return ChangeLog(spec.changelog, self._options.get(spec.connector, {}))

    def job(self, spec: ConnectorSpec, changelog: ChangeLog) -> ApplyChanges:
        """What applies a connector's changes; for a thread that works for this connector only."""
        speaks_of(spec.connector)
        share(self.spark, spec.connector)
        return ApplyChanges.of(self.spark, changelog, spec, self.target)

    def once(self, owner: str = "") -> list[Outcome]:
        """Bring all tables up to the last batches.

        :param owner: as in the reports
        :raises CdcError: Spark has ended
        """
        with ThreadPoolExecutor(AT_ONCE, "cdc-connector") as pool:
            futures = {spec.connector: pool.submit(self._once, spec, owner) for spec in self._specs}
        return self._outcomes(futures)

    def _once(self, spec: ConnectorSpec, owner: str) -> Report:
        job = self.job(spec, self.open(spec))
        try:
            return job.run(owner)
        finally:
            job.close()

    def follow(self, seconds: float, owner: str) -> list[Outcome]:
        """Apply each batch as soon as it is there, for so long.

        :param owner: names the run in the turns of all connectors
        :raises CdcError: Spark has ended
        """
        self._following = [Following(self, spec, seconds, owner) for spec in self._specs]
        if self._stop.is_set():
            self.stop()
        if any(one.busy() for one in self._following):
            get_warm(self.spark, self._specs[0], self.target)
        with ThreadPoolExecutor(len(self._following), "cdc-connector") as pool:
            futures = {one.name: pool.submit(one.run) for one in self._following}
            while wait(futures.values(), WATCH_S).not_done and not self.spark_ended():
                pass
        return self._outcomes(futures)

    def stop(self) -> None:
        """End all after what they are committing. May be called from a signal handler or another thread."""
        self._stop.set()
        for one in self._following:
            one.stop()

    def spark_ended(self) -> bool:
        """Whether there is no Spark any more; then all are told to end."""
        try:
            refuse_ended(self.spark)
        except CdcError as e:
            self._ended = e
            self.stop()
        return self._ended is not None

    def goes_on(self, failed: Following) -> bool:
        """Whether a connector that has failed is to be begun anew. If no connector works any more, all end."""
        if self.spark_ended():
            return False
        with self._lock:
            failed.failed_at = time.monotonic()
            if all(one.ended or one.failing for one in self._following):
                log.error("No connector can be applied any more: the run ends.")
                self.stop()
        return not failed.ending

    def _outcomes(self, futures: Mapping[str, Future[Any]]) -> list[Outcome]:
        found = []
        for name, future in futures.items():
            try:
                found.append(Outcome(name, future.result()))
            except Exception as e:  # the others have done their work; the run fails at its end
                log.error("Connector %s has failed.", name, exc_info=None if isinstance(e, CdcError) else e)
                found.append(Outcome(name, error=e))
        if self._ended is not None or (any(one.error for one in found) and self.spark_ended()):
            assert self._ended is not None
            raise self._ended
        return found


class Following:
    """One connector of a run that goes on.

    :param seconds: for how long
    :param owner: who has its turns
    """

    def __init__(self, all_: Connectors, spec: ConnectorSpec, seconds: float, owner: str) -> None:
        self.name, self.ended = spec.connector, False
        self.failed_at = 0.0
        """When it failed for the last time, on the monotonic clock."""
        self._all, self._spec, self._owner = all_, spec, owner
        self._deadline, self._stop = time.monotonic() + seconds, threading.Event()
        self._warm: WarmApply | None = None

    def stop(self) -> None:
        self._stop.set()
        if self._warm is not None:
            self._warm.stop()

    def busy(self) -> bool:
        """Whether somebody else applies it now."""
        try:
            return self._turns(self._all.open(self._spec)).busy()
        except Exception as e:  # its own thread will say so too, and try again
            log.warning("Whether somebody applies connector %s cannot be seen: %s", self.name, e)
            return False

    @property
    def ending(self) -> bool:
        over = self._stop.is_set() or time.monotonic() >= self._deadline
        return over or (self._warm is not None and self._warm.ending)

    @property
    def failing(self) -> bool:
        """Whether it has failed, and nothing has worked since."""
        return self.failed_at > (0.0 if self._warm is None else self._warm.read_at)

    def run(self) -> Report | None:
        """What was applied; ``None`` if its turn never came.

        :raises Exception: it was in trouble at the end
        """
        speaks_of(self.name)
        try:
            changelog = self._patiently(lambda: self._all.open(self._spec))
            job = self._patiently(lambda: self._all.job(self._spec, changelog))
            try:
                if self.busy():
                    self._patiently(job.look)
                return self._follow(job, changelog)
            finally:
                job.close()
        finally:
            self.ended = True

    def _follow(self, job: ApplyChanges, changelog: ChangeLog) -> Report | None:
        with contextlib.ExitStack() as stack:
            turn = self._patiently(lambda: stack.enter_context(self._turns(changelog).take(self._owner)))
            left = self._deadline - time.monotonic()
            warm = self._warm = WarmApply(job, changelog, self.name, turn)
            if self._stop.is_set():  # just before there was somebody to be stopped
                warm.stop()
            try:
                return self._patiently(lambda: warm.run(left), warm.again)
            finally:
                if turn.asked_to_end:  # the task that has started this run ends it as a whole
                    self._all.stop()

    def _turns(self, changelog: ChangeLog) -> Turns:
        return Turns(changelog.storage, self.name, self._all.target, self._spec.location)

    def _patiently(self, action: Callable[[], T], again: Callable[[], None] = lambda: None) -> T:
        """Try something until it works, or this connector is to end.

        :param again: called before it is tried again
        :raises Exception: what it has failed with
        """
        pause = SHORTEST_S
        while True:
            began = time.monotonic()
            try:
                result = action()
            except Exception as e:
                if self.ending or not self._all.goes_on(self):
                    raise
                if time.monotonic() - began > LONGEST_S:
                    pause = SHORTEST_S  # it has worked meanwhile
                said = None if isinstance(e, CdcError) else e
                log.warning("Begun anew in %.0f s: %s", pause, e, exc_info=said)
                self._rest(pause)
                if self.ending:
                    raise
                pause = min(2 * pause, LONGEST_S)
            else:
                self.failed_at = 0.0
                return result
            again()

    def _rest(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        while not self.ending and (left := due - time.monotonic()) > 0:
            self._stop.wait(min(left, LOOK_S))
