"""Control of a continuous Spark job by its task: the job's turns, its end, and its results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.services.tasks.connector_fields import owner_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.files.storage import Storage
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport

END_S = 30.0
"""Seconds that a job which is to end has for its present commit, before it is killed."""


class ContinuousConnectorApply:
    """A connector of the job of one try of a task.

    :param storage: of the change log, where job and task find each other, wherever the job runs
    """

    def __init__(self, storage: Storage, connector: str, target: str, location: str, owner: str) -> None:
        from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
        from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns

        self._reports, self._of = ApplyReports(storage, connector), (target, location)
        self._turns, self.owner = ApplyTurns(storage, connector, target, location), owner

    def request_stop(self) -> bool:
        """Ask the job to end.

        :return: whether it will; not if it has not begun yet
        """
        return self._turns.stop_turn(self.owner) or self.has_requested_turn()

    def has_requested_turn(self) -> bool:
        """Check whether the job has come as far as asking for its turn."""
        return self._turns.find_turn(self.owner) is not None

    def is_superseded(self) -> bool:
        """Check whether another job has begun a later turn."""
        return self._turns.passed_on(self.owner)

    def read_error(self) -> str:
        """Return the job's last error, in its own words; empty if it has ended well, or had no last word."""
        from airflow_provider_cdc.changelog.reports.apply_turns import NO_SIGN

        turn = self._turns.find_turn(self.owner)
        return "" if turn is None or turn["error"] == NO_SIGN else str(turn["error"])

    def read_report(self) -> ApplyReport | None:
        """Return the last report of the job; without one, the report that it had written by then."""
        turn = self._turns.find_turn(self.owner)
        if turn is not None and turn["report"] is not None:
            last_report: ApplyReport = turn["report"]
            return {**last_report}
        report = self._reports.read(*self._of)
        return report if report is not None and report.get("owner") == self.owner else None


class ContinuousApplyJob:
    """The job of one try of a task, with all its connectors."""

    def __init__(self, context: Context) -> None:
        self.owner, self.context = owner_of(context), context
        self.tasks: Sequence[ContinuousConnectorApply] = ()
        self.killed, self.running = False, False
        """Whether Airflow has ended the task while it waited for the job, and whether it waits."""

    @contextlib.contextmanager
    def track_submission(self) -> Iterator[None]:
        self.running = True
        try:
            yield
        finally:
            self.running = False

    def stop_job(self, wait: Callable[[float], bool], log: Any) -> bool:
        """Ask the job to end, and wait for it.

        :param wait: waits for the end of the job for some seconds, and returns whether it has ended
        :return: whether it has ended; otherwise it has to be killed, which loses nothing either: its next run does the rest
        """
        self.killed = self.killed or self.running
        stopped = [self._stopped(task, log) for task in self.tasks]
        if not any(stopped):
            return False
        log.info("Waiting until the job has finished its current commit.")
        if not wait(END_S):
            log.warning("The job did not stop within %g seconds.", END_S)
            return False
        return True

    def _stopped(self, task: ContinuousConnectorApply, log: Any) -> bool:
        try:
            return task.request_stop()
        except CdcError as e:
            log.warning("The job could not be requested to stop: %s", e)
            return False
