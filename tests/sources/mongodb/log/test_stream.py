"""Captured change streams: images by mode, transactions, structures, large events, and elections."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
import sqlalchemy as sa
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from airflow_provider_cdc import __version__
from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError, PositionLost, PrerequisiteError, UnknownLogEvent
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import deployment_of, open_client
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import DeploymentMember
from airflow_provider_cdc.sources.mongodb.log.split_events import SplitEventCollector, merge_fragments
from dev.servers.mongodb import MongoDb, ReplicaSet, ShardedCluster
from tests.support.patience import LONGEST_S, wait_until
from tests.support.signals import snapshot
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector
from tests.support.workloads.small_tables import operations
from tests.targets.database.apply.test_database_apply import rows, sink
from tests.targets.database.verify.test_verify_database import only, verified

IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


@pytest.fixture
def orders_collection(database: Any) -> Any:
    """A collection that records images."""
    return database.create_collection("orders", **IMAGES)


def start_connector(uri: str, folder: Path, database: Any, **properties: Any) -> MongoConnector:
    connector = mongodb_connector(uri, folder, database_include_list=database.name, **properties)
    connector.capture()
    return connector


def capture_events(connector: MongoConnector) -> list[dict[str, Any]]:
    """The events of a run, as the change log has them."""
    import pyarrow.parquet as pq

    result, found = connector.capture(), []
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files if manifest.batch in result.batches else ():
            with connector.changelog.open_file("test", file) as f:
                found += pq.ParquetFile(f).read().to_pylist()
    return sorted(found, key=lambda e: e["seq"])


def image(event: dict[str, Any], name: str) -> Any:
    return None if event[name] is None or event[name]["document"] is None else json.loads(event[name]["document"])


@pytest.mark.parametrize(
    ("mode", "after", "before"),
    [
        (None, {"_id": 1, "n": 2}, None),
        ("change_streams", None, None),
        ("change_streams_update_full", {"_id": 1, "n": 2}, None),
        ("change_streams_with_pre_image", None, {"_id": 1, "n": 1}),
        ("change_streams_update_full_with_pre_image", {"_id": 1, "n": 2}, {"_id": 1, "n": 1}),
    ],
)
def test_each_mode_has_its_images(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any, mode: str | None, after: Any, before: Any
) -> None:
    """The default has the document of after, and not that of before."""
    connector = start_connector(uri, tmp_path, database, **({} if mode is None else {"capture_mode": mode}))
    orders_collection.insert_one({"_id": 1, "n": 1})
    orders_collection.update_one({"_id": 1}, {"$set": {"n": 2}})
    (create, update) = capture_events(connector)
    assert (image(create, "after"), image(update, "after"), image(update, "before")) == (
        {"_id": 1, "n": 1},
        after,
        before,
    )
    assert update["updateDescription"] == {"removedFields": None, "updatedFields": '{"n": 2}', "truncatedArrays": None}
    assert update["unavailable"] == (None if after else ["document"])
    orders_collection.replace_one({"_id": 1}, {"n": 3})
    orders_collection.delete_one({"_id": 1})
    replace, delete = capture_events(connector)
    assert (create["op"], update["op"], replace["op"]) == ("c", "u", "u")
    assert (image(replace, "after"), replace["updateDescription"]) == ({"_id": 1, "n": 3}, None)
    assert (delete["op"], delete["key"], image(delete, "before")) == (
        "d",
        {"_id": "1"},
        {"_id": 1, "n": 3} if before else None,
    )


def test_a_document_that_is_gone_when_it_is_looked_up_keeps_what_it_was(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    orders_collection.insert_one({"_id": 1, "n": 1})
    connector = start_connector(uri, tmp_path, database)
    orders_collection.update_one({"_id": 1}, {"$set": {"n": 2}})
    orders_collection.delete_one({"_id": 1})
    update, delete = capture_events(connector)
    assert (image(update, "after"), update["unavailable"], delete["op"]) == (None, ["document"], "d")


def test_a_target_keeps_the_row_of_a_document_that_was_gone_when_it_was_looked_up(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    """Without the delete, which is not captured here, the update is the last that is known of it: of what it says and of what was there the row is made."""
    orders_collection.insert_one({"_id": 1, "n": 1, "other": True})
    connector = start_connector(uri, tmp_path, database, skipped_operations="d")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    orders_collection.update_one({"_id": 1}, {"$set": {"n": 2}})
    orders_collection.delete_one({"_id": 1})
    (update,) = capture_events(connector)
    assert image(update, "after") is None
    sink(engine, connector, collection__name__format="orders").apply()
    assert [json.loads(row["document"]) for row in rows(engine, "orders")] == [{"_id": 1, "n": 2, "other": True}]
    engine.dispose()


def test_the_source_block_has_what_the_documents_say(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any, client: Any
) -> None:
    connector = start_connector(uri, tmp_path, database, provide_transaction_metadata=True)
    with client.start_session() as session, session.start_transaction():
        orders_collection.insert_many([{"_id": i} for i in range(3)], session=session)
    orders_collection.insert_one({"_id": 9})
    *within, alone = capture_events(connector)
    (number,) = {e["source"]["txnNumber"] for e in within}
    (session_id,) = {e["source"]["lsid"] for e in within}
    assert json.loads(session_id)["id"]["$type"] == "04"
    assert {e["transaction"]["id"] for e in within} == {f"{session_id}:{number}"}
    assert [e["transaction"]["total_order"] for e in within] == [1, 2, 3]
    assert (alone["source"]["lsid"], alone["source"]["txnNumber"], alone["transaction"]) == (None, None, None)
    assert alone["source"]["collection"] == "orders"
    names = ("version", "connector", "name", "snapshot", "db")
    assert [alone["source"][name] for name in names] == [__version__, "mongodb", "test", "false", database.name]
    times = {(e["source"]["ts_ms"] // 1000, e["source"]["ord"]) for e in within}
    assert len(times) == 1
    assert (alone["source"]["ts_ms"] // 1000, alone["source"]["ord"]) > times.pop()
    assert abs(alone["source"]["wallTime"] / 1000 - time.time()) < 60


def test_what_becomes_of_the_target_when_a_collection_goes(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any, client: Any
) -> None:
    orders_collection.insert_many([{"_id": i} for i in range(4)])
    database.other.insert_one({"_id": "x"})
    connector = start_connector(uri, tmp_path, database)
    name = f"{database.name}."
    orders_collection.drop()
    assert operations(connector, connector.capture()) == {"orders": {"t": 1}}
    assert connector.documents(name + "orders") == []
    database.orders.insert_one({"_id": 7})
    connector.capture()
    assert connector.documents(name + "orders") == [{"_id": 7}]
    database.other.rename("orders", dropTarget=True)
    connector.capture()
    assert connector.documents(name + "other") == []
    assert connector.documents(name + "orders") == [{"_id": "x"}]
    database.command("convertToCapped", "orders", size=100_000)
    assert operations(connector, connector.capture()).keys() == {"orders"}, "not what the server made in between"
    assert connector.documents(name + "orders") == [{"_id": "x"}]
    elsewhere = client[f"{database.name}_elsewhere"]
    elsewhere.many.insert_many([{"_id": i} for i in range(3)])
    client.admin.command({"renameCollection": f"{elsewhere.name}.many", "to": f"{name}many"})
    assert operations(connector, connector.capture()).keys() == {"many"}
    assert connector.documents(name + "many") == [{"_id": i} for i in range(3)]
    client.drop_database(database.name)
    connector.capture()
    assert connector.documents(name + "orders") == []


@pytest.mark.parametrize("scope", ["collection", "database"])
def test_a_stream_goes_on_when_what_it_was_opened_on_is_dropped_and_made_again(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any, scope: str, client: Any
) -> None:
    target = database.name if scope == "database" else f"{database.name}.orders"
    connector = start_connector(uri, tmp_path, database, capture_scope=scope, capture_target=target)
    for n in range(3):
        database.orders.insert_one({"_id": n})
        database.elsewhere.insert_one({"_id": n})
        if scope == "database":
            client.drop_database(database.name)
        else:
            database.orders.drop()
        database.orders.insert_one({"_id": 10 + n})
        connector.capture()
        assert connector.documents(f"{database.name}.orders") == [{"_id": 10 + n}]
        assert connector.documents(f"{database.name}.elsewhere") == []
        database.orders.delete_many({})


def test_what_is_out_of_scope_is_no_ones_table_until_it_comes_into_it(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    orders_collection.insert_one({"_id": 1})
    database.other.insert_one({"_id": 2})
    name = f"{database.name}."
    scope = {"capture_scope": "collection", "capture_target": f"{name}orders"}
    connector = start_connector(uri, tmp_path, database, **scope)
    orders_collection.rename("archive")
    connector.capture()
    assert connector.documents(name + "orders") == []
    assert connector.documents(name + "archive") == [], "its changes do not come by this stream"
    database.other.insert_one({"_id": 3})
    connector.properties |= {"capture.scope": "database", "capture.target": database.name}
    connector.capture()
    assert connector.documents(name + "archive") == [{"_id": 1}]
    assert connector.documents(name + "other") == [{"_id": 2}, {"_id": 3}]


def test_a_collection_that_is_left_out_need_not_record_images(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    name = re.escape(database.name)
    mode = {"capture_mode": "change_streams_update_full_with_pre_image", "capture_mode_full_update_type": "post_image"}
    connector = start_connector(uri, tmp_path, database, **mode, collection_exclude_list=rf"{name}\.log,{name}\.a.*")
    for collection in (orders_collection, database.log, database.audit):
        collection.insert_one({"_id": 1})
        collection.update_one({"_id": 1}, {"$set": {"n": 1}})
    assert operations(connector, connector.capture()) == {"orders": {"c": 1, "u": 1}}


def test_own_stages_filter_and_what_they_take_away_is_missed(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    only = json.dumps([{"$match": {"$or": [{"fullDocument.n": {"$gte": 5}}, {"operationType": "drop"}]}}])
    connector = start_connector(uri, tmp_path, database, cursor_pipeline=only)
    orders_collection.insert_many([{"_id": i, "n": i} for i in range(10)])
    assert connector.capture().events == 5
    connector.properties["cursor.pipeline"] = json.dumps([{"$project": {"fullDocument": 0}}])
    orders_collection.insert_one({"_id": 77})
    with pytest.raises(UnknownLogEvent, match="has no document") as caught:
        connector.capture()
    assert "cursor.pipeline" in str(caught.value.remedy)


def test_a_filter_that_lets_the_last_event_through_no_more_loses_nothing(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    """The server refuses a token whose event the pipeline drops: the stream begins at its moment instead."""
    connector = start_connector(uri, tmp_path, database)
    with connector.store.acquire_lease("test", "a test", wait_s=5) as lease:
        orders_collection.insert_one({"_id": 1})
        stream = database.watch(start_at_operation_time=bson.Timestamp(*_position(connector)))
        token = stream.next()["_id"]["_data"]
        stream.close()
        stored = connector.store.load_offset("test")
        assert stored.offset is not None
        moved = stored.offset.move_position({"resume_token": token})
        connector.store.advance_offset(lease, stored, moved)
    database.other.insert_many([{"_id": i} for i in range(5)])
    connector.properties["cursor.pipeline"] = json.dumps([{"$match": {"ns.coll": "other"}}])
    assert connector.capture().events == 5


def _position(connector: MongoConnector) -> tuple[int, int]:
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    return offset.position["sec"], offset.position["ord"]


def test_texts_that_are_not_utf8_come_as_java_reads_them(
    uri: str, tmp_path: Path, database: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In snapshots, in the stream and in columns; no other byte of the document is another one. A key that is none stops its collection."""

    def put_text(collection: Any, key: Any = 1) -> None:
        raw = bson.encode({"_id": key, "n": 1, "text": "abc", "in": {"list": ["abc"]}}).replace(b"abc", b"a\xffc")
        collection.insert_one(RawBSONDocument(raw))

    expected = {"_id": 1, "n": 1, "text": "a\ufffdc", "in": {"list": ["a\ufffdc"]}}
    put_text(database.orders)
    put_text(database.columns)
    connector = start_connector(uri, tmp_path, database, document_columns_list=r".*\.columns")
    assert caplog.text.count("U+FFFD") == 2
    for name in ("orders", "columns"):
        database[name].delete_many({})
        put_text(database[name])
    connector.capture()
    assert connector.documents(f"{database.name}.orders") == [expected]
    (row,) = super(MongoConnector, connector).rows(f"{database.name}.columns")
    assert (row["n"], row["text"], json.loads(row["in"])) == (1, "a\ufffdc", expected["in"])
    put_text(database.orders, "abc")
    database.columns.delete_many({})
    with pytest.raises(CdcError, match="not valid UTF-8"):
        connector.capture()


