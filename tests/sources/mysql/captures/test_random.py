"""Random work with a fixed seed, captured in a loop: the change log is legal at every step and ends equal to the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.workload import WORDS, WORDS_OF_MARIADB, Writer, source_rows


def _equal(server: Any, connector: Any, database: str) -> None:
    for table in ("one", "two", "bag"):
        assert connector.rows(f"{database}.{table}") == source_rows(server, database, table), table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_tables_of_all_types_changed_several_times_between_runs_replay_to_the_source(
    mariadb: Any, tmp_path: Path, seed: int
) -> None:
    _random_work(mariadb, tmp_path, "mariadb", seed, WORDS_OF_MARIADB)


@pytest.mark.sampled(2)
@pytest.mark.mysql
@pytest.mark.parametrize("seed", range(2))
def test_the_same_on_mysql(mysql97: Any, tmp_path: Path, seed: int) -> None:
    _random_work(mysql97, tmp_path, "mysql", seed, WORDS)


def _random_work(server: Any, folder: Path, kind: str, seed: int, words: dict[str, str]) -> None:
    database = f"words_{seed}"
    with server.connect(autocommit=True) as connection:
        writer = Writer(connection, database, seed, ddl=0.1, words=words)
        writer.prepare()
        connector = mysql_connector(server, folder, kind, database_include_list=database)
        for _ in range(8):
            connector.capture()
            _equal(server, connector, database)
            writer.write(60)
        connector.capture()
        _equal(server, connector, database)
        writer.run(f"DROP DATABASE {database}")


@pytest.mark.sampled(3)
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
