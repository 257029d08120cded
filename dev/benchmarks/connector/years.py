"""The cost of a connector that has run for years, beside the same one after ten batches.

It measures runs, an apply, a new table, the status and the page.

The years are made directly (:mod:`dev.benchmarks.load.history`): 200,000 batches, 1,000 topics, 50,000 schema changes. Each figure is of a process from its start to its
end, but for the page, whose server runs already. The first steps afterwards are not counted and are shown apart: the first run makes a base of the schema history, the
first apply brings the tables up to the last batch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.engines.ours import OwnConnector, environment
from dev.benchmarks.engines.warm_process import ApplyProcess
from dev.benchmarks.load import history
from dev.benchmarks.load.workload import DATABASE
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap import jars
from dev.bootstrap.report import Problem, Report, Step
from dev.servers.mysql_family import MySqlFamily

TOPICS, BATCHES, CHANGES = 1000, 200_000, 50_000
FEW = 10
"""Batches and schema changes of the connector that it is measured beside."""
MEASURED = ("empty run", "small run", "small apply", "new table, run", "new table, apply", "status", "page")
BARS = [Bar(f"ratio.{name}", 1.5, at_most=True) for name in MEASURED]


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """``--tables`` topics; ``--batches`` and a quarter as many schema changes."""
    topics, batches = options.tables or TOPICS, options.batches or BATCHES
    changes = batches * CHANGES // BATCHES // 2 * 2
    report = Report(5)
    with report.step("Spark's jars") as step:
        found = jars.ensure("delta", step=step)
    base = OwnConnector.mysql(
        server, options.server, rf"{DATABASE}\.(t\d+|new_\w+)", folder / "base",
        **{"database.include.list": DATABASE, "changelog.retention.ms": 0},
    )  # fmt: skip
    with report.step(f"{topics:,} tables, captured and applied") as step:
        _tables(server, topics, step)
        base.run(step.progress)
        # years consist of batches of changes, whose offsets say nothing of a snapshot any more
        server.sql(f"INSERT INTO {DATABASE}.t0 VALUES (2, 2, 'two')")
        base.run(step.progress)
        _HistoryMeasurement(base, server, folder, found, step).apply()
        shutil.move(folder / "lake", folder / "lake of base")
    document: dict[str, Any] = {"topics": topics, "batches": batches, "schema_changes": changes}
    for name, made, changed in (("few", FEW, FEW), ("years", batches, changes)):
        with report.step(f"{made:,} batches, {changed:,} schema changes") as step:
            ours = base.copy_to(folder / "ours")
            shutil.rmtree(folder / "lake", ignore_errors=True)
            shutil.copytree(folder / "lake of base", folder / "lake")
            history.make(ours, made, changed, step)
            document[name] = _HistoryMeasurement(ours, server, folder, found, step).measured(name)
            step.done(", ".join(f"{key} {document[name][key]:.2f} s" for key in MEASURED[:3]))
    with report.step("retention") as step:
        document["retention"] = _HistoryMeasurement(ours, server, folder, found, step).retention()
        step.done("what nobody needs is gone")
    document["ratio"] = {
        key: round(document["years"][key] / document["few"][key], 2) for key in MEASURED if document["few"][key]
    }
    document["load"] = machine.load()
    print(f"\n{table(document)}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


def table(document: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{'seconds':<24}{f'{FEW} batches':>14}{'years':>14}{'ratio':>8}"]
    for name in (*MEASURED, "first run", "first apply"):
        few, years = document["few"][name], document["years"][name]
        ratio = f"{document['ratio'][name]:>8.2f}" if name in document["ratio"] else f"{'':>8}"
        lines.append(f"{name:<24}{few:>14.3f}{years:>14.3f}{ratio}")
    lines += ["", f"{'after years, retention':<36}{'before':>14}{'after':>14}"]
    for name, (before, after) in document["retention"].items():
        lines.append(f"{name:<36}{before:>14,}{after:>14,}")
    return "\n".join(lines)


def _tables(server: MySqlFamily, topics: int, step: Step) -> None:
    server.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    with server.connect(autocommit=True) as connection:
        cursor = connection.cursor()
        for number in range(topics):
            cursor.execute(f"CREATE TABLE {DATABASE}.t{number} (id INT PRIMARY KEY, n INT, note VARCHAR(50))")
            cursor.execute(f"INSERT INTO {DATABASE}.t{number} VALUES (1, 1, 'one')")
            step.progress(f"table {number} of {topics:,}")


class _HistoryMeasurement:
    """Measures one connector."""

    def __init__(self, ours: OwnConnector, server: MySqlFamily, folder: Path, jars_: list[Path], step: Step) -> None:
        self._ours, self._server, self._folder, self._jars, self._step = ours, server, folder, jars_, step

    def measured(self, name: str) -> dict[str, Any]:
        """Every figure, in seconds.

        :param name: ``few`` or ``years``
        """
        found = {"first run": self._run(None), "first apply": self.apply()}
        self._run(None)
        found["empty run"] = statistics.median(self._run(0) for _ in range(3))
        first = {"few": 1000, "years": 2000}[name]  # both change the same tables of the same server
        self._change("t0", 100, first)
        found["small run"] = self._run(100)
        found["small apply"] = self.apply()
        self._server.sql(f"CREATE TABLE {DATABASE}.new_{name} (id INT PRIMARY KEY, n INT, note VARCHAR(50))")
        self._change(f"new_{name}", 10, first)
        found["new table, run"] = self._run(10)
        found["new table, apply"] = self.apply()
        found["status"] = statistics.median(self._timed(self._airflow("cdc", "status", "bench")) for _ in range(3))
        found["page"] = self._page()
        return {key: round(seconds, 4) for key, seconds in found.items()}

    def retention(self) -> dict[str, tuple[int, int]]:
        """Run the retention, and return each size before and after it, by name."""
        before = self._sizes()
        self._timed(self._airflow("cdc", "maintain", "bench", "--only", "retention"))
        after = self._sizes()
        return {key: (before[key], after[key]) for key in before}

    def apply(self) -> float:
        """Apply everything."""
        self._step.progress("applying")
        with ApplyProcess(
            self._ours.changelog, f"{self._folder}/lake/{{table}}", "delta", self._jars, self._folder / "apply.log"
        ) as process:
            return process.wait(longest_s=7200)

    def _run(self, events: int | None) -> float:
        """Seconds of a run that captures so many events; ``None``: whatever there is."""
        self._step.progress("capturing")
        text, seconds = self._timed_output(self._ours.command("dev.benchmarks.programs.run_fixed"))
        captured = json.loads(text.splitlines()[-1])["events"]
        if events not in (None, captured):
            raise Problem(f"{captured:,} events were captured instead of {events:,}: the figures mean nothing.")
        return seconds

    def _change(self, table: str, rows: int, first: int) -> None:
        values = ",".join(f"({first + i}, {i}, 'more')" for i in range(rows))
        self._server.sql(f"INSERT INTO {DATABASE}.{table} VALUES {values}")

    def _page(self) -> float:
        command = [sys.executable, "-m", "dev.benchmarks.programs.run_page", "/api/v1/connectors/bench"]
        text, _ = self._timed_output(command, self._environment())
        return float(text.splitlines()[-1])

    def _sizes(self) -> dict[str, int]:
        connector = self._ours.changelog / "bench"
        found = {"files of the change log": sum(len(files) for _, _, files in os.walk(connector))}
        with sqlite3.connect(self._ours.folder / "state.db") as c:
            for name in (
                "cdc_offset_history",
                "cdc_batch",
                "cdc_schema_history",
                "cdc_schema_base",
                "cdc_offset_table",
            ):
                (found[f"rows of {name}"],) = c.execute(f"SELECT count(*) FROM {name}").fetchone()
        return found

    def _airflow(self, *command: str) -> list[str]:
        return [str(Path(sys.executable).with_name("airflow")), *command]

    def _environment(self) -> dict[str, str]:
        state = {"conn_type": "cdc_state", "password": f"sqlite:///{self._ours.folder}/state.db"}
        return {
            **environment(), "AIRFLOW_HOME": str(self._folder / "airflow"), "AIRFLOW_CONN_CDC_STATE_DEFAULT": json.dumps(state),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": str(paths.ROOT),
        }  # fmt: skip

    def _timed(self, command: list[str]) -> float:
        return self._timed_output(command, self._environment())[1]

    def _timed_output(self, command: list[str], env: dict[str, str] | None = None) -> tuple[str, float]:
        """Run a command, and return its output and its seconds.

        :raises Problem: it has failed
        """
        began = time.perf_counter()
        done = subprocess.run(command, cwd=paths.ROOT, env=env or environment(), capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise Problem(f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stderr[-4000:]}")
        return done.stdout, seconds
