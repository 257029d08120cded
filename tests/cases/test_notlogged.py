"""Changes that are not in the log of MySQL and MariaDB: captured, repaired by reading the table again, or reported before."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows
from tests.targets.database.apply.test_database_apply import in_order, rows, sink

_EPOCH = dt.date(1970, 1, 1)
"""What a date that the calendar does not have is in a column that may not be null."""


@pytest.fixture(scope="module")
def mariadb118(mariadb_factory: Any) -> Iterator[Any]:
    with mariadb_factory(edition="11.8") as server:
        yield server


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


def _list_findings(connector: Connector) -> list[str]:
    with open_source(connector.definition(), connector.secrets) as source:
        return [f"{f.problem} {f.fix}" for f in source.check_prerequisites() if not f.fatal and "TLS" not in f.fix]


def test_cascades_that_are_not_logged_are_said_before_and_at_each_run(
    mariadb: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R01, R02, H8: MariaDB, and MySQL before 9.6, the same."""
    with mariadb.database("nl") as db:
        db.sql(*FAMILY)
        connector = mysql_connector(mariadb, tmp_path, database_include_list=db.name)
        (finding,) = _list_findings(connector)
        assert f"{db.name}.c (c_of_p to {db.name}.p, ON DELETE CASCADE, ON UPDATE SET NULL)" in finding
        assert "k_of_p" not in finding
        connector.capture()
        assert "c_of_p" in caplog.text
        assert not _list_findings(mysql_connector(mariadb, tmp_path / "2", table_include_list=f"{db.name}.p"))


def test_mysql_logs_cascades_unless_the_engine_runs_them(mysql_factory: Any, mysql97: Any, tmp_path: Path) -> None:
    """R38: since 9.6 they are in the log, and with innodb_native_foreign_keys=ON they are not."""
    with mysql97.database("nl") as db:
        db.sql(*FAMILY)
        connector = mysql_connector(mysql97, tmp_path / "off", "mysql", database_include_list=db.name)
        assert _list_findings(connector) == []
        connector.capture()
        db.sql("DELETE FROM p")
        connector.capture()
        _equal(connector, db, "p", "c")
    with mysql_factory(innodb_native_foreign_keys="ON") as server, server.database("nl") as db:
        db.sql(*FAMILY)
        (finding,) = _list_findings(mysql_connector(server, tmp_path / "on", "mysql", database_include_list=db.name))
        assert "c_of_p" in finding
        assert "innodb_native_foreign_keys=OFF" in finding


