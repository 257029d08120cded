"""Snapshots that executors of a real cluster read, by the task that captures."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.snapshot_exchange import reader_coordinator
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sources.mysql.snapshot import snapshot_session
from airflow_provider_cdc.sources.oracle.snapshot import snapshot as oracle_snapshot
from dev.servers import SparkCluster
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.airflow.airflow_connector import connect, context
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows
from tests.support.workloads.fill import fill_table


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster


class ShopCapture:
    """A connector on a real MariaDB, and the task that captures it."""

    def __init__(self, db: Any, connector: Connector) -> None:
        self.db, self.connector = db, connector

    def build_task(self, **more: Any) -> CaptureOperator:
        definition: ConnectorDefinition = self.connector.definition()
        job = {"conn_id": "spark_default", "conf": {"spark.executor.memory": "512m", "spark.cores.max": "2"}}
        return CaptureOperator(task_id="capture", definition=definition, conn_id="shop", snapshot_job=job, **more)

    def is_equal(self) -> bool:
        return self.connector.rows(f"{self.db.name}.large") == source_rows(self.db.server, self.db.name, "large")


@pytest.fixture
def shop(mariadb: Any, cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShopCapture]:
    monkeypatch.setattr(snapshot_session, "CHUNK_ROWS", 3_000)
    with mariadb.database("on_spark") as db:
        fill_table(db, "large", 30_000)
        properties = {"database_include_list": db.name, "snapshot_engine": "spark", "snapshot_max_threads": 2}
        connector = mysql_connector(mariadb, tmp_path, **properties)
        place = {"host": mariadb.host, "port": mariadb.port, "login": mariadb.user, "password": mariadb.password}
        connect(
            monkeypatch, "shop", conn_type="cdc_mariadb", extra=json.dumps({"database.ssl.mode": "disabled"}), **place
        )
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=connector.state_url)
        connect(monkeypatch, "spark_default", conn_type="spark", host=cluster.url)
        yield ShopCapture(db, connector)


def test_the_task_has_executors_read_the_tables(shop: ShopCapture) -> None:
    result = shop.build_task().execute(context())
    assert result["events"] == 30_000
    assert shop.is_equal()
    writers = {
        file.path.rpartition("-")[0][-4:] for m in shop.connector.changelog.read_manifests("test") for file in m.files
    }
    assert len(writers) == 2, "both executors have read"
    assert not list(shop.connector.folder.glob("changelog/test/snapshots/*"))


def test_a_lost_executor_leaves_its_chunks_to_the_others(
    shop: ShopCapture, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_coordinator, "_LOST_S", 6.0)
    shop.connector.properties["snapshot.max.rows.per.second"] = 4_000

    def kill_one() -> None:
        while not list(shop.connector.folder.glob("changelog/test/snapshots/*/results-1/*.json")):
            time.sleep(0.1)
        shop.db.sql("UPDATE large SET v = 'after the view' WHERE id % 100 = 0")
        assert cluster.kill_executor(0)

    killer = threading.Thread(target=kill_one)
    killer.start()
    result = shop.build_task().execute(context())
    killer.join()
    assert result["events"] == 30_300
    assert shop.is_equal()


def test_the_executor_that_spark_starts_for_a_lost_one_joins_a_view_with_a_name(
    cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only reader of then, and sees the rows of the view."""
    monkeypatch.setattr(reader_coordinator, "_LOST_S", 6.0)
    monkeypatch.setattr(oracle_snapshot, "CHUNK_BLOCKS", 8)
    with Oracle() as server:
        server.sql("CREATE TABLE LARGE (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(40))",
                   "ALTER TABLE LARGE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")  # fmt: skip
        with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO LARGE VALUES (:1, :2)", [(n, f"value {n}") for n in range(9_000)])
            connection.commit()
        connector = oracle_connector(
            server, tmp_path, schema_include_list="APP", snapshot_engine="spark", snapshot_max_threads=1,
            snapshot_max_rows_per_second=1_000,
        )  # fmt: skip
        place = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
        connect(monkeypatch, "shop", conn_type="cdc_oracle", **place)
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=connector.state_url)
        connect(monkeypatch, "spark_default", conn_type="spark", host=cluster.url)

        def kill_one() -> None:
            while not list(connector.folder.glob("changelog/test/snapshots/*/results-1/*.json")):
                time.sleep(0.1)
            server.sql("UPDATE LARGE SET V = 'after the view' WHERE MOD(ID, 100) = 0")
            assert cluster.kill_executor(0)

        killer = threading.Thread(target=kill_one)
        killer.start()
        job = {"conn_id": "spark_default", "conf": {"spark.executor.memory": "512m", "spark.cores.max": "1"}}
        task = CaptureOperator(task_id="capture", definition=connector.definition(), conn_id="shop", snapshot_job=job)
        assert task.execute(context())["events"] == 9_090
        killer.join()
        manifests = connector.changelog.read_manifests("test")
        rows = sorted(connector.rows("APP.LARGE"), key=lambda row: row["ID"])
        there = server.sql("SELECT ID, V FROM LARGE ORDER BY ID")
    assert [(row["ID"], row["V"]) for row in rows] == there
    readers = {f.path.rpartition("-")[2] for m in manifests for f in m.files if f.counts.get("r")}
    assert len(readers) == 2
