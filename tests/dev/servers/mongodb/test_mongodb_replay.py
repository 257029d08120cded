"""The server of the benchmark: prepared events come as from a change stream, some times over, each with its own place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from dev.servers.mongodb import MongoDb
from dev.servers.mongodb.replay import RELEASE

COPIES = 3
WORK = 60


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A file of events, as a change stream sent them."""
    file = tmp_path_factory.mktemp("replay") / "events.bson"
    with MongoDb() as server, server.connect() as client, client.shop.watch() as stream:
        for number in range(WORK):
            client.shop.orders.insert_one({"_id": number, "clusterTime": number, "_data": {"_id": "x"}})
        found = [next(stream) for _ in range(WORK)]
    file.write_bytes(b"".join(bson.encode(event) for event in found))
    return file, found


@pytest.fixture(scope="module")
def client(events: tuple[Path, list[dict[str, Any]]]) -> Iterator[Any]:
    with (
        MongoDb({"replay": {"file": str(events[0]), "copies": COPIES}}) as server,
        server.connect() as client,
    ):
        yield client


def take_events(client: Any, count: int, **options: Any) -> list[dict[str, Any]]:
    with client.watch(**options) as stream:
        return [next(stream) for _ in range(count)]


def test_all_events_come_in_their_order_each_time_with_later_places(
    client: Any, events: tuple[Path, list[dict[str, Any]]]
) -> None:
    found = take_events(client, WORK * COPIES)
    assert [event["documentKey"]["_id"] for event in found] == list(range(WORK)) * COPIES
    assert found[0] == events[1][0]
    tokens = [event["_id"]["_data"] for event in found]
    assert tokens == sorted(set(tokens))
    times = [event["clusterTime"] for event in found]
    assert times == sorted(times)
    assert [event["fullDocument"] for event in found[WORK : 2 * WORK]] == [event["fullDocument"] for event in events[1]]


@pytest.mark.parametrize("size", [None, 7])
@pytest.mark.parametrize("place", [0, WORK - 1, WORK, 2 * WORK + 5])
def test_a_stream_goes_on_behind_the_event_of_its_token(client: Any, place: int, size: int | None) -> None:
    found = take_events(client, WORK * COPIES)
    more = take_events(client, WORK * COPIES - place - 1, resume_after=found[place]["_id"], batch_size=size)
    assert more == found[place + 1 :]


def test_behind_the_last_one_nothing_comes_and_the_place_moves_on(client: Any) -> None:
    last = take_events(client, WORK * COPIES)[-1]["_id"]
    with client.watch(resume_after=last, max_await_time_ms=50) as stream:
        assert stream.try_next() is None
        mark = stream.resume_token
        assert mark["_data"] > last["_data"]
    with client.watch(resume_after=mark, max_await_time_ms=50) as stream:
        assert stream.try_next() is None


def test_other_commands_are_answered_as_by_the_ordinary_server(client: Any) -> None:
    client.other.things.insert_one({"_id": 1})
    assert client.other.things.count_documents({}) == 1


def test_held_events_happen_when_they_are_asked_for_behind_all_that_was_before(
    events: tuple[Path, list[dict[str, Any]]],
) -> None:
    replay = {"file": str(events[0]), "copies": COPIES, "held": True}
    with MongoDb({"replay": replay}) as server, server.connect() as client:
        before = client.admin.command("hello")["lastWrite"]["opTime"]["ts"]
        with client.watch(max_await_time_ms=50) as stream:
            assert stream.try_next() is None
        client.admin.command(RELEASE)
        found = take_events(client, WORK * COPIES, start_at_operation_time=before)
        after = client.admin.command("hello")["lastWrite"]["opTime"]["ts"]
    assert [event["documentKey"]["_id"] for event in found] == list(range(WORK)) * COPIES
    times = [event["clusterTime"] for event in found]
    assert [before, *times, after] == sorted({before, *times, after})
