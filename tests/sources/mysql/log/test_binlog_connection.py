"""Readers of the log beside each other: who looks ends no one, and a run that another replica ends says who did it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source, parse_config
from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.sources.mysql.connect import connect, server_of
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from tests.support.connectors import mysql_connector

NUMBER = 4711


@pytest.mark.parametrize("kind", ["mariadb", "mariadb 11.8", "mysql97", "mysql80"])
def test_a_run_that_another_replica_of_its_number_ends_says_so(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """It is no lost position: the log is unharmed, and nothing is to be read again."""
    name, _, edition = kind.partition(" ")
    server = request.getfixturevalue(f"{name}_factory")(edition) if edition else request.getfixturevalue(name)
    source = name.rstrip("0123456789")
    with server.database("looking") as db, ThreadPoolExecutor(1) as pool:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = mysql_connector(server, tmp_path, source, database_include_list=db.name, database_server_id=NUMBER)
        connector.capture()
        config: Any = parse_config(connector.definition(), connector.secrets)
        with open_source(connector.definition(), connector.secrets) as looked:
            place: Any = looked.current_position()
        run = pool.submit(connector.capture, run_for_s=120)
        while not run.done() and not _dumps(server):
            time.sleep(0.05)
        with connect(config) as connection, BinlogConnection(config, server_of(connection), place, follow=True):
            db.sql(
                "INSERT INTO t VALUES (1)"
            )  # the server looks whether a dump is to end when it has something to send
            with pytest.raises(SourceUnavailable, match=f"Another replica with server id {NUMBER} connected") as caught:
                run.result()
        assert "database.server.id" in str(caught.value.remedy)
        assert connector.capture({"position.lost.mode": "snapshot"}).events == 1, "nothing is read again"


def _dumps(server: Any) -> list[Any]:
    """Numbers of the replicas that read the log of a server."""
    text = "SHOW SLAVE HOSTS" if not server.sql("SELECT VERSION()")[0][0].startswith("9") else "SHOW REPLICAS"
    return [row for row in server.sql(text) if row[0] == NUMBER]
