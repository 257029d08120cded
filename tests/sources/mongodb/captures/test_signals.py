"""Snapshots on demand as the document of MongoDB describes them: documents of a signalling collection, and what other channels send."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.log.stream_event_reader import MongoEventReader
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from tests.support.change_log.rendered import capture_records, of_table, records
from tests.support.signals import scans, send, signal_state, snapshot
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector

ConnectorFactory = Callable[..., MongoConnector]
WITH_CONDITIONS = "source:execute-snapshot,additional-conditions"


@pytest.fixture
def shop_database(database: Any) -> Any:
    """Two collections of 25 documents, one with a dot in its name, and the signalling collection of the document."""
    for name in ("orders", "My.Collection"):
        database[name].insert_many([{"_id": n, "color": "blue" if n % 2 else "red", "n": n} for n in range(25)])
    database.create_collection("debeziumSignal")
    return database


@pytest.fixture
def connector_factory(uri: str, shop_database: Any, tmp_path: Path) -> ConnectorFactory:
    """A connector that has begun to stream, and has read no document unless properties say otherwise."""

    def make(**properties: Any) -> MongoConnector:
        options = {
            "database_include_list": shop_database.name, "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10,
            "signal_data_collection": f"{shop_database.name}.debeziumSignal", "signal_poll_interval_ms": 50,
        }  # fmt: skip
        connector = mongodb_connector(uri, tmp_path, **options | properties)
        connector.replay.partial = True
        connector.capture()
        return connector

    return make


def capture_signal_records(connector: MongoConnector) -> list[dict[str, Any]]:
    """The records of two runs: a signal that ends the log is carried out by the next one."""
    return capture_records(connector) + capture_records(connector)


def ids(found: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(record["key"]["id"]) for record in found]


@pytest.mark.parametrize(
    ("data", "kind", "id_"),
    [
        (dict, {"type": "incremental"}, {}), (dict, {}, {"_id": 7}), (json.dumps, {"type": "incremental"}, {"_id": "ad-hoc-1"}),
        (json.dumps, {}, {"_id": ObjectId("596e275826f08b2730779e1f")}),
    ],
)  # fmt: skip
def test_the_document_of_the_guide_has_collections_read(
    shop_database: Any, connector_factory: ConnectorFactory, data: Any, kind: Any, id_: Any
) -> None:
    connector = connector_factory()
    expected = {
        "data-collections": [f'"{shop_database.name}"."orders"', f'"{shop_database.name}"."My.Collection"'],
        **kind,
    }
    given = shop_database.debeziumSignal.insert_one(
        {**id_, "type": "execute-snapshot", "data": data(expected)}
    ).inserted_id
    found = capture_signal_records(connector)
    assert {r["topic"] for r in found} == {f"test.{shop_database.name}.{name}" for name in ("orders", "My.Collection")}
    assert ids(of_table(found, "orders")) == ids(of_table(found, "Collection")) == [*range(25)]
    for value in (r["value"] for r in found):
        assert (value["op"], value["before"], value["transaction"]) == ("r", None, None)
        assert value["source"]["snapshot"] == "incremental"
        assert json.loads(value["after"]).keys() == {"_id", "color", "n"}
    (signal,) = connector.store.signals_of("test", limit=5)
    assert (signal.id, signal.channel, signal.state) == (str(given), "source", "done")


def test_without_its_name_a_collection_is_no_signalling_collection(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory(signal_data_collection=f"{shop_database.name}.others")
    data = {"data-collections": [f"{shop_database.name}.orders"]}
    shop_database.debeziumSignal.insert_one({"type": "execute-snapshot", "data": data})
    assert {r["topic"] for r in capture_signal_records(connector)} == {f"test.{shop_database.name}.debeziumSignal"}
    connector.properties["signal.data.collection"] = f"{shop_database.name}.debeziumSignal"
    shop_database.debeziumSignal.insert_one({"type": "execute-snapshot", "data": data})
    assert {r["topic"] for r in capture_signal_records(connector)} == {f"test.{shop_database.name}.orders"}, (
        "and with it, it is one"
    )


def test_a_collection_that_is_captured_is_read_again_into_its_stream(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory(snapshot_mode="initial", collection_include_list=f"{shop_database.name}.orders")
    shop_database.orders.update_one({"_id": 3}, {"$set": {"n": 33}})
    connector.capture()
    before = len(of_table(records(connector), "orders"))
    shop_database.debeziumSignal.insert_one(
        {"type": "execute-snapshot", "data": {"data-collections": [f"{shop_database.name}.orders"]}}
    )
    found = capture_signal_records(connector)
    assert (before, ids(found)) == (26, [*range(25)])
    assert {r["topic"] for r in records(connector)} == {f"test.{shop_database.name}.orders"}
    there = sorted(shop_database.orders.find(), key=lambda d: d["_id"])
    assert sorted(connector.documents(f"{shop_database.name}.orders"), key=lambda d: d["_id"]) == there


def test_a_database_some_collections_or_a_part_of_one_is_read(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory(signal_allowed_types=WITH_CONDITIONS)
    part = {"data-collection": f"{shop_database.name}.orders", "filter": {"n": {"$lt": 3}}}
    for data, expected in (
        ({"data-collections": [rf"{shop_database.name}\..*"]}, {"orders": 25, "Collection": 25}),
        ({"data-collections": [rf"{shop_database.name}\.ord.*"]}, {"orders": 25}),
        (
            {"data-collections": [rf"{shop_database.name}\..*"], "additional-conditions": [part]},
            {"orders": 3, "Collection": 25},
        ),
    ):
        shop_database.debeziumSignal.insert_one({"type": "execute-snapshot", "data": data})
        found = Counter(str(record["topic"]).rpartition(".")[2] for record in capture_signal_records(connector))
        assert dict(found) == expected


VALUES = [
    dt.datetime(2026, 1, 5), dt.datetime(1, 1, 1), ObjectId("596e275826f08b2730779e1f"), Decimal128("1.10"), Int64(2**40), Binary(b"ab", 5),
    {"x": dt.datetime(1960, 1, 1)},
]  # fmt: skip


def test_a_part_is_read_by_a_condition_with_values_of_every_type(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    """A condition that is a sub-document has the values that it was inserted with."""
    connector = connector_factory(signal_allowed_types=WITH_CONDITIONS)
    for number, value in enumerate(VALUES):
        shop_database.orders.update_one({"_id": 2 * number}, {"$set": {"v": value}})
    connector.capture()
    condition = {"v": {"$in": VALUES}, "n": {"$gte": Int64(0)}}
    filters = [{"data-collection": f"{shop_database.name}.orders", "filter": condition}]
    data = {
        "data-collections": [f"{shop_database.name}.orders"],
        "additional-conditions": filters,
        "chunk-size": Int64(5),
    }
    shop_database.debeziumSignal.insert_one({"type": "execute-snapshot", "data": data})
    assert ids(capture_signal_records(connector)) == [2 * number for number in range(len(VALUES))]


def test_one_condition_as_a_text_is_a_filter(shop_database: Any, connector_factory: ConnectorFactory) -> None:
    connector = connector_factory()
    data = {
        "data-collections": [f"{shop_database.name}.orders"],
        "additional-condition": '{"color": "blue", "n": {"$gt": 20}}',
    }
    send(connector, "execute-snapshot", data)
    assert ids(capture_records(connector)) == [21, 23]


def test_a_condition_in_sql_reads_nothing_and_says_how_to_write_it(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory()
    data = {
        "data-collections": [f"{shop_database.name}.orders"],
        "additional-condition": "color='blue' AND brand='MyBrand'",
    }
    number = send(connector, "execute-snapshot", data)
    assert capture_records(connector) == []
    state, message = signal_state(connector, number)
    assert (state, "not extended JSON" in message) == ("failed", True), message


@pytest.mark.parametrize(("data", "whole"), [(dict, True), (json.dumps, False)])
def test_the_document_that_stops_a_snapshot(
    shop_database: Any, connector_factory: ConnectorFactory, data: Any, whole: bool
) -> None:
    connector = connector_factory()
    number = snapshot(connector, f"{shop_database.name}.orders", f'"{shop_database.name}"."My.Collection"')
    send(connector, "pause-snapshot")
    connector.capture()
    named = {} if whole else {"data-collections": [f'"{shop_database.name}"."orders"']}
    stop = {"_id": "enough", "type": "stop-snapshot", "data": data({"type": "incremental", **named})}
    shop_database.debeziumSignal.insert_one(stop)
    send(connector, "resume-snapshot")
    found = capture_signal_records(connector)
    assert len(of_table(found, "orders")) == 0
    assert len(of_table(found, "Collection")) == (0 if whole else 25)
    assert signal_state(connector, number)[0] == "failed"
    assert "stopped by signal enough" in signal_state(connector, number)[1]


def test_a_signal_that_comes_with_others_is_the_end_of_a_block() -> None:
    """A real server may give a stop and the watermarks of a chunk in one reply: the stop is carried out before the chunk."""

    def event(number: int, name: str) -> bytes:
        return bson.encode(
            {
                "_id": {"_data": f"82{number:016X}29000004"}, "operationType": "insert", "clusterTime": Timestamp(1, number),
                "fullDocument": {"_id": number}, "ns": {"db": "shop", "coll": name}, "documentKey": {"_id": number},
            }
        )  # fmt: skip

    config = MongoDbConfig.parse(
        {"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/", "signal.data.collection": "shop.signals"}
    )
    metrics, names = MongoStreamMetrics(), ["orders", "signals", "signals", "orders", "orders"]
    metrics.position = MongoPosition(ClusterTime(0, 1))
    tables: Any = CapturedTables(Filters(config), SchemaHistory())
    documents = BsonDocuments.of_list([event(n, name) for n, name in enumerate(names, start=2)])
    blocks = [*MongoEventReader(config, tables, None, metrics).read_items(documents, metrics.position, None)]  # type: ignore[arg-type]
    assert [sum(map(len, block.rows)) for block in blocks if isinstance(block, LogBlock)] == [2, 1, 2]


@pytest.mark.parametrize(("name", "status"), [("_id", "SUCCEEDED"), ("color", "SKIPPED"), ("document", "SKIPPED")])
def test_chunks_are_cut_by_the_id_and_by_nothing_else(
    shop_database: Any, connector_factory: ConnectorFactory, name: str, status: str
) -> None:
    """Every collection has an index on it; of another field no one knows that it is unique, and is there."""
    connector = connector_factory()
    number = snapshot(connector, f"{shop_database.name}.orders", surrogate_key=name)
    found = capture_records(connector)
    assert scans(connector) == {f"{shop_database.name}.orders": status}
    assert (len(found), signal_state(connector, number)[0]) == (
        (25, "done") if status == "SUCCEEDED" else (0, "failed")
    )
    if name != "_id":
        assert name in signal_state(connector, number)[1]


def test_a_strange_document_of_the_signalling_collection_harms_nothing(
    shop_database: Any, connector_factory: ConnectorFactory
) -> None:
    connector = connector_factory()
    for strange in ({"$oid": "none"}, {"$date": "never"}, 5, None, [1], {"a": {"$numberLong": "x"}}, "text"):
        key = {"of": str(strange).replace("$", "")}  # it may hold no field that begins with a dollar
        shop_database.debeziumSignal.insert_many(
            [
                {"_id": key, "type": "execute-snapshot", "data": strange},
                {"type": strange},
                {"x": strange},
            ]
        )
    shop_database.orders.insert_one({"_id": 100})
    assert ids(capture_signal_records(connector)) == [100]
    assert {signal.state for signal in connector.store.signals_of("test", limit=50)} <= {"refused", "done"}
