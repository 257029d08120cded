"""Snapshots of MySQL: locks, one position, changes that are streamed afterwards; structures on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot
from airflow_provider_cdc.sources.mysql.source import MySqlSource
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import source_rows

GLOBAL = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
HOSTED = "SELECT, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("snap") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
        database.sql("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1)")
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: mysql_connector(
        db.server, tmp_path, "mysql", **{"database_include_list": db.name, **properties}
    )


def _account(db: Any, privileges: str) -> dict[str, str]:
    db.sql("DROP USER IF EXISTS 'some'@'%'", "CREATE USER 'some'@'%' IDENTIFIED BY 'some'")
    db.sql(f"GRANT {privileges} ON *.* TO 'some'@'%'")
    return {"database.user": "some", "database.password": "some"}


def _writable(db: Any, table: str) -> bool:
    """Check whether someone else could write to a table now."""
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
        try:
            cursor.execute(f"INSERT INTO {table} (id) VALUES (99)")
        except pymysql.err.OperationalError as e:
            if e.args[0] != 1205:
                raise
            return False
        finally:
            connection.rollback()
    return True


def _writable_during_and_after_opening(
    db: Any, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, bool, bool]:
    """Check whether tables can be written to while the position is read, while rows are read, and at the end."""
    during = []
    view = MySqlSnapshot._view
    monkeypatch.setattr(MySqlSnapshot, "_view", lambda *a, **k: (during.append(_writable(db, "t")), view(*a, **k))[1])
    table = TableId(namespace=db.name, name="t")
    with open_source(connector.definition(), connector.secrets) as source:
        assert isinstance(source, MySqlSource)
        with source.open_snapshot([table], readers=2) as session:
            (chunk,) = session.split_table(table)
            assert sum(len(block) for block in session.read(chunk)) == 2
            reading = _writable(db, "t")
        return during[0], reading, _writable(db, "t")


@pytest.mark.parametrize("privileges", [GLOBAL, HOSTED], ids=["global lock", "table locks"])
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, (False, True, True)),
        ("minimal", (False, True, True)),
        ("extended", (False, False, True)),
        ("none", (True, True, True)),
    ],
)
def test_writers_wait_as_long_as_the_locking_mode_says(
    db: Any,
    connector_factory: Callable[..., Connector],
    monkeypatch: pytest.MonkeyPatch,
    privileges: str,
    mode: str | None,
    expected: tuple[bool, bool, bool],
) -> None:
    connector = connector_factory(**({} if mode is None else {"snapshot_locking_mode": mode}))
    connector.secrets |= _account(db, privileges)
    assert _writable_during_and_after_opening(db, connector, monkeypatch) == expected


def test_without_any_right_to_lock_the_missing_privilege_is_named(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    connector.secrets |= _account(db, "SELECT, REPLICATION SLAVE, REPLICATION CLIENT")
    with pytest.raises(PrerequisiteError, match="lacks the privilege RELOAD"):
        connector.capture()


def test_a_lock_that_is_not_granted_in_time_fails_the_snapshot(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    usual, connector = connector_factory(), connector_factory(snapshot_lock_timeout_ms=1000)
    config = MySqlConfig.parse({**usual.properties, **usual.secrets, "topic.prefix": "x"})
    assert config.snapshot_lock_timeout_ms == 10_000
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        began = time.monotonic()
        with pytest.raises(CdcError, match="not granted within 1 s"):
            connector.capture()
        assert 0.5 < time.monotonic() - began < 10
    assert connector.store.load_offset("test").offset is None
    connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


def test_all_readers_see_the_moment_of_the_position(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    place = db.sql("SHOW BINARY LOG STATUS")[0]
    tables = [TableId(namespace=db.name, name=n) for n in "tu"]
    with (
        open_source(connector.definition(), connector.secrets) as source,
        source.open_snapshot(tables, readers=2) as session,
    ):
        assert (session.position.file, session.position.pos) == (place[0], place[1])
        db.sql("INSERT INTO t VALUES (3, 3)", "DELETE FROM u")
        readers = [session._idle.get() for _ in range(2)]  # type: ignore[attr-defined]
        for reader in readers:
            with reader.cursor() as cursor:
                counts = ", ".join(f"(SELECT COUNT(*) FROM {db.name}.{t})" for t in "tu")
                cursor.execute(f"SELECT @@transaction_isolation, {counts}")
                assert cursor.fetchone() == ("REPEATABLE-READ", 2, 1)
            session._idle.put(reader)  # type: ignore[attr-defined]


def test_what_happens_during_the_snapshot_is_streamed_after_it(
    db: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is read once, all at one position; rows and tables of later come from the log, from that position on."""
    connector, read, first = connector_factory(), MySqlSnapshot.read, threading.Semaphore(1)

    def reading(self: Any, chunk: Any) -> Any:
        if first.acquire(blocking=False):
            db.sql("INSERT INTO t VALUES (3, 3)", "UPDATE t SET v = 7 WHERE id = 1")
            db.sql("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)", "INSERT INTO u VALUES (2)")
        yield from read(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(MySqlSnapshot, "read", reading)
        place = db.sql("SHOW BINARY LOG STATUS")[0]
        found = [r for r in capture_records(connector) if r["topic"] != "test"]
    ops = [(r["topic"].rpartition(".")[2], r["value"]["op"], r["value"]["after"]["id"]) for r in found]
    assert sorted(ops[:3]) == [("t", "r", 1), ("t", "r", 2), ("u", "r", 1)]
    assert ops[3:] == [("t", "c", 3), ("t", "u", 1), ("late", "c", 1), ("u", "c", 2)]
    assert {(r["value"]["source"]["file"], r["value"]["source"]["pos"]) for r in found[:3]} == {(place[0], place[1])}
    assert [r["topic"] for r in found[:3]].count(f"test.{db.name}.t") == 2
    for table in ("t", "u", "late"):
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table)
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.snapshot.pending == {}
    # a later run continues from there
    db.sql("INSERT INTO u VALUES (3)")
    assert [r["value"]["op"] for r in capture_records(connector)] == ["c"]
    assert capture_records(connector) == []


