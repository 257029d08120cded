"""Runs the demonstration; every step says what it does and how long it took. Exit status 0: source and tables are equal.

python -m dev.demonstration [--source mariadb|oracle|db2|mongodb] [--keep]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from dev import paths
from dev.airflow import Airflow, Services, example
from dev.bootstrap.report import Problem, Report, Step
from dev.demonstration.db2 import Db2Kit
from dev.demonstration.freshness import FreshnessLags, compute_lags
from dev.demonstration.kit import CUSTOMERS, ORDERS, PRODUCTS, Kit
from dev.demonstration.mariadb import MariaDbKit
from dev.demonstration.mongodb import MongoDbKit
from dev.demonstration.oracle import OracleKit
from dev.demonstration.page_pictures import take_failure_pictures, take_pictures
from dev.demonstration.real_failures import PICTURES_DATA, RealFailures
from dev.demonstration.writer import LiveWriter
from dev.patience import SLOW_S, machine

KITS: dict[str, type[Kit]] = {kit.kind: kit for kit in (MariaDbKit, OracleKit, Db2Kit, MongoDbKit)}
WRITING_S = 45
QUIET_SECONDS = 180
"""For so long nothing at all may move before the demonstration gives up; on a busy machine as many times longer."""
FOLDER = paths.HOME / "demo"


@dataclass
class Demo:
    """The state that the steps share."""

    report: Report
    kit: Kit
    airflow: Airflow
    services: Services
    changelog: Path = field(init=False)
    lake: str = field(init=False)

    def __post_init__(self) -> None:
        data = self.airflow.environment.get
        self.changelog = Path(data("AIRFLOW_VAR_CDC_CHANGELOG", f"{self.airflow.home}/cdc/changelog"))
        self.lake = data("AIRFLOW_VAR_CDC_LAKE", f"{self.airflow.home}/cdc/lake") + "/{database}/{table}"

    # -- the run of the DAG -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let Airflow run the DAG: capture and apply start, side by side, and keep running."""
        with self.report.step(f"a run of {self.kit.dag}: the tables as they are, then change after change") as step:
            path = f"/api/v2/dags/{self.kit.dag}"
            self.services.until(
                lambda: self.services.request("GET", path)[0] == 200, QUIET_SECONDS, f"Airflow has read {self.kit.dag}"
            )
            self.services.json("PATCH", path, {"is_paused": False})

            def has_applied(batch: int) -> bool:
                step.progress(self.tasks())
                return self.applied_batch() >= batch

            self.services.until(lambda: has_applied(1), QUIET_SECONDS, "the tables are made")
            # what was committed while Spark was starting is captured, and then in the tables
            end = self.end()
            self.services.until(
                lambda: self.captured(end), QUIET_SECONDS, "the capture is up to date", report=step.progress
            )
            waiting = self.captured_batch()
            self.services.until(lambda: has_applied(waiting), QUIET_SECONDS, f"batch {waiting} is in the tables")
            step.done(f"{sum(self.events().values()):,} events are in {len(self.events())} tables")

    def tasks(self) -> str:
        """Describe the states of the run's tasks, for people.

        :raises Problem: a task has failed
        """
        run = self._run()
        if run is None:
            return "waiting for the scheduler" + machine()
        path = f"/api/v2/dags/{self.kit.dag}/dagRuns/{run['dag_run_id']}"
        tasks = self.services.json("GET", f"{path}/taskInstances")["task_instances"]
        if any(task["state"] in ("failed", "up_for_retry") for task in tasks):
            raise Problem(f"A task of {self.kit.dag} failed:\n{self._failure(tasks)}")
        states = {t["task_id"].rpartition(".")[2]: f"{t['state'] or 'queued'}{_format_duration(t)}" for t in tasks}
        return ", ".join(f"{task} {states[task]}" for task in ("capture", "apply") if task in states) + machine()

    def finish(self) -> None:
        """End the run: both tasks give back what they hold."""
        with self.report.step("the run is ended") as step:
            path = f"/api/v2/dags/{self.kit.dag}"
            self.services.json("PATCH", path, {"is_paused": True})
            run = self._run()
            assert run is not None
            self.services.json("PATCH", f"{path}/dagRuns/{run['dag_run_id']}", {"state": "success"})
            turns = ApplyTurns(Storage(str(self.changelog)), self.kit.connector, "delta", self.lake)
            self.services.until(
                lambda: not turns.has_live_turn(), QUIET_SECONDS, "the apply has ended", report=step.progress
            )

    def _run(self) -> dict[str, Any] | None:
        path = f"/api/v2/dags/{self.kit.dag}/dagRuns?order_by=start_date&limit=50"
        runs = [run for run in self.services.json("GET", path)["dag_runs"] if run["start_date"]]
        return dict(runs[-1]) if runs else None

    def _failure(self, tasks: list[dict[str, Any]]) -> str:
        """The end of the log of the task that failed."""
        for task in tasks:
            if task["state"] in ("failed", "up_for_retry"):
                place = f"logs/dag_id={self.kit.dag}/**/task_id={task['task_id']}/*.log"
                logs = sorted(self.airflow.home.glob(place))
                return "\n".join(logs[-1].read_text().splitlines()[-40:]) if logs else "no log was written"
        return "no task failed"

    # -- where things stand -------------------------------------------------------------------------------------------

    def end(self) -> dict[str, Any]:
        """Return the position at which the source's log ends now."""
        from airflow_provider_cdc.connector import open_source

        with open_source(self._reference(), self.kit.secrets()) as source:
            return source.current_position().to_json()

    def applied(self, end: dict[str, Any]) -> bool:
        """Check whether everything that the source had committed up to ``end`` is in the tables."""
        return self.captured(end) and self.applied_batch() == self.captured_batch()

    def captured(self, end: dict[str, Any]) -> bool:
        """Check whether everything that the source had committed up to ``end`` is in the change log."""
        from airflow_provider_cdc.connector import open_source

        with self._store() as store:
            stored = store.load_offset(self.kit.connector).offset
        if stored is None or stored.position is None:
            return False
        with open_source(self._reference(), self.kit.secrets()) as source:
            return source.parse_position(stored.position).has_reached(source.parse_position(end))

    def captured_batch(self) -> int:
        """The last batch that is in the change log; 0 if none is."""
        with self._store() as store:
            stored = store.load_offset(self.kit.connector).offset
        return 0 if stored is None else int(stored.batch)

    def applied_batch(self) -> int:
        """The last batch that is in the tables; 0 if none is."""
        reports = ApplyReports(ChangeLog(str(self.changelog)).storage, self.kit.connector).list_reports()
        return min((int(report["last_batch"]) for report in reports), default=0)

    def events(self) -> dict[str, int]:
        """Topic → events captured."""
        with self._store() as store:
            found: dict[str, int] = {}
            for batch in store.list_batches(self.kit.connector, limit=100_000):
                for topic, n in batch.topics.items():
                    found[topic] = found.get(topic, 0) + n
        return found

    def freshness(self, verified: dict[str, Any], first: int) -> dict[str, FreshnessLags]:
        """Topic → how long changes took from their commit to the table, in the batches from ``first`` on."""
        changelog = ChangeLog(str(self.changelog))
        return {
            one["topic"]: compute_lags(changelog, self.kit.connector, one["topic"], Path(one["location"]), first)
            for one in verified["tables"]
        }

    @contextlib.contextmanager
    def _store(self) -> Iterator[Any]:
        from airflow_provider_cdc.state.state_store import StateStore

        store = StateStore(f"sqlite:///{self.airflow.home}/airflow.db")
        try:
            yield store
        finally:
            store.close()

    # -- the proof ----------------------------------------------------------------------------------------------------

    def _reference(self) -> Any:
        """A second connector with its own change log: it reads the tables once, as they are."""
        from airflow_provider_cdc.connector import ConnectorDefinition

        properties = {"topic.prefix": self.kit.connector, "snapshot.mode": "initial_only", **self.kit.properties}
        return ConnectorDefinition("reference", self.kit.kind, str(FOLDER / "reference"), properties)

    def verify(self) -> dict[str, Any]:
        """Compare every row and value of the tables with the source; the result of ``spark_jobs/verify_tables.py``."""
        from airflow_provider_cdc.connector import open_capture
        from airflow_provider_cdc.state.state_store import StateStore

        state = f"sqlite:///{FOLDER}/reference.db"
        store = StateStore(state)
        store.create_tables()
        store.close()
        with self.report.step("the source, read again as it is now") as step:
            with open_capture(self._reference(), state, secrets=self.kit.secrets()) as capture:
                result = capture.run()
            step.done(f"{result.events:,} rows at {result.position}")
        with self.report.step("every row and value compared, in Spark") as step:
            found = FOLDER / "verified.json"
            command = [
                sys.executable, str(paths.ROOT / "spark_jobs" / "verify_tables.py"), "--changelog", str(FOLDER / "reference"), "--connector",
                "reference", "--location", self.lake, "--json", str(found), "--values",
            ]  # fmt: skip
            jars = self.airflow.environment["AIRFLOW_VAR_CDC_JARS"]
            environment = self.airflow.environment | {
                "PYTHONPATH": str(paths.ROOT), "PYSPARK_SUBMIT_ARGS": f"--master local[2] --jars {jars} pyspark-shell",
            }  # fmt: skip
            process = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=FOLDER)
            if process.returncode == 2 or not found.exists():
                raise Problem(f"The comparison could not be made:\n{process.stderr[-3000:]}")
            verified: dict[str, Any] = json.loads(found.read_text())
            step.done("equal" if verified["equal"] else "NOT equal")
            if not verified["equal"]:
                print(process.stdout)
        return verified


