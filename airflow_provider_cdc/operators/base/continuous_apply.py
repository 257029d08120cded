"""What a task knows of the Spark job that goes on for a while: its turns, how to end it, and what it has done."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.services.tasks.connector_fields import owner_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.files.storage import Storage

END_S = 30.0
"""How long a job that is to end may take for what it is committing, before it is killed."""


class WarmTask:
    """One connector of the job of one try of a task.

    :param storage: of the change log, where job and task find each other, wherever the job runs
    """

    def __init__(self, storage: Storage, connector: str, target: str, location: str, owner: str) -> None:
        from airflow_provider_cdc.changelog.reports.apply_report import AppliedReports
        from airflow_provider_cdc.changelog.reports.apply_turns import Turns

        self._reports, self._of = AppliedReports(storage, connector), (target, location)
        self._turns, self.owner = Turns(storage, connector, target, location), owner

    def stop(self) -> bool:
        """Ask the job to end.

        :return: whether it will; not if it has not begun yet
        """
        return self._turns.stop(self.owner) or self.began()

    def began(self) -> bool:
        """Whether the job has come as far as asking for its turn."""
        return self._turns.find(self.owner) is not None

    def taken_over(self) -> bool:
        """Whether another job has begun a later turn."""
        return self._turns.passed_on(self.owner)

    def error(self) -> str:
        """What it has ended with, in its own words; empty if it has ended well, or had no last word."""
        from airflow_provider_cdc.changelog.reports.apply_turns import NO_SIGN

        found = self._turns.find(self.owner)
        return "" if found is None or found["error"] == NO_SIGN else str(found["error"])

    def report(self) -> dict[str, Any] | None:
        """What the job has done: its last word, or if it had none, what it had written by then."""
        found = self._turns.find(self.owner)
        if found is not None and found["report"] is not None:
            return dict(found["report"])
        report = self._reports.read(*self._of)
        return report if report is not None and report.get("owner") == self.owner else None


class WarmJob:
    """The job of one try of a task, with all its connectors."""

    def __init__(self, context: Context) -> None:
        self.owner, self.context = owner_of(context), context
        self.tasks: Sequence[WarmTask] = ()
        self.killed, self.running = False, False
        """Whether Airflow has ended the task while it waited for the job, and whether it waits."""

    @contextlib.contextmanager
    def submitted(self) -> Iterator[None]:
        self.running = True
        try:
            yield
        finally:
            self.running = False

    def end(self, process: subprocess.Popen[str] | None, log: Any) -> bool:
        """Ask the job to end, and wait for it.

        :return: whether it has ended; otherwise it has to be killed, which loses nothing either: its next run does what is missing
        """
        self.killed = self.killed or self.running
        stopped = [self._stopped(task, log) for task in self.tasks]
        if not any(stopped) or process is None:
            return False
        log.info("Waiting until the job has ended what it is committing.")
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired as e:
            log.warning("The job could not be ended in good order: %s", e)
            return False
        return True

    def _stopped(self, task: WarmTask, log: Any) -> bool:
        try:
            return task.stop()
        except CdcError as e:
            log.warning("The job could not be asked to end: %s", e)
            return False
