"""What is not in the log of MySQL and MariaDB: it is captured, its table is read again, or it is said before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.runtime import open_source
from tests.support.connectors import Connector, mysql_connector
from tests.support.workload import source_rows

_EPOCH = dt.date(1970, 1, 1)
"""What a date that the calendar does not have is in a column that may not be null."""
EITHER = pytest.mark.parametrize("kind", ["mariadb", "mysql97"])


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> Any:
    return request.getfixturevalue(kind)


@pytest.fixture
def db(server: Any) -> Iterator[Any]:
    with server.database("nl") as database:
        yield database


@pytest.fixture
def connector(db: Any, tmp_path: Path) -> Connector:
    return mysql_connector(db.server, tmp_path, db.server.kind, database_include_list=db.name)


def _equal(connector: Connector, db: Any, *tables: str) -> None:
    for table in tables:
        there = [
            {name: _EPOCH if value == "0000-00-00" else value for name, value in row.items()}
            for row in source_rows(db.server, db.name, table)
        ]
        assert connector.rows(f"{db.name}.{table}") == there, table


def _session(db: Any, *statements: str) -> None:
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


# -- foreign keys ------------------------------------------------------------------------------------------------------

FAMILY = (
    "CREATE TABLE p (id INT PRIMARY KEY)",
    "CREATE TABLE c (id INT PRIMARY KEY, pid INT, CONSTRAINT c_of_p FOREIGN KEY (pid) REFERENCES p (id) ON DELETE CASCADE ON UPDATE SET NULL)",
    "CREATE TABLE kept (id INT PRIMARY KEY, pid INT, CONSTRAINT k_of_p FOREIGN KEY (pid) REFERENCES p (id))",
    "INSERT INTO p VALUES (1)",
    "INSERT INTO c VALUES (10, 1)",
)


def _said(connector: Connector) -> list[str]:
    with open_source(connector.definition(), connector.secrets) as source:
        return [f"{f.what} {f.fix}" for f in source.check() if not f.fatal and "TLS" not in f.fix]


def test_cascades_that_are_not_logged_are_said_before_and_at_each_run(
    mariadb: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R01, R02, H8: MariaDB, and MySQL before 9.6, the same."""
    with mariadb.database("nl") as db:
        db.sql(*FAMILY)
        connector = mysql_connector(mariadb, tmp_path, database_include_list=db.name)
        (said,) = _said(connector)
        assert f"{db.name}.c (c_of_p to {db.name}.p, ON DELETE CASCADE, ON UPDATE SET NULL)" in said
        assert "k_of_p" not in said
        connector.capture()
        assert "c_of_p" in caplog.text
        assert not _said(mysql_connector(mariadb, tmp_path / "2", table_include_list=f"{db.name}.p"))


def test_mysql_logs_cascades_unless_the_engine_runs_them(mysql_factory: Any, mysql97: Any, tmp_path: Path) -> None:
    """R38: since 9.6 they are in the log, and with innodb_native_foreign_keys=ON they are not."""
    with mysql97.database("nl") as db:
        db.sql(*FAMILY)
        connector = mysql_connector(mysql97, tmp_path / "off", "mysql", database_include_list=db.name)
        assert _said(connector) == []
        connector.capture()
        db.sql("DELETE FROM p")
        connector.capture()
        _equal(connector, db, "p", "c")
    with mysql_factory(innodb_native_foreign_keys="ON") as server, server.database("nl") as db:
        db.sql(*FAMILY)
        (said,) = _said(mysql_connector(server, tmp_path / "on", "mysql", database_include_list=db.name))
        assert "c_of_p" in said
        assert "innodb_native_foreign_keys=OFF" in said


# -- statements instead of rows ----------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE t SET v = 9 WHERE id = 1", "it names {db}.t"),
        ("UPDATE w SET v = 9 WHERE id = 1", "the view {db}.w"),
        ("INSERT INTO au VALUES (1)", "{db}.au"),
        ("DO f()", "calls a function"),
        ("SELECT f()", "calls a function"),
        ("INSERT INTO other.x VALUES (1)", "the table with triggers {db}_other.x"),
        ("INSERT INTO other.y SELECT id FROM w", "the view {db}.w"),
        ("INSERT INTO other.y VALUES (f())", "the function {db}.f"),
    ],
)
def test_statements_that_change_captured_rows_by_another_name_are_refused(
    db: Any, connector: Connector, statement: str, why: str
) -> None:
    """M2, M2 MariaDB."""
    other = f"{db.name}_other"
    connector.properties = {**connector.properties, "table.include.list": f"{db.name}.t"}
    del connector.properties["database.include.list"]
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE TABLE au (id INT)",
        "CREATE TRIGGER tr AFTER INSERT ON au FOR EACH ROW UPDATE t SET v = 20 WHERE id = 2",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET v = 30 WHERE id = 3; RETURN 1; END",
        f"DROP DATABASE IF EXISTS {other}",
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.x (id INT)",
        f"CREATE TABLE {other}.y (id INT)",
        f"CREATE TRIGGER {other}.tr2 AFTER INSERT ON {other}.x FOR EACH ROW UPDATE {db.name}.t SET v = 40 WHERE id = 1",
    )
    try:
        if "triggers" in why:
            _may_see_triggers(db.server, connector)
        connector.capture()
        _session(db, "SET binlog_format = 'STATEMENT'", f"INSERT INTO {other}.y VALUES (0)")
        assert connector.capture().events == 0
        _session(db, "SET binlog_format = 'STATEMENT'", statement.replace("other.", f"{other}."))
        with pytest.raises(PrerequisiteError, match="instead of rows") as caught:
            connector.capture()
        assert why.format(db=db.name) in caught.value.what
    finally:
        db.sql(f"DROP DATABASE {other}")


