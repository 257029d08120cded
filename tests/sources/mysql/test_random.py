"""Random work with a fixed seed, captured in a loop: the change log is legal at every step and ends equal to the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import mysql_connector
from tests.support.workload import Writer, source_rows


def _equal(server: Any, connector: Any, database: str) -> None:
    for table in ("one", "two", "bag"):
        assert connector.rows(f"{database}.{table}") == source_rows(server, database, table), table


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_change_log_replays_to_the_source(mariadb: Any, tmp_path: Path, seed: int) -> None:
    database = f"random_{seed}"
    with mariadb.connect(autocommit=True) as connection:
        writer = Writer(connection, database, seed, ddl=0.03)
        writer.prepare()
        writer.write(100)
        connector = mysql_connector(mariadb, tmp_path, database_include_list=database)
        for _ in range(8):
            connector.capture()
            _equal(mariadb, connector, database)
            writer.write(100)
        connector.capture()
        _equal(mariadb, connector, database)
    assert connector.replay.operations["u"] > 100
    assert connector.replay.operations["d"] > 100
