"""Statements that move keys over each other, on databases that take them: every target equals the source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev.servers import Db2, Oracle
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.debezium.written import Topic, write
from tests.sources.debezium.written import connector as debezium
from tests.sources.oracle_adapter import OracleAdapter
from tests.sources.suite import INT, TEXT, Adapter
from tests.support.connectors import Connector, memory_connector, mysql_connector
from tests.targets.database.apply.test_database_apply import rows as rows_of
from tests.targets.database.apply.test_database_apply import sink

STATEMENTS = {
    "shift up": ('UPDATE {} SET "id" = "id" + 1',),
    "shift down": ('UPDATE {} SET "id" = "id" - 1',),
    "swap": ('UPDATE {} SET "id" = CASE WHEN "id" = 1 THEN 2 WHEN "id" = 2 THEN 1 ELSE "id" END',),
    "turned round": ('UPDATE {} SET "id" = 4 - "id"',),
    "cycle with values": ('UPDATE {} SET "id" = CASE WHEN "id" = 3 THEN 1 ELSE "id" + 1 END, "note" = \'now\'',),
    "twice": ('UPDATE {} SET "id" = "id" + 1', 'UPDATE {} SET "id" = "id" + 1'),
    "there and back": ('UPDATE {} SET "id" = "id" + 1', 'UPDATE {} SET "id" = "id" - 1'),
    "beside others": (
        'UPDATE {} SET "id" = "id" + 1', 'DELETE FROM {} WHERE "id" = 3', "INSERT INTO {} VALUES (1, 'new')",
        'UPDATE {} SET "id" = "id" + 1', 'UPDATE {} SET "note" = \'last\' WHERE "id" = 2',
    ),
    "by a spare key": (
        'UPDATE {} SET "id" = 100 WHERE "id" = 1', 'UPDATE {} SET "id" = "id" - 1 WHERE "id" < 100',
        'UPDATE {} SET "id" = 3 WHERE "id" = 100',
    ),
}  # fmt: skip
"""What is done in one transaction; each to a separate table."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as server:
        yield server


