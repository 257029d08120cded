"""Memory stays flat: one transaction of two million rows is captured under the bound that a million small ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import mysql_connector
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.large import capture_apart, create, fill

ROWS = 2_000_000
BOUND_MB = 500


@pytest.mark.slow
def test_transaction_of_two_million_rows(database: Any, tmp_path: Path) -> None:
    create(database, "big")
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    connector.capture()
    fill(database, "big", ROWS)
    database.sql("INSERT INTO big (id) VALUES (0)")
    result = capture_apart(connector)
    assert result["events"] == ROWS + 1
    assert result["peak_mb"] < BOUND_MB
    # a transaction is never cut: its events are in one batch
    batches = [m for m in connector.changelog.read_manifests(connector.name) if m.event_count]
    assert max(m.event_count for m in batches) >= ROWS


@pytest.mark.slow
def test_snapshot_of_two_million_rows(database: Any, tmp_path: Path) -> None:
    create(database, "big")
    fill(database, "big", ROWS)
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    result = capture_apart(connector)
    assert result["events"] == ROWS
    assert result["peak_mb"] < BOUND_MB


@pytest.mark.slow
@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql97", marks=pytest.mark.long)])
def test_chunks_of_wide_rows(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A gigabyte in 256 rows, which by their number are a quarter of one chunk."""
    with request.getfixturevalue(server).database("wide") as database:
        connector = mysql_connector(
            database.server, tmp_path, database.server.kind, database_include_list=database.name,
            snapshot_mode="no_data", read_only="true",
        )  # fmt: skip
        with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT)")
            cursor.execute("INSERT INTO wide VALUES (-1, 'a')")
            connector.capture()
            # kernels are compiled once, by the first run on a machine: a hundred MB that are not what is measured here
            snapshot(connector, f"{database.name}.wide")
            connector.capture()
            for i in range(256):
                cursor.execute(f"INSERT INTO wide VALUES ({i}, REPEAT(CHAR(97 + {i} % 26), 4194304))")
        number = snapshot(connector, f"{database.name}.wide", chunk_size=1_000_000)
        result = capture_apart(connector)
    assert signal_state(connector, number) == ("done", "")
    assert result["events"] == 257
    assert result["peak_mb"] < BOUND_MB
