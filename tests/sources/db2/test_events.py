"""Records of Db2, field by field; keys of its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_provider_cdc import __version__
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import Record, capture_records, of_table, row_fields
from tests.support.connectors import Connector

ConnectorFactory = Callable[..., Connector]
FIELDS = {
    "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "schema", "table", "change_lsn", "commit_lsn",
}  # fmt: skip


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    """A table of one customer."""
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        adapter._create("CUSTOMERS", {"ID": "INTEGER", "FIRST_NAME": "VARCHAR(40)", "EMAIL": "VARCHAR(60)"}, ("ID",))
        run(adapter, f"INSERT INTO {adapter.name('CUSTOMERS')} VALUES (1004, 'Anne', 'annek@noanswer.org')")
        yield adapter


@pytest.fixture
def connector_factory(db: Db2Adapter, tmp_path: Path) -> ConnectorFactory:
    given = {"topic_prefix": "mydatabase", "include_schema_changes": False}
    return lambda **properties: db.connector(tmp_path, **given | properties)


def run(db: Db2Adapter, *statements: str) -> None:
    """Run statements in one transaction, and wait for the agent."""
    db.server.transaction(*statements)
    db.server.catch_up()


def _assert_has(block: Record, expected: Record) -> None:
    assert {name: block[name] for name in expected} == expected


def test_rows_of_a_snapshot_have_its_lsn_and_are_no_changes(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("OTHER", {"ID": "INTEGER"}, ("ID",))
    run(db, f"INSERT INTO {db.name('OTHER')} VALUES (1), (2)")
    before = int(time.time() * 1000) - 60_000
    found = capture_records(connector_factory())
    assert sorted(r["topic"] for r in found) == [
        f"mydatabase.{db.namespace}.{t}" for t in ("CUSTOMERS", "OTHER", "OTHER")
    ]
    (customer,) = of_table(found, "CUSTOMERS")
    assert customer["key"] == {"ID": 1004}
    _assert_has(customer["value"], {
        "before": None, "op": "r", "transaction": None,
        "after": {"ID": 1004, "FIRST_NAME": "Anne", "EMAIL": "annek@noanswer.org"},
    })  # fmt: skip
    blocks = [r["value"]["source"] for r in found]
    assert {block["change_lsn"] for block in blocks} == {None}
    assert len({block["commit_lsn"] for block in blocks}) == 1, "all rows are of one LSN"
    assert blocks[0]["commit_lsn"].count(":") == 2
    for block in blocks:
        assert set(block) == FIELDS
        _assert_has(block, {
            "version": __version__, "connector": "db2", "name": "mydatabase", "db": db.server.database, "schema": db.namespace, "sequence": None,
        })  # fmt: skip
    assert before <= customer["value"]["source"]["ts_ms"] <= customer["value"]["ts_ms"] <= time.time() * 1000


def test_create_update_and_delete(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    connector = connector_factory()
    capture_records(connector)
    table = db.name("CUSTOMERS")
    run(db, f"INSERT INTO {table} VALUES (1005, 'Franz', NULL)")
    run(db, f"UPDATE {table} SET FIRST_NAME = 'Anne Marie' WHERE ID = 1004")
    run(db, f"DELETE FROM {table} WHERE ID = 1005")
    created, updated, deleted, tombstone = capture_records(connector)
    assert [r["key"]["ID"] for r in (created, updated, deleted, tombstone)] == [1005, 1004, 1005, 1005]
    franz = {"ID": 1005, "FIRST_NAME": "Franz", "EMAIL": None}
    anne = {"ID": 1004, "FIRST_NAME": "Anne", "EMAIL": "annek@noanswer.org"}
    _assert_has(created["value"], {"op": "c", "before": None, "after": franz})
    _assert_has(updated["value"], {"op": "u", "before": anne, "after": anne | {"FIRST_NAME": "Anne Marie"}})
    _assert_has(deleted["value"], {"op": "d", "before": franz, "after": None})
    assert tombstone["value"] is None
    blocks = [r["value"]["source"] for r in (created, updated, deleted)]
    for block in blocks:
        assert set(block) == FIELDS
        _assert_has(block, {"snapshot": "false", "connector": "db2", "table": "CUSTOMERS"})
    assert len({block["commit_lsn"] for block in blocks}) == len({block["change_lsn"] for block in blocks}) == 3
    assert [b["commit_lsn"] for b in blocks] == sorted(b["commit_lsn"] for b in blocks)


def test_times_are_when_the_change_was_committed_and_when_it_was_captured(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory()
    capture_records(connector)
    before = int(time.time() * 1000)
    run(db, f"INSERT INTO {db.name('CUSTOMERS')} VALUES (7, 'x', 'y')")
    after = int(time.time() * 1000)
    time.sleep(0.3)
    (record,) = capture_records(connector)
    assert before - 1000 <= record["value"]["source"]["ts_ms"] <= after + 1000
    assert after + 300 <= record["value"]["ts_ms"] <= time.time() * 1000


def test_the_schema_of_a_key_and_of_the_source_block(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    (record,) = capture_records(connector_factory(), schemas=True)
    name = f"mydatabase.{db.namespace}.CUSTOMERS"
    assert record["key"]["schema"] == {
        "type": "struct", "name": f"{name}.Key", "optional": False, "fields": [{"field": "ID", "type": "int32", "optional": False}],
    }  # fmt: skip
    assert record["value"]["schema"]["name"] == f"{name}.Envelope"
    images = record["value"]["schema"]["fields"][:2]
    assert [(f["field"], f["name"], f["optional"]) for f in images] == [
        ("before", f"{name}.Value", True),
        ("after", f"{name}.Value", True),
    ]
    assert {n: f["type"] for n, f in row_fields(record).items()} == {
        "ID": "int32",
        "FIRST_NAME": "string",
        "EMAIL": "string",
    }
    (source,) = [f for f in record["value"]["schema"]["fields"] if f["field"] == "source"]
    assert source["name"] == "io.debezium.connector.db2.Source"
    types = {f["field"]: (f["type"], f["optional"]) for f in source["fields"]}
    assert set(types) == FIELDS
    assert types["change_lsn"] == types["commit_lsn"] == ("string", True)


# keys


def test_the_key_is_the_primary_key_else_a_unique_one_else_the_configured_one(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("PAIR", {"B": "INTEGER", "A": "VARCHAR(5)", "C": "INTEGER"}, ("A", "B"))
    for table, columns, index in (
        ("ONLY_UNIQUE", {"C": "INTEGER", "U": "INTEGER NOT NULL"}, "U"),
        ("NULLABLE", {"C": "INTEGER", "N": "INTEGER"}, ""),
        ("NAMED", {"X": "INTEGER", "Y": "INTEGER"}, ""),
    ):
        db._create(table, columns, ())
        if index:
            db.sql(f'CREATE UNIQUE INDEX {db.namespace}.{table}_I ON {db.name(table)} ("{index}")')
    run(
        db, f"INSERT INTO {db.name('PAIR')} VALUES (2, 'x', 3)", f"INSERT INTO {db.name('ONLY_UNIQUE')} VALUES (3, 4)",
        f"INSERT INTO {db.name('NULLABLE')} VALUES (5, 6)", f"INSERT INTO {db.name('NAMED')} VALUES (1, 2)",
    )  # fmt: skip
    connector = connector_factory(message_key_columns=rf"{db.namespace}\.nam(.*):y,X;elsewhere.t:a")
    keys = {r["topic"].rpartition(".")[2]: r["key"] for r in capture_records(connector)}
    assert list(keys["PAIR"].items()) == [("A", "x"), ("B", 2)]
    assert keys["ONLY_UNIQUE"] == {"U": 4}
    assert keys["NULLABLE"] is None
    assert list(keys["NAMED"].items()) == [("Y", 2), ("X", 1)]


def test_the_key_is_that_of_the_time_of_the_event(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    db._create("T", {"A": "INTEGER NOT NULL", "B": "INTEGER NOT NULL"}, ())
    db.sql(f'ALTER TABLE {db.name("T")} ADD CONSTRAINT ONE PRIMARY KEY ("A")')
    connector = connector_factory()
    capture_records(connector)
    run(db, f"INSERT INTO {db.name('T')} VALUES (1, 2)")
    first = of_table(capture_records(connector), "T")
    db.sql(
        f"ALTER TABLE {db.name('T')} DROP PRIMARY KEY",
        f'ALTER TABLE {db.name("T")} ADD CONSTRAINT TWO PRIMARY KEY ("B")',
    )
    run(db, f"INSERT INTO {db.name('T')} VALUES (3, 4)")
    second = of_table(capture_records(connector), "T")
    assert [r["key"] for r in first if r["value"]["op"] == "c"] == [{"A": 1}]
    assert [r["key"] for r in second if r["value"]["op"] == "c"] == [{"B": 4}]


def test_tables_whose_names_differ_in_case_only_have_topics_of_their_own(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("customers", {"ID": "INTEGER"}, ("ID",))
    run(db, f"INSERT INTO {db.name('customers')} VALUES (7)")
    found = capture_records(connector_factory())
    assert sorted((r["topic"].rpartition(".")[2], r["key"]["ID"]) for r in found) == [
        ("CUSTOMERS", 1004),
        ("customers", 7),
    ]
