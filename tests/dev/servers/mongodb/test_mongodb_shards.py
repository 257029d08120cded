"""The stand-in for a sharded cluster: a router over shards, beside recordings of a real one."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.errors import OperationFailure, PyMongoError

from dev.servers.mongodb.launch import ShardedCluster
from tests.support.patience import wait_until
from tests.support.sources.mongodb.mongodb_recordings import Player, scenarios

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    """Two shards and a router."""
    with ShardedCluster({"commits": "apart"}) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: ShardedCluster) -> Iterator[Any]:
    """A client of the router."""
    with cluster.connect() as connected:
        yield connected


class EventsOnly(Player):
    """Plays a recording and compares what streams show: routers' replies have times, hosts and parts of shards in them."""

    def outcome(self, step: Any, where: Any, reply: Any = None, failure: Any = None, keys: Any = ()) -> None:
        if failure is not None or "error" in step:
            super().outcome(step, where, reply, failure)


def _steps(name: str, until: Any) -> list[dict[str, Any]]:
    out = []
    for step in scenarios()[name]["steps"]:
        if until(step):
            break
        out.append(step)
    return out


def test_sharding_a_collection_and_moving_chunks_shows_the_recorded_events(client: Any) -> None:
    """The recording ``sharded_structure`` until the key is refined, with documents that change their shard."""
    client.drop_database("sh1")
    steps = _steps("sharded_structure", lambda step: "refineCollectionShardKey" in step.get("command", {}))
    assert {"plain", "expanded", "cluster"} == {step["getMore"] for step in steps if "getMore" in step}
    assert EventsOnly(client, {"steps": steps}).play() == []


def test_streams_go_on_across_shards_as_recorded(client: Any) -> None:
    """The recording ``sharded_resume`` until a shard is killed."""
    client.drop_database("sh3")
    steps = _steps("sharded_resume", lambda step: "killed" in step.get("note", ""))
    assert EventsOnly(client, {"steps": steps}).play() == []


