"""Chaos: a whole Airflow on PostgreSQL, three DAGs with all forms of a capture, and kills of everything at random.

In the end the tables equal their sources by themselves: no task is cleared, and no command is run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dev.airflow import Airflow
from dev.servers import MariaDb, MongoDb, Postgres
from tests.support.chaos.kills import Chaos
from tests.support.chaos.lasting_services import LastingServices, install_airflow
from tests.support.chaos.machine_processes import find_orphans, list_processes
from tests.support.chaos.writers import Writers, lake_rows, make_tables, source_rows

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long]

SEEDS = [int(seed) for seed in os.environ.get("CDC_CHAOS_SEEDS", "1,2").split(",")]
CHAOS_S = float(os.environ.get("CDC_CHAOS_SECONDS", "180"))
QUIET_S = 120.0
"""After the last kill, Airflow needs so long until it has noticed all that is dead; tries that begin later succeed."""
DAGS = ("flow", "documents", "pair")
TEXT = """
from datetime import timedelta
from airflow_provider_cdc.dag import ConnectorDefinition, GroupedConnector, cdc_dag, cdc_group_dag

PLACE = "{home}/cdc/lake/{{connector}}/{{table}}"
SPARK = {{"jars": "{{{{ var.value.cdc_jars }}}}", "driver_memory": "1g", "conf": {{"spark.ui.enabled": "false"}}}}
PATIENT = {{"retries": 10, "retry_delay": timedelta(seconds=5)}}


def connector(name, source, **more):
    properties = {{"database.include.list": name, **more}}
    return ConnectorDefinition(name=name, source=source, changelog="{home}/cdc/changelog", properties=properties)


def rows(name, server_id):
    more = {{"database.server.id": server_id, "database.ssl.mode": "disabled"}}
    return connector(name, "mariadb", **more)


flow = cdc_dag(
    rows("flow", 4731), dag_id="flow", conn_id="chaos_mariadb", location=PLACE, continuous=True,
    group={{"run_for": 150, "apply": SPARK}}, default_args=PATIENT,
)
documents = cdc_dag(
    connector("documents", "mongodb"), dag_id="documents", conn_id="chaos_mongodb", location=PLACE,
    group={{"poll_interval": 2, "wait_timeout": 60, "apply": SPARK}}, default_args=PATIENT,
)
pair = cdc_group_dag(
    [GroupedConnector(definition=rows(name, 4732 + n), conn_id="chaos_mariadb") for n, name in enumerate(["first", "second"])],
    dag_id="pair", location=PLACE, poll_interval=2, wait_timeout=60, apply=SPARK, default_args=PATIENT,
)
"""
FAILED = """
SELECT dag_id, run_id, task_id, try_number, state, extract(epoch FROM start_date) FROM task_instance_history
 WHERE state IN ('failed', 'up_for_retry')
UNION SELECT dag_id, run_id, task_id, try_number, state, extract(epoch FROM start_date) FROM task_instance
 WHERE state IN ('failed', 'up_for_retry')
"""


@dataclass
class Deployment:
    """Airflow, and the servers that it needs."""

    airflow: Airflow
    postgres: Postgres
    database: str
    mariadb: MariaDb
    mongodb: MongoDb

    def query(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Ask the metadata DB."""
        return self.postgres.sql(statement, args=arguments or None, database=self.database)


@pytest.fixture
def deployment(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Postgres() as postgres, postgres.database("airflow") as name, MariaDb() as mariadb, MongoDb() as mongodb:
        make_tables(mariadb)
        chaotic = install_airflow(tmp_path_factory.mktemp("chaos"), airflow.python, postgres, name)
        chaotic.connection(
            "chaos_mariadb", conn_type="cdc_mariadb", host=mariadb.host, port=mariadb.port, login=mariadb.user,
            password=mariadb.password,
        )  # fmt: skip
        chaotic.connection("chaos_mongodb", conn_type="cdc_mongodb", host=mongodb.url())
        (chaotic.dags / "chaos.py").write_text(TEXT.format(home=chaotic.home))
        yield Deployment(chaotic, postgres, name, mariadb, mongodb)


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_equal_their_sources_by_themselves_after_kills_of_everything(deployment: Deployment, seed: int) -> None:
    lake = deployment.airflow.home / "cdc" / "lake"
    with LastingServices(deployment.airflow) as services:
        with Writers(seed, deployment.mariadb, deployment.mongodb) as writers:
            services.eventually(lambda: start_dags(services), "the DAGs are parsed")
            services.eventually(lambda: len(lake_rows(lake)) == 5, "the first tables exist")
            chaos = Chaos(seed, services, deployment.postgres, [deployment.mariadb, deployment.mongodb])
            chaos.run(CHAOS_S, services.revive)
        calm = time.time()
        print(f"{len(chaos.kills)} kills, {dict(writers.written)} transactions; {services.ends}")
        expected = source_rows(deployment.mariadb, deployment.mongodb)
        services.eventually(lambda: lake_rows(lake) == expected, "the tables equal their sources")
        services.eventually(lambda: all_ended(deployment, calm), "the runs of the time of chaos have ended")
        services.eventually(
            lambda: not find_orphans(deployment.airflow.folder, services.pids.values()), "no process is left alone"
        )
        assert lake_rows(lake) == expected
    assert list_processes(deployment.airflow.folder) == []
    late = [found for found in deployment.query(FAILED) if found[-1] > calm + QUIET_S]
    assert late == [], "no kill explains these failures"
    print(deployment.query("SELECT dag_id, state, count(*) FROM dag_run GROUP BY 1, 2 ORDER BY 1, 2"))
    assert deployment.query("SELECT dag_id, run_id FROM dag_run WHERE state = 'failed'") == []


def start_dags(services: LastingServices) -> bool:
    """Unpause the DAGs; ``False`` while one is not parsed."""
    return all(services.ask("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False}) for dag in DAGS)


def all_ended(deployment: Deployment, calm: float) -> bool:
    """Check that no run of before is open, and that each DAG has had a good run since."""
    begun = "SELECT count(*), count(DISTINCT dag_id) FROM dag_run WHERE {} to_timestamp(%s)"
    ((left, _),) = deployment.query(begun.format("state IN ('queued', 'running') AND start_date <"), calm)
    ((_, dags),) = deployment.query(begun.format("state = 'success' AND start_date >"), calm)
    return left == 0 and dags == len(DAGS)