# -- statements instead of rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "statement", "why"),
    [
        ("mysql97", "UPDATE w SET v = 9 WHERE id = 1", "the view {db}.w"),
        ("mysql97", "INSERT INTO au VALUES (1)", "{db}.au"),
        ("mysql97", "SELECT f()", "calls a function"),
        ("mariadb", "UPDATE w SET v = 9 WHERE id = 1", "the view {db}.w"),
        ("mariadb", "INSERT INTO au VALUES (1)", "{db}.au"),
        ("mariadb", "SELECT f()", "calls a function"),
        ("mariadb", "UPDATE t SET v = 9 WHERE id = 1", "it names {db}.t"),
        ("mariadb", "DO f()", "calls a function"),
        ("mariadb", "INSERT INTO other.x VALUES (1)", "the table with triggers {db}_other.x"),
        ("mariadb", "INSERT INTO other.y SELECT id FROM w", "the view {db}.w"),
        ("mariadb", "INSERT INTO other.y VALUES (f())", "the function {db}.f"),
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
        assert why.format(db=db.name) in caught.value.message
    finally:
        db.sql(f"DROP DATABASE {other}")


def _may_see_triggers(server: Any, connector: Connector) -> None:
    server.sql("DROP USER IF EXISTS 'sees'@'%'", "CREATE USER 'sees'@'%' IDENTIFIED BY 'sees'")
    server.sql("GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT, TRIGGER ON *.* TO 'sees'@'%'")
    connector.secrets |= {"database.user": "sees", "database.password": "sees"}


@EITHER
def test_a_table_that_a_statement_makes_of_others_is_read(db: Any, connector: Connector) -> None:
    """A sibling of M2: outside of row format, the log has a SELECT instead of the table's rows."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    connector.capture()
    _session(db, "SET binlog_format = 'STATEMENT'", "CREATE TABLE n SELECT * FROM t")
    _session(db, "CREATE TABLE rows_of_n SELECT * FROM n")
    connector.capture()
    db.sql("INSERT INTO n VALUES (3, 3)")
    connector.capture()
    _equal(connector, db, "n", "rows_of_n")


@pytest.mark.parametrize(("kind", "compression"), [("mysql97", False), ("mysql97", True), ("mysql80", False)])
def test_parts_of_documents_of_other_tables_stop_nothing(db: Any, connector: Connector, compression: bool) -> None:
    """A sibling of M2: ``binlog_row_value_options`` of a session."""
    connector.properties = {**connector.properties, "table.exclude.list": f"{db.name}.j"}
    document = """'{"a": 1, "b": "long enough to be logged in part"}'"""
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE j (id INT PRIMARY KEY, d JSON)",
        "CREATE TABLE own (id INT PRIMARY KEY, d JSON)",
        f"INSERT INTO j VALUES (1, {document})",
        f"INSERT INTO own VALUES (1, {document})",
    )
    connector.capture()
    ways = ["SET binlog_row_value_options = 'PARTIAL_JSON'"]
    if compression:
        ways.append("SET binlog_transaction_compression = ON")
    in_part = "UPDATE {} SET d = JSON_SET(d, '$.a', 2)"
    _session(db, *ways, "BEGIN", "INSERT INTO t VALUES (1)", in_part.format("j"), "INSERT INTO t VALUES (2)", "COMMIT")
    connector.capture()
    _equal(connector, db, "t")
    _session(db, *ways, in_part.format("own"))
    with pytest.raises(PrerequisiteError, match="PARTIAL_JSON"):
        connector.capture()


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
    ("ENUM('é', 'b') CHARACTER SET utf8mb3", "'é'", "CONVERT TO CHARACTER SET latin1"),
    ("ENUM('a', 'b') CHARACTER SET latin1", "'a'", "CONVERT TO CHARACTER SET utf16"),
    ("INT", "1", "ADD w VARCHAR(9) DEFAULT 007"),
    ("INT", "1", "ADD w VARCHAR(9) NOT NULL DEFAULT -0"),
    ("INT", "1", "ADD w VARCHAR(9) DEFAULT .5"),
]


@EITHER
def test_ddl_that_changes_rows_has_its_table_read_again(db: Any, connector: Connector) -> None:
    """M3, M3 MariaDB, L7, L12: in a session that is not strict; each in a separate table."""
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


IN_PLACE = [
    "DROP b, ADD b INT",
    "DROP b, ADD b INT DEFAULT 5",
    "DROP a, ADD a INT NOT NULL DEFAULT 7 AFTER id",
    "CHANGE a b INT AFTER id, CHANGE b a INT AFTER id",
    "CHANGE a b INT, CHANGE b a INT",
    "DROP a, CHANGE b a INT",
    "DROP a, CHANGE b a INT, ADD b INT",
]


@EITHER
def test_columns_that_are_made_again_in_their_place_have_other_values(db: Any, connector: Connector) -> None:
    """The structure may be the one of before. A target that is not the lake has them as well."""
    names = [f"t{i}" for i in range(len(IN_PLACE))]
    for name in names:
        db.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b INT)",
            f"INSERT INTO {name} VALUES (1, 1, 10), (2, 2, 20)",
        )
    connector.capture()
    target = sa.create_engine("sqlite://")
    sink(target, connector).apply()
    for name, actions in zip(names, IN_PLACE, strict=True):
        db.sql(f"ALTER TABLE {name} {actions}", f"INSERT INTO {name} (id, a) VALUES (3, 3)")
    connector.capture()
    _equal(connector, db, *names)
    sink(target, connector).apply()
    for name in names:
        right = source_rows(db.server, db.name, name)
        found = rows(target, f"{connector.name}_{db.name}_{name}")
        assert [{column: row[column] for column in right[0]} for row in in_order(found)] == right, name


@EITHER
def test_converted_members_of_the_same_bytes_are_not_read_again(db: Any, connector: Connector) -> None:
    """A sibling of M3: of a table that is large."""
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a', 'b'), s SET('x', 'y')) CHARSET=utf8mb4",
        "CREATE TABLE u (id INT PRIMARY KEY, e ENUM('é', 'b')) CHARSET=utf8mb3",
        "CREATE TABLE w (id INT PRIMARY KEY, e ENUM('😀', 'b')) CHARSET=utf8mb4",
        "INSERT INTO w VALUES (1, 'b')",
        "INSERT INTO t VALUES (1, 'a', 'x,y')",
        "INSERT INTO u VALUES (1, 'é')",
    )
    connector.capture()
    _session(db, "SET sql_mode = ''", "ALTER TABLE t CONVERT TO CHARACTER SET latin1", "ALTER TABLE u CONVERT TO CHARACTER SET utf8mb4")  # fmt: skip
    assert connector.capture().events == 0
    db.sql("UPDATE t SET e = 'b'", "INSERT INTO u VALUES (2, 'é')")
    connector.capture()
    _equal(connector, db, "t", "u")
    db.sql("ALTER TABLE w CONVERT TO CHARACTER SET ucs2" if db.server.kind == "mysql" else "ALTER TABLE w CONVERT TO CHARACTER SET utf8mb3")  # fmt: skip
    assert connector.capture().events > 0  # MySQL: without an error, in a strict session


@EITHER
def test_members_whose_bytes_are_no_text_after_a_conversion_are_read_again(db: Any, connector: Connector) -> None:
    """A sibling of M3: servers keep the bytes of members, so that a value is lost, or what clients get is no UTF-8."""
    _session(db, "SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('é', 'b')) CHARSET=latin1", "INSERT INTO t VALUES (1, 'é')")  # fmt: skip
    connector.capture()
    _session(db, "SET sql_mode = ''", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4")
    connector.capture()
    there = {"": "", "E9": "\\xe9"}[db.sql("SELECT HEX(e) FROM t")[0][0]]
    assert connector.rows(f"{db.name}.t") == [{"id": 1, "e": there}]


@pytest.mark.parametrize("kind", ["mysql97"])
def test_members_that_are_no_text_any_more_are_captured(db: Any, connector: Connector) -> None:
    """A sibling of R17: tables that were converted, whose members MySQL shows as bytes, and sends as no UTF-8."""
    _session(
        db, "SET sql_mode = ''", "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('é', 'b')) CHARSET=latin1",
        "CREATE TABLE u (id INT PRIMARY KEY, e ENUM('😀', 'b')) CHARSET=utf8mb4", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3",
    )  # fmt: skip
    assert db.sql("SHOW COLUMNS FROM t")[1][1] == "enum(x'e9','b')"
    db.sql("INSERT INTO t VALUES (1, 'b')", "CREATE TABLE x (id INT PRIMARY KEY, e ENUM('😀', 'b') CHARACTER SET binary)", "INSERT INTO x VALUES (1, 1)")  # fmt: skip
    connector.capture()
    db.sql("INSERT INTO x VALUES (2, 1)")
    connector.capture()
    assert connector.rows(f"{db.name}.x") == [{"id": 1, "e": "😀"}, {"id": 2, "e": "😀"}]
    _session(db, "SET sql_mode = ''", "INSERT INTO t VALUES (2, 'b')", "ALTER TABLE u CONVERT TO CHARACTER SET ucs2", "INSERT INTO u VALUES (1, 2)")  # fmt: skip
    connector.capture()
    _equal(connector, db, "t")
    assert len(connector.rows(f"{db.name}.u")) == 1
    _session(db, "SET sql_mode = ''", "CREATE TABLE w (id INT PRIMARY KEY, s SET('ж', 'b')) CHARSET=cp1251", "INSERT INTO w VALUES (1, 'ж,b')", "ALTER TABLE w CONVERT TO CHARACTER SET utf8mb4")  # fmt: skip
    _session(db, "SET sql_mode = ''", "INSERT INTO w VALUES (2, 3)")
    connector.capture()
    assert connector.rows(f"{db.name}.w") == [{"id": 1, "s": "\\xe6,b"}, {"id": 2, "s": "\\xe6,b"}]


@pytest.mark.parametrize(
    "statements",
    [
        ("TRUNCATE TABLE t",),
        ("ALTER TABLE t DROP v", "ALTER TABLE t ADD PRIMARY KEY (z)", "CREATE UNIQUE INDEX i ON t (z)"),
        ("RENAME TABLE t TO elsewhere", "TRUNCATE TABLE elsewhere"),
    ],
    ids=["truncate", "alter", "rename"],
)
@pytest.mark.parametrize("kind", ["mariadb", "mariadb118", "mysql97"])
def test_statements_about_a_temporary_table_do_not_change_the_one_that_it_hides(
    db: Any, connector: Connector, statements: tuple[str, ...]
) -> None:
    """A sibling of M2: sessions that do not log rows log them under the same name."""
    if db.server.kind == "mysql" and "RENAME" in statements[0]:
        pytest.skip("MySQL renames the table that is hidden")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    connector.capture()
    _session(
        db, "SET binlog_format = 'STATEMENT'", "CREATE TEMPORARY TABLE t (v INT NOT NULL, z INT NOT NULL)", *statements
    )
    db.sql("UPDATE t SET v = v + 1")
    connector.capture()
    _equal(connector, db, "t")


@pytest.mark.parametrize("kind", ["mariadb", "mariadb118"])
def test_statements_with_variables_of_their_own_are_about_their_tables(db: Any, connector: Connector) -> None:
    """A sibling of M2 and M3: MariaDB logs ``SET STATEMENT … FOR`` with them."""
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO u VALUES (1, 1)",
        "INSERT INTO p VALUES (1), (11)",
    )
    connector.capture()
    own = "SET STATEMENT sql_mode = '' FOR"
    db.sql(f"{own} TRUNCATE TABLE t", f"{own} ALTER TABLE p DROP PARTITION a")
    connector.capture()
    _equal(connector, db, "t", "p")
    _session(db, "SET binlog_format = 'STATEMENT'", f"{own} UPDATE u SET v = 2")
    with pytest.raises(PrerequisiteError, match="instead of rows"):
        connector.capture()


@pytest.mark.parametrize("kind", ["mariadb", "mariadb118"])
def test_a_partition_that_becomes_a_table_is_read(db: Any, connector: Connector) -> None:
    """A sibling of the other partitions: the log has no row of it."""
    db.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20), PARTITION c VALUES LESS THAN (30))",
        "INSERT INTO p VALUES (1, 1), (11, 11), (21, 21)",
    )
    connector.capture()
    db.sql("ALTER TABLE p CONVERT PARTITION a TO TABLE one")
    connector.capture()
    _equal(connector, db, "p", "one")
    db.sql(
        "ALTER TABLE p CONVERT PARTITION b TO TABLE two",
        "ALTER TABLE two ADD x INT DEFAULT 3",
        "ALTER TABLE p ADD y INT",
    )
    connector.capture()
    _equal(connector, db, "p", "two")


@EITHER
def test_new_and_renamed_columns_are_hidden_as_events_hide_them(db: Any, connector: Connector) -> None:
    """A sibling of L8: targets fill a new column with its default, and keep the values of one that has another name."""
    rules = {"mask.with.3.chars": "m", "truncate.to.2.chars": "c", "exclude.list": "x"}
    connector.properties |= {f"column.{rule}": rf"{db.name}\.t\.{column}" for rule, column in rules.items()}
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT, a VARCHAR(9))", "INSERT INTO t VALUES (1, 5, 'abcde')")
    connector.capture()
    db.sql(
        "ALTER TABLE t ADD m VARCHAR(9) DEFAULT 'secret', ADD c VARCHAR(9) DEFAULT 'éabc', ADD n VARCHAR(9) DEFAULT 'plain'"
    )
    connector.capture()
    assert connector.rows(f"{db.name}.t") == [{"id": 1, "a": "abcde", "m": "***", "c": "éa", "n": "plain"}]
    db.sql("ALTER TABLE t RENAME COLUMN x TO y, RENAME COLUMN m TO k, RENAME COLUMN a TO m")
    connector.capture()
    assert connector.rows(f"{db.name}.t") == [{"id": 1, "y": 5, "m": "***", "k": "secret", "c": "éa", "n": "plain"}]


@EITHER
def test_a_new_boolean_has_a_default_that_is_one(db: Any, connector: Connector) -> None:
    """A sibling of L8: of 5, arrays make an error and Spark a NULL."""
    connector.properties |= {
        "converters": "b",
        "b.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter",
    }
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector.capture()
    db.sql("ALTER TABLE t ADD a TINYINT(1) DEFAULT 5, ADD b TINYINT(1) NOT NULL")
    connector.capture()
    assert connector.rows(f"{db.name}.t") == [{"id": 1, "a": True, "b": False}]


@EITHER
def test_a_default_of_more_digits_than_python_calculates_with_is_exact(db: Any, connector: Connector) -> None:
    """A sibling of R07: it ended each run, for good."""
    number = "123456789012345678901234567890123.12345"
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector.capture()
    db.sql(f"ALTER TABLE t ADD a DECIMAL(38,5) DEFAULT {number}, ADD b DECIMAL(38,0) DEFAULT -{number[:33]}99999")
    connector.capture()
    _equal(connector, db, "t")


@EITHER
def test_a_default_that_the_calendar_does_not_have_is_what_rows_show(db: Any, connector: Connector) -> None:
    """A sibling of the dates that are null: what events say of a new column is what they say of its rows."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector.capture()
    _session(
        db, "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "ALTER TABLE t ADD a DATE DEFAULT '2024-02-31', ADD b DATETIME DEFAULT '0000-01-01 10:00:00', ADD c DATE NOT NULL DEFAULT '2023-02-29'",
    )  # fmt: skip
    connector.capture()
    assert connector.rows(f"{db.name}.t") == [{"id": 1, "a": None, "b": None, "c": _EPOCH}]


@pytest.mark.parametrize("kind", ["mariadb118", "mysql97"])
def test_a_default_in_the_character_set_of_its_session_is_what_rows_show(db: Any, connector: Connector) -> None:
    """A sibling of R14: MariaDB 11.8 logs collations of character sets before that of the session."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    connector.capture()
    with db.connect(charset="latin1") as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE t ADD v VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'Größe€'")
        cursor.execute("ALTER TABLE t ADD e ENUM('ä', 'é') CHARACTER SET utf8mb4 NOT NULL DEFAULT 'é'")
    connector.capture()
    _equal(connector, db, "t")


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


# -- snapshots ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_before_first_row(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done once: after the snapshot's locks are gone, and before the first row is read."""

    def arrange_action(action: Callable[[], object]) -> None:
        todo, chunks = [action], MySqlSnapshot.split_table

        def acting(self: MySqlSnapshot, table: TableId) -> list[SnapshotChunk]:
            if todo and not table.name.startswith("first"):
                todo.pop()()
            return chunks(self, table)

        monkeypatch.setattr(MySqlSnapshot, "split_table", acting)

    return arrange_action


MEANWHILE = {
    "dropped": ("DROP TABLE t",),
    "added": ("ALTER TABLE t ADD x INT NOT NULL DEFAULT 7, ALGORITHM=COPY",),
    "instant": ("ALTER TABLE t ADD x INT",),
    "rebuilt": ("ALTER TABLE t FORCE",),
    "renamed": ("RENAME TABLE t TO t2",),
    "truncated": ("TRUNCATE t",),
    "optimized": ("OPTIMIZE TABLE t",),
    "swapped columns": ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",),
    "swapped tables": ("RENAME TABLE t TO t3, u TO t, t3 TO u",),
    "made anew": ("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, z VARCHAR(9))", "INSERT INTO t VALUES (9, 'new')"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "what"), [("mariadb", w) for w in MEANWHILE] + [("mysql97", w) for w in ("dropped", "rebuilt", "swapped columns", "instant")])  # fmt: skip
def test_a_table_that_is_altered_before_it_is_read_is_read_in_the_same_run(
    db: Any, connector: Connector, run_before_first_row: Callable[..., None], what: str
) -> None:
    """R30, L8: also between the lock and the structure; the sink would take names of columns from the structure."""
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE keep (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1, 2), (2, 3, 4)",
        "INSERT INTO u VALUES (5, 5, 6)",
        "INSERT INTO keep VALUES (1)",
    )
    run_before_first_row(lambda: db.sql(*MEANWHILE[what]))
    connector.capture()
    tables = [name for (name,) in db.sql("SHOW TABLES")]
    _equal(connector, db, *tables)
    if "t" in tables:
        db.sql("INSERT INTO t (id) VALUES (77)")
        connector.capture()
        _equal(connector, db, *tables)
    elif what == "dropped":
        assert connector.rows(f"{db.name}.t") == []


