"""Begin of the next run, in a real Airflow: for a target that is back while the source is quiet, and after a lost position."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from dev.airflow import Airflow, Services
from dev.patience import overload
from dev.servers.mysql_family import CAPTURE_PRIVILEGES
from tests.support.sources.mysql.mysql_server import purge_log
from tests.system.test_on_demand import DagRuns

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

BACK_S = 60.0
"""A target that is back has what was captured within so many seconds; a machine with more work than cores takes as many times longer."""
WATCHED_S = 60.0
"""How long it is watched that no further run fails."""
DAGS = """
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

properties = {{"database.ssl.mode": "disabled", "table.include.list": "next.t"}}
away = ConnectorDefinition("away", "mariadb", "{changelog}", {{**properties, "database.server.id": 4721}})
purged = ConnectorDefinition("purged", "mariadb", "{changelog}", {{**properties, "database.server.id": 4722}})
group, once = {{"poll_interval": 1, "retry_after": 900}}, {{"retries": 0}}
away_dag = cdc_dag(away, conn_id="next_mariadb", database="next_target", dag_id="away", group=group, default_args=once)
purged_dag = cdc_dag(purged, conn_id="next_mariadb", dag_id="purged", group=group, default_args=once)
"""


@pytest.fixture
def dag_runs(services: Services, airflow: Airflow, mariadb_factory: Any) -> Iterator[tuple[DagRuns, Any]]:
    """Two continuous DAGs on a server of their own; the folder of the target database does not exist."""
    with mariadb_factory() as server:
        server.sql(
            "CREATE DATABASE next", "CREATE TABLE next.t (id INT PRIMARY KEY)", "INSERT INTO next.t VALUES (1)",
            "CREATE USER next@'%' IDENTIFIED BY 'first'", f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO next@'%'",
        )  # fmt: skip
        source = {"connection_id": "next_mariadb", "conn_type": "cdc_mariadb", "login": "next", "password": "first"}
        services.json("POST", "/api/v2/connections", source | {"host": server.host, "port": server.port})
        target = {"connection_id": "next_target", "conn_type": "sqlite", "host": str(airflow.home / "next" / "t.db")}
        services.json("POST", "/api/v2/connections", target)
        (airflow.dags / "next.py").write_text(DAGS.format(changelog=airflow.home / "cdc" / "changelog"))
        runs = DagRuns(services)
        try:
            yield runs, server
        finally:
            for dag in ("away", "purged"):
                services.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": True})
                for run in runs.of(dag):
                    if run["state"] == "running":
                        path = f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"
                        services.request("PATCH", path, {"state": "failed"})
            (airflow.dags / "next.py").unlink()


def unpause(services: Services, dag: str) -> None:
    services.until(lambda: services.request("GET", f"/api/v2/dags/{dag}")[0] == 200, 180, f"{dag} is parsed")
    services.json("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})


def test_a_target_that_is_back_is_right_within_a_minute_and_a_lost_position_fails_one_run(
    dag_runs: tuple[DagRuns, Any], services: Services, airflow: Airflow
) -> None:
    runs, server = dag_runs

    def states(dag: str) -> list[str]:
        return [str(run["state"]) for run in runs.of(dag)]

    def failed_captures() -> int:
        """Count failures of the capture. On a busy machine, Airflow itself fails a sensor that is deferred and back before the scheduler has looked."""
        tasks = [runs.task("purged", str(run["dag_run_id"]), "capture") for run in runs.of("purged")]
        return sum(task["state"] == "failed" for task in tasks)

    def waiting_run(dag: str) -> str | None:
        newest = runs.of(dag)[0]
        waits = newest["state"] == "running" and runs.task(dag, newest["dag_run_id"], "wait")["state"] == "deferred"
        return str(newest["dag_run_id"]) if waits else None

    # a lost position
    unpause(services, "purged")
    services.until(lambda: "success" in states("purged") and waiting_run("purged"), 240, "the tables are captured")
    services.json("PATCH", "/api/v2/dags/purged", {"is_paused": True})
    server.sql(
        "INSERT INTO next.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO next.t VALUES (3)", "FLUSH BINARY LOGS"
    )
    purge_log(server)
    unpause(services, "purged")
    services.until(failed_captures, 180, "a run fails")

    # meanwhile: a target that is away, whose source is quiet
    unpause(services, "away")
    services.until(lambda: states("away").count("failed") >= 2, 300, "two runs have failed")
    failed = failed_captures()
    began = time.monotonic()
    (airflow.home / "next").mkdir()
    busy, database = overload(), airflow.home / "next" / "t.db"

    def rows() -> list[tuple[int]]:
        with closing(sqlite3.connect(database)) as connection:
            try:
                return connection.execute("SELECT id FROM away_next_t ORDER BY id").fetchall()
            except sqlite3.OperationalError:
                return []

    services.until(rows, 300, "the target has the rows")
    took = time.monotonic() - began
    assert rows() == [(1,), (2,), (3,)]
    busy = max(busy, overload())
    assert took < BACK_S * busy, (took, busy)
    services.until(lambda: waiting_run("away"), 120, "nothing is owed any more")

    # one failed run, and the next one waits for a repair
    time.sleep(max(0.0, WATCHED_S - (time.monotonic() - began)))
    assert failed_captures() == failed == 1
    run = waiting_run("purged")
    assert run is not None
    assert "waits after PositionLost until" in runs.log("purged", run, "wait")
    assert "waits after PositionLost until" in airflow.run("cdc", "status", "purged", status=1).stdout
    airflow.run("cdc", "gap", "purged", "--repair", "snapshot", "--confirm", "purged")
    runs.until("purged", run, "capture", "success", seconds=120)
