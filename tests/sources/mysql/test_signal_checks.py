"""The signal table as the check of prerequisites sees it: what is wrong, and the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from tests.support.connectors import mysql_connector
from tests.support.signals import signal_ended, signal_state, snapshot
from tests.support.sources.mysql.mysql_chunks import reader_of, source_of

GOOD = "id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL"


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    server = request.getfixturevalue(request.param)
    with server.database("check") as database:
        yield database
        server.sql(f"DROP USER IF EXISTS '{server.user}'@'%'", *server._setup_statements()[2:])


def _list_findings(db: Any, table: str = "s", **properties: Any) -> list[Finding]:
    with source_of(db.server, signal_data_collection=f"{db.name}.{table}", **properties) as source:
        findings = source.check_prerequisites()
    assert not any(f.fatal for f in findings)
    return [f for f in findings if db.name in f.problem]


def _grant_privileges(db: Any, *privileges: str) -> None:
    db.sql(f"GRANT {', '.join(privileges)} ON s TO '{db.server.user}'@'%'")


def test_a_table_that_fits_is_no_finding(db: Any) -> None:
    db.sql(f"CREATE TABLE s ({GOOD})")
    _grant_privileges(db, "INSERT")
    assert _list_findings(db) == []
    _grant_privileges(db, "INSERT", "DELETE")
    assert _list_findings(db, incremental_snapshot_watermarking_strategy="insert_delete") == []


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
def test_a_missing_right_is_reported_with_its_grant(db: Any, strategy: str) -> None:
    db.sql(f"CREATE TABLE s ({GOOD})")
    (finding,) = _list_findings(db, incremental_snapshot_watermarking_strategy=strategy)
    needed = {"INSERT"} if strategy == "insert_insert" else {"INSERT", "DELETE"}
    assert all(name in finding.problem for name in needed)
    db.server.sql(*finding.fix.split(";")[:1])
    assert _list_findings(db, incremental_snapshot_watermarking_strategy=strategy) == []
    assert _list_findings(db, read_only=True) == []


def test_a_table_that_is_missing_is_reported_with_the_statements_that_make_it(db: Any) -> None:
    (finding,) = _list_findings(db)
    assert "does not exist" in finding.problem
    db.server.sql(*finding.fix.split("; "))
    assert _list_findings(db) == []
    login = TableId(namespace=db.name, name="s")
    with reader_of(db.server, login) as reader:
        reader.insert_signal_row("1", "a")
        reader.delete_signal_row("1")


@pytest.mark.parametrize(
    ("columns", "messages"),
    [
        ("id VARCHAR(64) PRIMARY KEY, type VARCHAR(32)", ["2 columns instead of three"]),
        ("id VARCHAR(41) PRIMARY KEY, type VARCHAR(32), data TEXT", ["ids of watermarks"]),
        ("id INT PRIMARY KEY, type VARCHAR(31), data TEXT", ["ids of watermarks", "types of signals"]),
        ("id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data VARCHAR(100)", ["data of signals"]),
        ("id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data BLOB", ["data of signals"]),
    ],
)
def test_columns_that_do_not_fit_are_reported(db: Any, columns: str, messages: list[str]) -> None:
    db.sql(f"CREATE TABLE s ({columns})")
    _grant_privileges(db, "INSERT")
    findings = _list_findings(db)
    assert len(findings) == len(messages)
    for finding, what in zip(findings, messages, strict=True):
        assert what in finding.problem
    if "instead" not in messages[0]:
        db.server.sql(*[f.fix for f in findings])
        assert _list_findings(db) == []


def test_a_table_without_transactions_is_reported(db: Any) -> None:
    db.sql(f"CREATE TABLE s ({GOOD}) ENGINE=MyISAM")
    _grant_privileges(db, "INSERT")
    (finding,) = _list_findings(db)
    assert "MyISAM" in finding.problem
    db.server.sql(finding.fix)
    assert _list_findings(db) == []


@pytest.mark.parametrize(("kind", "option", "value"), [
    ("mariadb", "binlog_ignore_db", "quiet"), ("9.7", "binlog_do_db", "shop"), ("8.0", "binlog_ignore_db", "quiet"),
])  # fmt: skip
def test_a_database_that_the_server_does_not_log_is_reported_before_and_when_a_table_is_read(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, option: str, value: str
) -> None:
    factory = request.getfixturevalue("mariadb_factory" if kind == "mariadb" else "mysql_factory")
    with factory(*([] if kind == "mariadb" else [kind]), **{option: value}) as server:
        server.sql("CREATE DATABASE quiet", "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, n INT)")
        server.sql("INSERT INTO shop.a VALUES (1, 1), (2, 2)")
        for name in ("quiet", "shop"):
            server.sql(f"CREATE TABLE {name}.s ({GOOD})", f"GRANT SELECT, INSERT ON {name}.s TO '{server.user}'@'%'")
        with source_of(server, signal_data_collection="quiet.s") as source:
            (finding,) = source.check_prerequisites()
        assert option in finding.problem
        assert not finding.fatal
        with source_of(server, signal_data_collection="shop.s", database_include_list="shop") as source:
            assert source.check_prerequisites() == []
        connector = mysql_connector(
            server, tmp_path, "mariadb" if kind == "mariadb" else "mysql", database_include_list="shop",
            snapshot_mode="no_data", signal_data_collection="quiet.s", table_include_list="shop.a",
        )  # fmt: skip
        connector.capture()
        number = snapshot(connector, "shop.a")
        server.sql("INSERT INTO shop.a VALUES (3, 3)")
        assert connector.capture(run_for_s=60, until=signal_ended(connector, number)).events == 1
        state, message = signal_state(connector, number)
        assert state == "failed"
        assert "the log does not contain the rows written to the signal table quiet.s" in message
        # of tables that are captured it is worse
        server.sql("CREATE TABLE quiet.b (id INT PRIMARY KEY)")
        with source_of(server, database_include_list="quiet,shop", signal_data_collection="quiet.s") as source:
            worse, _ = source.check_prerequisites()
        assert worse.fatal
        assert f"does not log the database quiet ({option})" in worse.problem
        with pytest.raises(PrerequisiteError, match="does not log the database quiet"):
            connector.capture({"database.include.list": "quiet,shop", "table.include.list": ""})


def test_a_name_that_is_none_is_reported(db: Any) -> None:
    with source_of(db.server, signal_data_collection="signals") as source:
        (finding,) = source.check_prerequisites()
    assert not finding.fatal
    assert "<database>.<table>" in finding.problem


def test_commits_out_of_order_are_reported(mysql97: Any) -> None:
    with mysql97.database("check") as db:
        db.sql(f"CREATE TABLE s ({GOOD})")
        _grant_privileges(db, "INSERT")
        mysql97.sql("SET GLOBAL binlog_order_commits = OFF")
        try:
            with source_of(mysql97, signal_data_collection=f"{db.name}.s") as source:
                (finding,) = source.check_prerequisites()
            assert "binlog_order_commits is OFF" in finding.problem
            assert not finding.fatal
            with source_of(mysql97, signal_data_collection=f"{db.name}.s", read_only=True) as source:
                assert source.check_prerequisites() == []
        finally:
            mysql97.sql("SET GLOBAL binlog_order_commits = ON")


def test_a_server_that_takes_no_writes_is_reported(db: Any) -> None:
    db.sql(f"CREATE TABLE s ({GOOD})")
    _grant_privileges(db, "INSERT")
    db.server.sql("SET GLOBAL read_only = ON")
    try:
        (finding,) = _found_any(db)
        assert "read.only=true" in finding.fix
    finally:
        db.server.sql("SET GLOBAL read_only = OFF")


def _found_any(db: Any) -> list[Finding]:
    with source_of(db.server, signal_data_collection=f"{db.name}.s") as source:
        return source.check_prerequisites()
