"""Capture of rows of ``V$LOGMNR_CONTENTS`` that are served as fast as the driver takes them, and its parts alone.

The server is ours (``dev/servers/oracle``): what it costs an Oracle to mine its log is not measured here. What is measured is everything
behind it: the driver's fetch, the redo parser, the way into the change log. LogMiner itself is slower than all of them, so a capture also runs
beside a server that gives rows at a pace: as far as work is done while the server makes the next rows, it costs no time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dev.benchmarks.engines.ours import OwnConnector
from dev.benchmarks.engines.runs import measured_runs
from dev.benchmarks.measure import figures, machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report
from dev.servers import Oracle
from dev.servers.oracle.redo.benchmark_rows import INSERT

TABLE = "BENCH"
DEBEZIUM_EVENTS_PER_S = 40_000
"""Published for LogMiner with four tuned columns; nothing of Debezium runs here, as it would need an Oracle."""
PARSED_AT_A_TIME = 32_768
PACE = 100_000
"""Rows a second of a fast LogMiner: more than twice what Debezium publishes for all of its work."""
OPEN_RUNS = 30
OPEN_SHARE = 0.1
"""Changes of the transaction that stays open, by those of all others."""
BARS = [
    Bar("ours.parser_rows_per_s", 400_000),
    Bar("ours.peak_rss_mb", 600, at_most=True),
    Bar("open.ratio", 1.2, at_most=True),
    Bar("paced.share", 0.85),
]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Serve rows, capture them; fetch them and do nothing; parse their texts on one core; capture in many runs while a transaction is open."""
    report = Report(8)
    print("Starting the Oracle test server …", flush=True)
    with Oracle() as server:
        properties = {"database.dbname": server.database, "log.mining.strategy": "online_catalog"}
        if server.pdb:
            properties["database.pdb.name"] = server.pdb
        ours = OwnConnector(server, "oracle", f"{server.owner}.{TABLE}", folder / "ours", **properties)
        with report.step("start at an empty table") as step:
            server.serve_rows(1, TABLE)  # makes the table
            server.serve_rows(0)
            ours.run(step.progress)
        with report.step(f"{options.rows:,} LogMiner rows to serve"):
            served = server.serve_rows(options.rows, TABLE)
            _time_fetch(server, served)  # the server encodes them when they are asked for first
        runs = measured_runs(options, report, ours, folder)
        with report.step("the driver fetches them, and that is all") as step:
            fetch = max(options.rows / _time_fetch(server, served) for _ in range(options.repeat))
            step.done(f"{fetch:,.0f} a second")
        paced = _measure_paced_capture(options, report, server, folder, properties)
        opened = _open(options, report, server, folder, properties)
    with report.step("the redo parser alone, on one core") as step:
        parser = _measure_parser(options.rows, options.repeat)
        step.done(f"{parser:,.0f} a second")
    summed = figures.summed_up(runs, "rows")
    summed |= {"parser_rows_per_s": round(parser), "fetch_rows_per_s": round(fetch), "stages": runs[0]["stages"]}
    document: dict[str, Any] = {"ours": summed, "published": {"debezium_events_per_s": DEBEZIUM_EVENTS_PER_S}}
    document |= {"server": "oracle", "rows": options.rows, "open": opened, "paced": paced, "load": machine.load()}
    print(f"\n{figures.table(document, 'rows')}\n\n{figures.shares_text(summed['stages'])}")
    print(
        f"\n{'driver alone, rows a second':<34}{fetch:>14,.0f}\n{'redo parser alone, rows a second':<34}{parser:>14,.0f}"
    )
    print(f"{'Debezium, as published':<34}{DEBEZIUM_EVENTS_PER_S:>14,.0f}")
    print(f"{f'where LogMiner gives {PACE:,}':<34}{paced['rows_per_s']:>14,.0f}")
    print(
        f"\nA transaction that is open over {OPEN_RUNS} runs: {opened['rows']:,} rows, {opened['mined']:,} mined, {opened['ratio']:.3f} times; "
        f"a run takes {opened['first_s']:.1f} s at first, {opened['last_s']:.1f} s at last"
    )
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


def _measure_paced_capture(
    options: argparse.Namespace, report: Report, server: Oracle, folder: Path, properties: dict[str, Any]
) -> dict[str, Any]:
    """Measure a capture from a server that gives :data:`PACE` rows a second, beside the driver alone."""
    table = f"{TABLE}_PACED"
    ours = OwnConnector(server, "oracle", f"{server.owner}.{table}", folder / "paced", **properties)
    with report.step(f"ours captures where LogMiner gives {PACE:,} rows a second") as step:
        server.serve_rows(1, table)
        server.serve_rows(0)
        ours.run(step.progress)
        served = server.serve_rows(options.rows, table, pace=PACE)
        _time_fetch(server, served)  # the server encodes them when they are asked for first
        fetch = _time_fetch(server, served)
        run = ours.run(step.progress)
        if run["events"] != options.rows:
            raise Problem(
                f"{run['events']:,} events were captured instead of {options.rows:,}: the figures mean nothing."
            )
        share = fetch / run["seconds"]
        step.done(f"{options.rows / run['seconds']:,.0f} a second, {share:.2f} of the driver alone")
    return {
        "rows_per_s": round(options.rows / run["seconds"]), "fetch_rows_per_s": round(options.rows / fetch),
        "share": round(share, 3), "seconds": run["seconds"], "cpu_s": run["cpu_s"],
    }  # fmt: skip


