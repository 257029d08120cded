"""Many connectors under one real Airflow on PostgreSQL, with a scheduler, a triggerer and an API server of their own: what they hold and what
they cost while a tenth of them has changes in each minute, and how long a change takes from its commit to the change log.

Each connector captures one table of a MariaDB. A quarter of them are of a second server, which is stopped half way and started again. As few servers have many
connectors, each change wakes all those of its server: they are captured in groups (:func:`~airflow_provider_cdc.dag.group_dag.cdc_group_dag`), or with ``--group 1`` each
by a separate DAG.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from dev.airflow import Airflow, Services
from dev.benchmarks.connector.fleet_sources import Connectors
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report, Step
from dev.servers import MariaDb, Postgres

CONNECTORS, GROUP, CONNECTIONS = 200, 25, 100
"""How many there are, how many of them are captured by one task, and ``max_connections`` of PostgreSQL: its default."""
POLL_S, LONGEST_S = 5.0, 1800.0
DOWN = 0.1
"""Part of the time for which the second server is down."""
BARS = [
    Bar("lost", 0, at_most=True),
    Bar("failed_runs", 0, at_most=True),
    Bar("connections.most", CONNECTIONS - 1, at_most=True),
]
_WAITING = "SELECT count(DISTINCT dag_id) FROM task_instance WHERE state = 'deferred'"
_FAILED = "SELECT count(*) FROM dag_run WHERE state = 'failed'"
_AGAIN = "SELECT count(*) FROM task_instance WHERE try_number > 1"
_RUNS = "SELECT count(*) FROM dag_run WHERE state = 'success'"


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """``--connectors`` for ``--seconds``, in groups of ``--group``."""
    count, group, report = options.connectors or CONNECTORS, options.group or GROUP, Report(4)
    with (
        Postgres({"max_connections": CONNECTIONS}) as postgres,
        MariaDb() as first,
        MariaDb() as second,
        postgres.database("airflow") as name,
    ):
        with report.step(f"Airflow, and {count} connectors") as step:
            step.progress("Airflow's database")
            connectors = Connectors([first, second], count, folder, group)
            airflow = _airflow(postgres, name, folder, connectors)
        with Services(airflow) as services:
            with report.step("their first runs") as step:
                began = time.monotonic()
                _until_all_wait(postgres, name, connectors.dags, step)
                first_s = time.monotonic() - began
            fleet = _Fleet(postgres, name, services, connectors)
            with report.step(f"changes for {options.seconds} s") as step:
                document = fleet.measured(options.seconds, step)
            with report.step("what was written last is captured") as step:
                fleet.until_captured(step, document)
    document = {"connectors": count, "dags": connectors.dags, "first_runs_s": round(first_s, 1), **document}
    document["machine_load"] = machine.load()
    print(f"\n{table(document)}")
    print(
        f"\nLoad average at the end: {document['machine_load']}. Figures count only from a machine that does nothing else."
    )
    return document, BARS


def table(document: dict[str, Any]) -> str:
    """For people."""
    lag, connections, cpu = document["lag_s"], document["connections"], document["cores"]
    lines = {
        "connectors": f"{document['connectors']} in {document['dags']} DAGs, all waiting after {document['first_runs_s']:.0f} s",
        "changes": f"{document['changes']:,} in {document['seconds']:.0f} s, {document['lost']} lost; captured by {document['runs']:,} runs",
        "runs that failed": f"{document['failed_runs']}; tasks that were tried again: {document['tried_again']}",
        "commit to change log": f"p50 {lag['p50']:.1f} s, p95 {lag['p95']:.1f} s, most {lag['most']:.1f} s",
        "beside a server that is down": f"p50 {lag['down_p50']:.1f} s, p95 {lag['down_p95']:.1f} s",
        "connections to PostgreSQL": f"{connections['median']} (median), {connections['most']} at most",
        "connections to the sources": f"{document['source_connections']['median']} (median), {document['source_connections']['most']} at most",
        "cores": ", ".join(f"{name} {used:.2f}" for name, used in cpu.items()),
        "memory of the triggerer": f"{document['triggerer_mb']:.0f} MB",
    }
    return "\n".join(f"{name:<32}{text}" for name, text in lines.items())


def _airflow(postgres: Postgres, name: str, folder: Path, connectors: Connectors) -> Airflow:
    airflow = Airflow(folder / "airflow")
    airflow.environment |= {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url(name),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": postgres.url(name, "postgresql+psycopg_async"),
    }
    connectors.define(airflow)
    airflow.run("db", "migrate")
    airflow.run("cdc", "setup", "--with-airflows-login")
    return airflow


def _until_all_wait(postgres: Postgres, name: str, count: int, step: Step) -> None:
    """Wait until each connector has read its table, and each DAG waits for changes.

    :raises Problem: that takes too long
    """
    deadline = time.monotonic() + LONGEST_S
    while True:
        ((waiting,),) = postgres.sql(_WAITING, database=name)
        ((runs,),) = postgres.sql(_RUNS, database=name)
        if waiting >= count and runs >= count:
            return
        if time.monotonic() > deadline:
            raise Problem(f"After {LONGEST_S:.0f} s only {waiting} of {count} DAGs wait for changes.")
        step.progress(f"{runs} have run, {waiting} of {count} wait")
        time.sleep(POLL_S)


class _Fleet:
    """The fleet while it is measured."""

    def __init__(self, postgres: Postgres, name: str, services: Services, connectors: Connectors) -> None:
        self._postgres, self._name, self._services, self._connectors = postgres, name, services, connectors
        self._runs_before = 0

    def measured(self, seconds: int, step: Step) -> dict[str, Any]:
        """Write for so long, and look meanwhile at what is held."""
        held, sources = list[int](), list[int]()
        before, self._runs_before = self._cpu(), self._count(_RUNS)
        began = time.monotonic()
        down = began + seconds * (1 - DOWN) / 2, began + seconds * (1 + DOWN) / 2
        look = began
        while (now := time.monotonic()) < began + seconds:
            self._connectors.stop_second(during=down[0] <= now < down[1])
            self._connectors.write(now - began)
            if now >= look:
                held.append(self._held())
                sources.append(self._connectors.held())
                step.progress(
                    f"{now - began:.0f} s, {self._connectors.written:,} changes, {held[-1]} connections"
                    + (f", {self._connectors.second_count} sources are down" if self._connectors.stopped else "")
                )
                look = now + POLL_S
            time.sleep(0.05)
        self._connectors.stop_second(during=False)
        took = time.monotonic() - began
        cores = {name: round((used - before[name]) / took, 3) for name, used in self._cpu().items()}
        return {
            "seconds": round(took, 1),
            "connections": {"median": statistics.median_low(held), "most": max(held)},
            "source_connections": {"median": statistics.median_low(sources), "most": max(sources)},
            "cores": cores,
            "triggerer_mb": round(machine.rss_mb(self._services.pids["triggerer"]), 1),
        }

    def until_captured(self, step: Step, document: dict[str, Any]) -> None:
        """Wait until all that was written is in the change log, and add what there is to say of that."""
        began = time.monotonic()
        while left := self._connectors.lacking():
            if time.monotonic() - began > LONGEST_S / 3:
                break
            step.progress(f"{left} changes are not captured yet")
            time.sleep(POLL_S)
        document |= {
            "changes": self._connectors.written,
            "lost": left,
            "lag_s": self._connectors.lags(),
            "failed_runs": self._count(_FAILED),
            "tried_again": self._count(_AGAIN),
            "runs": self._count(_RUNS) - self._runs_before,
        }

    def _held(self) -> int:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self._name}'"
        return int(self._postgres.sql(query)[0][0])

    def _count(self, query: str) -> int:
        return int(self._postgres.sql(query, database=self._name)[0][0])

    def _cpu(self) -> dict[str, float]:
        return {name: machine.tree_cpu_s(pid) for name, pid in self._services.pids.items()}
