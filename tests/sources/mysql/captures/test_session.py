"""Settings of a server for all sessions do not change what is read, nor how much of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import TableId
from tests.sources.mysql.snapshot.test_chunk_keys import read_chunks
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import send, signal_state
from tests.support.sources.mysql.mysql_chunks import reader_of, source_of
from tests.support.sources.mysql.workload import source_rows

COMMON = {
    "sql_select_limit": "3",
    "max_join_size": "3",
    "sql_big_selects": "0",
    "sql_auto_is_null": "1",
    "max_sort_length": "64",
    "completion_type": "'RELEASE'",
    "sql_safe_updates": "1",
    "sql_quote_show_create": "0",
    "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE'",
    "time_zone": "'+09:00'",
    "autocommit": "0",
    "init_connect": "'SET NAMES latin1, @@sql_select_limit = 2'",
}
MYSQL = {"max_execution_time": "1", "transaction_isolation": "'READ-UNCOMMITTED'"}
OWN = {
    "mysql80": MYSQL,
    "mysql97": {**MYSQL, "show_gipk_in_create_table_and_information_schema": "OFF", "explain_format": "'TREE'"},
    "mariadb": {
        "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,EMPTY_STRING_IS_NULL,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "max_statement_time": "0.001",
        "tx_isolation": "'READ-UNCOMMITTED'",
        "system_versioning_asof": "'2020-01-01 00:00:00'",
    },
}
ROWS = 120


class HostileServer:
    """A server with settings for all sessions, and sessions of one's own without them."""

    def __init__(self, server: Any, kind: str) -> None:
        self.server, self.kind = server, kind
        self.connection = server.connect(autocommit=True)
        self._settings = COMMON | OWN[kind]
        (before,) = self.sql("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in self._settings))
        self._before = dict(zip(self._settings, before, strict=True))

    def sql(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    def __enter__(self) -> HostileServer:
        try:
            for name, value in self._settings.items():
                self.sql(f"SET GLOBAL {name} = {value}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self.connection.cursor() as cursor:
            for name, value in self._before.items():
                known = value != "DEFAULT" and name != "system_versioning_asof"
                cursor.execute(f"SET GLOBAL {name} = {'%s' if known else 'DEFAULT'}", (value,) if known else None)


@pytest.fixture(params=OWN)
def hostile_session(request: pytest.FixtureRequest) -> Iterator[HostileServer]:
    found = HostileServer(request.getfixturevalue(request.param), request.param)
    found.sql("CREATE DATABASE hostile", "USE hostile")
    try:
        yield found
    finally:
        found.sql("DROP DATABASE hostile")
        found.connection.close()


def _create_filled(hostile: HostileServer, table: str = "t") -> None:
    hostile.sql(
        f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, c CHAR(20), s VARCHAR(3000) CHARACTER SET latin1 NOT NULL, "
        "e VARCHAR(9))"
    )
    # alike in more bytes than max_sort_length has by itself, in no order
    rows = ", ".join(f"({i}, 'é{i}', '{'p' * 2000}{(i * 37) % ROWS:05d}', '')" for i in range(1, ROWS + 1))
    hostile.sql(f"INSERT INTO {table} VALUES {rows}")


def _connector(hostile: HostileServer, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(hostile.server, folder, hostile.server.kind, database_include_list="hostile", **properties)


def test_a_snapshot_and_the_stream_after_it_have_everything(hostile_session: HostileServer, tmp_path: Path) -> None:
    for table in ("t", "u", "v", "w"):
        _create_filled(hostile_session, table)
    expected = source_rows(hostile_session.server, "hostile", "t")
    connector = _connector(hostile_session, tmp_path)
    with hostile_session:
        connector.capture()
        assert [connector.rows(f"hostile.{table}") for table in ("t", "u", "v", "w")] == [expected] * 4
        hostile_session.sql("INSERT INTO t VALUES (1000, 'x', 'y', '')")
        connector.capture()
    assert connector.rows("hostile.t") == source_rows(hostile_session.server, "hostile", "t")


@pytest.mark.parametrize("surrogate", [None, "s"])
def test_chunks_have_everything(hostile_session: HostileServer, tmp_path: Path, surrogate: str | None) -> None:
    _create_filled(hostile_session)
    connector = _connector(hostile_session, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=10)
    connector.replay.partial = True
    with hostile_session:
        connector.capture()
        signal_data = {"data-collections": ["hostile.t"], **({"surrogate-key": surrogate} if surrogate else {})}
        number = send(connector, "execute-snapshot", signal_data)
        connector.capture()
        assert signal_state(connector, number)[0] == "done"
    assert connector.rows("hostile.t") == source_rows(hostile_session.server, "hostile", "t")


def test_windows_by_deletion_need_no_key_of_the_signal_table(hostile_session: HostileServer, tmp_path: Path) -> None:
    _create_filled(hostile_session)
    hostile_session.sql("CREATE TABLE asks (id VARCHAR(42), type VARCHAR(32), data VARCHAR(2048))")
    account = f"'{hostile_session.server.user}'@'%'"
    hostile_session.sql(f"GRANT SELECT, INSERT, DELETE ON hostile.asks TO {account}")
    try:
        connector = _connector(
            hostile_session, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=50,
            signal_data_collection="hostile.asks", incremental_snapshot_watermarking_strategy="insert_delete",
        )  # fmt: skip
        connector.replay.partial = True
        with hostile_session:
            connector.capture()
            number = send(connector, "execute-snapshot", {"data-collections": ["hostile.t"]})
            connector.capture()
            assert signal_state(connector, number)[0] == "done"
    finally:
        hostile_session.sql(f"REVOKE SELECT, INSERT, DELETE ON hostile.asks FROM {account}")
    assert connector.rows("hostile.t") == source_rows(hostile_session.server, "hostile", "t")


def test_the_catalog_is_whole(hostile_session: HostileServer) -> None:
    for i in range(12):
        hostile_session.sql(
            f"CREATE TABLE `odd name {i}` (a INT, b DECIMAL(9,2) DEFAULT 1.5, c VARCHAR(9) DEFAULT '', PRIMARY KEY (a, b))"
        )
    with source_of(hostile_session.server) as source:
        expected = {t: s for t, s in source.discover_tables().items() if t.namespace == "hostile"}
    with hostile_session, source_of(hostile_session.server) as source:
        found = {t: s for t, s in source.discover_tables().items() if t.namespace == "hostile"}
    assert found == expected
    assert len(found) == 12


def test_a_key_that_the_server_has_made_is_known(mysql97: Any) -> None:
    hostile = HostileServer(mysql97, "mysql97")
    hostile.sql("CREATE DATABASE hostile", "USE hostile", "SET sql_generate_invisible_primary_key = ON")
    try:
        hostile.sql("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
        table = TableId(namespace="hostile", name="t")
        with hostile, source_of(mysql97) as source:
            assert source.discover_tables()[table].column_names == ("my_row_id", "a")
    finally:
        hostile.sql("DROP DATABASE hostile")
        hostile.connection.close()


@pytest.mark.parametrize("type_", ["VARCHAR(9000)", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
@pytest.mark.parametrize("kind", OWN)
def test_texts_without_an_index_are_put_in_order_by_all_of_their_characters(
    request: pytest.FixtureRequest, kind: str, type_: str
) -> None:
    server = request.getfixturevalue(kind)
    with server.database("long") as database:
        database.sql(f"CREATE TABLE t (n INT PRIMARY KEY, s {type_} CHARACTER SET utf8mb4 NOT NULL)")
        rows = ", ".join(f"({n}, '{'p' * 4000}{(n * 37) % 100:05d}')" for n in range(100))
        database.sql(f"INSERT INTO t VALUES {rows}")
        expected = [n for (n,) in database.sql("SELECT n FROM t ORDER BY RIGHT(s, 5)")]
        table = TableId(namespace=database.name, name="t")
        with reader_of(server) as reader:
            assert read_chunks(reader, table, 9, ("s",))[0] == expected
