"""The stand-in for a sharded cluster: a router over shards, beside recordings of a real one."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.errors import OperationFailure, PyMongoError

from dev.servers.mongodb.launch import ShardedCluster
from tests.support.mongodb_recordings import Player, scenarios

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    """Two shards and a router."""
    with ShardedCluster() as started:
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
    """The recording ``sharded_structure`` until a document changes its shard."""
    client.drop_database("sh1")
    steps = _steps("sharded_structure", lambda step: "changes shard" in step.get("note", ""))
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
        assert len({event["clusterTime"] for event in events}) == 2  # each shard commits at a time of its own
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


def test_what_the_router_does_not_know_is_refused(client: Any) -> None:
    with pytest.raises(PyMongoError) as failed:
        client.admin.command({"reshardCollection": "a.b", "key": {"_id": 1}})
    assert getattr(failed.value, "code", None) == 59
