"""The order of changes in records, and the records that belong together."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import read_events
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.log.log_block_builder import BlockBuilder, position_at
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from dev.servers.mongodb import ShardedCluster
from tests.support.change_log.rendered import capture_records
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.sources.mongodb.mongodb_json import write
from tests.support.sources.mongodb.mongodb_recordings import scenarios
from tests.targets.database.apply.test_database_apply import rows, sink


def test_updates_in_a_row_have_the_last_document_and_each_its_own_step(uri: str, tmp_path: Path, database: Any) -> None:
    """By capture.mode.full.update.type=lookup; what each of them did, updateDescription says."""
    database.orders.insert_one({"_id": 1})
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    capture_records(connector)
    for n in range(4):
        database.orders.update_one({"_id": 1}, {"$set": {"n": n}})
    found = [record["value"] for record in capture_records(connector)]
    assert [json.loads(value["after"]) for value in found] == [{"_id": 1, "n": 3}] * 4
    assert [json.loads(value["updateDescription"]["updatedFields"]) for value in found] == [{"n": n} for n in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("commits", ["apart", "together"])
def test_what_a_transaction_does_on_several_shards(tmp_path: Path, commits: str) -> None:
    """The shards commit it at one time, or each at its own."""
    with ShardedCluster({"noop_seconds": 1, "commits": commits}) as cluster, cluster.connect() as client:
        client.admin.command({"enableSharding": "shop", "primaryShard": "s1"})
        client.admin.command({"shardCollection": "shop.orders", "key": {"k": 1}})
        client.admin.command({"split": "shop.orders", "middle": {"k": 5}})
        client.admin.command({"moveChunk": "shop.orders", "find": {"k": 7}, "to": "s2"})
        orders = client.shop.orders
        orders.insert_many([{"_id": n, "k": k} for n, k in ((1, 1), (2, 2), (3, 8))])
        connector = mongodb_connector(
            cluster.router.url(), tmp_path, database_include_list="shop", provide_transaction_metadata=True
        )
        capture_records(connector)
        with client.start_session() as session, session.start_transaction():
            orders.insert_one({"_id": 4, "k": 9}, session=session)
            orders.insert_one({"_id": 5, "k": 3}, session=session)
        begin, first, second, end = capture_records(connector)
        times = [(record["value"]["source"]["ts_ms"], record["value"]["source"]["ord"]) for record in (first, second)]
        assert (times[0] < times[1]) == (commits == "apart")
        assert begin["value"]["id"] == end["value"]["id"] == first["value"]["transaction"]["id"]
        assert [record["value"]["transaction"]["total_order"] for record in (first, second)] == [1, 2]
        assert end["value"]["event_count"] == 2
        with client.start_session() as session, session.start_transaction():
            # a document that comes to another shard: there it is inserted, here it is deleted
            orders.insert_one({"_id": 2, "k": 7}, session=session)
            orders.delete_one({"_id": 2, "k": 2}, session=session)
            orders.delete_one({"_id": 3, "k": 8}, session=session)
        operations = [one["value"]["op"] for one in capture_records(connector) if "op" in (one["value"] or ())]
        expected = ["c", "d"] if commits == "apart" else ["d", "c", "d"]
        assert operations == expected, "at one time the tokens decide; else the shard with the new document is first"
        engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
        sink(engine, connector, collection__name__format="orders").apply()
        found = [json.loads(row["document"]) for row in rows(engine, "orders")]
        assert sorted(found, key=repr) == sorted(orders.find(), key=repr)
        assert {"_id": 2, "k": 7} in found


def test_a_transaction_is_open_until_the_stream_has_come_behind_its_moment() -> None:
    """A router may have nothing while it waits for the shard that has the rest of it."""
    steps = scenarios()["transaction_large"]["steps"]
    found = [event for step in steps if "getMore" in step for event in step["nextBatch"] if "txnNumber" in event]
    names = {(event["ns"]["db"], event["ns"]["coll"]) for event in found}
    assert len(names) == 1
    documents = BsonDocuments.of_list([write(event) for event in found[:5]])
    events = read_events(documents)
    filters = Filters(MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": "a"}))
    tables: Any = CapturedTables(filters, SchemaHistory())
    builder = BlockBuilder(
        tables, FieldRewriter(MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": "a"}))
    )
    (block,) = builder.build_blocks(events, np.arange(5), MongoPosition(ClusterTime(1, 1)))
    assert block.open
    within = position_at(events, 4)
    assert [
        builder.is_past_transaction(one)
        for one in (within, MongoPosition(within.time), MongoPosition(within.time.next_time()))
    ] == [
        False,
        True,
        True,
    ]


def test_records_have_their_order_their_transaction_and_their_delay(
    uri: str, tmp_path: Path, database: Any, client: Any
) -> None:
    orders = database.orders
    orders.insert_one({"_id": "before"})
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, provide_transaction_metadata=True)
    (read,) = capture_records(connector)
    assert read["value"]["transaction"] is None, "what was before has none"
    with client.start_session() as session, session.start_transaction():
        orders.insert_many([{"_id": n} for n in range(3)], session=session)
        database.notes.insert_one({"_id": 0}, session=session)  # and the collection comes to be within it
    orders.insert_one({"_id": 9})
    orders.delete_one({"_id": 9})
    time.sleep(1.1)
    begin, *rows, end, alone, gone, _ = capture_records(connector)
    sources = [record["value"]["source"] for record in (*rows, alone, gone)]
    assert [(s["ts_ms"], s["ord"]) for s in sources] == sorted((s["ts_ms"], s["ord"]) for s in sources)
    assert len({(s["lsid"], s["txnNumber"]) for s in sources}) == 2, "those of a transaction share them"
    assert [(s["db"], s["collection"]) for s in sources[2:4]] == [(database.name, "orders"), (database.name, "notes")]
    assert {record["topic"] for record in (begin, end)} == {"test.transaction"}
    assert {record["value"]["id"] for record in (begin, end)} == {f"{sources[0]['lsid']}:{sources[0]['txnNumber']}"}
    counts = {c["data_collection"]: c["event_count"] for c in end["value"]["data_collections"]}
    assert counts == {f"{database.name}.orders": 3, f"{database.name}.notes": 1}
    for record in (*rows, alone, gone):
        late = record["value"]["ts_ms"] - record["value"]["source"]["ts_ms"]
        assert 1000 < late < 60_000
        assert abs(record["value"]["ts_ms"] / 1000 - time.time()) < 60
