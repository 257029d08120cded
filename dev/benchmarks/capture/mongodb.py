"""Capture of change events that a server has ready, by us and by Debezium, and the driver's fetch of the same events alone.

The server is ours (``dev/servers/mongodb/replay.py``), and no MongoDB: it hands out prepared batches from memory, so that it is not what is measured; the
CPU seconds that it takes stand beside the figures. What is measured is everything behind it: the driver, the decoding, the events, the way into the
change log (or, with Debezium, to a consumer that drops them).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev import paths
from dev.benchmarks.engines import debezium
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.runs import measure_run, measured_runs
from dev.benchmarks.load import mongodb_events
from dev.benchmarks.load.mongodb_events import COLLECTION, DATABASE
from dev.benchmarks.measure import figures, machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report
from dev.servers.mongodb import MongoDb
from dev.servers.mongodb.replay import RELEASE

MODE = "change_streams_update_full_with_pre_image"
WIDE_SHARE = 20
"""So many small events for one of 20 KB."""
BARS = [
    Bar(f"{kind}.{name}", limit, at_most=at_most)
    for kind in ("small", "wide")
    for name, limit, at_most in (("ratio.events_per_cpu_s", 6, False), ("ours.peak_rss_mb", 400, True))
]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Small events, then large ones."""
    document: dict[str, Any] = {"server": "mongodb", "rows": options.rows}
    for kind, alike, events in (
        ("small", mongodb_events.SMALL, options.rows),
        ("wide", mongodb_events.WIDE, options.rows // WIDE_SHARE),
    ):
        copies = max(1, round(events / alike))
        document[kind] = _measure_kind(options, kind, copies, copies * alike, folder / kind)
    document["load"] = machine.load()
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


def _measure_kind(options: argparse.Namespace, kind: str, copies: int, events: int, folder: Path) -> dict[str, Any]:
    rival = not options.skip_debezium
    report = Report(5 + 2 * rival)
    with report.step(f"{kind} events, made once") as step:
        file = mongodb_events.ensure(kind, step.progress)
        step.done(f"{events:,} events of {file.stat().st_size * copies // events:,} bytes")
    if rival:
        with report.step("Debezium") as step:
            debezium.ensure(step)
    with MongoDb({"replay": {"file": str(file), "copies": copies, "held": True}}) as server:
        collection = f"{DATABASE}.{COLLECTION}"
        expected = {"collection.include.list": collection, "capture.mode": MODE, "snapshot.mode": "no_data"}
        ours = OwnConnector.without_server(
            "mongodb", folder / "ours", expected, {"mongodb.connection.string": server.url()}
        )
        with report.step("start before the events") as step, server.connect() as client:
            ours.run(step.progress)
            client.admin.command(RELEASE)
        with report.step("the driver fetches them, and that is all") as step:
            fetch = min((_measure_fetch(server) for _ in range(options.repeat)), key=lambda one: one["cpu_s"])
            step.done(f"{events / fetch['seconds']:,.0f} a second, {fetch['cpu_s']:.1f} CPU s")
        before = machine.cpu_s(server.pid or 0, children=False)
        runs = measured_runs(argparse.Namespace(rows=events, repeat=options.repeat), report, ours, folder)
        took = machine.cpu_s(server.pid or 0, children=False) - before
        summed = figures.summed_up(runs, "events")
        summed |= {"stages": runs[0]["stages"], "server_cpu_s": round(took / (options.repeat + 2), 2)}
        theirs = None
        if rival:
            other = debezium.Debezium.mongodb(server.url(), collection, folder / "debezium", **{"capture.mode": MODE})
            before = machine.cpu_s(server.pid or 0, children=False)
            with report.step("Debezium captures") as step:
                theirs = figures.summed_up([measure_run(other.run(events, step.progress), step)], "events")
            theirs["server_cpu_s"] = round(machine.cpu_s(server.pid or 0, children=False) - before, 2)
    document = figures.build_document(summed, theirs, "events") | {"fetch": fetch}
    print(f"\n{figures.table(document, 'events')}\n\n{figures.shares_text(summed['stages'])}")
    print(f"\n{'driver alone, CPU seconds':<34}{fetch['cpu_s']:>14.2f}")
    print(f"{'the server, CPU seconds':<34}{summed['server_cpu_s']:>14.2f}\n")
    return document


def _measure_fetch(server: MongoDb) -> dict[str, Any]:
    """Measure the time that the driver takes to fetch the events raw, in a separate process."""
    command = [sys.executable, "-m", "dev.benchmarks.programs.run_mongodb_fetch", server.url()]
    done = subprocess.run(command, cwd=paths.ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        raise Problem(f"The fetch ended with {done.returncode}:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
