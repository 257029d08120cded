"""A benchmark of a connector with many small tables, with as few open files as a plain shell allows.

It measures a snapshot of all of them, changes over all of them in turns, and the apply of both by a separate process, from the
start of its JVM to its end.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.warm_process import ApplyProcess
from dev.benchmarks.load.workload import DATABASE, RowWriter
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap import jars
from dev.bootstrap.report import Problem, Report, Step
from dev.servers.mysql_family import MySqlFamily

TABLES, ROWS, CHANGES, ROUNDS = 1000, 1000, 100, 10
"""How many tables, rows of each, changes of each, and in how many rounds over all of them these are made."""
OPEN_FILES = 256
BARS = [
    Bar("snapshot.peak_rss_mb", 500, at_most=True),
    Bar("stream.peak_rss_mb", 500, at_most=True),
    Bar("apply.seconds_per_table", 0.15, at_most=True),
]


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """``--tables`` of a thousand rows each, with a hundred changes each."""
    tables, target = options.tables or TABLES, options.target or "delta"
    report = Report(6)
    ours = OwnConnector.mysql(
        server, options.server, rf"{DATABASE}\.t\d+", folder / "ours", **{"database.include.list": DATABASE}
    )
    document: dict[str, Any] = {"tables": tables, "rows": tables * ROWS, "changes": tables * CHANGES, "target": target}
    with report.step("Spark's jars") as step:
        found = jars.ensure(target, step=step)
    with server.connect(autocommit=False) as connection:
        with report.step(f"{tables:,} tables of {ROWS:,} rows") as step:
            names = _make(RowWriter(connection, step.progress), connection, tables, step)
        with report.step("snapshot") as step:
            document["snapshot"] = _measure_capture(ours, tables * ROWS, step)
        with report.step("apply of the snapshot") as step:
            document["load"] = _measure_apply(ours, folder, target, found, tables * ROWS, step)
        with report.step(f"{tables * CHANGES:,} changes, captured") as step:
            _change(connection, names, step)
            document["stream"] = _measure_capture(ours, tables * CHANGES, step)
    with report.step("apply of the changes") as step:
        document["apply"] = _measure_apply(ours, folder, target, found, tables * CHANGES, step)
    document |= {"server": options.server, "machine_load": machine.load()}
    print(f"\n{table(document)}")
    print(
        f"\nLoad average at the end: {document['machine_load']}. Figures count only from a machine that does nothing else."
    )
    return document, BARS


def table(document: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{document['tables']:,} tables{'seconds':>20}{'per table, ms':>16}{'CPU s':>10}{'peak MB':>10}{'open files':>12}"
    ]
    for name in ("snapshot", "load", "stream", "apply"):
        one = document[name]
        figures = f"{one['seconds']:>20.1f}{1000 * one['seconds'] / document['tables']:>16.0f}"
        if "cpu_s" in one:
            figures += f"{one['cpu_s']:>10.1f}{one['peak_rss_mb']:>10,.0f}{one['open_files']:>12}"
        lines.append(f"{TITLES[name]:<{len(lines[0].split(' tables')[0]) + 7}}{figures}")
    return "\n".join(lines)


TITLES = {"snapshot": "snapshot", "load": "its apply", "stream": "changes", "apply": "their apply"}


def _make(work: RowWriter, connection: Any, tables: int, step: Step) -> list[str]:
    """Equal tables; returns their names."""
    work.prepare("t0")
    work.fill("t0", ROWS)
    names, cursor = [f"t{number}" for number in range(tables)], connection.cursor()
    for name in names[1:]:
        cursor.execute(f"CREATE TABLE {name} LIKE t0")
        cursor.execute(f"INSERT INTO {name} SELECT * FROM t0")
        connection.commit()
        step.progress(f"{name} of {tables:,}")
    return names


def _change(connection: Any, names: list[str], step: Step) -> None:
    """A tenth of the changes of each table in each round, so that all tables are in the log all the time: 60 % updates, 30 % inserts, 10 % deletes."""
    each = CHANGES // ROUNDS
    inserts, deletes = each * 3 // 10, each // 10
    updates, cursor = each - inserts - deletes, connection.cursor()
    for number in range(ROUNDS):
        for name in names:
            low = 1 + number * updates
            cursor.execute(
                f"UPDATE {name} SET qty = COALESCE(qty, 0) + 1 WHERE id BETWEEN {low} AND {low + updates - 1}"
            )
            cursor.execute(
                f"INSERT INTO {name} SELECT id + {10 * ROWS * (number + 1)}, name, amount, created, qty, score, note, flag FROM {name} WHERE id <= {inserts}"
            )
            cursor.execute(
                f"DELETE FROM {name} WHERE id BETWEEN {ROWS - (number + 1) * deletes + 1} AND {ROWS - number * deletes}"
            )
            connection.commit()
        step.progress(f"round {number + 1} of {ROUNDS}")


def _measure_capture(ours: OwnConnector, events: int, step: Step) -> dict[str, Any]:
    found = ours.run(step.progress, files=OPEN_FILES)
    if found["events"] != events:
        raise Problem(f"{found['events']:,} events were captured instead of {events:,}: the figures mean nothing.")
    step.done(f"{found['seconds']:.1f} s, {found['peak_rss_mb']:.0f} MB, {found['open_files']} open files")
    return {name: found[name] for name in ("seconds", "cpu_s", "peak_rss_mb", "open_files", "batches")}


def _measure_apply(
    ours: OwnConnector, folder: Path, target: str, jars_: list[Path], events: int, step: Step
) -> dict[str, Any]:
    location = f"{folder}/lake/{{table}}"
    with ApplyProcess(ours.changelog, location, target, jars_, folder / "apply.log") as process:
        seconds = process.wait(longest_s=3600)
    (report,) = ApplyReports(Storage(str(ours.changelog)), "bench").list_reports()
    found = sum(sum(one["rows"].values()) for one in report["tables"])
    if found != events:
        raise Problem(f"{found:,} events were applied instead of {events:,}: the figures mean nothing.")
    each = seconds / len(report["tables"])
    step.done(f"{seconds:.0f} s, {each:.3f} s a table")
    return {"seconds": round(seconds, 1), "seconds_per_table": round(each, 4)}