@EITHER
def test_a_table_that_is_altered_before_it_is_read_again_keeps_its_rows_until_then(
    db: Any, connector: Connector, run_before_first_row: Callable[..., None]
) -> None:
    """A sibling of L8: it was emptied, and its events came before its rows. Replaying objects to a change of a row that is not there."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1, 1)")
    connector.capture()
    db.sql("ALTER TABLE t MODIFY a VARCHAR(9)", "ALTER TABLE u MODIFY a VARCHAR(9)", "DELETE FROM u")
    run_before_first_row(
        lambda: db.sql("ALTER TABLE t FORCE", "UPDATE t SET id = 3 WHERE id = 1", "UPDATE t SET a = 'x' WHERE id = 2")
    )
    connector.capture()
    _equal(connector, db, "t", "u")
    assert connector.replay.operations["t"] == 2


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_readers_that_have_begun_a_table_read_it_to_its_end_while_a_statement_waits_to_alter_it(
    db: Any, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sibling of L8: of a captured table that is read again, targets had a part for a while, upon which its events came."""
    ids = range(1, 41)
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        f"INSERT INTO t VALUES {', '.join(f'({i}, {i})' for i in ids)}",
        "ALTER TABLE t STATS_PERSISTENT=1",
        "ANALYZE TABLE t",
    )
    connector.capture()
    monkeypatch.setattr("airflow_provider_cdc.sources.mysql.snapshot.snapshot_session.CHUNK_ROWS", 5)
    monkeypatch.setattr("airflow_provider_cdc.sources.mysql.snapshot.snapshot_session.PATIENCE_S", 1)
    monkeypatch.setattr(MySqlCatalog, "estimate_row_counts", lambda _, tables: dict.fromkeys(tables, len(ids)))
    read, alters = MySqlSnapshot.read, []
    started = threading.Event()

    def read_and_act(self: MySqlSnapshot, chunk: SnapshotChunk) -> Iterator[Any]:
        if not alters:
            alters.append(
                threading.Thread(target=db.sql, args=("ALTER TABLE t FORCE", "UPDATE t SET a = 0 WHERE id = 39"))
            )
            alters[0].start()
            time.sleep(0.5)
            started.set()
        started.wait(5)
        yield from read(self, chunk)

    monkeypatch.setattr(MySqlSnapshot, "read", read_and_act)
    db.sql("ALTER TABLE t MODIFY a VARCHAR(9)")
    connector.capture({"snapshot.max.threads": 3})
    alters[0].join(20)
    connector.capture()
    _equal(connector, db, "t")
    assert connector.replay.operations["r"] == 2 * len(ids)


