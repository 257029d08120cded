"""Statements in the log that are not what they seem: failed, in two phases, in another character set, under another sql_mode."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows


def _start_connector(server: Any, database: str, folder: Path, **properties: Any) -> Connector:
    connector = mysql_connector(server, folder, database_include_list=database, **properties)
    connector.capture()
    return connector


def _equal(server: Any, connector: Connector, database: str, *tables: str) -> None:
    for table in tables:
        assert connector.rows(f"{database}.{table}") == source_rows(server, database, table), table


def _schema(connector: Connector, table: str) -> Any:
    changes = [c for r in connector.store.schema_history(connector.name) for c in r.changes if c.id.name == table]
    return changes[-1].table


def test_alter_in_two_phases_counts_once(mariadb_factory: Any, tmp_path: Path) -> None:
    with mariadb_factory(edition="11.8", binlog_alter_two_phase="ON") as server, server.database() as db:
        db.sql("CREATE TABLE t (a INT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1)")
        connector = _start_connector(server, db.name, tmp_path)
        db.sql("ALTER TABLE t ADD COLUMN b INT DEFAULT 5")
        db.sql("INSERT INTO t (a) VALUES (2)")
        with pytest.raises(pymysql.err.MySQLError):  # begins in the log, and is taken back there
            db.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 7, ADD UNIQUE KEY (b)")
        db.sql("INSERT INTO t (a) VALUES (3)")
        connector.capture()
        _equal(server, connector, db.name, "t")
        assert _schema(connector, "t").column_names == ("a", "b")
        ddl = [r.ddl for r in connector.store.schema_history(connector.name) if "ADD COLUMN" in r.ddl]
        assert len(ddl) == 1


@pytest.mark.parametrize("edition", ["10.11", "11.8"])
def test_create_or_replace_that_failed_leaves_what_the_server_has(
    mariadb: Any, mariadb_factory: Any, tmp_path: Path, edition: str
) -> None:
    server = mariadb if edition == "10.11" else mariadb_factory(edition=edition)
    with server.database() as db:
        db.sql("CREATE TABLE t (a INT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1), (2)")
        connector = _start_connector(server, db.name, tmp_path)
        with pytest.raises(pymysql.err.MySQLError):  # a column twice
            db.sql("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, a INT)")
        with contextlib.suppress(pymysql.err.ProgrammingError):  # some versions have lost the table by now
            db.sql("INSERT INTO t VALUES (3)")
        connector.capture()
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            exists = bool(cursor.execute(f"SHOW TABLES FROM `{db.name}` LIKE 't'"))
        if exists:
            _equal(server, connector, db.name, "t")
        else:
            assert _schema(connector, "t") is None
        db.sql("DROP TABLE IF EXISTS t")
        db.sql("CREATE TABLE t (k VARCHAR(5) PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES ('new')")
        connector.capture()
        _equal(server, connector, db.name, "t")


def test_drop_of_a_table_that_is_there_and_one_that_is_not(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    connector = _start_connector(database.server, database.name, tmp_path)
    with pytest.raises(pymysql.err.MySQLError):
        database.sql("DROP TABLE t, nowhere")
    connector.capture()
    assert _schema(connector, "t") is None


def test_names_and_defaults_in_the_sessions_character_set(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    database.sql("INSERT INTO t VALUES (1)")
    connector = _start_connector(database.server, database.name, tmp_path)
    with database.connect(charset="latin1", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE t ADD `größe` VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'é€ü'")
        cursor.execute("INSERT INTO t (a) VALUES (2)")
    connector.capture()
    assert _schema(connector, "t").column_names == ("a", "größe")
    _equal(database.server, connector, database.name, "t")
    assert connector.rows(f"{database.name}.t")[0]["größe"] == "é€ü"


def test_sql_mode_of_the_session_decides_how_a_statement_reads(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    database.sql("INSERT INTO t VALUES (1)")
    connector = _start_connector(database.server, database.name, tmp_path)
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,REAL_AS_FLOAT'")
        cursor.execute("""ALTER TABLE "t" ADD "b c" VARCHAR(20) DEFAULT 'x\\', ADD f REAL DEFAULT 0.5""")
        cursor.execute("INSERT INTO t (a) VALUES (2)")
    connector.capture()
    _equal(database.server, connector, database.name, "t")
    assert connector.rows(f"{database.name}.t")[0]["b c"] == "x\\"
    # the same structure as the catalog has it
    present = connector.discovered(f"{database.name}.t")
    assert present.same_structure(_schema(connector, "t"))


def test_executable_comments_count_by_version(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    connector = _start_connector(database.server, database.name, tmp_path)
    database.sql(
        "ALTER TABLE t ADD b INT /*!99999 , ADD never INT */ /*!40000 , ADD c INT */ /*M!100000 , ADD d INT */"
    )
    database.sql("INSERT INTO t VALUES (1, 2, 3, 4)")
    connector.capture()
    assert _schema(connector, "t").column_names == ("a", "b", "c", "d")
    _equal(database.server, connector, database.name, "t")


def test_column_dropped_and_added_again_in_one_statement(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT)")
    database.sql("INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)")
    connector = _start_connector(database.server, database.name, tmp_path)
    database.sql("ALTER TABLE t DROP b, ADD b VARCHAR(9) NOT NULL DEFAULT 'new', CHANGE c d INT, ADD c INT DEFAULT 5")
    database.sql("INSERT INTO t (a) VALUES (3)")
    connector.capture()
    _equal(database.server, connector, database.name, "t")


def test_primary_key_column_that_gets_another_type(database: Any, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (e ENUM('a','b') NOT NULL, n INT, UNIQUE KEY (e))")
    database.sql("INSERT INTO t VALUES ('a', 1)")
    connector = _start_connector(database.server, database.name, tmp_path)
    database.sql("ALTER TABLE t MODIFY e VARCHAR(10) NOT NULL")
    database.sql("INSERT INTO t VALUES ('c', 2)")
    connector.capture()
    assert _schema(connector, "t").key == ("e",)
    _equal(database.server, connector, database.name, "t")


def test_ddl_records_name_the_database_of_their_tables(database: Any, tmp_path: Path) -> None:
    """Whichever database the session was in; a statement over two databases gives one record for each."""
    with database.server.database() as other:
        for db in (database, other):
            db.sql("CREATE TABLE t (a INT PRIMARY KEY)")
        connector = mysql_connector(
            database.server, tmp_path, database_include_list=f"{database.name},{other.name}", topic_prefix="p"
        )
        connector.capture()
        with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {other.name}.t ADD b INT")
            cursor.execute(f"DROP TABLE {database.name}.t, {other.name}.t")
        connector.capture()
        records = [
            r.to_document() for r in DebeziumRenderer(connector.changelog, connector.name).render_records(after=1)
        ]
    found = [(r["key"]["databaseName"], r["value"]["databaseName"], len(r["value"]["tableChanges"])) for r in records]
    assert found[0] == (other.name, other.name, 1)
    assert sorted(found[1:]) == sorted((name, name, 1) for name in (database.name, other.name))