def _format_duration(task: Mapping[str, Any]) -> str:
    """For how long a task has been at work, once it is long."""
    if task["state"] != "running" or not task["start_date"]:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(task["start_date"])).total_seconds()
    return f" for {seconds:.0f} s" if seconds > SLOW_S else ""


def table(verified: dict[str, Any], events: dict[str, int], fresh: dict[str, FreshnessLags]) -> str:
    """The result for people."""
    head = (
        "table", "rows in the source", "rows in the lakehouse", "every value equal", "events captured", "commit to table, half", "95 %",
    )  # fmt: skip
    lines = [
        (
            t["topic"].partition(".")[2], f"{t['source']:,}", f"{t['target']:,}", "yes" if t["equal"] else "NO",
            f"{events.get(t['topic'], 0):,}", *fresh[t["topic"]].texts(),
        )
        for t in verified["tables"]
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    rule = "─" * (sum(widths) + 3 * (len(widths) - 1))
    rows = [
        " │ ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in (head, *lines)
    ]
    return "\n".join(["", rows[0], rule, *rows[1:], ""])


def prepare_airflow(report: Report, kit: Kit, data: Path | None) -> Airflow:
    """An Airflow home with the provider in it, its tables and its connections.

    :param data: the folder of the change log and the tables; by default both are in the Airflow home
    """
    with report.step("Airflow: metadata DB, connector tables, connections") as step:
        step.progress("building and installing the provider's wheel")
        airflow = Airflow(FOLDER / "airflow")
        airflow.connection(kit.conn_id, **kit.connection())
        if data is not None:
            airflow.environment |= {
                "AIRFLOW_VAR_CDC_CHANGELOG": f"{data}/changelog",
                "AIRFLOW_VAR_CDC_LAKE": f"{data}/lake",
            }
        example(kit.dag, airflow.dags)
        for words in (("db", "migrate"), ("cdc", "setup"), ("cdc", "check", "--conn-id", kit.conn_id)):
            step.progress(f"airflow {' '.join(words)}")
            answer = airflow.run(*words).stdout
        step.done(f"airflow cdc check: {answer.splitlines()[0].rstrip('.').lower()}")
    return airflow


def main() -> int:
    args = _arguments()
    kit = KITS[args.source]()
    began = time.monotonic()
    report = Report(12 if args.pictures else 10)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    if kit.note:
        print(f"\n{kit.note}\n", flush=True)
    with contextlib.ExitStack() as stack:
        _start_source(stack, report, kit)
        airflow = prepare_airflow(report, kit, PICTURES_DATA if args.pictures else None)
        with report.step("Airflow: scheduler, DAG processor, triggerer, API server") as step:
            services = Services(airflow)
            with _ticking(step, "starting"):
                stack.enter_context(services)
            step.done(services.url)
        demo = Demo(report, kit, airflow, services)
        warm = _run_dag_until_applied(demo, stack.enter_context(LiveWriter(kit)))
        verified = demo.verify()
        print(table(verified, demo.events(), demo.freshness(verified, warm)))
        print(f"{'Equal' if verified['equal'] else 'NOT EQUAL'} at {kit.position(verified['position'])}.", end=" ")
        print(f"{time.monotonic() - began:.0f} s in all.\n", flush=True)
        if kit.note:
            print(f"{kit.note}\n", flush=True)
        if args.pictures:
            with report.step("pictures of the pages") as step:
                take_pictures(services, kit, Path(args.pictures), step)
            with report.step("pictures of failures") as step:
                failures = RealFailures(services, kit, step)
                failures.provoke_all()
                take_failure_pictures(services, failures.NAMES, Path(args.pictures), step)
        if args.keep:
            _stay(demo)
    return 0 if verified["equal"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev/demo", description="From a live database to Delta tables under Airflow, shown from beginning to end."
    )
    parser.add_argument(
        "--source",
        choices=sorted(KITS),
        default="mariadb",
        help="database to begin with (default: %(default)s); oracle, db2 and mongodb are test servers of our own, not those databases",
    )
    parser.add_argument(
        "--pictures",
        metavar="FOLDER",
        help="photograph the pages that the documentation shows; dev/docs --screenshots makes the disks for it",
    )
    parser.add_argument("--keep", action="store_true", help="leave everything up afterwards, to be looked at")
    return parser.parse_args()


def _start_source(stack: contextlib.ExitStack, report: Report, kit: Kit) -> None:
    """The source, with its tables."""
    with report.step(kit.title) as step:
        stack.enter_context(kit.server)
        step.done(f"{kit.version()} on {kit.place()}")
    with report.step("the inventory database") as step:
        kit.fill(random.Random(1))
        step.done(f"{CUSTOMERS:,} customers, {PRODUCTS:,} products, {ORDERS:,} orders")


def _run_dag_until_applied(demo: Demo, writer: LiveWriter) -> int:
    """Run the DAG while the application writes, until all changes are applied.

    :return: the batch from which on the apply had nothing to catch up with
    """
    demo.begin()
    # what was captured while Spark was starting has waited for that
    warm = demo.captured_batch() + 1
    with demo.report.step(f"the application writes for {WRITING_S} s, and {demo.kit.change}") as step:
        began, still = time.monotonic(), [lambda: writer.change_schema(*demo.kit.new_column), demo.kit.switch_log]
        while (passed := time.monotonic() - began) < WRITING_S:
            if still and passed > WRITING_S / 3 * (3 - len(still)):
                still.pop(0)()
            step.progress(f"{demo.tasks()}; batch {demo.applied_batch()} is in the tables")
            time.sleep(1)
        writer.stop()
        step.done(", ".join(f"{n:,} {what}" for what, n in writer.done.items()))
    with demo.report.step("until all of it is in the tables") as step, _ticking(step, "running"):
        end = demo.end()
        demo.services.until(lambda: demo.applied(end), QUIET_SECONDS, "everything is applied", report=step.progress)
    demo.finish()
    return warm


@contextlib.contextmanager
def _ticking(step: Step, text: str) -> Iterator[None]:
    """Progress for something that says nothing itself."""
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(1):
            step.progress(text)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _stay(demo: Demo) -> None:
    """Leave everything running, with a calm application, until someone presses Ctrl-C."""
    passwords = json.loads((demo.airflow.home / "simple_auth_manager_passwords.json.generated").read_text())
    (user, password), *_ = passwords.items()
    print(f"Airflow: {demo.services.url}   user {user}, password {password}")
    print(f"Tables:  {demo.lake}")
    print(f"Source:  {demo.kit.login()}")
    print("Everything stays up, and the application goes on writing, until Ctrl-C.", flush=True)
    with LiveWriter(demo.kit, pause_s=2), contextlib.suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        sys.exit(main())
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nStopped; servers and services are ended.", file=sys.stderr)
        sys.exit(130)
