"""The work of an apply on one table: finds the batches that the table lacks, applies them, and inspects the table then."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.partial_document_updates import DocumentsLost
from airflow_provider_cdc.changelog.reports.apply_report import TableState, TargetTableEntry
from airflow_provider_cdc.core.errors import BatchesRemoved
from airflow_provider_cdc.targets.lake.apply.apply_run_report import TableApplyResult
from airflow_provider_cdc.targets.lake.apply.batch_applier import BatchApplier
from airflow_provider_cdc.targets.lake.apply.unreported_writes import find_unreported_writes
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import read_table_stamp
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Owner
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.placement.recorded_rule_check import other_texts
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.table_worker")


class TableWorker:
    """Works on one table in each thread; several threads use it at once.

    :param kind: of the tables
    :param open_table: location → the table there, in the session of the thread
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        kind: str,
        open_table: Callable[[str], Target],
        catch_up: BatchApplier,
        backlog: Backlog,
    ) -> None:
        self._changelog, self._connector, self._kind, self._open = changelog, connector, kind, open_table
        self._catch_up, self._backlog = catch_up, backlog
        self._alone: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._changelog_is = ""
        self.stood: dict[str, int | None] = {}
        """Name → the last batch that each table of this round had when work on it began."""

    def apply_table(
        self,
        table: TargetTable,
        view: BacklogState,
        done: list[TableApplyResult],
        earlier: list[TableApplyResult],
        settle: bool,
    ) -> TableState | None:
        """Apply the batches that one table lacks, in groups; each commit is added to ``done`` at once.

        :param earlier: gets the work of an earlier run that it could not report
        :return: the report's entry of the table; ``None`` if there is no table and none is needed
        """
        with self._one_at_a_time(table.location) if table.shared else contextlib.nullcontext():
            return self._caught_up(table, view, done, earlier, settle=settle)

    def _one_at_a_time(self, location: str) -> threading.Lock:
        """Held while one of the topics that share a table is written: writes to one table at once would fail, and begin again."""
        with self._lock:
            return self._alone.setdefault(location, threading.Lock())

    def _caught_up(
        self,
        table: TargetTable,
        view: BacklogState,
        done: list[TableApplyResult],
        earlier: list[TableApplyResult],
        *,
        settle: bool,
    ) -> TableState | None:
        self._changelog_is = view.changelog
        name, owner = table.name, Owner(self._connector, table.topic, table.shared, view.changelog)
        target, at = self._catch_up.inspect_target(owner, table.location, table.place)
        self.stood[name] = at
        earlier += find_unreported_writes(table, at, view, self._backlog)
        if at is None and name in view.table_states and view.describe_source_table(name)["dropped"]:
            log.info(
                "The table of %s no longer exists, and its source table was dropped too: the apply does not rebuild it.",
                name,
            )
            return None
        if at not in (None, NEVER) and (problem := other_texts(table, view.find_report_entry(name), target)):
            raise problem
        try:
            table, missing = self._backlog.find_unapplied_groups(table, at, view)
        except BatchesRemoved as e:
            if at in (None, NEVER) and view.is_gone_at_source(table.topic):
                log.info("The table of %s is not built, because its source table no longer exists: %s", name, e.message)
                return None
            raise
        before, lost = at, False
        progress = self._catch_up.progress
        progress.start_table(name, missing[0].first - 1 if missing and at in (None, NEVER) else at or 0)
        try:
            for number, group in enumerate(missing):
                more = number + 1 < len(missing)
                if (at is None or group.last > at) and not (lost and more):
                    look = (target, at) if number == 0 else None
                    try:
                        at = self._catch_up.apply_batches(
                            owner, table.location, missing[: number + 1], done, look, table, more=more
                        )
                    except DocumentsLost as e:
                        if not more:
                            raise
                        lost = True
                        log.warning(
                            "%s The apply now applies all batches together: later batches may contain the documents.",
                            e.message,
                        )
        finally:
            progress.release_table(name)
        if not any((result.name or result.topic) == name for result in done):
            earlier += find_unreported_writes(
                table, at, view, self._backlog, before
            )  # another run was faster; its report may be lost
        if at == before and at not in (None, NEVER):
            self._check_rule(owner, table, target, view)
        stood: TableState = {"location": table.location, "stamp": "", "batch": NEVER if at is None else at}
        stood = {**stood, **view.describe_source_table(name, table.topic), **table.to_document()}
        if not settle:
            return stood
        reported = view.find_report_entry(name)
        known = reported["stamp"] if reported["location"] == table.location else ""
        return self.refresh_report_entry(name, {**stood, "stamp": known})

    def _check_rule(self, owner: Owner, table: TargetTable, target: Target, view: BacklogState) -> None:
        """Check the rule of a table without new events, unless it is that of the last run.

        :raises TargetError: the table was made by another one
        """
        entry = view.table_states.get(table.name)
        if entry is not None and entry.get("known", True) and table.name not in view.lagging:
            return
        groups = self._backlog.list_all_batches() if view.find_table_schema(table.topic) is None else view.groups
        schema = next(
            (group_schema for group in reversed(groups) if (group_schema := group.find_schema(table.topic))), None
        )
        if schema is None:
            log.info(
                "The rule of %s is checked with its next events, because the change log has no events of it.",
                table.name,
            )
        else:
            self._catch_up.check_rule(owner, table, target, schema)

    def refresh_report_entry(self, name: str, stood: TableState) -> TableState:
        """Return the report's entry of a table, with its present state and batch.

        :param stood: its known state, with the last stamp of its location or none
        """
        # the stamp is read first: if the table changes in between, the next run looks closer
        looks = read_table_stamp(self._changelog, self._kind, stood["location"], stood["stamp"])
        target = self._open(stood["location"])
        if not target.exists():
            return {**stood, "stamp": looks, "batch": NEVER}
        batch = target.read_marker(
            Owner(self._connector, stood.get("topic", name), changelog=self._changelog_is).application_name
        )
        return {**stood, "stamp": looks, "batch": batch, "bytes": target.count_file_bytes()}


def build_failed_entry(view: BacklogState, table: TargetTable, done: Sequence[TableApplyResult]) -> TableState:
    """Return the report's entry of a table that could not be brought up to date.

    :param done: results of all tables: this one may have got some of the batches
    """
    entry = view.find_report_entry(table.name)
    batch = max(
        [entry["batch"], *(result.last_batch for result in done if (result.name or result.topic) == table.name)]
    )
    # those that its rows have
    texts: TargetTableEntry = (
        {"texts": entry["texts"]} if "texts" in entry and entry["location"] == table.location else {}
    )
    entry = {**entry, "location": table.location, "stamp": "", "batch": batch}
    return {**entry, **view.describe_source_table(table.name, table.topic), **table.to_document(), **texts}
