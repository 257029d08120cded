"""Generated columns in row events: MariaDB 11.8.9 leaves them out of updates and deletes, whatever ``binlog_row_image`` says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError
from tests.support.connectors import mysql_connector

DATABASE = "generated"


@pytest.mark.parametrize("edition", ["10.11", "11.8"])
def test_they_are_captured_or_their_lack_is_an_error(
    mariadb: Any, mariadb_factory: Any, tmp_path: Path, edition: str
) -> None:
    server = mariadb if edition == "10.11" else mariadb_factory("11.8")
    server.sql(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
    server.sql(f"CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY, n INT, v INT AS (n + 1), s INT AS (n + 2) STORED)")
    connector = mysql_connector(server, tmp_path, database_include_list=DATABASE)
    connector.capture()
    server.sql(f"INSERT INTO {DATABASE}.t (id, n) VALUES (1, 1)")
    connector.capture()
    assert connector.rows(f"{DATABASE}.t") == [{"id": 1, "n": 1, "v": 2, "s": 3}]
    server.sql(f"UPDATE {DATABASE}.t SET n = 5")
    if "11.8.9" not in server.sql("SELECT @@version")[0][0]:
        connector.capture()
        assert connector.rows(f"{DATABASE}.t") == [{"id": 1, "n": 5, "v": 6, "s": 7}]
        return
    with pytest.raises(PrerequisiteError, match=r"leaves generated columns \(v, s\) out of updates") as e:
        connector.capture()
    assert re.search(rf"{DATABASE}\.t, \S+\.\d+(:|, after )\d+\n", str(e.value))
    assert connector.rows(f"{DATABASE}.t") == [{"id": 1, "n": 1, "v": 2, "s": 3}]
