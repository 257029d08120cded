"""Ends of a waiting run in a real Airflow: nothing that needs a person is green."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.airflow import Airflow, Services
from dev.servers.mysql_family import CAPTURE_PRIVILEGES
from tests.system.test_on_demand import DagRuns

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

QUIET = """
from datetime import timedelta
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

quiet = ConnectorDefinition(
    name="quiet", source="mariadb", changelog="{changelog}",
    properties={{"database.server.id": 4717, "table.include.list": "inventory.products", "database.ssl.mode": "disabled"}},
)
patient = cdc_dag(quiet, conn_id="quiet_mariadb", dag_id="quiet", schedule=None, group={{"poll_interval": 1}}, max_active_runs=2)
short = cdc_dag(
    quiet, conn_id="quiet_mariadb", dag_id="quiet_short", schedule=None,
    group={{"poll_interval": timedelta(seconds=1), "wait_timeout": 3}},
)
"""


@pytest.fixture
def dag_runs(services: Services, airflow: Airflow, inventory: Any) -> Iterator[DagRuns]:
    """With a connector ``quiet`` that has captured everything, by an account that nothing else uses."""
    inventory.sql("CREATE USER quiet@'%' IDENTIFIED BY 'first'", f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO quiet@'%'")
    connection = {"connection_id": "quiet_mariadb", "conn_type": "cdc_mariadb", "login": "quiet", "password": "first"}
    connection |= {"host": inventory.host, "port": inventory.port}
    services.json("POST", "/api/v2/connections", connection)
    (airflow.dags / "quiet.py").write_text(QUIET.format(changelog=airflow.home / "cdc" / "changelog"))
    names = {"quiet", "quiet_short"}

    def is_parsed() -> bool:
        found = services.json("GET", "/api/v2/dags?limit=100&exclude_stale=false")["dags"]
        return names <= {dag["dag_id"] for dag in found}

    services.until(is_parsed, 180, "the DAGs are parsed")
    for name in names:
        services.json("PATCH", f"/api/v2/dags/{name}", {"is_paused": False})
    runs = DagRuns(services)
    runs.until("quiet", runs.begin("quiet"), "capture", "success")
    yield runs
    inventory.sql("DROP USER quiet@'%'")


def test_a_run_in_which_nothing_changes_is_skipped_and_one_whose_password_is_wrong_fails(
    dag_runs: DagRuns, inventory: Any
) -> None:
    """AF24"""

    def state(dag: str, run: str) -> str | None:
        found = dag_runs.services.json("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
        return str(found) if found in ("success", "failed") else None

    idle = dag_runs.begin("quiet_short")
    waiting = dag_runs.begin("quiet")
    dag_runs.until("quiet", waiting, "wait", "deferred")
    dag_runs.until("quiet_short", idle, "wait", "skipped")
    assert dag_runs.services.until(lambda: state("quiet_short", idle), 60, "the idle run ends") == "success"

    inventory.sql("ALTER USER quiet@'%' IDENTIFIED BY 'second'")
    failed = dag_runs.until("quiet", waiting, "wait", "failed")
    assert failed["try_number"] == 1  # a person must act: Airflow does not try it again
    assert "Access denied" in dag_runs.log("quiet", waiting, "wait")
    assert dag_runs.services.until(lambda: state("quiet", waiting), 60, "the run ends") == "failed"
