"""Maintain the tables that a change log is applied to.

The command is ``spark-submit maintain_tables.py --changelog … --connector … --location …``.

Small commits leave small files, separate delete files, and old versions of a table. Each step checks whether it is needed, and reports its result or why
it had nothing to do. Rows and markers stay unchanged; applies and readers may continue meanwhile.

Exit status: 0 all steps of all tables were done or not needed, 1 some failed (the others are done), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.changelog.reports.table_job_reports import MaintenanceReport
from airflow_provider_cdc.changelog.reports.table_maintenance_report import MaintenanceReports
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.format_descriptor import known_keep
from airflow_provider_cdc.targets.lake.formats.jvm_errors import log_table_error
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import SHARED
from airflow_provider_cdc.targets.lake.formats.table_location import one_name
from airflow_provider_cdc.targets.lake.formats.table_values import MaintenanceStepResult, WriteConflict
from airflow_provider_cdc.targets.lake.session.spark_session import (
    open_changelog,
    open_spark_session,
    own_session,
    tune_session,
)

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.maintain_tables")

GONE = "look"
"""The only step of a table that is not there."""
ATTEMPTS = 5
"""How often a step begins again because another writer was faster."""


@dataclasses.dataclass(slots=True)
class TableMaintenanceResult:
    """Result of the maintenance of one table.

    :param topic: its topic; of a table that several share, all of them with commas between; of those that a route makes of one topic, that and the location
    :param steps: step → its work, or why there was nothing to do
    :param problem: the error
    """

    topic: str
    location: str
    steps: dict[str, MaintenanceStepResult] = dataclasses.field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0

    def format_result(self) -> str:
        """Format the result for people."""
        lines = [f"{self.topic}:"]
        lines += [
            f"  {name}: {done.said}{'' if done.changed else ' (nothing to do)'}" for name, done in self.steps.items()
        ]
        return "\n".join(lines + ([f"  FAILED: {self.problem}"] if self.problem else []))


@dataclasses.dataclass(slots=True)
class MaintenanceRunResult:
    """Result of the maintenance of all tables.

    It is stored by :class:`airflow_provider_cdc.changelog.reports.table_maintenance_report.MaintenanceReports`.
    """

    connector: str
    target: str
    location: str
    tables: list[TableMaintenanceResult]
    seconds: float
    run: str = ""

    def to_document(self) -> MaintenanceReport:
        """Return the report as it is stored."""
        return cast("MaintenanceReport", dataclasses.asdict(self))

    @property
    def has_failed(self) -> bool:
        return any(table.problem for table in self.tables)


class MaintainTables:
    """Maintains the tables of a connector that have been applied to.

        >>> MaintainTables(spark, changelog, "shop", location="/lake/{database}/{table}").run().tables[0].steps["compact"].said
        '34 files became 1'

    :param location: where tables are, as it was given to the apply
    :param keep: how long the files of older states of the tables stay: for readers that are in the middle of it, and for looking back
    :param threads: tables worked on at the same time
    :param run_id: goes into the report, so that the process that started the run recognizes it
    """

    def __init__(
        self, spark: SparkSession, changelog: ChangeLog, connector: str, *, location: str, target: str = "delta",
        keep: timedelta = timedelta(days=7), threads: int = 2, run_id: str = "",
    ) -> None:  # fmt: skip
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._kind, self._format = location, target, load_format(target)
        self._keep, self._threads, self._run_id = keep, threads, run_id
        self._places, self._progress = set[str](), JobTableProgress()

    def run(self) -> MaintenanceRunResult:
        """Maintain all tables at the location.

        :raises ConfigError: nothing was applied to this location
        """
        began = time.monotonic()
        names: dict[str, list[str]] = {}
        topics: dict[str, list[str]] = {}
        for name, stand in sorted(self._stands().items()):
            if stand["location"]:
                names.setdefault(stand["location"], []).append(name)
                topics.setdefault(stand["location"], []).append(stand.get("topic", name))
        self._places = self._known_places()
        self._progress = JobTableProgress.from_job(
            "Maintain", len(topics), self._changelog, self._connector, self._kind, self._location
        )
        with self._progress, ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-maintain") as pool:
            tables = list(pool.map(self._table, topics, names.values(), topics.values()))
        if tables and all(GONE in table.steps for table in tables):  # nor is that a success
            for table in tables:
                table.problem = (
                    "no table of this target exists any more: check that the storage of the tables is available"
                )
        report = MaintenanceRunResult(
            self._connector, self._kind, self._location, tables, round(time.monotonic() - began, 3), self._run_id
        )
        MaintenanceReports(self._changelog.storage, self._connector).write(report.to_document())
        return report

    def _stands(self) -> dict[str, TableState]:
        report = ApplyReports(self._changelog.storage, self._connector).read(self._kind, self._location)
        if report is None or not report["table_states"]:
            reports = ApplyReports(self._changelog.storage, self._connector).list_reports()
            places = ", ".join(f"{other['target']} at {other['location']}" for other in reports)
            raise ConfigError(
                f"Nothing to maintain: no apply of {self._connector} has written a report about {self._kind} tables at {self._location}.",
                where=self._changelog.storage.url,
                safe="No table was changed.",
                remedy=f"give the target and location of an apply that has run: {places or 'no apply has run'}",
            )
        return report["table_states"]

    def _table(self, location: str, names: list[str], topics: list[str]) -> TableMaintenanceResult:
        began, done = time.monotonic(), TableMaintenanceResult(", ".join(names), location)
        self._progress.start_table(done.topic)
        try:
            self._upkeep(done, topics)
        except Exception as e:  # the other tables continue; the run fails at its end
            problem = f"The table at {location} could not be maintained."
            done.problem = log_table_error(log, problem, e, self._connector, location)
        self._progress.release_table(done.topic)
        self._progress.count_finished_table()
        done.seconds = round(time.monotonic() - began, 3)
        log.info("%s", done.format_result())
        return done

    def _below(self, folder: str) -> list[str]:
        """List the places of other tables below a folder: their files would be taken for orphan files."""
        return sorted(place for place in self._places if one_name(place).startswith(f"{one_name(folder)}/"))

    def _known_places(self) -> set[str]:
        """Return the places of the tables of all connectors of the change log, as locations and as folders."""
        storage, places = self._changelog.storage, set[str]()
        for name in self._changelog.list_connectors():
            for report in ApplyReports(storage, name).list_reports():
                origins = ColumnOrigins(storage, name).read(report["target"], report["location"])
                places |= {stand["location"] for stand in report["table_states"].values()}
                places |= {str(origin["path"]) for origin in origins.values() if origin.get("path")}
        return places

    def _upkeep(self, done: TableMaintenanceResult, topics: list[str]) -> None:
        spark = own_session(self._spark, self._format)
        target = self._format.open_target(spark, done.location)
        if not target.exists():
            done.steps[GONE] = MaintenanceStepResult(False, "the table no longer exists")
            return
        if below := self._below(target.resolve_data_path()):
            done.problem = f"its folder contains the table at {below[0]}, and maintenance would remove the files of that table; nothing was changed: move one of the two tables"
            return
        owner = target.read_owner()
        if owner is None or owner.connector != self._connector or owner.topic not in (*topics, SHARED):
            done.problem = f"the table at {done.location} belongs to {owner or 'no connector'}; it was not changed"
            return
        tune_session(spark, target.count_file_bytes())
        failed = []
        for name, step in target.list_maintenance_steps(self._keep).items():
            try:
                done.steps[name] = _tried(name, step)
            except Exception as e:  # a later step needs none before it
                problem = f"Maintenance step {name!r} failed for the table of {done.topic}."
                text = log_table_error(log, problem, e, self._connector, done.location, level=logging.WARNING)
                failed.append(f"{name}: {text.splitlines()[0] if text else type(e).__name__}")
        done.problem = "; ".join(failed)


def _tried(name: str, step: Any) -> MaintenanceStepResult:
    """Try a step several times, until no other writer commits before it.

    :raises Conflict: other writers were faster each time
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            done: MaintenanceStepResult = step()
            return done
        except WriteConflict as e:
            log.info("Another writer committed before step %r was done (attempt %d): %s", name, attempt, str(e)[:200])
            time.sleep(0.2 * attempt)
    raise WriteConflict(f"other writers committed first {ATTEMPTS} times; the next maintenance tries again")


def main(arguments: list[str] | None = None) -> int:
    args = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    try:
        keep, format_ = known_keep(args.keep_hours), load_format(args.target)
        changelog = open_changelog(args.changelog)
        spark = open_spark_session(f"cdc maintain {args.connector}", format_)
        try:
            done = MaintainTables(
                spark, changelog, args.connector, location=args.location, target=args.target, keep=keep,
                threads=args.threads, run_id=args.run_id,
            ).run()  # fmt: skip
        finally:
            spark.stop()
    except CdcError as e:
        print(describe_error(e), file=sys.stderr)
        return 2
    for table in done.tables:
        print(table.format_result())
    return 1 if done.has_failed else 0


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="location of the tables, as given to the apply")
    parser.add_argument("--target", default="delta", help="table format: delta (default) or iceberg")
    parser.add_argument(
        "--keep-hours", type=float, default=168.0, metavar="HOURS",
        help="number of hours to keep files and snapshots after they were replaced (default: %(default)s, at least 1)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=2, help="number of tables to maintain at the same time")
    parser.add_argument("--run-id", default="", help="run ID to store in the report")
    return parser.parse_args(arguments)