@pytest.fixture(params=["oracle", "db2"])
def source(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """A schema of each database that makes sure of keys at the end of a statement."""
    with ExitStack() as stack:
        if request.param == "oracle":
            yield OracleAdapter(request.getfixturevalue("oracle"), stack)
        else:
            server: Db2 = request.getfixturevalue("db2")
            yield Db2Adapter(server, stack)


def test_keys_that_one_statement_moves_over_each_other_are_moved_in_the_target(source: Adapter, tmp_path: Path) -> None:
    """A1: ``UPDATE t SET id = id + 1`` and the like; rows that differ, and rows that are equal but for the key."""
    tables = {
        f"{kind}{number}": what for number, what in enumerate(STATEMENTS.values()) for kind in ("differ", "equal")
    }
    for table in tables:
        source.create(table, {"id": INT, "note": TEXT}, key=("id",))
    with source.transaction() as t:
        for table in tables:
            t.insert(table, *({"id": i, "note": f"n{i}" if table.startswith("d") else "same"} for i in (1, 2, 3)))
    connector = source.connector(tmp_path)
    target = _Target(connector, tmp_path)
    target.follow()
    _run(source, [statement.format(_name(source, table)) for table, what in tables.items() for statement in what])
    target.follow()
    assert {table: target.rows(source.namespace, table) for table in tables} == {
        table: _plain_rows(source.rows(table)) for table in tables
    }


def test_keys_that_are_unique_at_the_commit_alone(oracle: Oracle, tmp_path: Path) -> None:
    """A1: a key that is DEFERRABLE INITIALLY DEFERRED is held by several rows from one statement to the next."""
    with ExitStack() as stack:
        source = OracleAdapter(oracle, stack)
        source.sql(
            'CREATE TABLE "t" ("id" NUMBER(9) NOT NULL, "note" VARCHAR2(10), '
            'CONSTRAINT late_key PRIMARY KEY ("id") DEFERRABLE INITIALLY DEFERRED)',
            'ALTER TABLE "t" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS',
        )
        with source.transaction() as t:
            t.insert("t", *({"id": i, "note": f"n{i}"} for i in (1, 2, 3, 4)))
        target = _Target(source.connector(tmp_path), tmp_path)
        target.follow()
        _run(source, [
            'UPDATE "t" SET "id" = 2 WHERE "id" = 1',  # beside the one that is there
            'UPDATE "t" SET "id" = 1 WHERE "note" = \'n2\'',
            'INSERT INTO "t" VALUES (3, \'new\')',
            'DELETE FROM "t" WHERE "note" = \'n3\'',
            'UPDATE "t" SET "id" = 4 WHERE "note" = \'n1\'',  # by way of a key that another row has all the time
            'UPDATE "t" SET "id" = 9 WHERE "note" = \'n1\'',
        ])  # fmt: skip
        target.follow()
        assert target.rows(source.namespace, "t") == _plain_rows(source.rows("t"))
        assert {row["id"]: row["note"] for row in source.rows("t")} == {1: "n2", 3: "new", 4: "n4", 9: "n1"}


def test_values_that_the_log_leaves_out_travel_with_the_rows(oracle: Oracle, tmp_path: Path) -> None:
    """A1: a CLOB is not in the log of a statement that changes the key alone."""
    with ExitStack() as stack:
        source = OracleAdapter(oracle, stack)
        source.create_sparse("t", {"id": INT, "big": TEXT}, ("id",), ("big",))
        with source.transaction() as t:
            t.insert("t", *({"id": i, "big": f"long {i}"} for i in range(1, 6)))
        connector = source.connector(tmp_path)
        target = _Target(connector, tmp_path)
        target.follow()
        for statement in (
            'UPDATE "t" SET "id" = "id" + 1',
            'UPDATE "t" SET "id" = CASE WHEN "id" = 2 THEN 3 ELSE 2 END WHERE "id" < 4',
        ):
            _run(source, [statement])
            connector.capture()
            assert connector.rows(f"{source.namespace}.t") == source.rows("t")
            target.follow()
            assert target.rows(source.namespace, "t") == _plain_rows(source.rows("t"))


def test_a_key_that_only_the_connector_names_is_moved(mariadb: Any, tmp_path: Path) -> None:
    """A1-sibling: MariaDB makes sure of no key that message.key.columns names."""
    with mariadb.database() as database:
        database.sql(
            "CREATE TABLE t (id INT NOT NULL, v VARCHAR(9))", "CREATE TABLE o (id INT PRIMARY KEY, v VARCHAR(9))"
        )
        for table in "to":
            database.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'b')")
        connector = mysql_connector(
            mariadb, tmp_path, database_include_list=database.name, message_key_columns=f"{database.name}.t:id"
        )
        target = _Target(connector, tmp_path)
        target.follow()
        database.sql("UPDATE t SET id = id + 1", "UPDATE o SET id = id + 1 ORDER BY id DESC")
        target.follow()
        for table in "to":
            found = [(row["id"], row["v"]) for row in target.rows(database.name, table)]
            assert found == [(2, "a"), (3, "b"), (4, "b")], table


@pytest.mark.parametrize("headers", [True, False], ids=["with headers", "without headers"])
def test_keys_that_move_over_each_other_in_events_of_postgresql(tmp_path: Path, headers: bool) -> None:
    """A1: events of a table with a DEFERRABLE key and REPLICA IDENTITY FULL, as Debezium writes them."""
    events = Topic(name="shop.public.t")
    connector = debezium(tmp_path)
    target = _Target(connector, tmp_path)
    file = tmp_path / "in" / "1.json"
    write(
        file,
        [_of_postgresql(events.event("r", None, {"id": i, "v": v}), 1, i) for i, v in ((1, "a"), (2, "b"), (3, "b"))],
    )
    target.follow()
    for i, v in ((1, "a"), (2, "b"), (3, "b")):
        old, new = {"id": i, "v": v}, {"id": i + 1, "v": v}
        more: list[dict[str, Any]] = [{}, {}]
        if headers:
            more = [{"headers": {"__debezium.newkey": {"id": i + 1}}}, {"headers": {"__debezium.oldkey": {"id": i}}}]
        gone, come = events.event("d", old, None, **more[0]), events.event("c", None, new, **more[1])
        write(file, [_of_postgresql(gone, 700, 100 + i), events.end({"id": i}), _of_postgresql(come, 700, 100 + i)])
    target.follow()
    assert [(row["id"], row["v"]) for row in target.rows("public", "t")] == [(2, "a"), (3, "b"), (4, "b")]