def _open(
    options: argparse.Namespace, report: Report, server: Oracle, folder: Path, properties: dict[str, Any]
) -> dict[str, Any]:
    """Many runs while one transaction is open from the first row to the last: what is mined in all, by the rows that there are."""
    table = f"{TABLE}_OPEN"
    ours = OwnConnector(server, "oracle", f"{server.owner}.{table}", folder / "open", **properties)
    with report.step(f"{OPEN_RUNS} runs while a transaction is open") as step:
        server.serve_rows(1, table)
        server.serve_rows(0)
        ours.run(step.progress)
        count = max(1, int(options.rows * OPEN_SHARE))
        served = server.serve_rows(options.rows, table, open_rows=count, later=1)
        _time_fetch(server, served)  # the server encodes them when they are asked for first
        per_run = -(-(served["last"] + 10 - served["first"]) // OPEN_RUNS)
        runs = []
        for number in range(OPEN_RUNS):
            server.jump_scn(per_run)
            runs.append(ours.run(step.progress))
            step.progress(f"{number + 1} runs")
        events, mined = sum(run["events"] for run in runs), sum(run["mined"] for run in runs)
        if events != served["rows"]:
            raise Problem(f"{events:,} events were captured instead of {served['rows']:,}: the figures mean nothing.")
        rows = served["last"] - served["first"]
        step.done(f"{mined / rows:.3f} times the rows were mined")
    return {
        "rows": rows, "mined": mined, "ratio": round(mined / rows, 4), "runs": OPEN_RUNS, "events": events,
        "first_s": runs[0]["seconds"], "last_s": runs[-2]["seconds"], "commit_s": runs[-1]["seconds"],
        "peak_rss_mb": max(run["peak_rss_mb"] for run in runs),
    }  # fmt: skip


def _time_fetch(server: Oracle, served: dict[str, int]) -> float:
    """Seconds of a fetch of all rows with the columns that capture asks for."""
    from airflow_provider_cdc.core.config.capture_filters import Filters
    from airflow_provider_cdc.sources.oracle.config import OracleConfig
    from airflow_provider_cdc.sources.oracle.mining.session import MiningSession

    config = OracleConfig.parse(
        {
            "topic.prefix": "bench", "database.hostname": server.host, "database.port": server.port,
            "database.user": server.user, "database.password": server.password, "database.dbname": server.database,
            "log.mining.strategy": "online_catalog", **({"database.pdb.name": server.pdb} if server.pdb else {}),
        }
    )  # fmt: skip
    with MiningSession(config, Filters(config)) as session:
        session.open_window(served["first"], served["last"])
        began = time.perf_counter()
        count = sum(batch.num_rows for batch in session._batches(served["first"], served["last"]))
        seconds = time.perf_counter() - began
    assert count >= served["rows"], (count, served)
    return seconds


def _measure_parser(rows: int, repeat: int) -> float:
    """Rows a second of one core, in the best run."""
    from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
    from airflow_provider_cdc.sources.oracle.config import OracleConfig
    from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
    from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column

    config = OracleConfig.parse(
        {"topic.prefix": "b", "database.hostname": "h", "database.user": "u", "database.dbname": "d"}
    )
    table = TableId(namespace="APP", name=TABLE)
    types = {
        "ID": "NUMBER(19)", "CUSTOMER": "NUMBER(9)", "AMOUNT": "NUMBER(12,2)", "STATUS": "VARCHAR2(10)",
        "NOTE": "VARCHAR2(100)", "CREATED": "DATE", "CHANGED": "TIMESTAMP(6)", "PRICE": "NUMBER",
    }  # fmt: skip
    columns = [make_column(table, n, ColumnType.parse(t), config, nullable=True) for n, t in types.items()]
    reader = RedoReader(TableSchema(id=table, columns=tuple(columns)), config)
    texts = [
        INSERT.format(
            owner="APP", table=TABLE, row=row, customer=row % 9973, amount=row % 7919, cents=row % 100,
            status=("NEW", "PAID", "SENT")[row % 3], price=f"{row % 1009}.{row % 7 + 1}",
        )
        for row in range(PARSED_AT_A_TIME)
    ]  # fmt: skip
    given, codes = pa.array(texts), np.ones(len(texts), np.int16)
    reader.read(given, codes)
    rounds, best = max(1, rows // PARSED_AT_A_TIME), 0.0
    for _ in range(repeat):
        began = time.process_time()  # it has one thread
        for _ in range(rounds):
            reader.read(given, codes)
        best = max(best, rounds * len(texts) / (time.process_time() - began))
    return best
