"""State in a database beside Airflow's: tasks, which Airflow keeps from its metadata DB, triggerer, pages and commands work with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from dev.airflow import Airflow, Services
from dev.servers import Postgres
from tests.system.conftest import PASSWORD, PLAIN
from tests.system.test_on_demand import DagRuns

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG = """
from airflow.sdk import dag, task
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

apart = ConnectorDefinition(
    name="apart", source="mariadb", changelog="{changelog}",
    properties={{"database.server.id": 4719, "table.include.list": "inventory.products", "database.ssl.mode": "disabled"}},
)
capturing = cdc_dag(apart, conn_id="inventory_mariadb", dag_id="apart", schedule=None, group={{"poll_interval": 1}})


@dag(schedule=None)
def metadata_database():
    @task
    def reach():
        from airflow.configuration import conf

        assert "{metadata}" not in conf.get("database", "sql_alchemy_conn"), "tasks know the metadata DB"

    reach()


metadata_database()
"""


@pytest.fixture(scope="module")
def apart(
    airflow: Airflow, inventory: Any, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Airflow, str]]:
    """An Airflow whose state is in a separate PostgreSQL, and the name of that database."""
    with postgres.database("own_state") as name:
        airflow = Airflow(tmp_path_factory.mktemp("airflow_apart"), airflow.python)
        airflow.connection(
            "inventory_mariadb", conn_type="cdc_mariadb", host=inventory.host, port=inventory.port, login="reader",
            password=PASSWORD, extra=PLAIN,
        )  # fmt: skip
        airflow.run("db", "migrate")
        words = ["airflow", "cdc", "setup", "--url", "-"]
        made = subprocess.run(
            words, input=postgres.url(name), env=airflow.environment, cwd=airflow.folder, capture_output=True, text=True
        )
        assert "airflow cdc state migrate" in made.stdout, made.stdout + made.stderr
        airflow.run("cdc", "state", "migrate")
        text = DAG.format(changelog=airflow.home / "changelog", metadata=airflow.home / "airflow.db")
        (airflow.dags / "apart.py").write_text(text)
        yield airflow, name


def test_a_connector_runs_while_tasks_cannot_reach_the_metadata_db(
    apart: tuple[Airflow, str], postgres: Postgres
) -> None:
    airflow, name = apart
    with Services(airflow) as services:
        runs = DagRuns(services)
        names = {"apart", "metadata_database"}

        def is_parsed() -> bool:
            return names <= {dag["dag_id"] for dag in services.json("GET", "/api/v2/dags?limit=100")["dags"]}

        services.until(is_parsed, 180, "the DAGs are parsed")
        for dag_id in names:
            services.json("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        runs.until("metadata_database", runs.begin("metadata_database"), "reach", "success")
        runs.until("apart", runs.begin("apart"), "capture", "success")
        runs.until("apart", runs.begin("apart"), "wait", "deferred")
        (shown,) = services.json("GET", "/cdc/api/v1/connectors")["connectors"]
        assert shown["connector"] == "apart"
        assert "apart" in airflow.run("cdc", "connectors").stdout
    ((offsets,),) = postgres.sql("SELECT count(*) FROM cdc_offset", database=name)
    assert offsets == 1
    assert airflow.sql("SELECT count(*) FROM cdc_offset") == [(0,)]
