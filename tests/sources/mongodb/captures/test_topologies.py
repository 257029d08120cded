"""Deployments that change while they are captured: members and shards that come, chunks, databases and shard keys that move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.servers.mongodb import ReplicaSet, ShardedCluster
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents

pytestmark = pytest.mark.slow
DATABASE = "moves"


def _equal(connector: MongoConnector, client: Any, *names: str) -> None:
    connector.capture()
    for name in names:
        texts = [row["document"] for row in super(MongoConnector, connector).rows(f"{DATABASE}.{name}")]
        assert_same_documents(texts, client[DATABASE][name].find())


def test_a_cluster_that_is_spread_again_is_captured_without_a_gap(tmp_path: Path) -> None:
    with ShardedCluster({"noop_seconds": 1}) as cluster, cluster.connect() as client:
        client.admin.command({"enableSharding": DATABASE, "primaryShard": "s1"})
        client.admin.command({"shardCollection": f"{DATABASE}.letters", "key": {"_id": "hashed"}})
        work = CollectionWork(client, DATABASE, 3)
        work._drop = lambda: None  # type: ignore[method-assign] - a collection that is made again is not spread
        work.write(20)
        client[DATABASE].alone.insert_many([{"_id": number} for number in range(5)])
        for name in ("letters", "alone"):  # a lookup finds nothing of before the collection was sharded by another key
            client[DATABASE].command({"collMod": name, "changeStreamPreAndPostImages": {"enabled": True}})
        connector = mongodb_connector(
            cluster.router.url(), tmp_path, database_include_list=DATABASE, batch_max_rows=20,
            capture_mode_full_update_type="post_image",
        )  # fmt: skip
        _equal(connector, client, "letters", "alone")
        changes = (
            lambda: cluster.add_shard("s3"),
            lambda: client.admin.command({"moveChunk": f"{DATABASE}.letters", "find": {"_id": 1}, "to": "s3"}),
            lambda: client.admin.command({"reshardCollection": f"{DATABASE}.letters", "key": {"_id": 1}, "numInitialChunks": 3}),
            lambda: client.admin.command({"movePrimary": DATABASE, "to": "s2"}),
        )  # fmt: skip
        for number, change in enumerate(changes):
            work.write(8)
            client[DATABASE].alone.update_one({"_id": number}, {"$set": {"before": number}})
            change()
            work.write(8)
            client[DATABASE].alone.insert_one({"_id": 100 + number})
            _equal(connector, client, "letters", "alone")
        assert client[DATABASE].alone.count_documents({"before": {"$gte": 0}}) == 4


def test_a_set_whose_members_are_others_in_the_end_is_captured_by_the_old_connection(tmp_path: Path) -> None:
    """In the end, only one of the members that the connection string names is left."""
    with ReplicaSet({"noop_seconds": 1}) as members, members.connect() as client:
        url, work = members.url(), CollectionWork(client, DATABASE, 4)
        connector = mongodb_connector(url, tmp_path, database_include_list=DATABASE, batch_max_rows=20)
        work.write(20)
        _equal(connector, client, "letters")
        for _ in range(2):
            members.add_member()
            work.write(8)
            members.remove_member(members.secondaries()[0])
            work.write(8)
            _equal(connector, client, "letters")