# which tables


def test_lists_of_databases_tables_and_columns_are_anchored(db: Any, tmp_path: Path) -> None:
    server = db.server
    db.sql("CREATE TABLE tt (id INT PRIMARY KEY)", "INSERT INTO tt VALUES (1)")
    with server.database("other") as other:
        other.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")

        def topics(number: int, **properties: Any) -> set[str]:
            connector = mysql_connector(server, tmp_path / str(number), "mysql", **properties)
            found = {r["topic"].removeprefix("test.") for r in capture_records(connector) if r["topic"] != "test"}
            return {t for t in found if t.startswith((f"{db.name}.", f"{other.name}."))}

        mine = {f"{db.name}.{t}" for t in ("t", "u", "tt")}
        theirs = {f"{other.name}.t"}
        assert topics(0) == mine | theirs
        assert topics(1, database_include_list=db.name) == mine
        assert topics(3, database_exclude_list=db.name) == theirs
        assert topics(4, database_exclude_list=db.name[1:]) == mine | theirs
        assert topics(5, table_include_list=rf"{db.name}\.t") == {f"{db.name}.t"}
        assert topics(6, database_include_list=db.name, table_exclude_list=r".*\.t") == mine - {f"{db.name}.t"}
        columns = {
            "column_exclude_list": rf"{db.name}\.t\.v,t\.id", "column_include_list": rf"{db.name}\.t\.id,{db.name}\.tt?\.i",
        }  # fmt: skip
        for name, value in columns.items():
            options = {"table_include_list": rf"{db.name}\.t", name: value}
            (one, two) = of_table(capture_records(mysql_connector(server, tmp_path / name, "mysql", **options)), "t")
            assert (one["value"]["after"], two["value"]["after"]) == ({"id": 1}, {"id": 2})


