"""A merge of changed rows into a Delta table ten times their number, from a real change log, in a warm session."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from dev.benchmarks import machine
from dev.benchmarks.figures import Bar
from dev.benchmarks.ours import Ours
from dev.benchmarks.workload import DATABASE, Work
from dev.bootstrap import jars
from dev.bootstrap.report import Report
from dev.servers.mysql_family import MySqlFamily


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Fill, capture, apply; then change a tenth of the rows, capture, and apply again, as often as asked."""
    changed = options.rows // 10
    report = Report(3 + options.repeat)
    ours = Ours.mysql(server, options.server, f"{DATABASE}.lake", folder / "ours")
    with server.connect(autocommit=False) as connection:
        with report.step(f"a table of {options.rows:,} rows, captured") as step:
            work = Work(connection, step.progress)
            work.prepare("lake")
            work.fill("lake", options.rows)
            ours.run(step.progress)
        with report.step("Spark") as step:
            job = _job(ours, folder, jars.ensure("delta", step=step))
        with report.step("all rows into a new Delta table") as step:
            load_s = _timed(job)
            step.done(f"{options.rows / load_s:,.0f} rows a second")
        merges = []
        for number in range(options.repeat):
            with report.step(f"{changed:,} changed rows, merge {number + 1}") as step:
                first = 1 + number * changed // 2  # some rows change twice
                Work(connection, step.progress).change("lake", changed * 8 // 10, first=first)
                Work(connection, step.progress).fill(
                    "lake", changed - changed * 8 // 10, first=options.rows + 1 + number * changed
                )
                ours.run(step.progress)
                step.progress("merging")
                merges.append(_timed(job))
                step.done(f"{changed / merges[-1]:,.0f} rows a second")
    merge_s = sorted(merges)[(len(merges) - 1) // 2]
    figures = {
        "rows_per_s": round(changed / merge_s),
        "merge_s": round(merge_s, 2),
        "load_rows_per_s": round(options.rows / load_s),
        "load_s": round(load_s, 2),
        "runs": len(merges),
    }
    print(f"\n{'rows merged per second':<26}{figures['rows_per_s']:>14,}\n{'seconds of a merge':<26}{merge_s:>14.2f}")
    print(
        f"{'rows loaded per second':<26}{figures['load_rows_per_s']:>14,}\n{'seconds of the load':<26}{load_s:>14.2f}"
    )
    document = {"ours": figures, "server": options.server, "rows": options.rows, "load": machine.load()}
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, []


def _job(ours: Ours, folder: Path, jars_: list[Path]) -> Any:
    from airflow_provider_cdc.changelog.log import ChangeLog
    from spark_jobs.apply_changes import ApplyChanges
    from spark_jobs.session import session
    from spark_jobs.targets import load_format

    extra = {
        "spark.master": "local[*]",
        "spark.jars": ",".join(map(str, jars_)),
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
    }
    spark = session("bench", load_format("delta"), extra=extra)
    return ApplyChanges(spark, ChangeLog(str(ours.changelog)), "bench", location=f"{folder}/lake/{{table}}")


def _timed(job: Any) -> float:
    began = time.perf_counter()
    job.run()
    return time.perf_counter() - began
