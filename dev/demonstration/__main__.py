"""Runs the demonstration; every step says what it does and how long it took. Exit status 0: source and tables are equal.

python -m dev.demonstration [--source mariadb|oracle] [--keep]
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

from dev import paths
from dev.airflow import Airflow, Services, example
from dev.bootstrap.report import Problem, Report, Step
from dev.demonstration.kit import CUSTOMERS, ORDERS, PRODUCTS, Kit
from dev.demonstration.mariadb import MariaDbKit
from dev.demonstration.oracle import OracleKit
from dev.demonstration.writer import LiveWriter
from dev.patience import SLOW_S, machine

KITS: dict[str, type[Kit]] = {kit.kind: kit for kit in (MariaDbKit, OracleKit)}
RUNS = 3
QUIET_SECONDS = 180
"""For so long nothing at all may move before the demonstration gives up; on a busy machine as many times longer."""
FOLDER = paths.HOME / "demo"


@dataclass
class Demo:
    """What the steps share."""

    report: Report
    kit: Kit
    airflow: Airflow
    services: Services
    changelog: Path = field(init=False)
    lake: str = field(init=False)

    def __post_init__(self) -> None:
        self.changelog = self.airflow.home / "cdc" / "changelog"
        self.lake = f"{self.airflow.home}/cdc/lake/{{database}}/{{table}}"

    # -- runs of the DAG ----------------------------------------------------------------------------------------------

    def unpause(self) -> None:
        """Let Airflow run the DAG: it is continuous, each run waits for changes first."""
        path = f"/api/v2/dags/{self.kit.dag}"
        self.services.until(
            lambda: self.services.request("GET", path)[0] == 200, QUIET_SECONDS, f"Airflow has read {self.kit.dag}"
        )
        self.services.json("PATCH", path, {"is_paused": False})

    def run(self, number: int, what: str) -> None:
        """Watch the run of this number (from 1) to its end."""
        with self.report.step(f"run {number} of the DAG, {what}") as step:
            run = self.services.until(
                lambda: self._nth(number), QUIET_SECONDS, f"run {number} of {self.kit.dag} begins", tell=step.progress
            )
            path = f"/api/v2/dags/{self.kit.dag}/dagRuns/{run}"

            def ended() -> str | None:
                state = str(self.services.json("GET", path)["state"])
                step.progress(self._tasks(path) + machine())
                return state if state in ("success", "failed") else None

            if self.services.until(ended, QUIET_SECONDS, f"run {number} ends") == "failed":
                raise Problem(f"Run {number} of {self.kit.dag} failed:\n{self._failure(path)}")
            captured, applied = self._returned(path, "capture"), self._returned(path, "apply")
            step.done(
                f"captured {captured.get('events', 0):,} events, applied {applied.get('events', 0):,} to "
                f"{len(applied.get('topics', {}))} tables"
            )

    def _nth(self, number: int) -> str | None:
        path = f"/api/v2/dags/{self.kit.dag}/dagRuns?order_by=start_date&limit=50"
        runs = self.services.json("GET", path)["dag_runs"]
        started = [r["dag_run_id"] for r in runs if r["start_date"]]
        return started[number - 1] if len(started) >= number else None

    def _tasks(self, path: str) -> str:
        tasks = self.services.json("GET", f"{path}/taskInstances")["task_instances"]
        states = {t["task_id"].rpartition(".")[2]: f"{t['state'] or 'queued'}{_since(t)}" for t in tasks}
        return ", ".join(f"{task} {states[task]}" for task in ("wait", "capture", "apply") if task in states)

    def _returned(self, path: str, task: str) -> dict[str, Any]:
        entry = self.services.json("GET", f"{path}/taskInstances/{task}/xcomEntries/return_value")["value"]
        return dict(json.loads(entry) if isinstance(entry, str) else entry)

    def _failure(self, path: str) -> str:
        """The end of the log of the task that failed."""
        tasks = self.services.json("GET", f"{path}/taskInstances")["task_instances"]
        for task in tasks:
            if task["state"] in ("failed", "up_for_retry"):
                place = f"logs/dag_id={self.kit.dag}/**/task_id={task['task_id']}/*.log"
                logs = sorted(self.airflow.home.glob(place))
                return "\n".join(logs[-1].read_text().splitlines()[-40:]) if logs else "no log was written"
        return "no task failed"

    # -- where things stand -------------------------------------------------------------------------------------------

    def end(self) -> dict[str, Any]:
        """Where the source's log ends now."""
        from airflow_provider_cdc.runtime import open_source

        with open_source(self._reference(), self.kit.secrets()) as source:
            return source.current_position().to_json()

    def applied(self, end: dict[str, Any]) -> bool:
        """Whether everything that the source had committed up to ``end`` is in the tables."""
        from airflow_provider_cdc.changelog.applied import AppliedReports
        from airflow_provider_cdc.changelog.log import ChangeLog
        from airflow_provider_cdc.runtime import open_source

        with self._store() as store:
            stored = store.load(self.kit.connector).offset
        reports = AppliedReports(ChangeLog(str(self.changelog)).storage, self.kit.connector).all()
        if stored is None or stored.position is None or not reports:
            return False
        with open_source(self._reference(), self.kit.secrets()) as source:
            read = source.parse_position(stored.position).reached(source.parse_position(end))
        return read and all(report["last_batch"] == stored.batch for report in reports)

    def events(self) -> dict[str, int]:
        """Topic → events captured."""
        with self._store() as store:
            found: dict[str, int] = {}
            for batch in store.batches(self.kit.connector, limit=100_000):
                for topic, n in batch.topics.items():
                    found[topic] = found.get(topic, 0) + n
        return found

    @contextlib.contextmanager
    def _store(self) -> Iterator[Any]:
        from airflow_provider_cdc.state.store import StateStore

        store = StateStore(f"sqlite:///{self.airflow.home}/airflow.db")
        try:
            yield store
        finally:
            store.close()

    # -- the proof ----------------------------------------------------------------------------------------------------

    def _reference(self) -> Any:
        """A second connector with a change log of its own: it reads the tables once, as they are."""
        from airflow_provider_cdc.runtime import ConnectorDefinition

        properties = {"topic.prefix": self.kit.connector, "snapshot.mode": "initial_only", **self.kit.properties}
        return ConnectorDefinition("reference", self.kit.kind, str(FOLDER / "reference"), properties)

    def verify(self) -> dict[str, Any]:
        """Compare every row and value of the tables with the source; the result of ``spark_jobs/verify_tables.py``."""
        from airflow_provider_cdc.runtime import open_capture
        from airflow_provider_cdc.state.store import StateStore

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
                sys.executable, "-m", "spark_jobs.verify_tables", "--changelog", str(FOLDER / "reference"), "--connector",
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