PLACES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "mysql": lambda transaction, change: {"gtid": f"3e11:{transaction}", "file": "b.1", "pos": 4, "row": change},
    "sqlserver": lambda transaction, change: {"commit_lsn": f"{transaction:08x}", "change_lsn": f"{change:08x}"},
    "db2": lambda transaction, change: {"commit_lsn": f"{transaction:08x}", "change_lsn": f"{change:08x}"},
    "oracle": lambda transaction, change: {"txId": f"{transaction:x}", "scn": "7", "rs_id": f"{change:x}", "ssn": 0},
}
"""Connector → what its ``source`` block says of the transaction and of the change."""


@pytest.mark.parametrize("headers", [True, False], ids=["with headers", "without headers"])
@pytest.mark.parametrize("of", PLACES)
def test_keys_that_move_over_each_other_in_events_of_other_databases(tmp_path: Path, of: str, headers: bool) -> None:
    """A1: events of SQL Server, which never have these headers, of Db2 and Oracle, and of MySQL with ``message.key.columns``; a shift and a swap with a row that is new."""
    events = Topic(name="shop.public.t")
    connector = debezium(tmp_path)
    target = _Target(connector, tmp_path)
    file, changes = tmp_path / "in" / "1.json", itertools.count(100)

    def relabel_source(record: dict[str, Any], transaction: int, change: int) -> dict[str, Any]:
        record["value"]["source"] |= {"connector": of, **PLACES[of](transaction, change)}
        return record

    def move_key(transaction: int, old: int, new: int, v: str) -> None:
        change = next(changes)
        more: list[dict[str, Any]] = [{}, {}]
        if headers:
            more = [{"headers": {"__debezium.newkey": {"id": new}}}, {"headers": {"__debezium.oldkey": {"id": old}}}]
        gone, come = (
            events.event("d", {"id": old, "v": v}, None, **more[0]),
            events.event("c", None, {"id": new, "v": v}, **more[1]),
        )
        write(
            file,
            [
                relabel_source(gone, transaction, change),
                events.end({"id": old}),
                relabel_source(come, transaction, change),
            ],
        )

    write(
        file,
        [relabel_source(events.event("r", None, {"id": i, "v": v}), 1, i) for i, v in ((1, "a"), (2, "b"), (3, "b"))],
    )
    target.follow()
    for i, v in ((1, "a"), (2, "b"), (3, "b")):
        move_key(2, i, i + 1, v)
    write(file, [relabel_source(events.event("c", None, {"id": 9, "v": "n"}), 3, next(changes))])
    move_key(3, 2, 9, "a")
    move_key(3, 9, 2, "n")
    target.follow()
    found = [(row["id"], row["v"]) for row in target.rows("public", "t")]
    assert found == [(2, "n"), (3, "b"), (4, "b"), (9, "a")]