def test_system_tables_are_never_captured(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory(database_include_list=".*")
    with open_source(connector.definition(), connector.secrets) as source:
        found = {t.namespace for t in source.discover_tables()}
    assert db.name in found
    assert not found & {"mysql", "sys", "performance_schema", "information_schema"}


# structures on the way


def test_rows_are_read_under_the_structure_of_their_place(db: Any, connector_factory: Callable[..., Connector]) -> None:
    """No structure in between is the one that the catalog has by now."""
    connector = connector_factory()
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (3, 3)", "ALTER TABLE t ADD a SMALLINT FIRST", "INSERT INTO t VALUES (4, 4, 4)")
    db.sql("ALTER TABLE t DROP v, ADD b VARCHAR(9)", "INSERT INTO t VALUES (5, 5, 'five')")
    assert len(capture_records(connector)) == 5
    # a restart knows the structure from the history: the catalog's is another one again
    db.sql("INSERT INTO t VALUES (6, 6, 'six')", "ALTER TABLE t DROP a", "UPDATE t SET b = 'x' WHERE id = 6")
    found = [r["value"] for r in of_table(capture_records(connector), "t")]
    assert [(v["before"], v["after"]) for v in found] == [
        (None, {"a": 6, "id": 6, "b": "six"}), ({"id": 6, "b": "six"}, {"id": 6, "b": "x"}),
    ]  # fmt: skip
    ddl = [r for r in connector.store.schema_history("test") if not r.snapshot]
    assert [r.ddl.partition(" t ")[2] for r in ddl] == ["ADD a SMALLINT FIRST", "DROP v, ADD b VARCHAR(9)", "DROP a"]
    assert [r.position["pos"] for r in ddl] == sorted(r.position["pos"] for r in ddl)


def test_rows_and_structures_come_in_one_order(db: Any, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    capture_records(connector)
    db.sql("UPDATE t SET v = 9 WHERE id = 1", "ALTER TABLE t ADD w INT", "DELETE FROM t WHERE id = 2", "DROP TABLE u")
    db.sql("INSERT INTO t VALUES (5, 5, 5)")
    reported = [r["value"] and (r["value"].get("op") or r["value"]["ddl"][:10]) for r in capture_records(connector)]
    assert reported == ["u", "ALTER TABL", "d", None, "DROP TABLE", "c"]


def test_a_table_that_was_swapped_for_its_changed_copy_is_followed(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    """Do as gh-ost and pt-online-schema-change do, with their helper tables captured."""
    connector = connector_factory()
    capture_records(connector)
    db.sql("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD w INT NOT NULL DEFAULT 5")
    db.sql("INSERT INTO _t_gho (id, v) SELECT id, v FROM t", "INSERT INTO t VALUES (3, 3)")
    db.sql("REPLACE INTO _t_gho (id, v) VALUES (3, 3)", "RENAME TABLE t TO _t_del, _t_gho TO t", "DROP TABLE _t_del")
    db.sql("INSERT INTO t VALUES (4, 4, 4)")
    connector.capture()
    connector.capture()
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


# transactions


def test_prepared_transactions_count_when_they_are_committed_and_never_when_not(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    capture_records(connector)
    with db.connect(autocommit=True) as one, db.connect(autocommit=True) as two:
        for connection, id_ in ((one, 10), (two, 20)):
            with connection.cursor() as cursor:
                for statement in ("START 'x%d'", "END 'x%d'", "PREPARE 'x%d'"):
                    if statement.startswith("END"):
                        cursor.execute(f"INSERT INTO u VALUES ({id_})")
                    cursor.execute(f"XA {statement % id_}")
        db.sql("INSERT INTO u VALUES (30)")
        assert [r["value"]["after"] for r in capture_records(connector)] == [{"id": 30}]
        one.cursor().execute("XA COMMIT 'x10'")
        two.cursor().execute("XA ROLLBACK 'x20'")
    assert [r["value"]["after"] for r in capture_records(connector)] == [{"id": 10}]


def test_what_the_log_holds_and_then_takes_back_is_left_out(database: Any, tmp_path: Path) -> None:
    """A temporary table makes MariaDB log a transaction that is rolled back, in whole or to a savepoint."""
    db = database
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    connector = mysql_connector(db.server, tmp_path, database_include_list=db.name)
    capture_records(connector)
    file, pos, *_ = db.sql("SHOW MASTER STATUS")[0]
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for statement in ("INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE x (a INT)", "INSERT INTO t VALUES (2)"):
            cursor.execute(statement)
        connection.rollback()
        for statement in (
            "INSERT INTO t VALUES (5)", "SAVEPOINT here", "INSERT INTO t VALUES (6)", "CREATE TEMPORARY TABLE y (a INT)",
            "ROLLBACK TO here", "INSERT INTO t VALUES (7)",
        ):  # fmt: skip
            cursor.execute(statement)
        connection.commit()
    logged = [row[5] for row in db.sql(f"SHOW BINLOG EVENTS IN '{file}' FROM {pos}")]
    assert "ROLLBACK" in logged
    assert [e for e in logged if e.startswith("ROLLBACK TO")]
    assert [r["value"]["after"]["id"] for r in capture_records(connector)] == [5, 7]
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")
