"""Apply a change log to lakehouse tables: ``spark-submit apply_changes.py --changelog … --connector … --location …``.

Each table gets the batches that it does not have yet: the job adds and changes columns, merges the last event of each key, and stores the number of
the last batch in the same commit. So repeated, killed or concurrent runs give the same result. Parallel threads of one session process the tables.

Exit status: 0 all tables have the last batch, 1 some tables failed (the others have it), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed, wait

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import EarlierRun, TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, not_announced
from airflow_provider_cdc.changelog.reports.apply_report_writer import ApplyReportWriter
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TerminalError
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport, TableApplyResult
from airflow_provider_cdc.targets.lake.apply.batch_applier import BatchApplier
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.apply.table_worker import TableWorker, build_failed_entry
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import find_unchanged_topics, nothing_new
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import (
    BacklogState,
    add_known_routed_tables,
    view_of,
)
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.formats import known_profile, known_writes, load_format
from airflow_provider_cdc.targets.lake.formats.jvm_errors import log_table_error
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.jobs.apply_arguments import parse_arguments, this_job
from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec
from airflow_provider_cdc.targets.lake.jobs.continuous_apply import ContinuousApply
from airflow_provider_cdc.targets.lake.jobs.session_warmup import rehearse_apply
from airflow_provider_cdc.targets.lake.placement.affected_route_tables import RoutedTables, names_of
from airflow_provider_cdc.targets.lake.placement.table_placement import TablePlacement
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.schema.column_origins import ColumnOriginRecorder
from airflow_provider_cdc.targets.lake.session import job_logging
from airflow_provider_cdc.targets.lake.session.job_logging import speaks_of
from airflow_provider_cdc.targets.lake.session.spark_session import (
    assign_scheduler_pool,
    open_changelog,
    open_spark_session,
    own_session,
    refuse_ended,
)
from airflow_provider_cdc.targets.task_watch import end_with_task

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.apply_changes")

FIRST_READ_S = 60.0
"""How long tables are read before the first round."""


class ApplyChanges:
    """Brings the tables of one connector up to the last batch of its change log.

    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param profile: how new tables begin, one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.PROFILES`
    :param writes: how rows of tables with a key are written, one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.WRITES`
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they have another owner; their rows are replaced
    :param check_crc: compare the checksum of each file of the change log too, not only its size and number of rows
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere
    """

    def __init__(
        self,
        spark: SparkSession,
        changelog: ChangeLog,
        connector: str,
        *,
        location: str,
        target: str = "delta",
        profile: str = "compatible",
        writes: str = "auto",
        threads: int = 4,
        adopt: Collection[str] = (),
        check_crc: bool = False,
        tables: TableRules = NO_RULES,
    ) -> None:
        self.spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._kind = location, target
        self._format, self._profile = load_format(target), known_profile(profile)
        self._placement = TablePlacement(connector, location, tables)
        self._origins = ColumnOriginRecorder(ColumnOrigins(changelog.storage, connector), target, location)
        self._catch_up = BatchApplier(
            changelog,
            connector,
            lambda at: self._open(at),
            adopt=adopt,
            check_crc=check_crc,
            writes=known_writes(writes),
            shapes=self._placement.build_projection,
            origins=self._origins,
        )
        self._backlog = Backlog(changelog, connector)
        self._one_table = TableWorker(
            changelog, connector, target, lambda at: self._open(at), self._catch_up, self._backlog
        )
        self._places = RoutedTables(changelog, connector, self._placement, self._backlog, check_crc=check_crc)
        self._rules = tables
        self._reports = ApplyReports(changelog.storage, connector)
        self._report_writer = ApplyReportWriter(self._reports)
        self._pool = ThreadPoolExecutor(threads, "cdc-apply", initializer=speaks_of, initargs=(connector,))
        self._threads = threading.local()

    @classmethod
    def from_spec(cls, spark: SparkSession, changelog: ChangeLog, spec: ConnectorSpec, target: str) -> ApplyChanges:
        """Build the job from the specification of a connector.

        :param changelog: the connector's, opened
        """
        return cls(
            spark, changelog, spec.connector, location=spec.location, target=target, profile=spec.profile, writes=spec.writes,
            threads=spec.threads, adopt=spec.adopt, check_crc=spec.check_crc, tables=spec.tables,
        )  # fmt: skip

    def run(self, owner: str = "") -> ApplyRunReport:
        """Bring all tables up to the last batch, and write the report.

        :param owner: as in the report
        :raises TargetError: no table could be brought up to date, or some could not; the report is written before
        """
        earlier = self.list_unannounced_runs(owner)
        view = self.read_backlog_state()
        report = self.apply_topics(view, view.known_topics - self.find_unchanged_topics(view))
        report.owner, report.earlier = owner, earlier
        self.write_report(report)
        report.refuse_failed()
        return report

    def apply_topics(self, view: BacklogState, topics: Collection[str], *, settle: bool = True) -> ApplyRunReport:
        """Bring the tables of some topics up to the newest batch of a view.

        :param topics: and names of tables, where a topic has several
        :param settle: inspect each table afterwards, so that the next run knows it again without Spark; see :meth:`add_known_routed_tables`
        :return: the results and the failures; the other tables stay as they were
        """
        began = time.monotonic()
        self._one_table.stood.clear()
        self._catch_up.newest = max(self._catch_up.newest, view.last)
        tables = self._placement.list_known_tables(view)
        self._placement.check_rules(self.spark, view, tables, self._open)
        selected, failed = self._select_tables(view, topics, tables)
        held = names_of(
            [t for t in {*view.lagging, *failed} if t not in tables and (t in failed or t not in topics)], tables
        )
        selected = {name: table for name, table in selected.items() if name not in held}
        self._catch_up.progress = progress = JobTableProgress.from_job(
            "Apply", len(selected), self._changelog, self._connector, self._kind, self._location, view.last
        )
        applied, unreported, terminal = list[TableApplyResult](), list[TableApplyResult](), list[str]()
        table_states: dict[str, TableState] = {
            name: view.update_report_entry(name)
            for name in view.table_states
            if name not in selected and (name in tables or (name in view.lagging and name not in topics))
        }
        # the next run looks for its tables again
        lost_tables: dict[str, TableState] = {
            topic: {**view.find_report_entry(topic), "stamp": "", "routed": True, **view.describe_source_table(topic)}
            for topic in failed
        }
        table_states |= lost_tables
        with progress:
            futures = {
                self._pool.submit(self._one_table.apply_table, selected[name], view, applied, unreported, settle): name
                for name in sorted(selected)
            }
            try:
                for future in as_completed(futures):
                    name = futures[future]
                    progress.count_finished_table()
                    try:
                        if stood := future.result():
                            table_states[name] = stood
                    except Exception as e:  # the other tables continue; the run fails at its end
                        problem = f"Changes could not be applied to the table of {name}."
                        failed[name] = log_table_error(log, problem, e, self._connector, selected[name].location)
                        terminal += [name] if isinstance(e, TerminalError) else []
                        table_states[name] = build_failed_entry(view, selected[name], [*unreported, *applied])
            finally:
                wait(futures)  # no thread works on after the caller gets an error
        self._origins.write_lineage()
        done = {*topics, *selected} - held
        # one that is not there needs all that it began with
        restarted = {
            name: selected[name].begins_after for name in failed if self._one_table.stood.get(name, 0) in (None, NEVER)
        }
        behind = {
            name: restarted.get(name, view.find_reached_batch(name))
            for name in {*view.lagging, *failed, *held}
            if name in failed or name in held or name not in done
        }
        return ApplyRunReport(
            self._connector, self._kind, self._location, view.last, applied, failed, behind, table_states,
            round(time.monotonic() - began, 3), rules=self._rules.compute_digest(), table_rules=self._rules.format_rules() if self._rules else "",
            unreported=unreported, changelog=view.changelog, writer=view.writer, terminal=terminal,
        )  # fmt: skip

    def _select_tables(
        self, view: BacklogState, topics: Collection[str], tables: Mapping[str, TargetTable]
    ) -> tuple[dict[str, TargetTable], dict[str, str]]:
        """Return the tables to work on by name; and topics whose tables could not be found, with the reason."""
        selected, failed = {name: tables[name] for name in topics if name in tables}, dict[str, str]()
        idle = names_of({*topics} - tables.keys(), selected)
        selected |= {name: dataclasses.replace(selected[name], touched=False) for name in idle}
        looks = {t: self._pool.submit(self._concerned, t, view, tables) for t in sorted({*topics} - tables.keys())}
        for topic, look in looks.items():
            try:
                # one that has failed waits until it is tried again
                selected |= {t.name: t for t in look.result() if t.name not in view.lagging or t.name in topics}
            except Exception as e:  # the tables of other topics continue; the run fails at its end
                log.exception("The tables of topic %s could not be found.", topic)
                failed[topic] = describe_error(e)
        return selected, failed

    def _concerned(self, topic: str, view: BacklogState, tables: Mapping[str, TargetTable]) -> list[TargetTable]:
        return self._places.find_affected_tables(self._session(), topic, view, tables)

    def find_unchanged_topics(self, view: BacklogState) -> set[str]:
        """Topics without new events whose tables look as they did after the last run."""
        return find_unchanged_topics(self._changelog, self._kind, view.list_idle_entries())

    def refresh_report_entries(self, table_states: Mapping[str, TableState]) -> dict[str, TableState]:
        """Inspect the tables of some topics, and return their present entries. Tables that cannot be inspected are left out."""
        futures = {
            topic: self._pool.submit(self._one_table.refresh_report_entry, topic, entry)
            for topic, entry in table_states.items()
        }
        entries = {}
        for topic, future in futures.items():
            try:
                entries[topic] = future.result()
            except Exception as e:  # nothing was to be done there: the next run looks closer, and reports the problem
                log.warning("The table of %s could not be inspected: %s", topic, e)
        return entries

    def preload_table_states(self) -> None:
        """Read where each table of the last report table_states, so that the next round finds it read. Nothing is changed."""
        report = self._reports.read(self._kind, self._location)
        table_states = {} if report is None else report["table_states"]
        places = [entry["location"] for entry in table_states.values() if entry["location"]]
        futures = [self._pool.submit(self._look, location) for location in places]
        _, left = wait(futures, FIRST_READ_S)
        for future in left:
            future.cancel()

    def _look(self, location: str) -> None:
        try:
            target = self._open(location)
            if target.exists():
                for ask in (target.read_owner, target.read_markers, target.count_file_bytes, target.read_column_types):
                    ask()
        except Exception as e:  # a round reports the problem and its place
            log.info("The table at %s could not be inspected: %s", location, e)

    def write_report(self, report: ApplyRunReport) -> None:
        """Replace the report of this target."""
        self._report_writer.write(report.to_document())

    def list_unannounced_runs(self, owner: str) -> list[EarlierRun]:
        """List runs before whose tables no task has announced yet.

        See :func:`airflow_provider_cdc.changelog.reports.apply_report_store.not_announced`.

        :param owner: of this run
        """
        report = self._reports.read(self._kind, self._location)
        turns = ApplyTurns(self._changelog.storage, self._connector, self._kind, self._location)
        return [] if report is None else not_announced(report, turns, owner)

    def check_spark_alive(self) -> None:
        """Check that Spark still works.

        :raises CdcError: Spark has ended: no table can be worked on any more
        """
        refuse_ended(self.spark)

    def discard_run_state(self, *, adopt: bool = True) -> None:
        """Discard the state of one run before the next one with this object: older batches, and the owners that it may take tables from.

        :param adopt: that, too
        """
        self._backlog.discard_batches()
        if adopt:
            self._catch_up.adopt = frozenset()
        self._catch_up.discard_cache()

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown()

    def read_backlog_state(self) -> BacklogState:
        """Read the state of the change log and of the last report.

        Before anything is read, the target is known: nothing is removed that it needs.
        """
        report = self._reports.register_target(self._kind, self._location, self._rules)
        view = view_of(self._changelog, self._connector, report, self._rules.compute_digest())
        if view.before is not None:
            view = add_known_routed_tables(view, report, self._rules)
        topics = {view.find_report_entry(name).get("topic", name) for name in view.known_topics}
        if unknown := sorted(self._catch_up.adopt - topics):
            raise ConfigError(
                f"The connector has no topic {', '.join(unknown)} with a table to adopt.",
                safe="No table was changed.",
                remedy=f"use one of these topics: {', '.join(sorted(topics)[:20])}",
            )
        return view

    def _open(self, location: str) -> Target:
        """Open a table, in the session of this thread."""
        return self._format.open_target(self._session(), location, profile=self._profile)

    def _session(self) -> SparkSession:
        """Return the session of this thread: making one takes longer than a small merge."""
        if not hasattr(self._threads, "session"):
            assign_scheduler_pool(self.spark, self._connector)
            self._threads.session = own_session(self.spark, self._format)
        session: SparkSession = self._threads.session
        return session


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments, __doc__)
    job_logging.configure_job_logging()
    try:
        changelog = open_changelog(args.changelog)
        load_format(args.target)
        named = ("connector", "changelog", "location", "profile", "writes", "tables", "threads", "adopt", "check_crc")
        args.spec = ConnectorSpec.from_mapping({name: getattr(args, name) for name in named})
        done = _for_a_while(changelog, args) if args.run_for else _once(changelog, args)
    except CdcError as e:
        print(describe_error(e), file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    for table in done.tables if done else ():
        print(
            f"{table.topic}: {table.event_count} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
        )
    return 0


def _once(changelog: ChangeLog, args: argparse.Namespace) -> ApplyRunReport | None:
    if at_last_batch(changelog, args.spec, args.target):
        return None
    with _job(changelog, args) as job:
        return job.run(args.owner)


def at_last_batch(changelog: ChangeLog, spec: ConnectorSpec, target: str) -> bool:
    """Check whether every table of a connector stands at the last batch, which is written into the report then."""
    report = nothing_new(changelog, spec.connector, target, spec.location, spec.tables.compute_digest())
    if report is None or spec.adopt:
        return False
    ApplyReports(changelog.storage, spec.connector).write(report)
    print(f"Nothing to apply: every table of {spec.connector} is at batch {report['last_batch']}.")
    return True


def _for_a_while(changelog: ChangeLog, args: argparse.Namespace) -> ApplyRunReport | None:
    turns = ApplyTurns(changelog.storage, args.connector, args.target, args.location)
    # the present job continues until this one is ready
    with _job(changelog, args) as job:
        if turns.has_live_turn():
            get_warm(job.spark, args.spec, args.target)
            job.preload_table_states()
        return _turn(changelog, args, job, turns)


def _turn(
    changelog: ChangeLog, args: argparse.Namespace, job: ApplyChanges, turns: ApplyTurns
) -> ApplyRunReport | None:
    with turns.open_turn(args.owner or this_job()) as turn:
        warm = ContinuousApply(job, changelog, args.connector, turn)
        end_with_task(warm.stop)
        return warm.run(args.run_for)


def get_warm(spark: SparkSession, spec: ConnectorSpec, target: str) -> None:
    """Do in a table that no reader needs the work that the first round would do for the first time.

    Meanwhile another job still applies.
    """

    def other(changelog: ChangeLog, connector: str, location: str) -> ApplyChanges:
        return ApplyChanges(
            spark, changelog, connector, location=location, target=target, threads=1, profile=spec.profile, writes=spec.writes,
        )  # fmt: skip

    if str(spark.sparkContext.master).startswith("local"):  # executors elsewhere do not see a folder of this machine
        rehearse_apply(other)


@contextlib.contextmanager
def _job(changelog: ChangeLog, args: argparse.Namespace) -> Iterator[ApplyChanges]:
    """Return the job, in a Spark session that ends with it."""
    spark = open_spark_session(f"cdc apply {args.connector}", load_format(args.target))
    try:
        yield ApplyChanges.from_spec(spark, changelog, args.spec, args.target)
    finally:
        spark.stop()
