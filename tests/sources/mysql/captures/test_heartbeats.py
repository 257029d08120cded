"""Heartbeats on MySQL and MariaDB: the statement runs on the source, and its row is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.connectors import mysql_connector


def test_the_statement_is_committed_and_its_row_is_captured(database: Any, tmp_path: Path) -> None:
    name = database.name
    database.sql("CREATE TABLE beats (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(20))")
    grant = f"INSERT ON {name}.beats"
    database.sql(f"GRANT {grant} TO 'cdc'@'%'")
    query = f"INSERT INTO {name}.beats (text) VALUES ('beat')"
    connector = mysql_connector(
        database.server,
        tmp_path,
        database_include_list=name,
        heartbeat_interval_ms=600_000,
        heartbeat_action_query=query,
    )
    assert connector.capture().events == 1
    assert connector.capture().events == 1
    database.sql(f"REVOKE {grant} FROM 'cdc'@'%'")  # it would outlive the database, and the server is shared
    assert [row["text"] for row in connector.rows(f"{name}.beats")] == ["beat"] * 2
