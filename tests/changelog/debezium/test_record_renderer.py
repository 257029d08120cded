"""The change log of the memory source as Debezium's records: keys, envelopes, tombstones, headers, boundaries, DDL."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc import __version__
from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRecord, DebeziumRenderer
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.clock = lambda: 1_700_000_000_123_456
    db.create_table("shop.orders", {"id": "int64!", "note": "string"}, key=("id",))
    db.create_table("shop.bag", {"note": "string"})
    return db


def _start_connector(db: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    connector = memory_connector(db, folder, **properties)
    connector.capture()
    return connector


def _render_new(connector: Connector, **options: Any) -> list[DebeziumRecord]:
    """Capture, and render what that gave."""
    before = connector.changelog.list_batches("test")
    connector.capture()
    return list(
        DebeziumRenderer(connector.changelog, "test", **options).render_records(after=before[-1] if before else 0)
    )


def _shorten_records(records: list[DebeziumRecord]) -> list[Any]:
    return [
        (
            r.topic.removeprefix("test."), r.key,
            r.value if r.value is None else (r.value["op"], r.value["before"], r.value["after"]),
        )
        for r in records
    ]  # fmt: skip


def test_a_record_of_each_operation(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "ä"})
        t.update("shop.orders", {"id": 1}, {"note": None})
        t.delete("shop.orders", {"id": 1})
    db.truncate_table("shop.orders")
    old, new = {"id": 1, "note": "ä"}, {"id": 1, "note": None}
    assert _shorten_records(_render_new(connector)) == [
        ("shop.orders", {"id": 1}, ("c", None, old)),
        ("shop.orders", {"id": 1}, ("u", old, new)),
        ("shop.orders", {"id": 1}, ("d", new, None)),
        ("shop.orders", {"id": 1}, None),
        ("shop.orders", None, ("t", None, None)),
    ]


def test_the_value_has_the_documented_fields(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path, topic_prefix="eu")
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    (record,) = _render_new(connector)
    assert record.value is not None
    assert set(record.value) == {"before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"}
    source = record.value["source"]
    assert source == {
        "version": __version__, "connector": "memory", "name": "eu", "ts_ms": 1_700_000_000_123, "snapshot": "false", "db": "shop",
        "sequence": None, "ts_us": 1_700_000_000_123_456, "ts_ns": 1_700_000_000_123_456_000, "table": "orders",
        "entry": 2, "row": 0,
    }  # fmt: skip
    assert record.value["transaction"] is None
    assert list(record.to_document()) == ["topic", "key", "value"]
    assert json.loads(json.dumps(record.to_document())) == record.to_document()


def test_rows_of_a_snapshot_are_reads(db: MemoryDatabase, tmp_path: Path) -> None:
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
    *_, record = _render_new(memory_connector(db, tmp_path, table_include_list="shop.orders"))
    assert _shorten_records([record]) == [("shop.orders", {"id": 1}, ("r", None, {"id": 1, "note": "x"}))]
    assert record.value is not None
    assert record.value["source"]["snapshot"] == "last"


def test_a_key_change_is_delete_tombstone_and_create_that_name_each_other(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
        t.update("shop.orders", {"id": 1}, {"id": 2})
    _, deleted, tombstone, created = _render_new(connector)
    assert _shorten_records([deleted, tombstone, created]) == [
        ("shop.orders", {"id": 1}, ("d", {"id": 1, "note": "x"}, None)),
        ("shop.orders", {"id": 1}, None),
        ("shop.orders", {"id": 2}, ("c", None, {"id": 2, "note": "x"})),
    ]
    assert deleted.to_document()["headers"] == {"__debezium.newkey": {"id": 2}}
    assert created.to_document()["headers"] == {"__debezium.oldkey": {"id": 1}}


def test_a_delete_and_an_insert_of_the_next_row_are_no_key_change(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
        t.delete("shop.orders", {"id": 1})
        t.insert("shop.orders", {"id": 2})
    assert [r.headers for r in _render_new(connector)] == [{}, {}, {}, {}]


def test_tombstones_can_be_left_out_and_a_table_without_a_key_has_none(db: MemoryDatabase, tmp_path: Path) -> None:
    with_them = _start_connector(db, tmp_path / "with")
    without = _start_connector(db, tmp_path / "without", tombstones_on_delete=False)
    with db.transaction() as t:
        t.insert("shop.bag", {"note": "x"})
        t.delete("shop.bag", {"note": "x"})
        t.insert("shop.orders", {"id": 1})
        t.delete("shop.orders", {"id": 1})
    assert [r.value is None for r in _render_new(with_them)] == [False, False, False, False, True]
    records = _render_new(without)
    assert [r.value is None for r in records] == [False] * 4
    assert [r.key for r in records] == [None, None, {"id": 1}, {"id": 1}]


def test_records_come_in_the_order_of_the_log_over_topics_and_batches(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path, batch_max_rows=2)
    expected = []
    for i in range(12):
        with db.transaction() as t:
            t.insert("shop.orders", {"id": i})
            t.insert("shop.bag", {"note": str(i)})
        expected += [("test.shop.orders", i), ("test.shop.bag", str(i))]
    records = _render_new(connector)
    assert [(r.topic, r.value["after"].get("id", r.value["after"]["note"])) for r in records if r.value] == expected
    assert len(connector.changelog.list_batches("test")) > 5


# transactions


def test_transactions_begin_and_end_with_their_counts(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path, provide_transaction_metadata=True, memory_block_rows=1)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
        t.insert("shop.bag", {"note": "a"})
        t.update("shop.orders", {"id": 1}, {"id": 2})
    with db.transaction() as t:
        t.insert("shop.bag", {"note": "b"})
    records = _render_new(connector)
    boundaries = [r for r in records if r.topic == "test.transaction"]
    assert [r.key for r in boundaries] == [{"id": "tx-2"}] * 2 + [{"id": "tx-3"}] * 2
    begin, end, *_ = [r.value for r in boundaries]
    ts = 1_700_000_000_123
    assert begin == {"status": "BEGIN", "id": "tx-2", "event_count": None, "data_collections": None, "ts_ms": ts}
    assert end == {
        "status": "END", "id": "tx-2", "event_count": 4, "ts_ms": ts,
        "data_collections": [
            {"data_collection": "shop.bag", "event_count": 1}, {"data_collection": "shop.orders", "event_count": 3},
        ],
    }  # fmt: skip
    rows = [r.value["transaction"] for r in records if r.value and "op" in r.value]
    assert rows == [
        {"id": "tx-2", "total_order": 1, "data_collection_order": 1},
        {"id": "tx-2", "total_order": 2, "data_collection_order": 1},
        {"id": "tx-2", "total_order": 3, "data_collection_order": 2},
        {"id": "tx-2", "total_order": 4, "data_collection_order": 3},
        {"id": "tx-3", "total_order": 1, "data_collection_order": 1},
    ]
    kinds = [r.value["status"] if r.value and "status" in r.value else "" for r in records]
    assert [k for k in kinds if k] == ["BEGIN", "END", "BEGIN", "END"]


@pytest.mark.parametrize(("named", "topic"), [({}, "transaction"), ({"topic_transaction": "tx"}, "tx")])
def test_the_transaction_topic_can_be_named(
    db: MemoryDatabase, tmp_path: Path, named: dict[str, str], topic: str
) -> None:
    connector = _start_connector(db, tmp_path, provide_transaction_metadata=True, topic_prefix="eu", **named)
    with db.transaction() as t:
        t.insert("shop.bag", {"note": "b"})
    assert [r.topic for r in _render_new(connector)] == [f"eu.{topic}", "eu.shop.bag", f"eu.{topic}"]


# schema changes


def test_a_schema_change_stands_between_the_rows_it_stood_between(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1})
    db.add_column("shop.orders", "more", "int32", 5)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 2})
    first, change, second = _render_new(connector)
    assert first.value is not None
    assert second.value is not None
    assert (set(first.value["after"]), set(second.value["after"])) == ({"id", "note"}, {"id", "note", "more"})
    assert (change.topic, change.key) == ("test", {"databaseName": "shop"})
    value = change.value
    assert value is not None
    assert set(value) == {"source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"}
    assert value["ddl"] == "ALTER TABLE shop.orders ADD COLUMN more"
    assert value["databaseName"] == "shop"
    assert (value["source"]["db"], value["source"]["table"], value["source"]["snapshot"]) == ("shop", "orders", "false")
    (table_change,) = value["tableChanges"]
    assert (table_change["type"], table_change["id"]) == ("ALTER", '"shop"."orders"')
    table = table_change["table"]
    assert table["primaryKeyColumnNames"] == ["id"]
    assert [(c["name"], c["position"], c["optional"]) for c in table["columns"]] == [
        ("id", 1, False), ("note", 2, True), ("more", 3, True),
    ]  # fmt: skip


def test_structures_of_a_snapshot_say_so_and_a_renamed_table_has_its_new_name(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = memory_connector(db, tmp_path)
    changes = [r.value for r in _render_new(connector) if r.topic == "test"]
    assert [c["source"]["snapshot"] for c in changes if c] == ["true", "true"]
    db.rename_tables(("shop.orders", "shop.past"))
    (value,) = [r.value for r in _render_new(connector) if r.topic == "test"]
    assert value is not None
    assert [(c["type"], c["id"]) for c in value["tableChanges"]] == [("ALTER", '"shop"."past"')]


def test_a_drop_has_no_table_and_schema_changes_can_be_left_out(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path / "with")
    without = _start_connector(db, tmp_path / "without", include_schema_changes=False)
    db.drop_table("shop.bag")
    (change,) = _render_new(connector)
    assert change.value is not None
    assert change.value["tableChanges"] == [{"type": "DROP", "id": '"shop"."bag"', "table": None}]
    assert _render_new(without) == []


# a level above the namespace


def test_with_catalogs_records_name_database_schema_and_table(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    db = MemoryDatabase(request.node.nodeid, catalog="PDB1")
    db.create_table("HR.EMP", {"ID": "int64!"}, key=("ID",))
    connector = memory_connector(db, tmp_path, provide_transaction_metadata=True)
    first, *_ = _render_new(connector)
    with db.transaction() as t:
        t.insert("HR.EMP", {"ID": 1})
    db.add_column("HR.EMP", "PAY", "int32")
    db.rename_tables(("HR.EMP", "HR.STAFF"))
    begin, row, end, change, renamed, *_ = _render_new(connector)
    for record in (first, change):
        assert record.key == {"databaseName": "PDB1"}
        assert record.value is not None
        assert (record.value["databaseName"], record.value["schemaName"]) == ("PDB1", "HR")
        assert [record.value["source"][n] for n in ("db", "schema", "table")] == ["PDB1", "HR", "EMP"]
        assert record.value["tableChanges"][0]["id"] == '"PDB1"."HR"."EMP"'
    assert renamed.value is not None
    assert renamed.value["tableChanges"][0]["id"] == '"PDB1"."HR"."STAFF"'
    assert row.topic == "test.HR.EMP"
    assert row.value is not None
    assert [row.value["source"][n] for n in ("db", "schema", "table")] == ["PDB1", "HR", "EMP"]
    assert begin.value is not None
    assert end.value is not None
    assert (begin.value["event_count"], begin.value["data_collections"]) == (None, None)
    assert end.value["data_collections"] == [{"data_collection": "PDB1.HR.EMP", "event_count": 1}]


# values that the log does not have


@pytest.mark.parametrize("text", ["__debezium_unavailable_value", "gone"])
def test_a_placeholder_stands_for_a_value_that_the_log_does_not_have(
    request: pytest.FixtureRequest, tmp_path: Path, text: str
) -> None:
    db = MemoryDatabase(request.node.nodeid)
    columns = {"id": "int64!", "n": "int32", "note": "string", "photo": "binary", "size": "int32"}
    db.create_table("s.t", columns, key=("id",), sparse=("note", "photo", "size"))
    connector = memory_connector(db, tmp_path)
    if text != "__debezium_unavailable_value":
        connector.properties["unavailable.value.placeholder"] = text
    connector.capture()
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "note": "a", "photo": b"p", "size": 3})
        t.update("s.t", {"id": 1}, {"n": 5, "note": None})
    with db.transaction() as t:  # of a row that passes a key in one transaction, values of changes before are known
        t.update("s.t", {"id": 1}, {"id": 2})
    with db.transaction() as t:
        t.delete("s.t", {"id": 2})
    bytes_ = base64.b64encode(text.encode()).decode()
    none = {"note": text, "photo": bytes_, "size": None}
    assert [r for r in _shorten_records(_render_new(connector)) if r[2] is not None] == [
        ("s.t", {"id": 1}, ("c", None, {"id": 1, "n": None, "note": "a", "photo": "cA==", "size": 3})),
        ("s.t", {"id": 1}, ("u", {"id": 1, "n": None, **none}, {"id": 1, "n": 5, **none, "note": None})),
        ("s.t", {"id": 1}, ("d", {"id": 1, "n": 5, **none}, None)),
        ("s.t", {"id": 2}, ("c", None, {"id": 2, "n": 5, **none})),
        ("s.t", {"id": 2}, ("d", {"id": 2, "n": 5, **none}, None)),
    ]


def test_nanoseconds_are_rendered_as_they_are(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("s.t", {"at": "timestamp[ns]!", "utc": "timestamp[ns, tz=UTC]"}, key=("at",))
    connector = _start_connector(db, tmp_path)
    nanos = 1_709_208_000_123_456_789
    at, utc = (pa.scalar(nanos, pa.int64()).cast(pa.timestamp("ns", tz=zone)) for zone in (None, "UTC"))
    with db.transaction() as t:
        t.insert("s.t", {"at": at, "utc": utc})
    ((_, key, (op, _, after)),) = _shorten_records(_render_new(connector))
    # without a semantic name the unit is milliseconds, as for coarser timestamps
    assert (key, op, after) == (
        {"at": nanos // 10**6}, "c", {"at": nanos // 10**6, "utc": "2024-02-29T12:00:00.123456789Z"},
    )  # fmt: skip


# with schemas


def test_with_schemas_key_and_value_are_described_and_fit_their_description(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
        t.delete("shop.orders", {"id": 1})
    for record in _render_new(connector, schemas=True):
        document = record.to_document(schemas=True)
        assert document["key"]["schema"]["name"] == "test.shop.orders.Key"
        _assert_fits(document["key"]["payload"], document["key"]["schema"])
        if document["value"] is not None:
            assert document["value"]["schema"]["name"] == "test.shop.orders.Envelope"
            _assert_fits(document["value"]["payload"], document["value"]["schema"])


def test_with_schemas_schema_changes_and_transactions_fit_their_description(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, provide_transaction_metadata="true")
    connector.capture()
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
    db.rename_tables(("shop.orders", "shop.past"))
    names = set()
    for record in _render_new(connector, schemas=True):
        if record.topic not in ("test", "test.transaction"):
            continue
        document = record.to_document(schemas=True)
        for side in ("key", "value"):
            names.add(document[side]["schema"]["name"])
            _assert_fits(document[side]["payload"], document[side]["schema"])
    assert names == {
        "io.debezium.connector.memory.SchemaChangeKey", "io.debezium.connector.memory.SchemaChangeValue",
        "io.debezium.connector.common.TransactionMetadataKey", "io.debezium.connector.common.TransactionMetadataValue",
    }  # fmt: skip


def test_the_schemas_of_transactions_are_the_documented_ones(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = _start_connector(db, tmp_path, provide_transaction_metadata=True)
    with db.transaction() as t:
        t.insert("shop.orders", {"id": 1, "note": "x"})
    begin, row, _ = (record.to_document(schemas=True) for record in _render_new(connector, schemas=True))
    key, value = begin["key"]["schema"], begin["value"]["schema"]
    assert (key["type"], [f["field"] for f in key["fields"]]) == ("struct", ["id"])
    assert [node["name"].rpartition(".")[2] for node in (key, value)] == [
        "TransactionMetadataKey", "TransactionMetadataValue",
    ]  # fmt: skip
    (counts,) = (f["items"] for f in value["fields"] if f["field"] == "data_collections")
    (block,) = (f for f in row["value"]["schema"]["fields"] if f["field"] == "transaction")
    assert [(node["name"], node["version"]) for node in (counts, block)] == [
        ("event.collection", 1),
        ("event.block", 1),
    ]


def _assert_fits(value: Any, schema: dict[str, Any]) -> None:
    """A payload has the fields, types and nulls that its Connect schema allows, and no others."""
    if value is None:
        assert schema["optional"], schema
        return
    kinds: dict[str, Any] = {
        "struct": dict, "string": str, "int64": int, "int32": int, "int16": int, "boolean": bool, "double": float,
        "bytes": str, "array": list,
    }  # fmt: skip
    assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if schema["type"] == "array":
        for item in value:
            _assert_fits(item, schema["items"])
    if schema["type"] == "struct":
        fields = {f["field"]: f for f in schema["fields"]}
        assert set(value) == set(fields)
        for name, field in fields.items():
            _assert_fits(value[name], field)


def test_binary_values_are_base64(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.files", {"id": "int64!", "body": "binary"}, key=("id",))
    connector = _start_connector(db, tmp_path)
    with db.transaction() as t:
        t.insert("shop.files", {"id": 1, "body": bytes(range(256))})
    (record,) = _render_new(connector)
    assert record.value is not None
    assert base64.b64decode(record.value["after"]["body"]) == bytes(range(256))
