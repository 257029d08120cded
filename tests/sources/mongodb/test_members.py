"""Members that are asked, the answer of each kind of member to each command that is sent, and the end of a run that gets it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Timestamp

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    NotGranted,
    PrerequisiteError,
    SourceUnavailable,
)
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import open_client, open_member_client
from airflow_provider_cdc.sources.mongodb.errors import is_resumable, translate_error
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import DeploymentMember, RawCursor
from airflow_provider_cdc.sources.mongodb.source import MongoDbSource
from dev.servers.mongodb import MongoDb, ReplicaSet, ShardedCluster
from tests.support.patience import wait_until
from tests.support.signals import snapshot
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector

pytestmark = pytest.mark.slow
NOW = Timestamp(1, 1)
COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "hello": ("admin", {"hello": 1}),
    "buildInfo": ("admin", {"buildInfo": 1}),
    "ping": ("admin", {"ping": 1}),
    "connectionStatus": ("admin", {"connectionStatus": 1, "showPrivileges": True}),
    "listDatabases": ("admin", {"listDatabases": 1, "nameOnly": True}),
    "listCollections": ("shop", {"listCollections": 1, "cursor": {}, "nameOnly": True, "authorizedCollections": True}),
    "oplog": ("local", {"find": "oplog.rs", "limit": 1}),
    "size of the oplog": ("local", {"collStats": "oplog.rs"}),
    "find": ("shop", {"find": "orders", "readConcern": {"level": "majority"}}),
    "find at a moment": ("shop", {"find": "orders", "readConcern": {"level": "snapshot"}}),
    "count": ("shop", {"count": "orders"}),
    "sample": ("shop", {"aggregate": "orders", "pipeline": [{"$sample": {"size": 1}}], "cursor": {}}),
    "change stream": ("admin", {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}}),
    "insert": ("shop", {"insert": "signals", "documents": [{}]}),
    "delete": ("shop", {"delete": "signals", "deletes": [{"q": {"_id": 1}, "limit": 1}]}),
    "heartbeat": ("shop", {"update": "heartbeat", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": True}]}),
    "killCursors": ("shop", {"killCursors": "orders", "cursors": [1]}),
    "getMore": ("shop", {"getMore": 1, "collection": "orders"}),
}  # fmt: skip
"""Every command that the source sends."""
OPEN = {"hello": 0, "buildInfo": 0, "ping": 0, "connectionStatus": 0}
"""They are answered by all members, and need no right."""
WRITES = dict.fromkeys(("insert", "delete", "heartbeat"), 10107)
CODES: dict[str, dict[str, int]] = {
    "primary": dict.fromkeys(COMMANDS, 0) | {"getMore": 43},
    "router": dict.fromkeys(COMMANDS, 0) | {"getMore": 43, "oplog": 20, "size of the oplog": 20},
    "secondary": dict.fromkeys(COMMANDS, 0) | WRITES | {"getMore": 43},
    "arbiter": dict.fromkeys(COMMANDS, 13436) | WRITES | OPEN | {"killCursors": 0},
    "recovering": dict.fromkeys(COMMANDS, 13436) | WRITES | OPEN | {"killCursors": 0},
    "without rights": dict.fromkeys(COMMANDS, 13) | OPEN | {"listDatabases": 0, "killCursors": 0, "getMore": 43},
    "Atlas, without rights": dict.fromkeys(COMMANDS, 8000) | OPEN | {"listDatabases": 0, "killCursors": 0, "getMore": 43},
}  # fmt: skip
"""Kind of member → command → code: ``secondaryAllowed`` and ``maintenanceOk`` of MongoDB's commands, its manual, and people's reports of Atlas."""
MEANINGS: dict[int, type[CdcError]] = {
    13: NotGranted, 43: SourceUnavailable, 8000: NotGranted, 10107: SourceUnavailable, 13436: SourceUnavailable,
}  # fmt: skip
"""Code → the error that ends a run. 20 ends none: a router shows no oplog."""
AGAIN = {43, 10107, 13436}
"""A stream is opened again after these."""


def _config(uri: str, user: str = "", password: str = "") -> MongoDbConfig:
    given = {"topic.prefix": "t", "mongodb.connection.string": uri, "mongodb.server.selection.timeout.ms": 2000}
    return MongoDbConfig.parse(given | {"mongodb.user": user, "mongodb.password": password})


def _direct_uri(member: MongoDb) -> str:
    return f"mongodb://{member.host}:{member.port}/?directConnection=true"


@contextlib.contextmanager
def _start_secured(**options: Any) -> Iterator[MongoDb]:
    with MongoDb({"auth": True, **options}) as server:
        with server.connect() as first:
            first.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
        with server.connect(username="root", password="secret") as root:
            root.shop.orders.insert_one({"_id": 1})
            root.admin.command({"createUser": "nobody", "pwd": "sesame", "roles": []})
        yield server


@contextlib.contextmanager
def _member(kind: str) -> Iterator[MongoDbConfig]:
    """The configuration of a connection to a member of a kind."""
    if kind == "router":
        with ShardedCluster({"noop_seconds": 1}) as cluster, cluster.connect() as client:
            client.shop.orders.insert_one({"_id": 1})
            yield _config(cluster.router.url())
    elif kind.endswith("without rights"):
        with _start_secured(atlas=kind.startswith("Atlas")) as server:
            yield _config(server.url(), "nobody", "sesame")
    else:
        with ReplicaSet(count=2, arbiters=1) as members, members.connect(w=2) as client:
            client.shop.orders.insert_one({"_id": 1})
            if kind == "arbiter":
                yield _config(_direct_uri(members.members[2]))
                return
            follower = members.secondaries()[0]
            if kind == "recovering":
                with follower.direct() as alone:
                    alone.admin.command({"replSetMaintenance": True})
            yield _config(_direct_uri(members.primary() if kind == "primary" else follower))


def _error(database: Any, command: dict[str, Any]) -> pymongo.errors.PyMongoError | None:
    try:
        database.command(dict(command))
    except pymongo.errors.PyMongoError as e:
        return e
    return None


@pytest.mark.parametrize("kind", [*CODES])
def test_each_command_to_each_kind_of_member_is_answered_and_understood(kind: str) -> None:
    """The stand-in answers as a real member does; the answer is one that a run can do without, tries again after, or ends with, by its cause."""
    with _member(kind) as config, open_client(config) as client:
        found = {name: _error(client[db], command) for name, (db, command) in COMMANDS.items()}
        codes = {name: 0 if e is None else int(e.details["code"]) for name, e in found.items()}  # type: ignore[attr-defined]
        assert codes == CODES[kind]
        for name, e in found.items():
            if e is None or codes[name] == 20:
                continue
            error = translate_error(e, config, name)
            assert type(error) is MEANINGS[codes[name]], (name, error)
            assert is_resumable(e) == (codes[name] in AGAIN), name
            assert error.remedy
            assert "sesame" not in str(error)


ENDS: dict[str, tuple[type[CdcError], str] | None] = {
    "primary": None, "router": None, "secondary": None, "arbiter": (PrerequisiteError, "is an arbiter"),
    "recovering": (SourceUnavailable, "neither primary nor secondary"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [*ENDS])
def test_a_run_on_each_kind_of_member_goes_well_or_names_the_member(kind: str, tmp_path: Path) -> None:
    with _member(kind) as config:
        source, connector = (
            MongoDbSource(config),
            mongodb_connector(config.connection_uri, tmp_path, database_include_list="shop"),
        )
        asks: list[Callable[[], object]] = [source.current_position, source.oldest_position, connector.capture]
        if (end := ENDS[kind]) is None:
            assert [f for f in source.check_prerequisites() if f.fatal] == []
            at = source.current_position()
            source.verify_position(at)
            assert (source.log_window(at) == LogWindow()) == (kind == "router")
            assert source.oldest_position().sort_key <= at.sort_key
            assert connector.capture().events == 1
            return
        for ask in asks:
            with pytest.raises(end[0], match=end[1]) as caught:
                ask()
            assert "directConnection=true" in str(caught.value)


def test_a_wrong_password_on_atlas_is_a_wrong_password() -> None:
    with _start_secured(atlas=True) as server, pytest.raises(AccessDenied) as denied:
        MongoDbSource(_config(server.url(), "nobody", "another")).check_prerequisites()
    assert "another" not in str(denied.value).replace("another authMechanism", "")


def test_a_command_that_small_clusters_of_atlas_lack_is_named() -> None:
    with MongoDb({"atlas": True}) as server, open_client(config := _config(server.url())) as client:
        error = _error(client.admin, {"noSuchCommand": 1})
        assert error is not None
        assert "M10" in str(translate_error(error, config).remedy)


# a majority that lags


def test_a_run_ends_where_the_majority_is_when_a_secondary_is_down_beside_an_arbiter(tmp_path: Path) -> None:
    """Documents that are on the primary alone may be rolled back, and no stream and no snapshot shows them."""
    with ReplicaSet({"noop_seconds": 1}, count=2, arbiters=1) as members, members.connect(w="majority") as client:
        client.shop.orders.insert_many([{"_id": n} for n in range(3)])
        connector = mongodb_connector(members.url(), tmp_path, database_include_list="shop", snapshot_mode="no_data")
        connector.replay.partial = True
        connector.capture()
        down = members.secondaries()[0]
        client.shop.orders.insert_one({"_id": 10})
        down.kill()
        with members.connect(w=1) as alone:
            alone.shop.orders.insert_one({"_id": 11})
        snapshot(connector, "shop.orders")
        assert connector.capture().topics == {"test.shop.orders": 4}
        assert connector.capture().events == 0
        again = mongodb_connector(members.url(), tmp_path / "another", database_include_list="shop")
        assert again.capture().events == 4
        down.start()
        wait_until(lambda: connector.capture().events == 1, "the rest comes when there is a majority again")


# which member is asked


def _ask_members(uri: str) -> tuple[str, int | None]:
    config = _config(uri)
    with open_client(config) as client, DeploymentMember(config, client) as member:
        command = {"find": "orders", "readConcern": {"level": "majority"}}
        with RawCursor(member, "shop", command) as cursor:
            assert cursor.first.documents is not None
        return member.address


def test_streams_and_snapshots_are_read_where_the_read_preference_says(tmp_path: Path) -> None:
    """Read from a member such as an analytics node of Atlas, which has tags and may be hidden from others."""
    tags = {"nodeType": "ANALYTICS"}
    with ReplicaSet(count=1) as members, members.connect() as client:
        analytics = members.add_member(priority=0, votes=0, tags=tags)
        client.shop.orders.insert_many([{"_id": n} for n in range(5)])
        expected = members.url() + "&readPreference=secondary&readPreferenceTags=nodeType:ANALYTICS"
        wait_until(lambda: len(client.secondaries) == 1, "the client knows the member")
        assert _ask_members(expected) == (analytics.host, analytics.port)
        assert _ask_members(members.url()) == (members.members[0].host, members.members[0].port)
        connector = mongodb_connector(expected, tmp_path, database_include_list="shop")
        assert connector.capture().events == 5
        client.shop.orders.insert_one({"_id": 6})
        snapshot(connector, "shop.orders")
        assert connector.capture().topics == {"test.shop.orders": 6}
        assert {d["_id"] for d in connector.documents("shop.orders")} == {*range(5), 6}
        nobody = _config(members.url() + "&readPreference=secondary&readPreferenceTags=nodeType:OTHER")
        with open_client(nobody) as other, pytest.raises(pymongo.errors.ServerSelectionTimeoutError, match="OTHER"):
            DeploymentMember(nobody, other)


def test_a_secondary_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    """It refuses a moment that it has not heard of (code 72), and waits for one that the client brings along."""
    with ReplicaSet({"follow_lag_ms": 1500}, count=1) as members, members.connect() as client:
        members.add_member(priority=0, votes=0)
        client.shop.orders.insert_one({"_id": 0})
        wait_until(lambda: len(client.secondaries) == 1, "the client knows the member")
        uri = members.url() + "&readPreference=secondary"
        connector = mongodb_connector(uri, tmp_path, database_include_list="shop")
        client.shop.orders.insert_one({"_id": 1})
        assert connector.capture().events == 2
        client.shop.orders.insert_one({"_id": 2})
        assert connector.capture().events == 1


def test_a_cursor_behind_a_load_balancer_has_one_connection() -> None:
    config = _config("mongodb://a.example.org/?loadBalanced=true")
    with open_member_client(config, ("a.example.org", 27017)) as client:
        assert client.options.load_balanced
        assert client.options.pool_options.max_pool_size == 1


def test_all_routers_are_used() -> None:
    with ShardedCluster() as cluster, cluster.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
        second = MongoDb({**cluster.router.options})
        with second:
            uri = f"mongodb://{cluster.router.host}:{cluster.router.port},{second.host}:{second.port}/?localThresholdMS=5000"
            config, found = _config(uri), set()
            with open_client(config) as both:
                wait_until(lambda: len(both.nodes) == 2, "the client knows both")
                for _ in range(40):
                    with DeploymentMember(config, both) as member:
                        found.add(member.address[1])
        assert found == {cluster.router.port, second.port}


def test_a_cluster_behind_a_load_balancer_is_captured(tmp_path: Path) -> None:
    """Each connection leads to another router, which alone knows the cursor that was opened there."""
    with ShardedCluster({"load_balanced": True, "noop_seconds": 1}) as cluster, cluster.connect() as client:
        client.shop.orders.insert_many([{"_id": n} for n in range(50)])
        uri = f"mongodb://{cluster.router.host}:{cluster.router.port}/?loadBalanced=true"
        connector = mongodb_connector(uri, tmp_path, database_include_list="shop", snapshot_fetch_size=7)
        assert connector.capture().events == 50
        client.shop.orders.insert_one({"_id": 50})
        snapshot(connector, "shop.orders")
        assert connector.capture().topics == {"test.shop.orders": 51}
