"""Places at which a stream begins, ends and begins again: drops, changed filters, members that know less, and lost replies."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from airflow_provider_cdc.core.errors import SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Deployment, open_client
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.log import reconnecting_cursor
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import CursorReply
from airflow_provider_cdc.sources.mongodb.log.stream_event_reader import MongoEventReader
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from dev.servers.mongodb import MongoDb
from tests.sources.mongodb.log.test_stream import capture_events, image, start_connector
from tests.sources.mongodb.log.test_waits import fail_commands
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDb]:
    """Start a server whose commands fail when a test says so."""
    with MongoDb() as running:
        yield running


def store_position(connector: MongoConnector, position: dict[str, Any]) -> None:
    """Have the next run begin at a position."""
    with connector.store.acquire_lease("test", "a test", wait_s=5) as lease:
        stored = connector.store.load_offset("test")
        assert stored.offset is not None
        connector.store.advance_offset(lease, stored, stored.offset.move_position(position))


def test_events_of_a_large_transaction_are_counted_from_its_first_one(
    uri: str, tmp_path: Path, database: Any, client: Any
) -> None:
    """It begins in the middle of a reply of the server's, which has 101 events, and continues in the next one."""
    connector = start_connector(uri, tmp_path, database, provide_transaction_metadata="true")
    database.orders.insert_many([{"_id": -1}, {"_id": -2}])
    with client.start_session() as session, session.start_transaction():
        database.orders.insert_many([{"_id": n} for n in range(150)], session=session)
    _, _, *events = (event["transaction"] for event in capture_events(connector))
    assert [event["total_order"] for event in events] == [*range(1, 151)]
    assert [event["data_collection_order"] for event in events] == [*range(1, 151)]


@pytest.mark.parametrize("scope", ["collection", "database"])
def test_a_stream_whose_position_is_the_moment_of_a_drop_goes_on_behind_it(
    uri: str, tmp_path: Path, database: Any, client: Any, scope: str
) -> None:
    """A stream that begins at that moment gets the drop once more, which ends it."""
    target = database.name if scope == "database" else f"{database.name}.orders"
    database.create_collection("orders")
    connector = start_connector(uri, tmp_path, database, capture_scope=scope, capture_target=target)
    with client[database.name].watch() as stream:
        if scope == "collection":
            database.orders.drop()
        else:
            client.drop_database(database.name)
        ends = {"collection": "drop", "database": "dropDatabase"}
        time = next(event["clusterTime"] for event in stream if event["operationType"] == ends[scope])
    store_position(connector, MongoPosition(ClusterTime(time.time, time.inc)).to_json())
    database.orders.insert_one({"_id": 2})
    assert [image(event, "after") for event in capture_events(connector)] == [{"_id": 2}]


def test_a_stream_that_can_be_opened_and_not_read_is_tried_after_ever_longer_times_until_it_fails(
    server: MongoDb, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(reconnecting_cursor, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    config = MongoDbConfig.parse(
        {"topic.prefix": "t", "mongodb.connection.string": server.url(), "connect.max.attempts": 3}
    )
    fail_commands(server, "getMore", 5)
    with open_client(config) as client, caplog.at_level(logging.WARNING):
        now = client.admin.command("hello")["lastWrite"]["opTime"]["ts"]
        reader = reconnecting_cursor.ChangeStreamFeed(
            config,
            client,
            Deployment("rs0", (8, 0, 0)),
            MongoPosition(ClusterTime(now.time, now.inc)),
            MongoStreamMetrics(),
        )
        batches = (reader.fetch_reply(1000) for _ in range(50))
        with pytest.raises(SourceUnavailable):
            deque(batches, maxlen=0)
        reader.close()
    waits = [float(wait or 0) for wait in re.findall(r"is opened again(?: in ([\d.]+) s)?:", caplog.text)]
    assert waits == [0, 1, 2, 4]


TOKEN = "826B029D42000000032B042C0100296E5A1004F9F8A833EE894304B13B6FBFE7590070463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900461E5F69640029000004"
OTHER = TOKEN.replace("0029000004", "002B02000004")
EVENT = {
    "_id": {"_data": TOKEN}, "operationType": "insert", "clusterTime": bson.Timestamp(1795333442, 3),
    "fullDocument": {"_id": 0}, "ns": {"db": "a", "coll": "b"}, "documentKey": {"_id": 0},
}  # fmt: skip


class ScriptedMember:
    """A member, and its cursor, that answer as a server does that has these replies."""

    address = primary = ("127.0.0.1", 1)
    is_open = True

    def __init__(self, *replies: CursorReply) -> None:
        self.first, *self._more = replies

    def fetch_reply(self, **_: object) -> CursorReply:
        return self._more.pop(0)

    def close(self) -> None:
        pass


def test_a_member_that_does_not_know_the_event_of_the_position_says_nothing_of_what_comes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new primary learns late what a majority has, and answers with the given token.

    Other events of that moment's transaction are still to come.
    """
    nothing = CursorReply(None, {"_data": TOKEN})
    event = CursorReply(BsonDocuments.of_list([bson.encode(EVENT | {"_id": {"_data": OTHER}})]), {"_data": OTHER})
    replies = ScriptedMember(nothing, nothing, event, CursorReply(None, {"_data": OTHER}))
    monkeypatch.setattr(reconnecting_cursor, "DeploymentMember", lambda *_: replies)
    monkeypatch.setattr(reconnecting_cursor, "RawCursor", lambda *_, **__: replies)
    config = MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/"})
    position = MongoPosition.behind_token(TOKEN)
    with open_client(config, connect=False) as client:
        reader = reconnecting_cursor.ChangeStreamFeed(
            config, client, Deployment("rs0", (8, 0, 0)), position, MongoStreamMetrics()
        )
        found = [reader.fetch_reply(1) for _ in range(4)]
    assert [batch.position for batch in found if batch] == [
        position, position, MongoPosition.behind_token(OTHER), MongoPosition(position.time),
    ]  # fmt: skip


def test_an_event_that_comes_between_the_parts_of_another_one_stops() -> None:
    part = EVENT | {"splitEvent": {"fragment": 1, "of": 2}}
    metrics = MongoStreamMetrics()
    metrics.position = MongoPosition(ClusterTime(1, 1))
    config = MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/"})
    for documents in ([part, EVENT], [part], [EVENT]):
        if documents[0] is part:
            reader = MongoEventReader(config, None, None, metrics)  # type: ignore[arg-type]
        read = reader.read_items(BsonDocuments.of_list([bson.encode(d) for d in documents]), metrics.position, None)  # type: ignore[arg-type]
        if documents == [part]:
            assert [*read] == []
            continue
        with pytest.raises(UnknownLogEvent, match="Another event arrived where part 2 of a large event was expected"):
            deque(read, maxlen=0)