def _since(task: Mapping[str, Any]) -> str:
    """For how long a task has been at work, once it is long."""
    if task["state"] != "running" or not task["start_date"]:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(task["start_date"])).total_seconds()
    return f" for {seconds:.0f} s" if seconds > SLOW_S else ""


def table(verified: dict[str, Any], events: dict[str, int]) -> str:
    """The result for people."""
    head = ("table", "rows in the source", "rows in the lakehouse", "every value equal", "events captured")
    lines = [
        (
            t["topic"].partition(".")[2], f"{t['source']:,}", f"{t['target']:,}", "yes" if t["equal"] else "NO",
            f"{events.get(t['topic'], 0):,}",
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


def prepared(report: Report, kit: Kit) -> Airflow:
    """An Airflow home with the provider in it, its tables and its connections."""
    with report.step("Airflow: metadata DB, connector tables, connections") as step:
        step.progress("building and installing the provider's wheel")
        airflow = Airflow(FOLDER / "airflow")
        airflow.connection(kit.conn_id, **kit.connection())
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
    report = Report(RUNS + 7)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    if kit.note:
        print(f"\n{kit.note}\n", flush=True)
    with contextlib.ExitStack() as stack:
        _started(stack, report, kit)
        airflow = prepared(report, kit)
        with report.step("Airflow: scheduler, DAG processor, triggerer, API server") as step:
            services = Services(airflow)
            with _ticking(step, "starting"):
                stack.enter_context(services)
            step.done(services.url)
        demo = Demo(report, kit, airflow, services)
        _worked(demo, stack.enter_context(LiveWriter(kit)))
        verified = demo.verify()
        print(table(verified, demo.events()))
        print(f"{'Equal' if verified['equal'] else 'NOT EQUAL'} at {kit.position(verified['position'])}.", end=" ")
        print(f"{time.monotonic() - began:.0f} s in all.\n", flush=True)
        if kit.note:
            print(f"{kit.note}\n", flush=True)
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
        help="database to begin with (default: %(default)s); oracle is a test server of our own, not an Oracle",
    )
    parser.add_argument("--keep", action="store_true", help="leave everything up afterwards, to be looked at")
    return parser.parse_args()


def _started(stack: contextlib.ExitStack, report: Report, kit: Kit) -> None:
    """The source, with its tables."""
    with report.step(kit.title) as step:
        stack.enter_context(kit.server)
        step.done(f"{kit.version()} on port {kit.server.port}")
    with report.step("the inventory database") as step:
        kit.fill(random.Random(1))
        step.done(f"{CUSTOMERS:,} customers, {PRODUCTS:,} products, {ORDERS:,} orders")


def _worked(demo: Demo, writer: LiveWriter) -> None:
    """Some runs of the DAG while the application writes, then as many as it takes."""
    demo.unpause()
    for number in range(1, RUNS + 1):
        if number == 2:
            writer.change_schema(demo.kit.new_column)
        if number == RUNS:
            demo.kit.switch_log()
        demo.run(number, "snapshot included" if number == 1 else "while the application writes")
    writer.stop()
    did = ", ".join(f"{n:,} {what}" for what, n in writer.done.items())
    print(f"      the application has stopped: {did}", flush=True)
    with demo.report.step("the DAG runs on until all of it is applied") as step, _ticking(step, "running"):
        end = demo.end()
        demo.services.until(lambda: demo.applied(end), QUIET_SECONDS, "everything is applied", tell=step.progress)


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
    """Leave everything running, with a calm application, until somebody presses Ctrl-C."""
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
