"""Connections: what bounds them, and which statements they run first."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceUnavailable
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

    monkeypatch.setattr(connecting, "log_in", watch_connection(connecting.log_in, made))
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


GREETING = (
    b"\x0a8.0.0\0" + struct.pack("<I", 1) + b"A" * 8 + b"\0" + struct.pack("<H", 0x8201) + b"\x21\x02\0" + struct.pack("<H", 0x0008)
    + bytes([21]) + bytes(10) + b"B" * 12 + b"\0mysql_native_password\0"
)  # fmt: skip


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_a_server_that_is_not_verified_does_not_get_the_password(mode: str) -> None:
    """A stand-in for a server that asks for the password itself: an editor of the connection's host had it sent there."""
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(10)
                client.sendall(len(GREETING).to_bytes(3, "little") + b"\0" + GREETING)
                received.append(client.recv(4096))
                ask = b"\xfemysql_clear_password\0"
                client.sendall(len(ask).to_bytes(3, "little") + b"\2" + ask)
                received.append(client.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        config = MySqlConfig.parse({
            "database.hostname": "127.0.0.1", "database.port": listener.getsockname()[1], "database.user": "cdc", "database.password": "hunter2",
            "database.server.id": 4811, "topic.prefix": "p", "database.ssl.mode": mode,
        })  # fmt: skip
        with pytest.raises(PrerequisiteError, match="password in plain text"):
            connect(config)
    assert received
    assert not any(b"hunter2" in one for one in received)