def _may_see_triggers(server: Any, connector: Connector) -> None:
    server.sql("DROP USER IF EXISTS 'sees'@'%'", "CREATE USER 'sees'@'%' IDENTIFIED BY 'sees'")
    server.sql("GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT, TRIGGER ON *.* TO 'sees'@'%'")
    connector.secrets |= {"database.user": "sees", "database.password": "sees"}


# -- DDL that changes rows ---------------------------------------------------------------------------------------------

LENIENT = [
    ("VARCHAR(20) CHARACTER SET utf8mb4", "'😀'", "CONVERT TO CHARACTER SET utf8mb3"),
    ("VARCHAR(20) CHARACTER SET utf8mb4", "'😀'", "MODIFY v VARCHAR(20) CHARACTER SET ucs2"),
    ("CHAR(20)", "'abcdefgh'", "MODIFY v VARCHAR(3)"),
    ("DECIMAL(5,2)", "-1.5", "MODIFY v DECIMAL(5,2) UNSIGNED"),
    ("VARCHAR(1000)", "REPEAT('x', 1000)", "MODIFY v TINYTEXT"),
    ("VARBINARY(1000)", "REPEAT('x', 1000)", "MODIFY v TINYBLOB"),
    ("INT", "300", "MODIFY v TINYINT"),
    ("FLOAT(7,2)", "1.1", "MODIFY v DOUBLE(10,2)"),
    ("INT", "1", "ADD w DOUBLE(5,2) NOT NULL DEFAULT 1.239"),
    ("INT", "1", "ADD w BIT(8) NOT NULL DEFAULT 2.5"),
    ("DATE", "'0000-00-00'", "MODIFY v DATE NOT NULL"),
    ("INT NOT NULL", "0", "MODIFY v INT NOT NULL AUTO_INCREMENT, ADD KEY (v)"),
]


@EITHER
def test_ddl_that_changes_rows_has_its_table_read_again(db: Any, connector: Connector) -> None:
    """M3, M3 MariaDB, L7, L12: in a session that is not strict; each in a table of its own."""
    names = [f"t{i}" for i in range(len(LENIENT))]
    for name, (type_, value, _) in zip(names, LENIENT, strict=True):
        _session(
            db, "SET sql_mode = ''", f"CREATE TABLE {name} (id INT PRIMARY KEY, v {type_}) CHARSET=utf8mb4",
            f"INSERT INTO {name} VALUES (1, {value})",
        )  # fmt: skip
    connector.capture()
    for name, (_, _, action) in zip(names, LENIENT, strict=True):
        _session(db, "SET sql_mode = ''", f"ALTER TABLE {name} {action}")
    connector.capture()
    _equal(connector, db, *names)


GENERATED = [
    ("a INT, g INT AS (a * 2) STORED, w INT AS (a + 1) VIRTUAL", "5", "MODIFY g INT GENERATED ALWAYS AS (a * 3) STORED"),
    ("a INT, g INT AS (a * 2) STORED, w INT AS (a + 1) VIRTUAL", "5", "MODIFY w INT GENERATED ALWAYS AS (a + 100) VIRTUAL"),
    ("a FLOAT, g VARCHAR(90) AS (CONCAT(a, 'x')) STORED", "1.1", "MODIFY a DOUBLE"),
    ("a DECIMAL(10,2), g VARCHAR(90) AS (CONCAT(a, '!')) VIRTUAL", "1.5", "MODIFY a DECIMAL(12,4)"),
    ("a DATETIME, g VARCHAR(90) AS (CONCAT(a, '!')) VIRTUAL", "'2024-01-01'", "MODIFY a DATETIME(3)"),
    ("a VARCHAR(9) COLLATE utf8mb4_general_ci, g INT AS (a = 'A') VIRTUAL", "'a'", "MODIFY a VARCHAR(9) COLLATE utf8mb4_bin"),
]  # fmt: skip


@EITHER
def test_generated_columns_are_read_again_when_their_expression_or_its_input_changes(
    db: Any, connector: Connector
) -> None:
    """R04: and nothing is where a column changes that no expression mentions."""
    names = [f"g{i}" for i in range(len(GENERATED))]
    for name, (columns, value, _) in zip(names, GENERATED, strict=True):
        db.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns}) CHARSET=utf8mb4", f"INSERT INTO {name} (id, a) VALUES (1, {value})")  # fmt: skip
    db.sql("CREATE TABLE still (id INT PRIMARY KEY, v VARCHAR(20), g INT AS (id + 1))", "INSERT INTO still (id, v) VALUES (1, 'a')")  # fmt: skip
    connector.capture()
    for name, (_, _, action) in zip(names, GENERATED, strict=True):
        db.sql(f"ALTER TABLE {name} {action}")
    connector.capture()
    _equal(connector, db, *names)
    db.sql("ALTER TABLE still MODIFY v VARCHAR(300)")
    assert connector.capture().events == 0
