"""Records of the Debezium JSON form, whatever the source is: schemas, keys, transactions, schema changes; on the memory source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.change_log.rendered import capture_records, row_fields
from tests.support.connectors import memory_connector


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.orders", {"id": "int64!", "note": "string"}, key=("id",))
    db.create_table("shop.bag", {"note": "string"})
    return db


def test_records_come_with_schemas_or_as_payloads_alone(db: MemoryDatabase, tmp_path: Path) -> None:
    connectors = [memory_connector(db, tmp_path / name) for name in ("with", "without")]
    for connector in connectors:
        capture_records(connector)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
    (described,), (plain,) = (capture_records(c, schemas=c is connectors[0]) for c in connectors)
    assert set(described["key"]) == set(described["value"]) == {"schema", "payload"}
    assert (described["key"]["payload"], plain["key"]) == ({"id": 1}, {"id": 1})
    assert set(plain["value"]) == {f["field"] for f in described["value"]["schema"]["fields"]}
    assert plain["value"]["after"] == described["value"]["payload"]["after"] == {"id": 1, "note": "x"}
    assert len(json.dumps(plain)) < len(json.dumps(described)) / 2


def test_each_record_has_the_schema_of_its_moment(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    capture_records(connector)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    db.add_column("shop.orders", "more", "int32", 5)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 2, "more": 6})
    before, after = (r for r in capture_records(connector, schemas=True) if r["topic"] == "test.shop.orders")
    assert list(row_fields(before)) == list(before["value"]["payload"]["after"]) == ["id", "note"]
    assert list(row_fields(after)) == list(after["value"]["payload"]["after"]) == ["id", "note", "more"]
    assert before["value"]["payload"]["after"] == {"id": 1, "note": None}


def test_names_of_schemas_follow_the_topic_and_avro(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    odd = MemoryDatabase(request.node.nodeid)
    for table in ("shop.orders", "a-b.größe 1$"):
        odd.create_table(table, {"id": "int64!"}, key=("id",))
        with odd.transaction() as t:
            t.insert(table, {"id": 1})
    found = capture_records(memory_connector(odd, tmp_path, topic_prefix="2nd-shop"), schemas=True)
    names = {
        r["topic"]: (
            r["key"]["schema"]["name"],
            r["value"]["schema"]["name"],
            r["value"]["schema"]["fields"][1]["name"],
        )
        for r in found
        if r["topic"] != "2nd-shop"
    }
    assert names == {
        "2nd-shop.shop.orders": tuple(f"_2nd_shop.shop.orders.{kind}" for kind in ("Key", "Envelope", "Value")),
        "2nd-shop.a-b.gr__e_1_": tuple(f"_2nd_shop.a_b.gr__e_1_.{kind}" for kind in ("Key", "Envelope", "Value")),
    }


def test_keys_and_values_may_be_null(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    capture_records(connector)
    with db.transaction() as t:
        t.insert("shop.bag", {"note": "x"})
        t.insert("shop.orders", {"id": 1})
        t.delete("shop.orders", {"id": 1})
    db.truncate_table("shop.orders")
    assert [(r["key"], r["value"] and r["value"]["op"]) for r in capture_records(connector)] == [
        (None, "c"), ({"id": 1}, "c"), ({"id": 1}, "d"), ({"id": 1}, None), (None, "t"),
    ]  # fmt: skip


def test_the_last_record_of_each_key_is_the_table(db: MemoryDatabase, tmp_path: Path) -> None:
    """So a compacted topic is enough: after a tombstone nothing of a row is left."""
    connector = memory_connector(db, tmp_path, table_include_list="shop.orders")
    with db.transaction() as t:
        for i in range(6):
            t.insert("shop.orders", {"id": i, "note": "old"})
    found = capture_records(connector)
    with db.transaction() as t:
        t.update("shop.orders", {"id": 1}, {"note": "new"})
        t.update("shop.orders", {"id": 2}, {"id": 20})
        t.delete("shop.orders", {"id": 3})
        t.insert("shop.orders", {"id": 3, "note": "again"})
        t.delete("shop.orders", {"id": 4})
    found += capture_records(connector)
    last: dict[str, Any] = {json.dumps(r["key"]): r["value"] for r in found if r["topic"] == "test.shop.orders"}
    assert {json.loads(k)["id"] for k, v in last.items() if v is None} == {2, 4}
    assert sorted((v["after"] for v in last.values() if v), key=repr) == sorted(db.copy_rows("shop.orders"), key=repr)


def test_transaction_records_come_on_request_and_of_the_stream_only(db: MemoryDatabase, tmp_path: Path) -> None:
    for name, options in (("default", {}), ("off", {"provide_transaction_metadata": False})):
        connector = memory_connector(db, tmp_path / name, **options)
        capture_records(connector)
        with db.transaction() as t:
            t.insert("shop.bag", {"note": name})
        (record,) = capture_records(connector)
        assert (record["topic"], record["value"]["transaction"]) == ("test.shop.bag", None)
    connector = memory_connector(db, tmp_path / "on", provide_transaction_metadata=True)
    reads = [r for r in capture_records(connector) if r["topic"] != "test"]
    assert [(r["value"]["op"], r["value"]["transaction"]) for r in reads] == [("r", None)] * 2
    with db.transaction() as t:
        t.insert("shop.bag", {"note": "y"})
    begin, record, end = capture_records(connector)
    assert {begin["topic"], end["topic"]} == {"test.transaction"}
    assert record["value"]["transaction"]["total_order"] == 1


def test_schema_changes_go_to_the_prefix_or_nowhere_and_the_history_has_them_all(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    with_them = memory_connector(db, tmp_path / "with", topic_prefix="pre.fix")
    without = memory_connector(db, tmp_path / "without", topic_prefix="pre.fix", include_schema_changes=False)
    for connector in (with_them, without):
        capture_records(connector)
    db.add_column("shop.orders", "more", "int32", 5)
    (record,) = capture_records(with_them)
    assert (record["topic"], record["key"]) == ("pre.fix", {"databaseName": "shop"})
    assert capture_records(without) == []
    for connector in (with_them, without):
        *_, last = connector.store.schema_history("test")
        assert (last.ddl, last.changes[0].type) == ("ALTER TABLE shop.orders ADD COLUMN more", "ALTER")