def test_a_table_that_is_dropped_before_it_is_locked_is_gone(
    mariadb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R30 (2) and (3): an account without RELOAD, and a table that goes before SHOW CREATE TABLE."""
    with mariadb.database("nl") as db:
        db.sql(*(f"CREATE TABLE {t} (id INT PRIMARY KEY)" for t in ("keep", "t", "t2")), "INSERT INTO keep VALUES (1)")
        mariadb.sql("DROP USER IF EXISTS 'few'@'%'", "CREATE USER 'few'@'%' IDENTIFIED BY 'few'")
        mariadb.sql("GRANT SELECT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'few'@'%'")
        connector = mysql_connector(mariadb, tmp_path, database_include_list=db.name)
        connector.secrets |= {"database.user": "few", "database.password": "few"}
        engines, create = MySqlCatalog.read_engines, MySqlCatalog.create_statement
        todo = ["DROP TABLE t", "DROP TABLE t2"]

        def dropping(self: MySqlCatalog, tables: Any) -> Any:
            found = engines(self, tables)
            if len(todo) == 2:
                db.sql(todo.pop(0))
            return found

        def alter_and_show(self: MySqlCatalog, table: TableId) -> str:
            if len(todo) == 1:
                db.sql(todo.pop())
            return create(self, table)

        monkeypatch.setattr(MySqlCatalog, "read_engines", dropping)
        monkeypatch.setattr(MySqlCatalog, "create_statement", alter_and_show)
        connector.capture()
        assert todo == []
        _equal(connector, db, "keep")


@pytest.mark.parametrize(("kind", "engine"), [("mariadb", "Aria"), ("mariadb", "MyISAM"), ("mysql97", "MyISAM"), ("mysql97", "MEMORY")])  # fmt: skip
def test_tables_without_transactions_are_locked_until_they_are_read(
    db: Any, connector: Connector, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """R29: a writer meanwhile waits for no more than these tables, which are read first."""
    db.sql(
        f"CREATE TABLE z_bag (v INT) ENGINE={engine}",
        "CREATE TABLE a_big (id INT PRIMARY KEY)",
        f"INSERT INTO z_bag VALUES {', '.join(f'({i})' for i in range(200))}",
        "INSERT INTO a_big VALUES (1), (2)",
    )
    read, writers, order = MySqlSnapshot.read, [], []

    def writing() -> None:
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE z_bag SET v = 7000 WHERE v = 199"
            )  # waits before any reader on MariaDB, as an INSERT does not
            for i in range(20):
                cursor.execute(f"INSERT INTO z_bag VALUES ({1000 + i})")
                cursor.execute(f"DELETE FROM z_bag WHERE v = {i}")

    def read_and_act(self: MySqlSnapshot, chunk: SnapshotChunk) -> Iterator[Any]:
        order.append(chunk.table.name)
        if not writers:
            writers.append(threading.Thread(target=writing))
            writers[0].start()
            time.sleep(0.2)
        yield from read(self, chunk)
        if chunk.table.name == "a_big":
            writers[0].join(20)
            assert not writers[0].is_alive()

    monkeypatch.setattr(MySqlSnapshot, "read", read_and_act)
    connector.capture({"snapshot.max.threads": 1})
    assert order == ["z_bag", "a_big"]
    connector.capture()
    _equal(connector, db, "z_bag", "a_big")


@pytest.mark.parametrize(("kind", "engine"), [("mariadb", "Aria"), ("mariadb118", "MEMORY"), ("mysql97", "MyISAM")])
@pytest.mark.parametrize("rights", ["", "RELOAD, "])
def test_busy_tables_without_transactions_are_read_in_one_turn(
    db: Any, connector: Connector, engine: str, rights: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A sibling of R29: readers waited behind writers, and these for the readers' lock: no snapshot came to its end."""
    db.sql(
        f"CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE={engine}",
        f"INSERT INTO m VALUES {', '.join(f'({i}, 0)' for i in range(200))}",
        "CREATE TABLE i (id INT PRIMARY KEY)",
    )
    db.server.sql("DROP USER IF EXISTS 'few'@'%'", "CREATE USER 'few'@'%' IDENTIFIED BY 'few'")
    db.server.sql(f"GRANT {rights}SELECT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'few'@'%'")
    connector.secrets |= {"database.user": "few", "database.password": "few"}
    ended = threading.Event()

    def writing() -> None:
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for i in range(100_000):
                cursor.execute(f"UPDATE m SET v = v + 1 WHERE id = {i % 200}")
                if ended.wait(0.001):
                    break

    writers = [threading.Thread(target=writing) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        connector.capture()
    finally:
        ended.set()
        for writer in writers:
            writer.join(20)
    assert "it is read later" not in caplog.text
    connector.capture()
    _equal(connector, db, "m", "i")


@EITHER
def test_a_repaired_table_is_read_again_if_its_engine_repairs(db: Any, connector: Connector) -> None:
    """A sibling of R29: REPAIR is logged of InnoDB tables, too, which it does not change."""
    db.sql(
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM", "CREATE TABLE i (id INT PRIMARY KEY)",
        "INSERT INTO m VALUES (1), (2)", "INSERT INTO i VALUES (1)",
    )  # fmt: skip
    connector.capture()
    _session(db, "SET sql_log_bin = 0", "DELETE FROM m WHERE id = 2", "SET sql_log_bin = 1", "REPAIR TABLE m, i")
    connector.capture()
    _equal(connector, db, "m", "i")
    db.sql("REPAIR TABLE i")
    assert connector.capture().events == 0


def test_rows_without_transactions_stay_when_their_transaction_is_rolled_back(mariadb: Any, tmp_path: Path) -> None:
    """A sibling of R29; MySQL with GTIDs refuses such transactions."""
    with mariadb.database("nl") as db:
        db.sql(
            "CREATE TABLE i (id INT PRIMARY KEY)", "CREATE TABLE i2 (id INT PRIMARY KEY)", "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM",
            "CREATE TRIGGER tr AFTER INSERT ON i FOR EACH ROW INSERT INTO m VALUES (NEW.id + 100)",
        )  # fmt: skip
        connector = mysql_connector(mariadb, tmp_path, database_include_list=db.name)
        connector.capture()
        _session(db, "BEGIN", "INSERT INTO i VALUES (1)", "ROLLBACK")
        _session(db, "BEGIN", "INSERT INTO i2 VALUES (1)", "INSERT INTO m VALUES (1)", "ROLLBACK")
        _session(db, "BEGIN", "INSERT INTO i2 VALUES (5)", "SAVEPOINT a", "INSERT INTO i VALUES (6)", "ROLLBACK TO a", "COMMIT")  # fmt: skip
        connector.capture()
        assert sorted(row["id"] for row in connector.rows(f"{db.name}.m")) == [1, 101, 106]
        _equal(connector, db, "i", "i2", "m")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_memory_table_is_empty_after_a_restart(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """A sibling of R29: the server logs it when the table is opened, which the run does."""
    with request.getfixturevalue(f"{kind}_factory")() as server, server.database("nl") as db:
        db.sql("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY", "INSERT INTO m VALUES (1), (2)")
        connector = mysql_connector(server, tmp_path, kind, database_include_list=db.name)
        connector.capture()
        assert len(connector.rows(f"{db.name}.m")) == 2
        server.restart()
        connector.secrets["database.port"] = server.port
        connector.capture()
        assert connector.rows(f"{db.name}.m") == []


@EITHER
def test_a_default_of_bytes_that_are_no_text_stops_nothing(db: Any, connector: Connector) -> None:
    """SHOW CREATE TABLE of MariaDB has the bytes as they are; the check asks it for foreign keys, and the snapshot for its history."""
    db.sql(
        "CREATE TABLE b (id INT PRIMARY KEY, x VARBINARY(5) NOT NULL DEFAULT 0x00FF01)", "INSERT INTO b (id) VALUES (1)"
    )
    connector.capture()
    db.sql("ALTER TABLE b ADD y BINARY(2) NOT NULL DEFAULT 0xFE27", "INSERT INTO b (id) VALUES (2)")
    connector.capture()
    _equal(connector, db, "b")
