"""Long pauses: a snapshot whose readers wait, and a connector that was not run for a while."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.model.table_schema import TableId
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.mysql_chunks import source_of

KINDS = ["mariadb", "mysql"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["minimal", "extended"])
def test_a_reader_may_wait_longer_than_the_server_lets_connections_be_idle(
    request: pytest.FixtureRequest, kind: str, mode: str
) -> None:
    settings = {"wait_timeout": 1, "interactive_timeout": 1}
    with request.getfixturevalue(f"{kind}_factory")(**settings) as server, server.database("slow") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
        table = TableId(namespace=db.name, name="t")
        with source_of(server, snapshot_locking_mode=mode) as source:
            with source.open_snapshot([table], readers=2) as session:
                time.sleep(2.5)
                rows = sum(len(block) for chunk in session.split_table(table) for block in session.read(chunk))
            assert rows == 2
            assert table in source.discover_tables(), "other connections are replaced"


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_the_server_is_about_to_delete_is_reported(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with request.getfixturevalue(f"{kind}_factory")() as server, server.database("rare") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        connector = mysql_connector(server, tmp_path, kind, database_include_list=db.name)
        connector.capture()
        db.sql("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1)")

        time.sleep(4)
        for seconds, expected in ((3600, 0), (6, 1)):
            server.sql(f"SET GLOBAL binlog_expire_logs_seconds = {seconds}")
            caplog.clear()
            with caplog.at_level(logging.WARNING), open_source(connector.definition(), connector.secrets) as source:
                offset = connector.store.load_offset("test")
                source.verify_position(source.parse_position(offset.offset.position))
            messages = [r.getMessage() for r in caplog.records if "binlog_expire_logs_seconds" in r.getMessage()]
            assert len(messages) == expected
        assert "binlog_expire_logs_seconds = 12" in messages[0]
        assert connector.capture().events == 1
        caplog.clear()
        connector.capture()
        assert "binlog_expire_logs_seconds = 12" not in caplog.text, "it stands in the file that is written now"