def test_tables_have_the_order_in_which_documents_are_stored(uri: str, tmp_path: Path, database: Any) -> None:
    """An update by pipeline may put a field before the key; events have it there, and the collection has not."""
    orders = database.create_collection("orders", **IMAGES)
    orders.insert_one({"_id": 1, "a": 1})
    mode = {"capture_mode": "change_streams_update_full_with_pre_image", "capture_mode_full_update_type": "post_image"}
    connector = start_connector(uri, tmp_path, database, **mode)
    orders.update_one({"_id": 1}, [{"$replaceWith": {"$mergeObjects": [{"first": 1}, "$$ROOT"]}}])
    connector.capture()
    (document,) = connector.documents(f"{database.name}.orders")
    assert list(document) == list(orders.find_one()) == ["_id", "first", "a"]
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    sink(engine, connector).apply()
    assert only(verified(engine, connector)).different == 0


# large events


def test_parts_are_put_together_in_their_order() -> None:
    whole = {
        "_id": {"_data": "82"},
        "operationType": "update",
        "fullDocument": {"_id": 1, "x": "y" * 50},
        "wallTime": 1,
    }
    names = [*whole]
    parts = [
        bson.encode(
            {"_id": {"_data": f"82{n}"}, "splitEvent": {"fragment": n + 1, "of": 3}}
            | {names[n + 1]: whole[names[n + 1]]}
        )
        for n in range(3)
    ]
    assert bson.decode(merge_fragments(parts)) == whole | {"_id": {"_data": "822"}}
    collected = SplitEventCollector()
    assert [collected.add_fragment(part, n + 1, 3) is not None for n, part in enumerate(parts)] == [False, False, True]
    assert not collected.has_missing_parts
    with pytest.raises(UnknownLogEvent, match="Part 2 of 3"):
        collected.add_fragment(parts[1], 2, 3)


