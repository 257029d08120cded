"""Refusals of capture: each is a clear error that names the remedy, and leaves the offset where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    PositionLost,
    PrerequisiteError,
    SourceUnavailable,
    UnreadableValue,
)
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot_as_advised
from tests.support.sources.mysql.mysql_server import purge_log
from tests.support.sources.mysql.workload import source_rows


@pytest.fixture(scope="module")
def dedicated_server(mariadb_factory: Any) -> Iterator[Any]:
    """A server whose settings and logs these tests may turn over."""
    with mariadb_factory() as server:
        yield server


@pytest.fixture
def db(dedicated_server: Any) -> Iterator[Any]:
    with dedicated_server.database() as database:
        database.sql("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(10))")
        database.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        yield database


@pytest.fixture
def connector(db: Any, tmp_path: Path) -> Connector:
    connector = mysql_connector(db.server, tmp_path, database_include_list=db.name)
    connector.capture()
    return connector


def _assert_run_fails(
    connector: Connector, error: type[CdcError], *words: str, secrets: dict[str, Any] | None = None
) -> None:
    """The run fails with words for the person on call; offset and change log are as before."""
    before = (
        connector.store.load_offset(connector.name),
        [m.batch for m in connector.changelog.read_manifests(connector.name)],
    )
    connector.secrets = {**connector.secrets, **(secrets or {})}
    with pytest.raises(error) as caught:
        connector.capture()
    text = str(caught.value)
    for word in (*words, "Repair: "):
        assert word in text, text
    assert "cdc-wrong" not in text
    after = (
        connector.store.load_offset(connector.name),
        [m.batch for m in connector.changelog.read_manifests(connector.name)],
    )
    assert after == before


def _equal(connector: Connector, db: Any) -> None:
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


@pytest.fixture
def set_variable(dedicated_server: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets a global variable for one test."""
    before: dict[str, Any] = {}

    def set_(name: str, value: str) -> None:
        with dedicated_server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            before.setdefault(name, cursor.fetchone()[0])
        dedicated_server.sql(f"SET GLOBAL {name} = '{value}'")

    yield set_
    for name, value in before.items():
        dedicated_server.sql(f"SET GLOBAL {name} = '{value}'")


def test_wrong_password(connector: Connector) -> None:
    _assert_run_fails(
        connector, AccessDenied, "rejected user 'cdc'", "Airflow connection", secrets={"database.password": "cdc-wrong"}
    )


def test_no_server(connector: Connector) -> None:
    _assert_run_fails(connector, SourceUnavailable, "does not answer", secrets={"database.port": 1})


@pytest.mark.parametrize("lost", ["REPLICATION SLAVE", "BINLOG MONITOR", "SELECT"])
def test_missing_grant_is_named_with_the_statement_that_gives_it(connector: Connector, db: Any, lost: str) -> None:
    db.sql("CREATE USER IF NOT EXISTS 'few'@'%' IDENTIFIED BY 'few'")
    grants = {"SELECT", "RELOAD", "REPLICATION SLAVE", "BINLOG MONITOR"} - {lost}
    db.sql(f"GRANT {', '.join(sorted(grants))} ON *.* TO 'few'@'%'")
    try:
        reported = "REPLICATION CLIENT" if lost == "BINLOG MONITOR" else lost
        _assert_run_fails(
            connector, PrerequisiteError, f"lacks the privilege {reported}", f"GRANT {reported} ON *.* TO 'few'@'%'",
            secrets={"database.user": "few", "database.password": "few"},
        )  # fmt: skip
    finally:
        db.sql("DROP USER 'few'@'%'")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_image", "NOBLOB", "FULL"),
        ("binlog_row_metadata", "NO_LOG", "FULL"),
    ],
)
def test_server_setting_that_loses_data(
    connector: Connector, set_variable: Callable[[str, str], None], name: str, value: str, expected: str
) -> None:
    set_variable(name, value)
    _assert_run_fails(connector, PrerequisiteError, f"{name} is {value}", f"SET GLOBAL {name} = '{expected}'")


def test_all_findings_are_reported_at_once(connector: Connector, set_variable: Callable[[str, str], None]) -> None:
    set_variable("binlog_format", "STATEMENT")
    set_variable("binlog_row_image", "MINIMAL")
    _assert_run_fails(connector, PrerequisiteError, "binlog_format is STATEMENT", "binlog_row_image is MINIMAL")


def test_one_session_that_logs_statements(connector: Connector, db: Any) -> None:
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (3, 'rows')")
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute("UPDATE t SET b = 'lost' WHERE a = 1")
    with pytest.raises(PrerequisiteError) as caught:
        connector.capture()
    assert "UPDATE t SET b" in str(caught.value)
    assert "binlog_format = 'ROW'" in str(caught.value)
    # what came before the statement is there, and only that
    assert [r["a"] for r in connector.rows(f"{db.name}.t")] in ([1, 2], [1, 2, 3])
    connector.capture({"snapshot.mode": "always"})
    _equal(connector, db)


