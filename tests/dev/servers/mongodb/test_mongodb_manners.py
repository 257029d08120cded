"""Manners of real deployments that the stand-in has always, or on request: versions, other products, lagging majorities, balancers, states of members."""

from __future__ import annotations

import time
from typing import Any

import bson
import pymongo
import pytest
from bson import MaxKey, MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.errors import ConfigurationError, OperationFailure

from dev.servers.mongodb import MongoDb, ReplicaSet, ShardedCluster
from tests.support.patience import wait_until
from tests.support.sources.mongodb.mongodb_work import code_of


@pytest.mark.slow
def test_without_a_majority_streams_and_snapshots_stand_still_and_the_primary_says_so() -> None:
    """With a primary, a secondary that is down and an arbiter, the commit point stays behind (MongoDB manual, "Mitigate Performance Issues with a PSA Replica Set")."""
    with ReplicaSet(count=2, arbiters=1) as members, members.connect() as client:
        orders = client.shop.get_collection("orders", write_concern=pymongo.WriteConcern("majority"))
        orders.insert_one({"_id": 1})
        members.secondaries()[0].kill()
        client.shop.orders.insert_one({"_id": 2})
        text = client.admin.command("hello")["lastWrite"]
        assert text["majorityOpTime"]["ts"] < text["opTime"]["ts"]
        majority = client.shop.get_collection("orders", read_concern=pymongo.read_concern.ReadConcern("majority"))
        assert (majority.count_documents({}), client.shop.orders.count_documents({})) == (1, 2)
        read = {"find": "orders", "readConcern": {"level": "snapshot", "atClusterTime": text["majorityOpTime"]["ts"]}}
        assert client.shop.command(read)["cursor"]["firstBatch"] == [{"_id": 1}]
        read["readConcern"]["atClusterTime"] = text["opTime"]["ts"]
        with members.primary().direct(socketTimeoutMS=500) as alone, pytest.raises(pymongo.errors.NetworkTimeout):
            alone.shop.command(read)


