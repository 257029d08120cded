"""A continuous apply, which keeps its Spark session.

The session looks for batches several times a second and applies new ones at once.

Its knowledge is that of the last report, kept in memory: which batch comes next, and where each table table_states. So a look reads one file
that is not there yet, however many tables and batches there are. Tables without new events are inspected like those of a run that begins,
every :data:`CLOSER_S`, in case another process has changed them.

Nothing grows with the rounds: of the batches only the new ones are in memory, and results are kept by table.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Protocol

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, EarlierRun, TableState
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurn
from airflow_provider_cdc.core.errors import TransientError
from airflow_provider_cdc.core.model.batch_manifest import BatchContents
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport, TableApplyResult
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import (
    BacklogState,
    group_batches,
    last_batch_per_table,
)
from airflow_provider_cdc.targets.retry_pause import LONGEST_S, RetryPause

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.continuous_apply")

POLL_S = 0.2
"""Seconds between two reads of the change log."""
MOST = 500
"""Batches that one round takes, so that its memory does not depend on how long nothing was applied."""
CLOSER_S = 300.0
"""Seconds between two checks of all tables and all numbers of batches."""
QUIET_S, MOST_SETTLED = 10.0, 4
"""How long a table has had no events before a quiet moment is used to inspect it, and how many of them at once."""
PATIENCE_S = 300.0
"""How long the change log may not be readable, again and again, before the run ends with that as its error."""


class ApplyRoundJob(Protocol):
    """The part of :class:`airflow_provider_cdc.targets.lake.jobs.apply_changes.ApplyChanges` that a round needs.

    The methods are described there.
    """

    def read_backlog_state(self) -> BacklogState: ...
    def find_unchanged_topics(self, view: BacklogState) -> set[str]: ...
    def apply_topics(self, view: BacklogState, topics: Collection[str], *, settle: bool = True) -> ApplyRunReport: ...
    def refresh_report_entries(self, table_states: Mapping[str, TableState]) -> dict[str, TableState]: ...
    def write_report(self, report: ApplyRunReport) -> None: ...
    def list_unannounced_runs(self, owner: str) -> list[EarlierRun]: ...
    def discard_run_state(self, *, adopt: bool = True) -> None: ...
    def check_spark_alive(self) -> None: ...


class ContinuousApply:
    """Keeps the tables of a connector up to date until its time is over, it is to stop, or another one has taken over.

    :param job: applies the batches of a round
    :param turn: is over as soon as another run begins its own
    """

    def __init__(self, job: ApplyRoundJob, changelog: ChangeLog, connector: str, turn: ApplyTurn) -> None:
        self._job, self._changelog, self._connector, self._turn = job, changelog, connector, turn
        self._stop, self._deadline = threading.Event(), float("inf")
        self._done: dict[str, TableApplyResult] = {}
        self._unreported: dict[str, TableApplyResult] = {}
        self._earlier: list[EarlierRun] | None = None
        self._failing: dict[str, RetryPause] = {}
        self._touched: dict[str, float] = {}
        self._closer, self._rounds, self._began = 0.0, 0, time.monotonic()
        self._report: ApplyRunReport | None = None
        self._unwritten = False
        self.read_at = 0.0
        """When the change log was last read, and its batches applied; on the monotonic clock."""

    def stop(self) -> None:
        """End after the present commit. May be called from a signal handler or another thread."""
        self._stop.set()

    @property
    def is_ending(self) -> bool:
        """True if the run is to end: its time is over, it was asked to, or another one has taken over."""
        return self._stop.is_set() or bool(self._turn.successor) or time.monotonic() >= self._deadline

    def reset_for_retry(self) -> None:
        """Prepare a call of :meth:`run` after an error: it begins with a check of everything, as a new run does. Results stay."""
        self._report, self._unwritten = None, False
        self._job.discard_run_state(adopt=self._rounds > 0)

    def run(self, seconds: float) -> ApplyRunReport | None:
        """Apply for so long, counted from the beginning.

        :return: all results; ``None`` if its turn never came
        :raises TargetError: at its end, some tables could not be brought up to date; the others were
        :raises TransientError: the change log could not be read for :data:`PATIENCE_S`, or its turn has not come in all its time
        """
        self._deadline = self._began + seconds
        try:
            if not self._turn.wait_for_earlier_turns(lambda: self.is_ending):
                log.info("The apply ended before its turn%s.", self._why())
                self._refuse_to_have_waited_in_vain()
                return None
            self._rounds_until_the_end()
        finally:
            if self._report is not None:
                self._turn.set_report(_outcome(self._whole()))
        whole = self._whole()
        events = sum(table.event_count for table in whole.tables)
        log.info(
            "The apply ended%s. %d rounds, %s events, batch %d.",
            self._why(),
            self._rounds,
            f"{events:,}",
            whole.last_batch,
        )
        whole.refuse_failed()
        return whole

    def _rounds_until_the_end(self) -> None:
        last_read, pause = time.monotonic(), POLL_S
        while True:
            try:
                has_changes = self._round()
                self.read_at = last_read = time.monotonic()
                pause = POLL_S
            except TransientError as e:
                if time.monotonic() - last_read > PATIENCE_S or self.is_ending:
                    raise
                has_changes, pause = False, min(pause * 2, LONGEST_S / 10)
                log.warning("The apply retries in %.1f s: %s", pause, e)
            if self.is_ending:
                break
            if not has_changes:
                self._stop.wait(pause)
        if self._failing and not (self._stop.is_set() or self._turn.successor):
            self._failing = {topic: RetryPause(due=0.0) for topic in self._failing}
            self._round()

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """Look for batches, and apply them.

        :return: whether there was anything to do
        """
        if self._unwritten:
            self._write()
        first = self._report is None
        view, topics = self._look()
        if not (first or topics) and view.last == view.start:
            return self._settle()
        report = self._job.apply_topics(view, topics, settle=first)
        self._job.discard_run_state()
        self._rounds += 1
        self._tell(report)
        self._keep(report, topics)
        if report.failed:
            self._job.check_spark_alive()
        return True

    def _look(self) -> tuple[BacklogState, set[str]]:
        """Return the view of new batches since the last round, and the topics whose tables are to be worked on."""
        now = time.monotonic()
        if self._report is None:
            self._closer = now + CLOSER_S
            if self._earlier is None:  # the report will be this run's own from now on
                self._earlier = self._job.list_unannounced_runs(self._turn.owner)
            view = self._job.read_backlog_state()
            return view, view.known_topics - self._job.find_unchanged_topics(view)
        before = self._report
        batches = self._next(before.last_batch)
        last = batches[-1].batch if batches else before.last_batch
        view = BacklogState(
            before.last_batch,
            last,
            group_batches(self._changelog, batches, before.table_states),
            True,
            before.table_states,
            before.lagging,
            last_batch_per_table(before.table_states),
            changelog=batches[-1].changelog if batches else before.changelog,
            writer=batches[-1].writer if batches else before.writer,
        )
        topics = {topic for group in view.groups for topic in group.topics} | set(before.lagging)
        if now >= self._closer:
            self._closer = now + CLOSER_S
            # an error if there are batches behind one that is missing
            next(self._changelog.read_manifests(self._connector, after=last), None)
            topics |= {
                topic for topic, entry in view.list_idle_entries().items() if entry["stamp"]
            } - self._job.find_unchanged_topics(view)
        # events of a table that has failed wait with it: the last batch it has shows where it continues
        return view, topics - {topic for topic, retry in self._failing.items() if retry.due > now}

    def _next(self, after: int) -> list[BatchContents]:
        contents: list[BatchContents] = []
        while len(contents) < MOST and (
            manifest := self._changelog.find_manifest(self._connector, after + len(contents) + 1)
        ):
            contents.append(manifest.batch_contents)
        return contents

    def _keep(self, report: ApplyRunReport, topics: set[str]) -> None:
        """Add the results of a round, and write the report."""
        for table in report.tables:
            previous = self._done.get(table.name or table.topic)
            self._done[table.name or table.topic] = table if previous is None else previous.merge_results(table)
        for table in report.unreported:
            name = table.name or table.topic
            previous = self._done.get(name)
            if previous is None or table.last_batch > previous.last_batch:  # it may have been this run, before an error
                earlier = self._unreported.get(name)
                # a result that begins where the previous one has ended continues it; otherwise it was found again, after an error
                more = earlier is not None and table.first_batch > earlier.last_batch
                self._unreported[name] = earlier.merge_results(table) if earlier is not None and more else table
        still = {t: text for t, text in (self._report.failed if self._report else {}).items() if t not in topics}
        for topic in topics | report.failed.keys():
            if topic in report.failed:
                known_retry = self._failing.get(topic)
                by_person = topic in report.terminal
                self._failing[topic] = (
                    RetryPause() if known_retry is None else known_retry.extend_pause(needs_person=by_person)
                )
                log.warning("The table of %s is retried in %.0f s.", topic, self._failing[topic].pause)
            elif self._failing.pop(topic, None) is not None:
                log.info("The table of %s is up to date again.", topic)
        before = self._report.terminal if self._report else []
        report.terminal = [*(topic for topic in before if topic in still), *report.terminal]
        report.failed = {**still, **report.failed}
        report.owner, report.earlier = self._turn.owner, self._earlier or []
        self._report = report
        worked = topics | {table.name for table in report.tables if table.name}
        changed = {
            t
            for t in worked - set(report.failed)
            if t in report.table_states and not report.table_states[t].get("stamp")
        }
        self._touched |= dict.fromkeys(changed, time.monotonic())
        self._write()

    def _write(self) -> None:
        """Write the report, with all results of the run so far."""
        self._unwritten = True
        self._job.write_report(self._whole())
        self._unwritten = False

    def _whole(self) -> ApplyRunReport:
        assert self._report is not None
        seconds = round(time.monotonic() - self._began, 3)
        done, unreported = (
            sorted(results.values(), key=lambda t: t.topic) for results in (self._done, self._unreported)
        )
        return dataclasses.replace(self._report, tables=done, unreported=unreported, seconds=seconds)

    def _settle(self) -> bool:
        """Inspect some tables that have had no events for a while, so that the next run knows them without Spark."""
        assert self._report is not None
        table_states, now = self._report.table_states, time.monotonic()
        quiet = [topic for topic, at in self._touched.items() if now - at >= QUIET_S and topic in table_states][
            :MOST_SETTLED
        ]
        for topic in quiet:
            del self._touched[topic]
        if not quiet:
            return False
        entries = self._job.refresh_report_entries({topic: table_states[topic] for topic in quiet})
        if len(entries) < len(quiet):
            self._job.check_spark_alive()
        table_states.update(entries)
        self._write()
        return True

    def _tell(self, report: ApplyRunReport) -> None:
        events = sum(table.event_count for table in report.tables)
        newest = max((table.committed_ms for table in report.tables), default=0)
        fresh = f", freshness {time.time() - newest / 1000:.1f} s" if newest else ""
        log.info(
            "Round %d: %d tables, %s events up to batch %d in %.2f s%s.",
            self._rounds, len({table.name or table.topic for table in report.tables}), f"{events:,}", report.last_batch, report.seconds, fresh,
        )  # fmt: skip

    # -- the end ------------------------------------------------------------------------------------------------------

    def _refuse_to_have_waited_in_vain(self) -> None:
        """Raise an error if all the time has passed without a turn.

        :raises TransientError: all its time has passed without its turn
        """
        if self._stop.is_set() or self._turn.successor:
            return
        raise TransientError(
            f"The apply of {self._connector} applied nothing: an earlier run did not end before the time of this run was over.",
            where=f"turn {self._turn.number} of {self._turn.owner}",
            safe="The tables contain everything that the earlier run applied; the change log keeps the rest.",
            remedy="check the task of the earlier run, which the log of this run names, and stop it if it hangs: the next run takes over within a minute",
        )

    def _why(self) -> str:
        if self._turn.successor:
            return f": {self._turn.successor} has taken over"
        return " as requested" if self._stop.is_set() else ": its time is over"


def _outcome(report: ApplyRunReport) -> ApplyReport:
    """Build the result of the run for the task that has started it."""
    return {**report.to_document(), "table_states": {}}