def test_statements_on_tables_that_are_not_captured_do_not_matter(
    dedicated_server: Any, connector: Connector, db: Any
) -> None:
    with (
        dedicated_server.database() as other,
        other.connect(autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE elsewhere (a INT)")
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute("INSERT INTO elsewhere VALUES (1)")
        db.sql("INSERT INTO t VALUES (4, 'four')")
        connector.capture()
        _equal(connector, db)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_one_session_that_logs_parts_of_rows_stops_its_table_alone(connector: Connector, db: Any, image: str) -> None:
    db.sql("ALTER TABLE t ADD c TEXT", "CREATE TABLE u (a INT PRIMARY KEY)")
    connector.capture()
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = '{image}'")
        cursor.execute("UPDATE t SET b = 'part' WHERE a = 1")
        cursor.execute("INSERT INTO u VALUES (1)")
    for _ in range(2):
        with pytest.raises(UnreadableValue, match=rf"binlog_row_image[\s\S]* {db.name}\.t") as caught:
            connector.capture()
        assert connector.rows(f"{db.name}.u") == [{"a": 1}]
    snapshot_as_advised(connector, str(caught.value))
    connector.capture()
    db.sql("UPDATE t SET b = 'later' WHERE a = 2")
    connector.capture()
    _equal(connector, db)


def test_purged_log(connector: Connector, dedicated_server: Any, db: Any) -> None:
    db.sql("INSERT INTO t VALUES (5, 'five')")
    dedicated_server.sql("FLUSH BINARY LOGS")
    db.sql("INSERT INTO t VALUES (6, 'six')")
    purge_log(dedicated_server)
    _assert_run_fails(connector, PositionLost, "purged", "snapshot.mode=when_needed")
    connector.capture({"snapshot.mode": "when_needed"})
    _equal(connector, db)
    assert len(connector.rows(f"{db.name}.t")) == 4


def test_log_that_was_reset(connector: Connector, dedicated_server: Any, db: Any) -> None:
    dedicated_server.sql("RESET MASTER")
    db.sql("INSERT INTO t VALUES (7, 'seven')")
    _assert_run_fails(connector, PositionLost, "snapshot.mode=when_needed")
    connector.capture({"snapshot.mode": "when_needed"})
    _equal(connector, db)


def test_log_that_was_reset_and_has_grown_past_the_position(
    connector: Connector, dedicated_server: Any, db: Any
) -> None:
    time.sleep(1)  # a log file is known by the second it was made in
    dedicated_server.sql("RESET MASTER")
    for i in range(60):
        db.sql(f"INSERT INTO t VALUES ({100 + i}, 'more')")
    _assert_run_fails(connector, PositionLost, "snapshot.mode=when_needed")


def test_another_server_in_its_place(connector: Connector, mariadb_factory: Any, db: Any) -> None:
    with mariadb_factory(server_id="77") as other:
        other.sql(f"CREATE DATABASE {db.name}")
        _assert_run_fails(
            connector, PositionLost, "snapshot.mode=when_needed",
            secrets={"database.hostname": other.host, "database.port": other.port},
        )  # fmt: skip


def test_source_kind_that_the_server_is_not(db: Any, tmp_path: Path) -> None:
    connector = mysql_connector(db.server, tmp_path, kind="mysql", database_include_list=db.name)
    with pytest.raises(CdcError, match="use the source mariadb"):
        connector.capture()


def test_server_that_goes_away_in_the_middle(mariadb_factory: Any, tmp_path: Path) -> None:
    with mariadb_factory() as server, server.database() as db:
        db.sql("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(10))")
        connector = mysql_connector(server, tmp_path, database_include_list=db.name)
        connector.capture()
        db.sql("INSERT INTO t VALUES (1, 'x')")
        server.kill()
        with pytest.raises(SourceUnavailable):
            connector.capture()
        server.restart()
        connector.capture()
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")
        assert connector.replay.operations["c"] == 1


@pytest.mark.parametrize(
    ("column", "first", "then"),
    [
        ("DECIMAL(20,10)", {"decimal.handling.mode": "double"}, {"decimal.handling.mode": "precise"}),
        ("VARBINARY(10)", {}, {"binary.handling.mode": "hex"}),
        ("BIGINT UNSIGNED", {}, {"bigint.unsigned.handling.mode": "precise"}),
        ("TINYINT(1)", {}, {"converters": "b", "b.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"}),
    ],
)  # fmt: skip
def test_columns_of_another_type_in_the_middle_of_the_log(
    db: Any, tmp_path: Path, column: str, first: dict[str, str], then: dict[str, str]
) -> None:
    db.sql(f"CREATE TABLE v (id INT PRIMARY KEY, v {column})", "INSERT INTO v VALUES (1, 1)")
    connector = mysql_connector(db.server, tmp_path, database_include_list=db.name)
    connector.properties |= first
    connector.capture()
    db.sql("INSERT INTO v VALUES (2, 1)")
    name = next(iter(then))
    connector.properties |= then
    _assert_run_fails(connector, ConfigError, name, f"{db.name}.v.v", "snapshot.mode=always")
    connector.capture({"snapshot.mode": "always"})
    db.sql("INSERT INTO v VALUES (3, 1)")
    connector.capture()
    rows = connector.rows(f"{db.name}.v")
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert len({(type(row["v"]), row["v"]) for row in rows}) == 1, "all in the new form"


def test_a_mode_that_no_column_depends_on_may_change(db: Any, connector: Connector) -> None:
    db.sql("INSERT INTO t VALUES (3, 'three')")
    connector.properties |= {"decimal.handling.mode": "string", "binary.handling.mode": "hex"}
    assert connector.capture().events == 1
