"""Generated columns in row events: MariaDB 11.8.9 leaves them out of updates and deletes, whatever ``binlog_row_image`` says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot_as_advised

DATABASE = "generated"
EXCLUDED = {"column.exclude.list": rf"{DATABASE}\.t\.(v|s|w)"}


@pytest.fixture(params=["10.11", "11.8"])
def server(request: pytest.FixtureRequest, mariadb: Any, mariadb_factory: Any) -> Any:
    server = mariadb if request.param == "10.11" else mariadb_factory("11.8")
    server.sql(
        f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.u (id INT PRIMARY KEY)",
        f"CREATE TABLE {DATABASE}.t (w VARCHAR(9) AS (CONCAT('w', n)), id INT PRIMARY KEY, v INT AS (n + 1), n INT, x TEXT, s INT AS (n + 2) STORED, y DECIMAL(30))",
    )  # fmt: skip
    return server


@pytest.fixture
def connector(server: Any, tmp_path: Path) -> Connector:
    return mysql_connector(server, tmp_path, database_include_list=DATABASE)


def write(server: Any, numbers: range) -> None:
    """Write rows in events of each kind, in turns and in transactions."""
    for number in numbers:
        server.sql(
            "BEGIN", f"INSERT INTO {DATABASE}.t (id, n, x, y) VALUES ({number}, 1, 'x', 12), ({1000 + number}, 2, NULL, 1)",
            f"UPDATE {DATABASE}.t SET n = n + 3, x = 'longer', y = NULL WHERE id IN ({number}, {number - 1})",
            f"DELETE FROM {DATABASE}.t WHERE id = {999 + number}", f"INSERT INTO {DATABASE}.t (id) VALUES ({2000 + number})",
            f"UPDATE {DATABASE}.t SET id = id + 1000 WHERE id = {1998 + number}", "COMMIT",
        )  # fmt: skip


def test_their_table_alone_is_stopped_where_they_are_not_logged(server: Any, connector: Connector) -> None:
    connector.capture()
    server.sql(f"INSERT INTO {DATABASE}.t (id, n) VALUES (1, 1)", f"INSERT INTO {DATABASE}.u VALUES (1)")
    connector.capture()
    row = {"w": "w1", "id": 1, "v": 2, "n": 1, "x": None, "s": 3, "y": None}
    assert connector.rows(f"{DATABASE}.t") == [row]
    server.sql(f"UPDATE {DATABASE}.t SET n = 5", f"INSERT INTO {DATABASE}.u VALUES (2)")
    if "11.8.9" not in server.sql("SELECT @@version")[0][0]:
        connector.capture()
        assert connector.rows(f"{DATABASE}.t") == [row | {"w": "w5", "v": 6, "n": 5, "s": 7}]
        return
    with pytest.raises(UnreadableValue, match=r"leaves generated columns \(w, v, s\) out of updates") as e:
        connector.capture()
    assert re.search(rf"{DATABASE}\.t, \S+\.\d+(:|, after )\d+\)", str(e.value))
    assert connector.rows(f"{DATABASE}.t") == [row]
    assert [one["id"] for one in connector.rows(f"{DATABASE}.u")] == [1, 2]
    snapshot_as_advised(connector, str(e.value))
    connector.capture(EXCLUDED)
    write(server, range(10, 13))
    connector.capture(EXCLUDED)
    assert_equal_rows(server, connector)


def test_rows_without_those_that_are_excluded_are_captured(server: Any, connector: Connector) -> None:
    connector.capture(EXCLUDED)
    write(server, range(1, 20))
    connector.capture(EXCLUDED)
    assert_equal_rows(server, connector)


def assert_equal_rows(server: Any, connector: Connector) -> None:
    captured = [tuple(row.values()) for row in connector.rows(f"{DATABASE}.t")]
    assert sorted(captured) == sorted(server.sql(f"SELECT id, n, x, y FROM {DATABASE}.t"))
