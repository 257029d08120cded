"""``dev/bench capture | snapshot | incremental | apply | freshness | oracle | db2 | fixed | tables | years | fleet | jdbc | mongodb | page | readers``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_cdc.targets.lake.formats.format_descriptor import PROFILES
from dev import paths
from dev.benchmarks.apply import apply
from dev.benchmarks.capture import db2, incremental, mongodb, oracle, readers
from dev.benchmarks.connector import fixed, fleet, freshness, tables, years
from dev.benchmarks.database import jdbc
from dev.benchmarks.engines import debezium
from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.runs import measure_run, measured_runs
from dev.benchmarks.load.workload import DATABASE, TRANSACTION_ROWS, RowWriter
from dev.benchmarks.measure import figures, machine, visible
from dev.benchmarks.measure.figures import Bar
from dev.benchmarks.page import page
from dev.bootstrap.report import Problem, Report
from dev.servers import MariaDb, MySql
from dev.servers.mysql_family import MySqlFamily

CAPTURE_BARS = [
    Bar("ratio.events_per_cpu_s", 12),
    Bar("ratio.events_per_s", 8),
    Bar("ours.peak_rss_mb", 500, at_most=True),
]
SNAPSHOT_BARS = [Bar("ratio.rows_per_s", 5), Bar("ours.peak_rss_mb", 500, at_most=True)]
_WITHOUT_SERVER = {
    "oracle": oracle.run,
    "db2": db2.run,
    "apply": apply.run,
    "fixed": fixed.run,
    "fleet": fleet.run,
    "jdbc": jdbc.run,
    "mongodb": mongodb.run,
    "page": page.run,
}
_BIG = {"innodb_buffer_pool_size": "512M", "max_binlog_size": "1G", "sync_binlog": 0}


def main() -> int:
    options = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="cdc-bench-", dir=_scratch()))
    try:
        if options.what in _WITHOUT_SERVER:
            document, bars = _WITHOUT_SERVER[options.what](options, folder)
        else:
            with _server(options.server) as server:
                benches = {
                    "capture": _capture,
                    "snapshot": _snapshot,
                    "freshness": freshness.run,
                    "incremental": incremental.run,
                    "tables": tables.run,
                    "years": years.run,
                    "readers": readers.run,
                }
                bench = benches[options.what]
                document, bars = bench(options, server, folder)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text, fine = figures.verdicts(bars, document)
    print(f"\n{text}" if text else "")
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
        print(f"Written to {options.json}.")
    return 0 if fine or not options.check else 1


def _capture(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Row events that are in the binary log already."""
    table, rival = f"{DATABASE}.stream", not options.skip_debezium
    report = Report(4 + 3 * rival)
    ours = OwnConnector.mysql(server, options.server, table, folder / "ours")
    other = debezium.Debezium(server, options.server, table, folder / "debezium")
    if rival:
        with report.step("Debezium") as step:
            debezium.ensure(step)
    with server.connect(autocommit=False) as connection:
        with report.step("start at an empty table") as step:
            work = RowWriter(connection, step.progress)
            work.prepare("stream")
            ours.run(step.progress)
        if rival:
            with report.step("start of Debezium") as step:
                other.run(0, step.progress, idle_s=8)
        with report.step(f"{options.rows:,} row events into the binary log") as step:
            rows = options.transaction_rows or TRANSACTION_ROWS
            RowWriter(connection, step.progress, rows).stream("stream", options.rows)
    runs = measured_runs(options, report, ours, folder)
    theirs = None
    if rival:
        with report.step("Debezium captures") as step:
            theirs = figures.summed_up([measure_run(other.run(options.rows, step.progress), step)], "events")
    return _document(options, runs, theirs, "events"), CAPTURE_BARS


