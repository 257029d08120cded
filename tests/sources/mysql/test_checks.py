"""Checks before a capture: the documented account, its privileges, and settings of the server; each lack with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql.checks import _settings
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows

PAGE = (Path(__file__).parents[3] / "docs/sources/mysql.md").read_text()


BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("setup") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        yield database


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(db.server, folder, "mysql", database_include_list=db.name, **properties)


def test_the_documented_account_can_capture_and_change_nothing(db: Any, tmp_path: Path) -> None:
    block, *_ = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    db.sql("DROP USER IF EXISTS 'cdc'@'localhost'")
    block = block.replace("'cdc'", "'documented'").replace("…", "secret").replace("shop.*", f"{db.name}.*")
    statements = [s for s in block.split(";") if s.strip()]
    db.server.sql("DROP USER IF EXISTS 'documented'@'%'", *statements)
    before = db.sql("SHOW CREATE TABLE t"), db.sql("SHOW TABLES")
    connector = _connector(db, tmp_path)
    connector.secrets |= {"database.user": "documented", "database.password": "secret"}
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (2, 2)")
    capture_records(connector)
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")
    assert (db.sql("SHOW CREATE TABLE t"), db.sql("SHOW TABLES")) == before
    everywhere, in_database = re.findall(r"GRANT (.*) ON", block)
    granted = {*everywhere.split(", "), *in_database.split(", ")}
    assert not {"INSERT", "UPDATE", "DELETE", "CREATE", "ALL PRIVILEGES"} & granted
    assert "SELECT" not in everywhere


def test_every_missing_privilege_is_named_at_once(db: Any, tmp_path: Path) -> None:
    db.server.sql("DROP USER IF EXISTS 'none'@'%'", "CREATE USER 'none'@'%' IDENTIFIED BY 'none'")
    connector = _connector(db, tmp_path)
    connector.secrets |= {"database.user": "none", "database.password": "none"}
    with pytest.raises(PrerequisiteError) as caught:
        connector.capture()
    named = re.findall(r"lacks the privilege ([A-Z ]+)\.", str(caught.value))
    assert named == ["REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT", "RELOAD"]
    for name in named:
        assert f"GRANT {name} ON *.* TO 'none'@'%'" in str(caught.value)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_privileges_of_snapshots_are_needed_for_snapshots_only(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    server = request.getfixturevalue(kind)
    with server.database("rights") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        account = "'stream'@'%'"
        server.sql(f"DROP USER IF EXISTS {account}", f"CREATE USER {account} IDENTIFIED BY 'stream'")
        server.sql(f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
        connector = mysql_connector(server, tmp_path, server.kind, database_include_list=db.name)
        connector.secrets |= {"database.user": "stream", "database.password": "stream"}
        connector.capture()
        server.sql(f"REVOKE SELECT, RELOAD, SHOW DATABASES ON *.* FROM {account}")
        db.sql("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD w INT", "UPDATE t SET w = 3")
        with pytest.raises(PrerequisiteError, match="lacks the privilege SELECT"):
            connector.capture()
        connector.properties["snapshot.mode"] = "never"
        connector.capture()
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")
        for needed in ("REPLICATION SLAVE", "REPLICATION CLIENT"):
            server.sql(f"REVOKE {needed} ON *.* FROM {account}")
            with pytest.raises(PrerequisiteError, match=f"lacks the privilege {needed}"):
                connector.capture()
            server.sql(f"GRANT {needed} ON *.* TO {account}")


GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
}


def _findings(**variables: str) -> list[Any]:
    server = MySqlServer("9.7.0", False, "id", {**GOOD, **variables})
    return _settings(server, MySqlConfig.parse(BASE))


@pytest.mark.parametrize(
    ("variables", "message", "fix", "fatal"),
    [
        ({"log_bin": "OFF"}, "writes no binary log", "log_bin=binlog", True),
        ({"binlog_format": "MIXED"}, "binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'", True),
        ({"binlog_row_image": "NOBLOB"}, "binlog_row_image is NOBLOB", "SET GLOBAL binlog_row_image = 'FULL'", True),
        (
            {"binlog_row_metadata": "MINIMAL"},
            "binlog_row_metadata is MINIMAL",
            "SET GLOBAL binlog_row_metadata = 'FULL'",
            False,
        ),
        (
            {"binlog_row_metadata": "NO_LOG"},
            "binlog_row_metadata is NO_LOG",
            "SET GLOBAL binlog_row_metadata = 'FULL'",
            True,
        ),
        ({"server_id": "7"}, "database.server.id is 7", "choose a number", True),
    ],
)
def test_a_setting_that_will_not_do_is_reported(variables: dict[str, str], message: str, fix: str, fatal: bool) -> None:
    (finding,) = _findings(**variables)
    assert message in finding.problem
    assert fix in finding.fix
    assert finding.fatal == fatal


def test_settings_count_in_upper_and_lower_case() -> None:
    assert _findings() == []
    assert _findings(log_bin="on", binlog_format="row", binlog_row_image="full", binlog_row_metadata="full") == []
    assert _findings(binlog_expire_logs_seconds="2592000") == []


def test_parts_of_json_documents_are_refused_with_what_mends_it(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    db.sql("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    try:
        with pytest.raises(PrerequisiteError) as caught:
            connector.capture()
        fix = "SET GLOBAL binlog_row_value_options = ''"
        assert fix in str(caught.value)
    finally:
        db.sql("SET GLOBAL binlog_row_value_options = ''")
    assert connector.capture().events == 1


def test_a_server_without_a_binary_log_is_refused(mysql_factory: Any, tmp_path: Path) -> None:
    with mysql_factory("9.7", log_bin=False, gtid_mode=None, enforce_gtid_consistency=None) as server:
        connector = mysql_connector(server, tmp_path, "mysql")
        with pytest.raises(PrerequisiteError, match="writes no binary log"):
            connector.capture()