@pytest.mark.slow
def test_events_above_the_largest_size_stop_are_split_or_left_out(
    uri: str, tmp_path: Path, database: Any, orders_collection: Any
) -> None:
    mode = {"capture_mode": "change_streams_update_full_with_pre_image", "capture_mode_full_update_type": "post_image"}
    orders_collection.insert_one({"_id": 1, "pad": "x" * 9_000_000})
    connector = start_connector(uri, tmp_path, database, **mode)
    orders_collection.update_one({"_id": 1}, {"$set": {"n": 1}})
    orders_collection.insert_one({"_id": 2})
    with pytest.raises(PrerequisiteError, match="limit of 16 MB") as caught:
        connector.capture()
    assert "cursor.oversize.handling.mode=split" in str(caught.value.remedy)
    connector.properties["cursor.oversize.handling.mode"] = "split"
    result = connector.capture()
    assert (result.events, result.metrics["streaming"]["NumberOfJoinedEvents"]) == (2, 1)
    assert {d["_id"]: d.get("n") for d in connector.documents(f"{database.name}.orders")} == {1: 1, 2: None}
    # a run that was killed behind such an event, which is a separate batch
    connector.properties["batch.max.rows"] = 1
    orders_collection.update_one({"_id": 1}, {"$set": {"n": 2}})
    orders_collection.insert_one({"_id": 3})
    assert connector.capture().events == 2
    *_, large, _ = connector.changelog.read_manifests("test")
    assert large.offset_after.position is not None
    assert "resume_token" in large.offset_after.position
    with connector.store.acquire_lease("test", "a test", wait_s=5) as lease:
        stored = connector.store.load_offset("test")
        assert stored.offset is not None
        connector.store.advance_offset(lease, stored, stored.offset.move_position(large.offset_after.position))
    connector.replay.partial = True
    for mode_ in ("split", "fail"):
        connector.properties["cursor.oversize.handling.mode"] = mode_
        with open_source(connector.definition(), connector.secrets) as source:
            source.verify_position(source.parse_position(large.offset_after.position))
    assert connector.capture().events == 1


