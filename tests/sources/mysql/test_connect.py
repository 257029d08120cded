"""Connections: what bounds them, and which statements they run first."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.sources.mysql import connect as connecting
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.workload import source_rows


def test_a_server_that_accepts_and_stays_silent_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {
            "topic.prefix": "p", "database.hostname": "127.0.0.1", "database.port": silent.getsockname()[1],
            "database.user": "u", "database.server.id": 7, "connect.timeout.ms": 700, "database.ssl.mode": "disabled",
        }  # fmt: skip
        began = time.monotonic()
        with pytest.raises(SourceUnavailable):
            connect(MySqlConfig.parse(properties))
        assert 0.5 < time.monotonic() - began < 10


def test_initial_statements_run_on_every_connection_but_that_of_the_log(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A doubled semicolon is a literal one."""
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)", "CREATE TABLE opened (connection BIGINT, first VARCHAR(9))")
    made: set[int] = set()
    logs: set[int] = set()

    def watch_connection(make: Any, seen: set[int]) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            connection = make(*args, **options)
            seen.add(connection.thread_id())
            return connection

        return call

    monkeypatch.setattr(connecting, "_open", watch_connection(connecting._open, made))
    monkeypatch.setattr(binlog_connection, "connect", watch_connection(connect, logs))
    grant = f"INSERT ON {database.name}.opened"
    database.sql(f"GRANT {grant} TO 'cdc'@'%'")
    statement = f"SET @first = 'a;;b'; INSERT INTO {database.name}.opened VALUES (CONNECTION_ID(), @first)"
    connector = mysql_connector(
        database.server, tmp_path, table_include_list=f"{database.name}.t", database_initial_statements=statement
    )
    connector.capture()
    dump = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND db IS NULL ORDER BY id DESC"
    others = {*database.sql(dump)}  # of runs that were killed: the server notices it with the next event
    following = threading.Thread(target=lambda: connector.capture(run_for_s=5))
    following.start()
    readers: list[Any] = []
    while not readers and following.is_alive():
        readers = [reader for reader in database.sql(dump) if reader not in others]
    following.join()
    ran = dict(database.sql(f"SELECT connection, first FROM {database.name}.opened"))
    database.sql(f"REVOKE {grant} FROM 'cdc'@'%'")  # it would outlive the database, and the server is shared
    assert readers
    assert readers[0][0] in logs
    assert set(ran) == made - logs
    assert set(ran.values()) == {"a;b"}
    assert connector.rows(f"{database.name}.t") == source_rows(database.server, database.name, "t")


@pytest.mark.parametrize("kind", ["mysql97", "mysql80", "mariadb"])
def test_a_year_among_signed_and_unsigned_columns(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """Newer servers count YEAR among the columns that have a sign or not, older ones do not."""
    server = request.getfixturevalue(kind)
    with server.database("years") as db:
        db.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, y YEAR, a INT, u BIGINT UNSIGNED, z YEAR, b SMALLINT, c INT UNSIGNED)"
        )
        source = "mariadb" if kind == "mariadb" else "mysql"
        connector = mysql_connector(server, tmp_path, source, database_include_list=db.name)
        connector.capture()
        db.sql("INSERT INTO t VALUES (1, 2024, -5, 7, 1999, -3, 4294967295)")
        connector.capture()
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")


def test_a_replica_that_does_not_log_what_it_receives_is_reported(mariadb_factory: Any, tmp_path: Path) -> None:
    from airflow_provider_cdc.connector import open_source

    with mariadb_factory(server_id="31") as server:
        connector = mysql_connector(server, tmp_path, database_ssl_mode="disabled")
        with open_source(connector.definition(), connector.secrets) as source:
            assert source.check_prerequisites() == []
        server.sql("SET GLOBAL gtid_slave_pos = '0-99-5'")
        with open_source(connector.definition(), connector.secrets) as source:
            (finding,) = source.check_prerequisites()
        assert "log_slave_updates is OFF" in finding.problem
        assert not finding.fatal