def _snapshot(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """A table that is read whole."""
    table, rival = f"{DATABASE}.whole", not options.skip_debezium
    report = Report(3 + 2 * rival)
    if rival:
        with report.step("Debezium") as step:
            debezium.ensure(step)
    with (
        server.connect(autocommit=False) as connection,
        report.step(f"a table of {options.rows:,} rows") as step,
    ):
        work = RowWriter(connection, step.progress)
        work.prepare("whole")
        work.fill("whole", options.rows)
        connection.cursor().execute(f"ANALYZE TABLE {table}")
    runs = measured_runs(options, report, OwnConnector.mysql(server, options.server, table, folder / "ours"), folder)
    theirs = None
    if rival:
        other = debezium.Debezium(server, options.server, table, folder / "debezium")
        with report.step("Debezium reads the table") as step:
            theirs = figures.summed_up([measure_run(other.run(options.rows, step.progress), step)], "rows")
    return _document(options, runs, theirs, "rows"), SNAPSHOT_BARS


def _document(
    options: argparse.Namespace, runs: list[dict[str, Any]], theirs: dict[str, Any] | None, unit: str
) -> dict[str, Any]:
    ours = {**figures.summed_up(runs, unit), "stages": runs[0]["stages"]}
    document = figures.build_document(ours, theirs, unit)
    document |= {"server": options.server, "rows": options.rows, "load": machine.load()}
    print(f"\n{figures.table(document, unit)}\n\n{figures.shares_text(ours['stages'])}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document


@contextmanager
def _server(kind: str) -> Iterator[MySqlFamily]:
    """A separate server, with room for the work."""
    server: MySqlFamily
    if kind == "mariadb":
        server = MariaDb({**_BIG, "innodb_log_file_size": "256M"})
    else:
        server = MySql({**_BIG, "innodb_redo_log_capacity": "512M"}, edition="9.7")
    print(f"Starting {kind} …", flush=True)
    with server:
        yield server


def _scratch() -> Path:
    paths.RUN.mkdir(parents=True, exist_ok=True)
    return paths.RUN


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev/bench", description=__doc__)
    parser.add_argument(
        "what",
        choices=[
            "capture",
            "snapshot",
            "incremental",
            "apply",
            "freshness",
            "oracle",
            "db2",
            "fixed",
            "tables",
            "years",
            "fleet",
            "jdbc",
            "mongodb",
            "page",
            "readers",
        ],
    )
    parser.add_argument("--rows", type=int, help="row events or rows (1,000,000)", default=1_000_000)
    parser.add_argument("--server", choices=["mariadb", "mysql"], default="mariadb")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours, of which the median counts (3)")
    parser.add_argument("--skip-debezium", action="store_true", help="measure ours only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument(
        "--variant", action="append", choices=[name for name in incremental.OURS if name != "ours"],
        help="besides ours, measure this form of it only; may be repeated (incremental; all of them)",
    )  # fmt: skip
    parser.add_argument("--load", action="store_true", help="keep one core busy meanwhile (incremental)")
    parser.add_argument(
        "--seconds", type=int, default=600, help="how long it is measured (freshness: the warm form; fleet; 600)"
    )
    parser.add_argument(
        "--target", choices=sorted(visible.KINDS), help="kind of tables (freshness, tables: delta; apply: all)"
    )
    parser.add_argument("--profile", choices=PROFILES, help="of the tables (freshness: compatible; apply: all)")
    parser.add_argument("--cases", default=apply.CASES, help="which ones, a letter each (apply; abcde)")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(apply.SIZES),
        help="of case b, in multiples of --rows (apply; 1 5 20)",
    )
    parser.add_argument(
        "--tables", type=int, help="small tables (apply: 200; tables, years: 1,000), of each connector (page: 1,000)"
    )
    parser.add_argument("--connectors", type=int, help="how many (fleet, page; 200)")
    parser.add_argument("--group", type=int, help="how many of them are captured by one task (fleet; 25)")
    parser.add_argument(
        "--transaction-rows",
        type=int,
        help="changes of a transaction (capture, db2: 1,000; jdbc: of all in one, for its memory)",
    )
    parser.add_argument(
        "--databases", nargs="+", choices=jdbc.DATABASES, default=list(jdbc.DATABASES), help="which ones (jdbc; both)"
    )
    parser.add_argument("--batches", type=int, help="batches in a row (apply: 500), of the history (years: 200,000)")
    parser.add_argument("--sources", nargs="+", choices=fixed.SOURCES, help="kinds of sources (fixed; all of them)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is not met")
    options = parser.parse_args()
    if options.rows < 10 or options.repeat < 1:
        parser.error("--rows must be at least 10 and --repeat at least 1")
    if options.seconds < 10:
        parser.error("--seconds must be at least 10")
    if not options.cases or set(options.cases) - set(apply.CASES):
        parser.error(f"--cases must be letters of {apply.CASES}")
    if (options.load or options.variant) and options.what != "incremental":
        parser.error("--load and --variant are for incremental")
    return options


if __name__ == "__main__":
    sys.exit(main())
