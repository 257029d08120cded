"""Capture of changes that are in a change table already, and the driver's fetch of the same rows alone.

The server is ours (``dev/servers/db2``), and no Db2: what it costs a Db2 to have its log captured is not measured here. What is measured is everything
behind it: the driver's fetch, the pairing of rows, the merge, the way into the change log. The driver makes a Python object of each value, so its fetch
is most of the work; the rest must not cost much more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.runs import measured_runs
from dev.benchmarks.measure import figures, machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report
from dev.servers import Db2

SCHEMA, TABLE = "BENCH", "BENCH"
BARS = [Bar("ratio.cpu_s", 1.6, at_most=True), Bar("ours.peak_rss_mb", 400, at_most=True)]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Serve changes, capture them; fetch them and do nothing."""
    report = Report(5)
    print("Starting the Db2 test server …", flush=True)
    with Db2({"heap_mb": 1024}) as server:
        properties = {"database.dbname": server.database, "database.authentication": "server"}
        ours = OwnConnector(server, "db2", f"{SCHEMA}.{TABLE}", folder / "ours", **properties)
        with report.step("start at an empty table") as step:
            server.serve_changes(1000, TABLE, schema=SCHEMA)  # makes the table
            names = (f"{SCHEMA}.{TABLE}", f"ASNCDC.CDC_{SCHEMA}_{TABLE}")
            server.sql(*(f"GRANT SELECT ON TABLE {name} TO USER {server.user}" for name in names))
            server.prune()
            server.catch_up()
            ours.run(step.progress)
        with report.step(f"{options.rows:,} changes to serve"):
            served = server.serve_changes(
                options.rows, TABLE, schema=SCHEMA, transaction_rows=options.transaction_rows or 1000
            )
            server.catch_up()
        with report.step("the driver fetches them, and that is all") as step:
            fetches = [_measure_fetch(server, served, folder) for _ in range(options.repeat)]
            fetch = min(fetches, key=lambda one: one["cpu_s"])
            step.done(f"{fetch['rows'] / fetch['seconds']:,.0f} rows a second, {fetch['cpu_s']:.1f} CPU s")
        runs = measured_runs(options, report, ours, folder)
    summed = figures.summed_up(runs, "events") | {"stages": runs[0]["stages"]}
    document: dict[str, Any] = {
        "ours": summed,
        "fetch": fetch,
        "ratio": {"cpu_s": round(summed["cpu_s"] / fetch["cpu_s"], 2)},
        "server": "db2",
        "rows": options.rows,
        "load": machine.load(),
    }
    shown = {"ours": summed}
    print(f"\n{figures.table(shown, 'events')}\n\n{figures.shares_text(summed['stages'])}")
    print(f"\n{'rows of the change table':<34}{fetch['rows']:>14,}")
    print(f"{'driver alone, CPU seconds':<34}{fetch['cpu_s']:>14.2f}")
    print(f"{'ours, of the driver alone':<34}{document['ratio']['cpu_s']:>14.2f}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


def _measure_fetch(server: Db2, served: dict[str, Any], folder: Path) -> dict[str, Any]:
    """CPU seconds of fetching the rows as capture asks for them, in a separate process."""
    given = {
        "properties": {
            "topic.prefix": "bench", "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
            "database.password": server.password, "database.dbname": server.database, "database.authentication": "server",
        },
        "namespace": SCHEMA, "table": TABLE, "first": served["first"], "last": served["last"],
    }  # fmt: skip
    file = folder / "fetch.json"
    file.write_text(json.dumps(given))
    command = [sys.executable, "-m", "dev.benchmarks.programs.run_db2_fetch", str(file)]
    done = subprocess.run(command, cwd=paths.ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Problem(f"The fetch ended with {done.returncode}:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