def test_documents_are_on_the_shards_of_their_chunks(cluster: ShardedCluster, client: Any) -> None:
    client.admin.command({"shardCollection": "spread.c", "key": {"_id": "hashed"}})
    client.spread.c.insert_many([{"_id": number, "even": number % 2 == 0} for number in range(200)])
    counts = []
    for shard in cluster.shards.values():
        with shard.direct() as alone:
            counts.append(alone.spread.c.count_documents({}))
    assert sum(counts) == 200
    assert min(counts) > 50
    assert [document["_id"] for document in client.spread.c.find().sort("_id", -1).limit(3)] == [199, 198, 197]
    assert client.spread.c.update_many({"even": True}, {"$set": {"seen": 1}}).modified_count == 100
    assert client.spread.c.delete_many({"_id": {"$gte": 150}}).deleted_count == 50
    assert client.spread.c.count_documents({"seen": 1}) == 75
    grouped = client.spread.c.aggregate([{"$group": {"_id": "$even", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    assert list(grouped) == [{"_id": False, "n": 75}, {"_id": True, "n": 75}]
    with pytest.raises(OperationFailure) as failed:
        client.spread.c.insert_one({"_id": 7})
    assert failed.value.code == 11000


def test_a_move_makes_no_events_and_loses_nothing(cluster: ShardedCluster, client: Any) -> None:
    client.admin.command({"enableSharding": "moves", "primaryShard": "s1"})
    client.admin.command({"shardCollection": "moves.c", "key": {"k": 1}})
    client.moves.c.insert_many([{"_id": number, "k": number} for number in range(20)])
    client.admin.command({"split": "moves.c", "middle": {"k": 10}})
    with client.moves.watch() as stream:
        client.admin.command({"moveChunk": "moves.c", "find": {"k": 15}, "to": "s2"})
        client.moves.c.insert_one({"_id": 100, "k": 12})
        assert next(stream)["documentKey"] == {"k": 12, "_id": 100}
    with cluster.shards["s2"].direct() as alone:
        assert sorted(document["k"] for document in alone.moves.c.find()) == [10, 11, 12, *range(12, 20)]
    assert client.moves.c.count_documents({}) == 21


def test_a_transaction_is_on_several_shards_or_on_none(client: Any) -> None:
    client.admin.command({"shardCollection": "txn.c", "key": {"_id": "hashed"}})
    documents = [{"_id": number} for number in range(20)]
    with client.txn.watch() as stream, client.start_session() as session:
        with session.start_transaction():
            client.txn.c.insert_many(documents, session=session)
            assert client.txn.c.count_documents({}) == 0
            assert len(list(client.txn.c.find(session=session))) == 20
        events = [next(stream) for _ in documents]
        assert {event["documentKey"]["_id"] for event in events} == set(range(20))
        assert len({event["txnNumber"] for event in events}) == 1
        assert len({event["clusterTime"] for event in events}) == 2  # each shard commits at its own time
        session.start_transaction()
        client.txn.c.delete_many({}, session=session)
        session.abort_transaction()
    assert client.txn.c.count_documents({}) == 20


def test_a_killed_shard_is_waited_for(cluster: ShardedCluster, client: Any) -> None:
    client.admin.command({"shardCollection": "killed.c", "key": {"_id": "hashed"}})
    with client.killed.watch() as stream:
        client.killed.c.insert_many([{"_id": number} for number in range(10)])
        seen = [next(stream)["documentKey"]["_id"] for _ in range(4)]
        token = stream.resume_token
    cluster.shards["s2"].kill()
    cluster.shards["s2"].start()
    client.killed.c.insert_one({"_id": 10})
    with client.killed.watch(resume_after=token) as stream:
        seen += [next(stream)["documentKey"]["_id"] for _ in range(7)]
    assert sorted(seen) == list(range(11))


def _events(stream: Any, count: int) -> list[dict[str, Any]]:
    return [next(stream) for _ in range(count)]


def test_a_collection_of_another_shard_key_has_another_uuid_and_no_events_of_its_documents(client: Any) -> None:
    """Check the events against the recording ``sharded_structure``."""
    client.admin.command({"enableSharding": "re", "primaryShard": "s1"})
    client.admin.command({"shardCollection": "re.c", "key": {"k": 1}})
    client.re.c.insert_many([{"_id": number, "k": number % 3} for number in range(20)])
    with pytest.raises(OperationFailure) as failed:
        client.admin.command({"refineCollectionShardKey": "re.c", "key": {"k": 1, "_id": 1}})
    assert failed.value.code == 72
    with client.re.watch(show_expanded_events=True) as expanded, client.re.watch() as plain:
        client.re.c.insert_one({"_id": 300, "k": 3})
        client.admin.command({"reshardCollection": "re.c", "key": {"_id": 1}, "numInitialChunks": 2})
        client.re.c.insert_one({"_id": 400, "k": 4})
        before, reshard, after = _events(expanded, 3)
        assert (before["documentKey"], after["documentKey"]) == ({"k": 3, "_id": 300}, {"_id": 400})
        assert reshard["operationDescription"] == {
            "reshardUUID": after["collectionUUID"], "shardKey": {"_id": 1}, "oldShardKey": {"k": 1}, "unique": False, "numInitialChunks": 2,
        }  # fmt: skip
        assert before["collectionUUID"] == reshard["collectionUUID"] != after["collectionUUID"]
        assert [event["documentKey"] for event in _events(plain, 2)] == [{"k": 3, "_id": 300}, {"_id": 400}]
    assert client.re.c.count_documents({}) == 22
    assert client.re.c.find_one({"_id": 7}) == {"_id": 7, "k": 1}
    client.re.c.create_index([("_id", 1), ("k", 1)])
    with client.re.watch(show_expanded_events=True) as expanded:
        client.admin.command({"refineCollectionShardKey": "re.c", "key": {"_id": 1, "k": 1}})
        client.re.c.insert_one({"_id": 500, "k": 5})
        refined, insert = _events(expanded, 2)
        assert refined["operationType"] == "refineCollectionShardKey"
        assert refined["operationDescription"] == {"shardKey": {"_id": 1, "k": 1}, "oldShardKey": {"_id": 1}}
        assert insert["documentKey"] == {"_id": 500, "k": 5}
    assert client.re.c.count_documents({"k": {"$gte": 0}}) == 23


def test_collections_that_go_with_their_database_are_made_again(client: Any) -> None:
    client.admin.command({"enableSharding": "goes", "primaryShard": "s1"})
    with client.goes.watch(show_expanded_events=True) as stream:
        client.goes.u.insert_one({"_id": 1})
        client.admin.command({"movePrimary": "goes", "to": "s2"})
        client.goes.u.insert_one({"_id": 2})
        kinds = [(event["operationType"], event["collectionUUID"]) for event in _events(stream, 4)]
    assert [kind for kind, _ in kinds] == ["create", "insert", "create", "insert"]
    assert kinds[0][1] == kinds[1][1] != kinds[2][1] == kinds[3][1]
    assert sorted(document["_id"] for document in client.goes.u.find()) == [1, 2]
    with pytest.raises(OperationFailure) as failed:
        client.admin.command({"movePrimary": "goes", "to": "s9"})
    assert failed.value.code == 70


def test_a_shard_that_is_added_is_in_streams_that_were_open_before(cluster: ShardedCluster, client: Any) -> None:
    with client.watch() as stream:
        client.first.c.insert_one({"_id": 1})
        assert next(stream)["documentKey"] == {"_id": 1}
        cluster.add_shard("s3")
        client.admin.command({"enableSharding": "third", "primaryShard": "s3"})
        client.third.c.insert_one({"_id": 3})
        client.first.c.insert_one({"_id": 2})
        assert [event["ns"]["db"] for event in _events(stream, 2)] == ["third", "first"]
    assert [one["_id"] for one in client.admin.command("listShards")["shards"]] == ["s1", "s2", "s3"]


def test_pipelines_read_and_write_collections_wherever_they_are(client: Any) -> None:
    for db in ("whole", "other"):
        client.drop_database(db)
    client.admin.command({"shardCollection": "whole.orders", "key": {"_id": "hashed"}})
    client.admin.command({"shardCollection": "whole.sums", "key": {"_id": "hashed"}})
    client.whole.orders.insert_many([{"_id": n, "who": n % 3} for n in range(30)])
    client.whole.people.insert_many([{"_id": n} for n in range(2)])
    join = {"$lookup": {"from": "people", "localField": "who", "foreignField": "_id", "as": "p"}}
    found = list(client.whole.orders.aggregate([join, {"$match": {"p": []}}, {"$sort": {"_id": 1}}]))
    assert [order["_id"] for order in found] == [*range(2, 30, 3)]
    assert len(list(client.whole.people.aggregate([{"$unionWith": "orders"}]))) == 32
    assert client.whole.orders.distinct("who") == [0, 1, 2]
    with client.whole.watch() as stream:
        client.whole.orders.aggregate([{"$match": {"who": 1}}, {"$out": "of_one"}])
        events = _events(stream, 11)
        assert {event["operationType"] for event in events[:10]} == {"insert"}
        assert (events[10]["operationType"], events[10]["to"]["coll"]) == ("rename", "of_one")
        client.whole.orders.aggregate([{"$set": {"n": 1}}, {"$merge": "sums"}])
        client.whole.orders.aggregate([{"$match": {"who": 0}}, {"$set": {"n": 2}}, {"$merge": "sums"}])
        kinds = [event["operationType"] for event in _events(stream, 40)]
    assert kinds == ["insert"] * 30 + ["update"] * 10
    assert client.whole.of_one.count_documents({}) == 10
    assert client.whole.sums.count_documents({"n": 2}) == 10
    with pytest.raises(OperationFailure) as failed:
        client.whole.orders.aggregate([{"$out": "sums"}])
    assert failed.value.code == 28769
    client.admin.command({"renameCollection": "whole.of_one", "to": "whole.of_two"})
    assert client.whole.of_two.count_documents({}) == 10


@pytest.mark.parametrize("how", ["update", "replace", "findAndModify", "pipeline", "transaction"])
def test_a_document_goes_to_the_shard_of_its_new_key(cluster: ShardedCluster, client: Any, how: str) -> None:
    """Within its shard it is updated; else it is deleted and inserted, in one transaction."""
    client.drop_database("keys")
    client.admin.command({"enableSharding": "keys", "primaryShard": "s1"})
    client.admin.command({"shardCollection": "keys.c", "key": {"k": 1}})
    client.admin.command({"split": "keys.c", "middle": {"k": 10}})
    client.admin.command({"moveChunk": "keys.c", "find": {"k": 15}, "to": "s2"})
    client.keys.c.insert_many([{"_id": n, "k": n} for n in range(8)])
    query, change = {"_id": 3, "k": 3}, {"$set": {"k": 15}}
    with client.keys.watch() as stream:
        client.keys.c.update_one({"_id": 2, "k": 2}, {"$set": {"k": 5}})
        if how == "update":
            client.keys.c.update_one(query, change)
        elif how == "replace":
            client.keys.c.replace_one(query, {"k": 15})
        elif how == "pipeline":
            client.keys.c.update_one(query, [change])
        elif how == "findAndModify":
            assert client.keys.c.find_one_and_update(query, change, return_document=True) == {"_id": 3, "k": 15}
        else:
            with client.start_session() as session, session.start_transaction():
                client.keys.c.update_one(query, change, session=session)
                client.keys.c.insert_one({"_id": 9, "k": 0}, session=session)
        events = _events(stream, 4 if how == "transaction" else 3)
    within, *moved = events
    assert (within["operationType"], within["documentKey"]) == ("update", {"k": 2, "_id": 2})
    found = {(event["operationType"], event["documentKey"]["k"]) for event in moved}
    assert found == {("delete", 3), ("insert", 15)} | ({("insert", 0)} if how == "transaction" else set())
    assert len({event["txnNumber"] for event in moved}) == 1
    with cluster.shards["s2"].direct() as alone:
        assert list(alone.keys.c.find()) == [{"_id": 3, "k": 15}]
    assert client.keys.c.count_documents({}) == (9 if how == "transaction" else 8)


def test_a_key_changes_alone_and_so_that_it_can_be_tried_again(cluster: ShardedCluster, client: Any) -> None:
    client.drop_database("keys")
    client.admin.command({"shardCollection": "keys.c", "key": {"k": 1}})
    client.keys.c.insert_many([{"_id": n, "k": n} for n in range(3)])
    with pytest.raises(OperationFailure) as failed:
        client.keys.c.update_many({}, {"$set": {"k": 7}})
    assert failed.value.code == 72
    with cluster.connect(retryWrites=False) as plain, pytest.raises(OperationFailure) as failed:
        plain.keys.c.update_one({"_id": 1, "k": 1}, {"$set": {"k": 7}})
    assert failed.value.code == 20
    assert sorted(document["k"] for document in client.keys.c.find()) == [0, 1, 2]


def test_a_part_of_a_chunk_moves(cluster: ShardedCluster, client: Any) -> None:
    client.admin.command({"enableSharding": "part", "primaryShard": "s1"})
    client.admin.command({"shardCollection": "part.c", "key": {"k": 1}})
    client.part.c.insert_many([{"_id": n, "k": n} for n in range(20)])
    client.admin.command({"moveRange": "part.c", "min": {"k": 5}, "max": {"k": 8}, "toShard": "s2"})
    with cluster.shards["s2"].direct() as alone:
        assert sorted(document["k"] for document in alone.part.c.find()) == [5, 6, 7]
    assert client.part.c.count_documents({}) == 20


def test_a_shard_is_emptied_and_forgotten_and_streams_go_on(cluster: ShardedCluster, client: Any) -> None:
    client.drop_database("leaves")
    cluster.add_shard("s4")
    client.admin.command({"enableSharding": "leaves", "primaryShard": "s4"})
    client.admin.command({"shardCollection": "leaves.c", "key": {"_id": "hashed"}})
    client.leaves.c.insert_many([{"_id": n} for n in range(60)])
    client.leaves.plain.insert_one({"_id": 1})
    client.admin.command("balancerStop")
    with client.leaves.c.watch() as stream:
        client.leaves.c.insert_one({"_id": 100})
        begun = client.admin.command("removeShard", "s4")
        assert (begun["state"], begun["shard"], begun["dbsToMove"]) == ("started", "s4", ["leaves"])
        going = client.admin.command("removeShard", "s4")
        assert (going["state"], going["remaining"]["chunks"] > 0, going["remaining"]["dbs"]) == ("ongoing", True, 1)
        assert [one["_id"] for one in client.admin.command("listShards")["shards"] if one.get("draining")] == ["s4"]
        client.admin.command("balancerStart")
        wait_until(
            lambda: client.admin.command("removeShard", "s4")["remaining"]["chunks"] == 0, "its chunks are moved"
        )
        client.admin.command({"movePrimary": "leaves", "to": "s1"})
        cluster.remove_shard("s4")
        client.leaves.c.insert_one({"_id": 200})
        assert [event["documentKey"]["_id"] for event in _events(stream, 2)] == [100, 200]
        client.leaves.c.insert_one({"_id": 300})
        assert next(stream)["documentKey"] == {"_id": 300}
    assert client.leaves.c.count_documents({}) == 63
    assert client.leaves.plain.find_one() == {"_id": 1}
    assert "s4" not in [one["_id"] for one in client.admin.command("listShards")["shards"]]
    for name, code in (("s4", 70), ("s1", 20)):
        with pytest.raises(OperationFailure) as failed:
            client.admin.command("removeShard", name)
        assert failed.value.code == code


def test_what_the_router_does_not_know_is_refused(client: Any) -> None:
    with pytest.raises(PyMongoError) as failed:
        client.admin.command({"moveCollection": "whole.people", "toShard": "s1"})
    assert getattr(failed.value, "code", None) == 59


def test_what_a_drop_has_left_on_a_shard_is_no_part_of_a_collection_of_the_same_name(
    cluster: ShardedCluster, client: Any
) -> None:
    primary = client.admin.command({"enableSharding": "left", "primaryShard": min(cluster.shards)})
    assert primary["ok"] == 1
    with cluster.shards[max(cluster.shards)].direct() as alone:
        alone.left.c.insert_one({"_id": 1, "old": True})
    client.admin.command({"shardCollection": "left.c", "key": {"_id": "hashed"}})
    client.left.c.insert_one({"_id": 1})
    assert list(client.left.c.find()) == [{"_id": 1}]
