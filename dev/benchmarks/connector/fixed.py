"""The cost of a run that finds nothing: wall time, CPU and memory of a whole process, for each kind of source.

Beside it the cost that each run has: Python itself, and the import of Airflow's SDK, which each task has paid before it begins. Bytecode is warm
and kernels are compiled, as on a worker that has run before; each figure is the median of ``--repeat`` processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_cdc.state.state_store import StateStore
from dev import paths
from dev.benchmarks.engines.ours import OwnConnector, environment
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report, Step
from dev.servers import Db2, MariaDb, MySql, Oracle

_PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
ALONE = {"python -c pass": "pass", "import airflow.sdk": "import airflow.sdk; airflow.sdk.BaseOperator"}
SOURCES = ("memory", "mariadb", "mysql", "oracle", "db2")
BARS = [
    bar
    for source in ("mariadb", "mysql", "oracle", "db2")
    for bar in (Bar(f"{source}.cpu_s", 1.0, at_most=True), Bar(f"{source}.seconds", 1.5, at_most=True))
]


def memory_database() -> Any:
    """A table of the memory source, the same one in each process."""
    from airflow_provider_cdc.sources.memory.database import MemoryDatabase

    database = MemoryDatabase("bench")
    database.create_table("bench.quiet", {"id": "int64!"}, key=("id",))
    with database.transaction() as transaction:
        transaction.insert("bench.quiet", {"id": 1})
    return database


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Each source in turn: a first run captures a table of one row, the next ones find nothing more."""
    sources = options.sources or SOURCES
    report = Report(len(ALONE) + len(sources))
    document: dict[str, Any] = {}
    for name, text in ALONE.items():
        with report.step(name) as step:
            document[name] = _median([sys.executable, "-c", f"{text}\n{_PEAK}"], options.repeat, step)
    for kind in sources:
        with report.step(kind) as step:
            step.progress("starting")
            with _CONNECTORS[kind](folder / kind) as ours:
                document[kind] = _empty_runs(ours, options.repeat, step)
    print(f"\n{table(document)}")
    document["load"] = machine.load()
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, BARS


def table(document: dict[str, dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{'an empty run':<24}{'seconds':>10}{'CPU s':>10}{'peak MB':>10}  imported"]
    for name, found in document.items():
        figures = f"{found['seconds']:>10.2f}{found['cpu_s']:>10.2f}{found['peak_rss_mb']:>10,.0f}"
        lines.append(f"{name:<24}{figures}  {', '.join(found.get('imported', []))}".rstrip())
    return "\n".join(lines)


def _empty_runs(ours: OwnConnector, repeat: int, step: Step) -> dict[str, Any]:
    command = ours.command("dev.benchmarks.programs.run_fixed")
    ours.folder.mkdir(parents=True, exist_ok=True)
    StateStore(f"sqlite:///{ours.folder}/state.db").create_tables()
    for _ in range(3):  # the first reads the table, the next one may find what that has left in the log
        _run_once(command)
    return _median(command, repeat, step)


def _median(command: list[str], repeat: int, step: Step) -> dict[str, Any]:
    _run_once(command)
    runs = [_run_once(command) for _ in range(repeat)]
    found = {
        "seconds": round(statistics.median(run["seconds"] for run in runs), 3),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 3),
        "peak_rss_mb": round(max(run["peak_rss_mb"] for run in runs), 1),
        "runs": repeat,
    }
    if "events" in runs[0]:
        if events := sum(run["events"] for run in runs):
            raise Problem(f"{events} events were captured in runs that were to find nothing: the figures mean nothing.")
        found["imported"] = runs[-1]["imported"]
    step.done(f"{found['seconds']:.2f} s, {found['cpu_s']:.2f} CPU s, {found['peak_rss_mb']:.0f} MB")
    return found


def _run_once(command: list[str]) -> dict[str, Any]:
    """Run a command as a process, and measure it from its start to its end.

    :raises Problem: it failed
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=paths.ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        raise Problem(f"The run ended with {process.returncode}:\n{errors[-4000:]}")
    # ru_maxrss would be that of this process, from which the other one was forked
    document = json.loads(out.splitlines()[-1]) if out.startswith("{") else {"peak_rss_mb": int(out.split()[1]) / 1024}
    return {"seconds": seconds, "cpu_s": usage.ru_utime + usage.ru_stime} | document


@contextmanager
def _memory(folder: Path) -> Iterator[OwnConnector]:
    yield OwnConnector.without_server(
        "memory", folder, {"table.include.list": "bench.quiet", "memory.database": "bench"}, {}
    )


@contextmanager
def _mysql_family(kind: str, folder: Path) -> Iterator[OwnConnector]:
    with MariaDb() if kind == "mariadb" else MySql(edition="9.7") as server:
        server.sql(
            "CREATE DATABASE bench",
            "CREATE TABLE bench.quiet (id INT PRIMARY KEY)",
            "INSERT INTO bench.quiet VALUES (1)",
        )
        yield OwnConnector.mysql(server, kind, "bench.quiet", folder)


@contextmanager
def _mariadb(folder: Path) -> Iterator[OwnConnector]:
    with _mysql_family("mariadb", folder) as ours:
        yield ours


@contextmanager
def _mysql(folder: Path) -> Iterator[OwnConnector]:
    with _mysql_family("mysql", folder) as ours:
        yield ours


@contextmanager
def _oracle(folder: Path) -> Iterator[OwnConnector]:
    with Oracle() as server:
        properties = {"database.dbname": server.database, "log.mining.strategy": "online_catalog"}
        if server.pdb:
            properties["database.pdb.name"] = server.pdb
        server.serve_rows(1, "QUIET")  # makes the table
        server.serve_rows(0)
        yield OwnConnector(server, "oracle", f"{server.owner}.QUIET", folder, **properties)


@contextmanager
def _db2(folder: Path) -> Iterator[OwnConnector]:
    with Db2() as server:
        properties = {"database.dbname": server.database, "database.authentication": "server"}
        server.serve_changes(1000, "QUIET", schema="BENCH")  # makes the table
        names = ("BENCH.QUIET", "ASNCDC.CDC_BENCH_QUIET")
        server.sql(*(f"GRANT SELECT ON TABLE {name} TO USER {server.user}" for name in names))
        server.prune()
        server.catch_up()
        yield OwnConnector(server, "db2", "BENCH.QUIET", folder, **properties)


_CONNECTORS: dict[str, Callable[[Path], AbstractContextManager[OwnConnector]]] = {
    "memory": _memory, "mariadb": _mariadb, "mysql": _mysql, "oracle": _oracle, "db2": _db2,
}  # fmt: skip
