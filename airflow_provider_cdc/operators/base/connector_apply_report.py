"""The tables of one connector at one place, as the tasks that apply to them know them: alone, or one of several."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_cdc.core.config.secret_redaction import find_credentials
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.operators.base.continuous_job_control import ContinuousConnectorApply
from airflow_provider_cdc.operators.base.jvm_class_archive import little_work
from airflow_provider_cdc.operators.base.openlineage_events import AppliedTables, is_installed
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes
from airflow_provider_cdc.services.text.status_texts import table_text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, TableApplied
    from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
    from airflow_provider_cdc.changelog.reports.asset_event_outbox import AssetEventOutbox
    from airflow_provider_cdc.core.spi.state_records import TargetProgress
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

_UNANNOUNCED = "cdc_unannounced"


def build_connector_alias(connector: str) -> AssetAlias:
    """Stands for every table of a connector: a DAG scheduled on it runs whenever one has changed."""
    return AssetAlias(f"cdc://{connector}")


def build_topic_asset(connector: str, topic: str) -> Asset:
    """Build the asset of a topic's table, for the schedule of DAGs that read it.

    >>> build_topic_asset("shop", "shop.inventory.orders").uri
    'cdc://shop/shop.inventory.orders'
    """
    return Asset(f"cdc://{connector}/{topic}")


@dataclass
class ConnectorTables:
    """The tables of a connector as the job gets them, and the task's use of the job's report.

    :param access: the connector, with rendered fields
    :param target: kind of the tables
    :param location: where they are
    :param rules: for tables
    :param adopt: topics whose tables are taken over
    :param shown: tables that the task's result names
    :param memory: separates the task's stored data of this connector from that of others
    :param log: the task's
    """

    access: ConnectorAccess
    target: str
    location: str
    rules: TableRules
    adopt: list[str]
    shown: int
    log: Any
    memory: str = ""
    before: ApplyReport | None = None
    """The report that was there before the job."""
    little: bool = False
    """True if the pending changes are little work."""
    report: ApplyReport | None = None
    """Report of the job, or of the last one, if there was nothing to do."""
    trouble: str = ""
    """Why it was not applied, or not all of it."""
    lost: bool = False
    """True if the job left no report, so that only Spark's own error is known."""
    owner: str = ""
    """Owner of the job: the task that started it."""
    warm: ContinuousConnectorApply | None = None
    """State of a continuous job."""
    lineage: AppliedTables | None = None
    _owners: list[str] = field(default_factory=list)
    """Earlier runs that this task reports."""
    _remembered: bool = False
    _forget: Callable[[], None] | None = None

    @property
    def connector_name(self) -> str:
        return self.access.definition.name

    @cached_property
    def change_log(self) -> ChangeLog:
        return self.access.open_change_log()

    # -- the report ---------------------------------------------------------------------------------------------------

    def needs_apply(self) -> bool:
        """Check whether there is anything to apply. If there is not, the last job's report is the report."""
        from airflow_provider_cdc.targets.lake.apply.up_to_date_check import nothing_new

        if not self.adopt:
            last_report = nothing_new(
                self.change_log, self.connector_name, self.target, self.location, self.rules.compute_digest()
            )
            if last_report is not None:
                self.log.info("Nothing to apply: every table of %s is at the last batch.", self.connector_name)
                self.report = last_report
                return False
        self.before = self.read_written_report()
        self.little = little_work(self.change_log, self.connector_name, self.before)
        return True

    def read_written_report(self) -> ApplyReport | None:
        """Return the report of the last job beside the change log; ``None`` if it has only registered its target."""
        from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, only_registered

        report = ApplyReports(self.change_log.storage, self.connector_name).read(self.target, self.location)
        return None if report is None or only_registered(report) else report

    def attach_report(self, owner: str) -> bool:
        """Find the report when the task continues after its job has ended.

        :param owner: of the job; empty, if this connector was not submitted
        """
        report = self.read_written_report()
        self.owner = owner
        if not owner:
            self.report = report
        elif report is not None and report.get("owner") != owner:
            self.before = report  # the job has written none
        return True

    def read_job_report(self, error: AirflowException | None) -> bool:
        """Read the report of the job.

        :param error: that it has ended with
        :return: whether it has written anything
        """
        report = self.read_written_report()
        if report is None and error is None:
            changelog = self.access.definition.changelog
            self.trouble = (
                f"The Spark job succeeded, but wrote no report to {changelog}: check that the job read this change log."
            )
        elif report is None or (error is not None and report == self.before):
            self._lose(error)
        else:
            self.report = report
            self.trouble = _failed(report) if report["failed"] else ""
        return self.report is not None

    # -- its note in the state tables ------------------------------------------------------------------------------------

    def build_notes(self, context: Context) -> ApplyNotes:
        """Return the notes of the task about this target."""
        return ApplyNotes.from_context(
            context, self.connector_name, self.access.state_conn_id, self.target, self.location
        )

    def record_end(self, context: Context, error: BaseException | None, noted: Sequence[TargetProgress] = ()) -> None:
        """Note how far the target is now, by the report; nothing if another job has taken over, which notes its own progress.

        :param error: that the task fails with, because of this connector
        :param noted: the notes before the task: if nothing was submitted and they are right, they stay
        """
        if self.warm is not None and self.is_superseded():
            return
        report, notes = self.report, self.build_notes(context)
        batch = None if report is None else report["last_batch"]
        if error is None and not self.trouble:
            if self.owner or batch is None or not notes.is_right(noted, batch):
                notes.record_end(batch)
            return
        failed = set() if report is None else report["failed"].keys()
        # of a job that leaves no report, it is not known whether its error passes
        by_person = bool(failed) and failed <= {*(() if report is None else report.get("terminal", ()))}
        notes.record_failure(error, batch, text=self.trouble, needs_person=by_person)

    # -- a continuous job ---------------------------------------------------------------------------------------------

    def attach_job(self, owner: str) -> bool:
        """Find the job when it takes its turn.

        :param owner: who the job is
        """
        self.owner = owner
        self.warm = ContinuousConnectorApply(
            self.change_log.storage, self.connector_name, self.target, self.location, owner
        )
        return True

    def read_last_report(self, error: AirflowException | None) -> bool:
        """Read the last report of the job, now that it has ended.

        :param error: that it has ended with
        :return: whether it has done anything
        """
        assert self.warm is not None
        self.report = report = self.warm.read_report()
        if report is not None and report["failed"]:
            self.trouble = _failed(report)
        elif error is not None and (job_error := self.warm.read_error()):
            self.trouble = f"Connector {self.connector_name}: {job_error}"
        elif report is None and error is not None:
            self._lose(error)
        elif report is None and not self.warm.has_requested_turn():
            changelog = self.access.definition.changelog
            self.trouble = (
                f"The Spark job succeeded, but wrote nothing to {changelog}: check that the job read this change log."
            )
        elif report is None:
            self.log.info(
                "Another task took over %s before the apply turn of this task: this task applied nothing.",
                self.connector_name,
            )
            last_report = self.read_written_report() or self._empty_report()
            self.report = {**last_report, "tables": [], "unreported": [], "earlier": [], "seconds": 0.0}
        return report is not None

    def _empty_report(self) -> ApplyReport:
        return {
            "target": self.target, "location": self.location, "last_batch": 0, "tables": [], "failed": {}, "lagging": {}, "table_states": {},
            "seconds": 0.0,
        }  # fmt: skip

    def is_superseded(self) -> bool:
        """Check whether another job has begun a later turn."""
        return self.warm is not None and self.warm.has_requested_turn() and self.warm.is_superseded()

    def has_reported_error(self) -> bool:
        """Check whether the job itself has reported an error: of a table, or of its end."""
        failed_tables = self.report is not None and bool(self.report["failed"])
        return failed_tables or (self.warm is not None and bool(self.warm.read_error()))

    def _lose(self, error: AirflowException | None) -> None:
        self.lost = True
        self.trouble = f"Connector {self.connector_name}: the Spark job reported no result for it: {error}"

    # -- events and lineage -------------------------------------------------------------------------------------------

    def record_pending_events(self, context: Context, *, for_good: bool) -> bool:
        """Record the changes that a failed run has applied, so that its events are emitted later; once.

        :param for_good: not by the next try of the task, as there is none, but by its next run
        :return: whether anything is known
        """
        from airflow_provider_cdc.changelog.reports.apply_report_store import merge_by_table

        if self.report is None or self._remembered:
            return self._remembered
        self._note_lineage(self.report)
        store = context.get("task_state_store")
        tried = self._unannounced(context)
        tables = merge_by_table([*tried, *self._done()])
        # Airflow 3.1 and 3.2 have no state store of tasks: the next try reads the events as the next run does
        if (for_good or store is None) and self._left_to_next_run(context, tables):
            if store is not None and tried:
                store.set(self._key, "[]")
        elif store is not None:
            store.set(self._key, json.dumps(tables))
        else:
            return False
        self._remembered = True
        self._note_announced()
        return True

    def _left_to_next_run(self, context: Context, tables: list[TableApplied]) -> bool:
        try:
            self._left(context).add(tables)
        except CdcError as e:
            self.log.warning("The asset events of this run cannot be stored for the next run of the task: %s", e)
            return False
        return True

    @cached_property
    def _turns(self) -> ApplyTurns:
        from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns

        return ApplyTurns(self.change_log.storage, self.connector_name, self.target, self.location)

    def _done(self) -> list[TableApplied]:
        """Return the table results to report.

        If another job has replaced the report meanwhile, its own task reports that job.
        """
        from airflow_provider_cdc.changelog.reports.apply_report_store import all_done

        assert self.report is not None
        mine = self.report.get("owner") in (None, "", self.owner)
        return [*self._earlier(), *(all_done(self.report) if mine else ())]

    def _earlier(self) -> list[TableApplied]:
        """Return the results of earlier runs whose tasks were killed before they could report them."""
        earlier_tables: list[TableApplied] = []
        try:
            for run in self.report.get("earlier", ()) if self.report is not None else ():
                if self._turns.has_ended(run["owner"]) and not self._turns.is_announced(run["owner"]):
                    if run["owner"] != self.owner:
                        self.log.info("The asset events of %s were not emitted yet; this run emits them.", run["owner"])
                    earlier_tables += run["tables"]
                    self._owners.append(run["owner"])
        except CdcError as e:  # the next run finds it again
            self.log.warning("The pending asset events of earlier runs cannot be read: %s", e)
        return earlier_tables

    def _note_announced(self) -> None:
        """Record that this task, or a later one by its stored events, reports the results."""
        try:
            for owner in (*self._owners, *filter(None, [self.owner])):
                self._turns.record_announcement(owner)
        except CdcError as e:  # rather twice than never
            self.log.warning(
                "The emission of the asset events cannot be recorded; the next run may emit them again: %s", e
            )

    def _left(self, context: Context) -> AssetEventOutbox:
        """Return the events that earlier runs of the task have left for this one."""
        from airflow_provider_cdc.changelog.reports.asset_event_outbox import AssetEventOutbox

        ti = context["ti"]
        task = f"{ti.dag_id}.{ti.task_id}.{getattr(ti, 'map_index', -1)}"
        return AssetEventOutbox(self.change_log.storage, self.connector_name, task)

    @property
    def _key(self) -> str:
        return f"{_UNANNOUNCED}_{self.memory}" if self.memory else _UNANNOUNCED

    def _unannounced(self, context: Context) -> list[TableApplied]:
        store = context.get("task_state_store")
        return [] if store is None else list(json.loads(str(store.get(self._key) or "[]")))

    def _note_lineage(self, report: ApplyReport) -> None:
        """Read the input of lineage now: another process requests it, which has no access to the change log."""
        from airflow_provider_cdc.changelog.reports.apply_report_store import all_done, merge_by_table
        from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins

        if not is_installed():
            return
        origins: dict[str, Any] = {}
        try:
            origins = ColumnOrigins(self.change_log.storage, self.connector_name).read(self.target, self.location)
        except CdcError as e:
            self.log.warning("OpenLineage gets the lineage of tables only, not of columns: %s", e)
        changelog = self.access.definition.changelog
        self.lineage = AppliedTables(merge_by_table(all_done(report)), origins, changelog, self.connector_name)

    def emit_asset_events(self, context: Context) -> dict[str, Any]:
        """Emit an event for each table that was changed. When all connectors have, :meth:`record_emitted_events` follows.

        :return: the result of the task
        """
        from airflow_provider_cdc.changelog.reports.apply_report_store import (
            build_table_metrics,
            merge_by_table,
            name_of,
        )

        report = self.report
        assert report is not None
        self._note_lineage(report)
        # events that a kill has recorded meanwhile are among these
        done = [] if self._remembered else self._done()
        tables = merge_by_table([*self._older(context), *self._unannounced(context), *done])
        events = context["outlet_events"][build_connector_alias(self.connector_name)]
        for table in tables:
            extra: dict[str, Any] = {
                "rows": table["rows"],
                "position": table["position"],
                "first_batch": table["first_batch"],
                "last_batch": table["last_batch"],
                "location": table["location"],
            }
            events.add(build_topic_asset(self.connector_name, table["topic"]), extra=extra)
            self.log.info("  %s → %s", table_text(table), table["location"])
        totals = {name_of(table): sum(table["rows"].values()) for table in tables}
        by_topic = {table["topic"]: totals[name_of(table)] for table in tables}  # its tables have read the same events
        self.log.info(
            "Applied %s events to %d tables in %.1f s; %s is at batch %s.",
            f"{sum(by_topic.values()):,}", len(totals), report["seconds"], self.connector_name, report["last_batch"],
        )  # fmt: skip
        return {
            "connector": self.connector_name,
            "target": self.target,
            "last_batch": report["last_batch"],
            "events": sum(by_topic.values()),
            "topics": dict(sorted(totals.items(), key=lambda item: (-item[1], item[0]))[: self.shown]),
            "tables": build_table_metrics(tables, self.shown),
            "seconds": report["seconds"],
        }

    def _older(self, context: Context) -> list[TableApplied]:
        left = self._left(context)
        try:
            older_tables = left.read()
        except CdcError as e:  # they stay where they are
            self.log.warning(
                "The pending asset events of earlier runs of the task cannot be read; the next run tries again: %s", e
            )
            return []
        self._forget = left.delete_all if older_tables else None
        return older_tables

    def record_emitted_events(self) -> None:
        """Record that the events of all connectors are emitted: no later run has to emit them."""
        self._note_announced()
        try:
            if self._forget is not None:
                self._forget()
        except CdcError as e:  # rather twice than never
            self.log.warning(
                "The pending asset events of earlier runs of the task are emitted, but cannot be deleted: %s", e
            )


def secret_places(rules: TableRules) -> list[str]:
    """Rules for tables that would show a secret on a command line."""
    return [
        f"location of the rule for {', '.join(rule.tables)}"
        for rule in rules.rules
        if any(find_credentials("location.url", location) for location in rule.table_locations)
    ]


def _failed(report: ApplyReport) -> str:
    """Format the errors of failed tables in a report."""
    lines = [f"  {topic}: {text}" for topic, text in sorted(report["failed"].items())]
    return "\n".join(
        [
            f"{len(lines)} tables of {report['connector']} could not be updated:",
            *lines,
            f"  Safe:   the other tables are at batch {report['last_batch']}; the change log keeps all changes for the failed tables.",
            "  Repair: fix the errors above, then clear this task: each table continues from its last batch.",
        ]
    )