@pytest.mark.parametrize("blank", [{"v": None}, {"v": ""}, {}], ids=["null", "default", "absent"])
def test_events_without_whole_images_before_keep_the_order_of_the_log(tmp_path: Path, blank: dict[str, Any]) -> None:
    """A1: with REPLICA IDENTITY DEFAULT, an image before does not say which row it is of. Keys that are unique all the time come to what they are."""
    events = Topic(name="shop.public.t")
    connector = debezium(tmp_path)
    target = _Target(connector, tmp_path)
    file = tmp_path / "in" / "1.json"
    write(file, [_of_postgresql(events.event("r", None, {"id": i, "v": v}), 1, i) for i, v in ((1, "a"), (2, "b"))])
    target.follow()

    def write_move(at: int, old: int | None, new: int | None, v: str) -> None:
        if old is not None:
            write(
                file, [_of_postgresql(events.event("d", {"id": old, **blank}, None), 700, at), events.end({"id": old})]
            )
        if new is not None:
            write(file, [_of_postgresql(events.event("c", None, {"id": new, "v": v}), 700, at)])

    for at, (old, new, v) in enumerate([
        (1, 100, "a"), (2, 1, "b"), (100, 2, "a"),  # two rows exchange their keys
        (None, 5, "e"), (5, 6, "e"),
        (None, 7, "g"), (7, None, "g"),
        (6, 8, "h"), (8, None, "h"),
    ]):  # fmt: skip
        write_move(at, old, new, v)
    target.follow()
    assert [(row["id"], row["v"]) for row in target.rows("public", "t")] == [(1, "b"), (2, "a")]


def _of_postgresql(record: dict[str, Any], transaction: int, lsn: int) -> dict[str, Any]:
    record["value"]["source"] |= {"connector": "postgresql", "txId": transaction, "lsn": lsn}
    return record


def test_the_json_form_has_a_delete_a_tombstone_and_a_create_for_each_change_of_a_key(tmp_path: Path) -> None:
    """A1: consumers of Debezium's events, which keep the last record of each key, have the rows of the source."""
    db = MemoryDatabase("json")
    db.create_table("s.t", {"id": "int64!", "v": "string"}, key=("id",))
    with db.transaction() as t:
        for i in (1, 2, 3):
            t.insert("s.t", {"id": i, "v": f"v{i}"})
    connector = memory_connector(db, tmp_path)
    connector.capture()
    with db.transaction() as t:
        t.update_each("s.t", [({"id": i}, {"id": i + 1}) for i in (1, 2, 3)])
    connector.capture()
    manifest = list(connector.changelog.read_manifests("test"))[-1]
    records = list(DebeziumRenderer(connector.changelog, "test").render_batch(manifest))
    reported = [
        (None if r.value is None else r.value["op"], r.key["id"], *(v["id"] for v in r.headers.values()))
        for r in records
        if r.key
    ]
    assert reported == [
        ("d", 1, 2), (None, 1, 2), ("d", 2, 3), (None, 2, 3), ("d", 3, 4), (None, 3, 4), ("c", 4, 3), ("c", 2, 1), ("c", 3, 2),
    ]  # fmt: skip
    last = {r.key["id"]: r.value for r in records if r.key}
    assert {k: v["after"]["v"] for k, v in last.items() if v} == {row["id"]: row["v"] for row in db.copy_rows("s.t")}


class _Target:
    """An SQLite database that follows a connector."""

    def __init__(self, connector: Connector, folder: Path) -> None:
        self._connector = connector
        self._engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{folder}/target.db"}))

    def follow(self) -> None:
        self._connector.capture()
        sink(self._engine, self._connector).apply()

    def rows(self, namespace: str, table: str) -> list[dict[str, Any]]:
        prefix = self._connector.properties.get("topic.prefix", self._connector.name)
        return _plain_rows(rows_of(self._engine, f"{prefix}_{namespace}_{table}"))


def _run(source: Adapter, statements: list[str]) -> None:
    """Run the statements in one transaction."""
    if isinstance(source, OracleAdapter):
        with source.server.connect(**source.login) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
        return
    assert isinstance(source, Db2Adapter)
    with source.server.connect() as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    source.server.catch_up()


def _name(source: Adapter, table: str) -> str:
    return source.name(table) if isinstance(source, Db2Adapter) else f'"{table}"'


def _plain_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by their keys, whatever kind of number those are."""
    return sorted(({**row, "id": int(row["id"])} for row in rows), key=lambda row: row["id"])