def test_a_set_of_one_may_learn_late_that_a_majority_has_what_it_wrote() -> None:
    with MongoDb({"commit_lag_ms": 200}) as server, server.connect(w=1) as client:
        client.shop.orders.insert_one({"_id": 1})
        text = client.admin.command("hello")["lastWrite"]
        assert text["majorityOpTime"]["ts"] < text["opTime"]["ts"]
        wait_until(lambda: client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"] >= text["opTime"]["ts"], "a majority has it")  # fmt: skip


@pytest.mark.parametrize(("version", "code"), [("5.0.31", 246), ("7.0.14", 246), ("8.0.10", 0)])
def test_capped_collections_are_read_at_one_moment_since_8_0(version: str, code: int) -> None:
    with MongoDb({"version": version}) as server, server.connect() as client:
        assert client.server_info()["version"] == version
        client.shop.create_collection("log", capped=True, size=10_000)
        client.shop.log.insert_one({"_id": 1})
        for read in (
            {"find": "log"},
            {"aggregate": "log", "pipeline": [], "cursor": {}},
            {"distinct": "log", "key": "_id"},
        ):
            assert code_of(client.shop, {**read, "readConcern": {"level": "snapshot"}}) == code  # fmt: skip


@pytest.mark.parametrize(
    ("version", "stream", "code"),
    [
        ("5.0.31", {"showExpandedEvents": True}, 40415), ("5.0.31", {"fullDocumentBeforeChange": "off"}, 40415), ("5.0.31", {"fullDocument": "required"}, 40575),
        ("5.0.31", {}, 0), ("6.0.4", {"showExpandedEvents": True}, 0),
    ],
)  # fmt: skip
def test_streams_have_the_options_of_their_version(version: str, stream: dict[str, Any], code: int) -> None:
    with MongoDb({"version": version}) as server, server.connect() as client:
        assert code_of(client.shop, {"aggregate": 1, "pipeline": [{"$changeStream": stream}], "cursor": {}}) == code


@pytest.mark.parametrize("product", ["amazon", "azure", "cosmos", "ferretdb"])
def test_other_products_are_no_mongodb(product: str) -> None:
    with MongoDb({"product": product}) as server, server.direct() as client:
        hello, build = client.admin.command("hello"), client.admin.command("buildInfo")
        signs = [hello.get("internal"), build.get("_t"), build.get("ferretdbVersion")]
        assert sum(map(bool, signs)) == (product != "amazon")
        spec: dict[str, Any] = {"allChangesForCluster": True}
        stream = {"aggregate": 1, "pipeline": [{"$changeStream": spec}], "cursor": {}}
        assert code_of(client.admin, stream) == {"amazon": 0, "cosmos": 2}.get(product, 40324)
        if product == "amazon":
            cursor = client.admin.command(stream)["cursor"]
            client.shop.orders.insert_one({})
            (event,) = client.admin.command({"getMore": cursor["id"], "collection": "$cmd.aggregate"})["cursor"]["nextBatch"]  # fmt: skip
            assert not event["_id"]["_data"].startswith("82")
            assert "postBatchResumeToken" not in cursor
            spec["startAfter"] = event["_id"]
            assert code_of(client.admin, stream) == 40415


@pytest.fixture(scope="module")
def client() -> Any:
    with MongoDb() as server, server.connect() as connected:
        yield connected


def test_a_key_may_hold_no_field_that_begins_with_a_dollar_at_any_depth(client: Any) -> None:
    for key in ({"$a": 1}, {"a": {"$oid": "none"}}, {"a": [{"$b": 1}]}):
        with pytest.raises(pymongo.errors.WriteError) as refused:
            client.shop.orders.insert_one({"_id": key})
        assert refused.value.code == 52


def test_bounds_that_hold_nothing_are_refused_one_alone_too(client: Any) -> None:
    client.shop.keys.insert_one({"_id": MaxKey()})
    for bounds in ({"min": {"_id": MaxKey()}}, {"max": {"_id": MinKey()}}, {"min": {"_id": 2}, "max": {"_id": 1}}):
        assert code_of(client.shop, {"find": "keys", "hint": {"_id": 1}, **bounds}) == 51175


def test_what_can_be_written_again_cannot_be_written_to_local(client: Any) -> None:
    with pytest.raises(OperationFailure) as refused:
        client.local.own.insert_one({})
    assert refused.value.code == 20
    client.local.with_options(write_concern=pymongo.WriteConcern(1)).command({"insert": "own", "documents": [{}]})


def test_a_field_that_a_pipeline_puts_before_the_key_is_behind_it_in_the_collection(client: Any) -> None:
    client.shop.create_collection("fields", changeStreamPreAndPostImages={"enabled": True})
    client.shop.fields.insert_one({"_id": 1, "a": 1})
    with client.shop.fields.watch(full_document="required", full_document_before_change="required") as stream:
        client.shop.fields.update_one({"_id": 1}, [{"$replaceWith": {"$mergeObjects": [{"first": 1}, "$$ROOT"]}}])
        client.shop.fields.update_one({"_id": 1}, {"$set": {"a": 2}})
        written, following = next(stream), next(stream)
    assert list(written["fullDocument"]) == ["first", "_id", "a"]
    assert list(following["fullDocumentBeforeChange"]) == list(client.shop.fields.find_one()) == ["_id", "first", "a"]


def test_bytes_that_are_not_utf8_are_stored_as_they_come(client: Any) -> None:
    raw = bson.encode({"_id": 1, "text": "abc"}).replace(b"abc", b"a\xffc")
    client.shop.damaged.insert_one(RawBSONDocument(raw))
    codec = bson.CodecOptions(document_class=RawBSONDocument)
    assert client.shop.get_collection("damaged", codec_options=codec).find_one().raw == raw


def test_a_small_subdocument_may_be_said_whole() -> None:
    with MongoDb({"whole_bytes": 200}) as server, server.connect() as client, client.shop.watch() as stream:
        client.shop.people.insert_one({"_id": 1, "address": {"street": "x", "zip": "1"}, "pad": "x" * 100})
        client.shop.people.update_one({"_id": 1}, [{"$unset": ["address.zip"]}])
        next(stream)
        assert next(stream)["updateDescription"]["updatedFields"] == {"address": {"street": "x"}}


def test_a_stream_may_wait_for_more_when_it_has_something() -> None:
    with MongoDb({"gather_ms": 300}) as server, server.connect() as client, client.shop.watch() as stream:
        cursor = client.shop.command({"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}})["cursor"]
        with server.connect() as other:
            other.shop.orders.insert_one({"_id": 1})
            began = time.monotonic()
            found = client.shop.command({"getMore": cursor["id"], "collection": "$cmd.aggregate"})["cursor"]["nextBatch"]  # fmt: skip
        assert (len(found), time.monotonic() - began > 0.25) == (1, True)
        assert stream.alive


@pytest.mark.slow
@pytest.mark.parametrize("commits", ["together", "apart"])
def test_shards_commit_a_transaction_at_one_time_or_at_two(commits: str) -> None:
    with ShardedCluster({"commits": commits}) as cluster, cluster.connect() as client:
        client.admin.command({"shardCollection": "txn.c", "key": {"_id": "hashed"}})
        with client.txn.watch() as stream, client.start_session() as session:
            with session.start_transaction():
                client.txn.c.insert_many([{"_id": number} for number in range(20)], session=session)
            events = [next(stream) for _ in range(20)]
        assert len({event["clusterTime"] for event in events}) == (1 if commits == "together" else 2)
        assert [event["_id"]["_data"] for event in events] == sorted(event["_id"]["_data"] for event in events)


@pytest.mark.slow
def test_each_router_behind_a_balancer_knows_its_own_cursors() -> None:
    with ShardedCluster({"load_balanced": True}) as cluster:
        address = f"mongodb://{cluster.router.host}:{cluster.router.port}/?loadBalanced=true"
        with pymongo.MongoClient(address) as client:
            client.shop.orders.insert_many([{"_id": number} for number in range(300)])
            assert len(list(client.shop.orders.find())) == 300, "the driver stays at one router"
            cursor = client.shop.command({"find": "orders"})["cursor"]
            with cluster.connect() as other, pytest.raises(OperationFailure) as lost:
                other.shop.command({"getMore": cursor["id"], "collection": "orders"})
            assert lost.value.code == 43
    with (
        MongoDb() as alone,
        pymongo.MongoClient(alone.host, alone.port, loadBalanced=True) as client,
        pytest.raises(ConfigurationError),
    ):
        client.admin.command("ping")


@pytest.mark.slow
def test_a_member_in_maintenance_answers_no_reads() -> None:
    with ReplicaSet() as members:
        with members.secondaries()[0].direct() as alone:
            alone.admin.command({"replSetMaintenance": True})
            hello = alone.admin.command("hello")
            assert (hello["isWritablePrimary"], hello["secondary"]) == (False, False)
            assert code_of(alone.shop, {"find": "orders"}) == 13436
            alone.admin.command({"replSetMaintenance": False})
            wait_until(lambda: code_of(alone.shop, {"find": "orders"}) == 0, "it is a secondary again")
        with members.primary().direct() as alone:
            assert code_of(alone.admin, {"replSetMaintenance": True}) == 10107


def test_atlas_refuses_by_code_8000() -> None:
    with MongoDb({"auth": True, "atlas": True}) as server:
        with server.connect() as first:
            first.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
        with server.connect(username="root", password="secret") as root:
            root.admin.command({"createUser": "few", "pwd": "secret", "roles": [{"role": "read", "db": "shop"}]})
            assert code_of(root.admin, {"noSuchCommand": 1}) == 8000
        with server.connect(username="few", password="secret") as few:
            assert code_of(few.local, {"find": "oplog.rs"}) == 8000
        with server.connect(username="few", password="wrong") as wrong, pytest.raises(OperationFailure) as refused:
            wrong.admin.command("ping")
        assert refused.value.code == 8000


def test_a_resharded_collection_is_looked_up_by_the_uuid_of_the_event() -> None:
    with ShardedCluster() as cluster, cluster.connect() as client:
        client.admin.command({"shardCollection": "shop.orders", "key": {"_id": 1}})
        client.shop.orders.insert_one({"_id": 1})
        options = {"full_document": "updateLookup", "show_expanded_events": True}
        with client.shop.watch(**options) as stream:
            token = stream.resume_token
        client.shop.orders.update_one({"_id": 1}, {"$set": {"a": 1}})
        client.admin.command({"reshardCollection": "shop.orders", "key": {"_id": "hashed"}})
        with client.shop.watch(resume_after=token, **options) as stream:
            event = next(event for event in stream if event["operationType"] == "update")
        assert event["fullDocument"] is None