# elections, and lost places


@pytest.fixture(scope="module")
def members() -> Iterator[ReplicaSet]:
    """Three members."""
    with ReplicaSet() as started:
        yield started


@pytest.mark.slow
def test_a_run_goes_on_over_a_step_down_and_a_killed_primary(
    members: ReplicaSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with members.connect() as client:
        client.shop.create_collection("orders")
        connector = start_connector(members.url(), tmp_path, client.shop, connect_backoff_initial_delay_ms=200)
        stop = threading.Event()
        written: list[int] = []
        found: list[Any] = []

        def write() -> None:
            for n in range(10_000):
                if stop.is_set():
                    return
                try:
                    client.shop.orders.insert_one({"_id": n})
                except PyMongoError:
                    continue
                written.append(n)
                time.sleep(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            run = threading.Thread(
                target=lambda: found.append(
                    connector.capture(run_for_s=LONGEST_S, until=stop.is_set).metrics["streaming"]
                )
            )
            read = members.primary()
            run.start()
            wait_until(lambda: any(m.startswith("Streaming: ") for m in caplog.messages), "the stream is read")
            client.admin.command({"replSetStepDown": 20})
            time.sleep(2)
            for killed in (read, members.primary()):  # the stream is read from the first of them all the while
                killed.kill()
                time.sleep(5)
                killed.start()
                time.sleep(1)
        finally:
            stop.set()
            writer.join()
            run.join()
        connector.capture()
        there = sorted(d["_id"] for d in client.shop.orders.find())
    assert len(written) > 50
    assert sorted(d["_id"] for d in connector.documents("shop.orders")) == there
    assert found[0]["NumberOfDisconnects"] >= 2
    assert found[0]["NumberOfPrimaryElections"] >= 2
    assert connector.capture({"snapshot.mode": "always"}).metrics["snapshot"]["NumberOfDisconnects"] == 0


@pytest.mark.slow
def test_any_member_leads_to_the_primary(members: ReplicaSet) -> None:
    """The connection string need not name it; it names one that is down besides."""
    primary = members.primary()
    named = [f"{member.host}:{member.port}" for member in members.secondaries()[:1]]
    given = f"mongodb://127.0.0.1:1,{named[0]}/?replicaSet=rs0"
    config = MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": given})
    with open_client(config) as client, DeploymentMember(config, client) as member:
        assert member.address == (primary.host, primary.port)
        assert deployment_of(client).set_name == "rs0"


@pytest.mark.slow
def test_a_sharded_cluster_is_captured_through_its_router(tmp_path: Path) -> None:
    with ShardedCluster({"noop_seconds": 1}) as cluster, cluster.connect() as client:
        client.admin.command({"enableSharding": "shop"})
        client.admin.command({"shardCollection": "shop.orders", "key": {"_id": "hashed"}})
        client.shop.orders.insert_many([{"_id": i, "n": 0} for i in range(50)])
        connector = start_connector(cluster.router.url(), tmp_path, client.shop)
        for n in range(3):
            client.shop.orders.update_many({}, {"$set": {"n": n + 1}})
            client.shop.orders.insert_one({"_id": 100 + n, "n": n})
            client.shop.orders.delete_one({"_id": n})
            connector.capture()
            there = sorted(client.shop.orders.find(), key=lambda d: d["_id"])
            assert sorted(connector.documents("shop.orders"), key=lambda d: d["_id"]) == there
        assert len({d["_id"] for d in there}) == 50
        snapshot(connector, "shop.orders", chunk_size=7)
        assert connector.capture().topics == {"test.shop.orders": 50}
        assert sorted(connector.documents("shop.orders"), key=lambda d: d["_id"]) == there


def test_a_lost_place_is_said_with_how_much_is_missing(tmp_path: Path) -> None:
    with MongoDb({"oplog_bytes": 20_000}) as server, server.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
        connector = start_connector(server.url(), tmp_path, client.shop)
        for n in range(40):
            client.shop.orders.insert_one({"_id": 100 + n, "pad": "x" * 1000})
        with pytest.raises(PositionLost, match=r"it begins at .* and holds") as caught:
            connector.capture()
        assert "minRetentionHours" in str(caught.value.remedy)
        connector.capture({"snapshot.mode": "when_needed"})
        assert len(connector.documents("shop.orders")) == 41


def test_a_quiet_collection_keeps_its_place(tmp_path: Path) -> None:
    """Others write more than the oplog holds: the place of the stream moves on with them."""
    with MongoDb({"oplog_bytes": 20_000}) as server, server.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
        connector = start_connector(server.url(), tmp_path, client.shop, collection_include_list="shop.orders")
        for n in range(40):
            client.shop.busy.insert_one({"_id": n, "pad": "x" * 1000})
            if n % 8 == 0:
                assert connector.capture().events == 0
        client.shop.orders.insert_one({"_id": 2})
        assert connector.capture().events == 1
