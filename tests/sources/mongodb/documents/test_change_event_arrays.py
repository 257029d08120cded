"""Change events of a real server as arrays, compared with a plain reading; fields in any order, and what never comes."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from airflow_provider_cdc.sources.mongodb.documents import change_event_arrays
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import (
    DELETE,
    INSERT,
    MISSING,
    OTHER,
    REPLACE,
    UPDATE,
    ChangeEvents,
    read_events,
)  # fmt: skip
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.server_reply import read_reply
from airflow_provider_cdc.sources.mongodb.documents.update_description_columns import removed_fields, truncated_arrays
from tests.sources.mongodb.documents import recorded
from tests.support.sources.mongodb.mongodb_json import read, write

CODES = {"insert": INSERT, "update": UPDATE, "replace": REPLACE, "delete": DELETE}


def read_all(events: list[dict[str, Any]]) -> ChangeEvents:
    return read_events(BsonDocuments.of_list([write(event) for event in events]))


def shuffle_fields(event: dict[str, Any]) -> dict[str, Any]:
    names = list(event)
    random.Random(len(names)).shuffle(names)
    return {name: event[name] for name in names}


def documents(values: BsonValues) -> list[dict[str, Any] | None]:
    return [None if raw is None else read(raw) for raw in values.to_binary().to_pylist()]


def parse_number(value: dict[str, str]) -> int:
    (text,) = value.values()
    return int(text)


@pytest.mark.parametrize("order", [lambda event: event, shuffle_fields], ids=["as sent", "in another order"])
def test_every_field_of_every_recorded_event_is_found(order: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    events = [order(event) for event in recorded.events()]
    found = read_all(events)
    assert len(found) == len(events) > 800
    assert found.unknown.tolist() == ["rawUpdateDescription" in e for e in events]
    assert found.operation.tolist() == [CODES.get(e.get("operationType", ""), OTHER) for e in events]
    assert [found.operation_text(i) for i in range(len(events))] == [e.get("operationType", "") for e in events]
    times = [e.get("clusterTime", {"$timestamp": {"t": 0, "i": 0}})["$timestamp"] for e in events]
    assert found.cluster_time.tolist() == [time["t"] << 32 | time["i"] for time in times]
    assert found.wall_time.tolist() == [
        parse_number(e["wallTime"]["$date"]) if "wallTime" in e else MISSING for e in events
    ]
    assert found.txn_number.tolist() == [parse_number(e["txnNumber"]) if "txnNumber" in e else MISSING for e in events]
    splits = [e.get("splitEvent") for e in events]
    for values, name in zip(found.fragment_numbers, ("fragment", "of"), strict=True):
        assert values.tolist() == [parse_number(split[name]) if split else 0 for split in splits]
    assert any(splits)
    assert found.token_data.to_strings().to_pylist() == [e["_id"]["_data"] for e in events]
    for name in ("fullDocument", "fullDocumentBeforeChange", "documentKey", "updateDescription", "lsid", "to", "ns"):
        assert documents(found.read_field(name.encode())) == [e.get(name) for e in events]
    assert found.document_id.kinds.tolist() == [
        write({"v": e["documentKey"]["_id"]})[4] if "documentKey" in e else 0 for e in events
    ]


def test_every_part_of_every_recorded_update_is_found() -> None:
    events = recorded.events()
    found, text = read_all(events), [e.get("updateDescription", {}) for e in events]
    for name in ("updatedFields", "disambiguatedPaths"):
        assert documents(found.update_parts[name.encode()]) == [one.get(name) for one in text]
    removed = removed_fields(found.update_parts[b"removedFields"]).to_pylist()
    assert removed == [one.get("removedFields") for one in text]
    cut = [one.get("truncatedArrays") for one in text]
    expected = [
        None if one is None else [{"field": c["field"], "size": parse_number(c["newSize"])} for c in one] for one in cut
    ]
    assert truncated_arrays(found.update_parts[b"truncatedArrays"]).to_pylist() == expected
    assert any(removed)
    assert any(cut)


def test_each_namespace_is_named_once() -> None:
    events = recorded.events()
    indices, names = read_all(events).event_namespaces
    expected = [(e["ns"]["db"], e["ns"].get("coll")) if "ns" in e else (None, None) for e in events]
    assert [names[i] for i in indices] == expected
    assert len(names) == len(set(names))


def test_replies_are_read_as_they_were_sent() -> None:
    for step in recorded.batches():
        name = "firstBatch" if step.get("firstBatch") else "nextBatch"
        token = step["postBatchResumeToken"]
        cursor = {name: step[name], "postBatchResumeToken": token, "id": {"$numberLong": "77"}, "ns": "db.c"}
        reply = read_reply(write({"cursor": cursor, "ok": {"$numberDouble": "1.0"}}))
        assert [read(reply.documents.read_bytes(i)) for i in range(len(reply.documents))] == step[name]
        assert (reply.cursor_id, reply.namespace, read(reply.post_batch_resume_token)) == (77, "db.c", token)


def test_a_snapshot_says_its_time_and_an_empty_batch_is_empty() -> None:
    cursor = {
        "id": {"$numberLong": "0"},
        "firstBatch": [],
        "ns": "a.b",
        "atClusterTime": {"$timestamp": {"t": 2**32 - 1, "i": 3}},
    }
    reply = read_reply(write({"cursor": cursor}))
    assert (len(reply.documents), reply.at_cluster_time) == (0, (2**32 - 1) << 32 | 3)
    assert reply.post_batch_resume_token is None
    assert len(read_events(reply.documents)) == 0


@pytest.mark.parametrize(
    "reply",
    [{"ok": 1.0}, {"cursor": {"id": {"$numberLong": "1"}}}, {"cursor": {"id": {"$numberLong": "1"}, "nextBatch": ["text"]}}, {"cursor": {"id": None, "nextBatch": []}}],
)  # fmt: skip
def test_a_reply_without_a_batch_is_refused(reply: dict[str, Any]) -> None:
    reply = {**reply, "ok": {"$numberDouble": "1.0"}}
    with pytest.raises(DamagedDocument):
        read_reply(write(reply))


EVENT = {"_id": {"_data": "82"}, "operationType": "insert"}


def test_fields_that_are_not_known_are_counted() -> None:
    found = read_all(
        [EVENT, {**EVENT, "new": None, "newer": {"fullDocument": {}}}, {**EVENT, **{f"n{i}": True for i in range(300)}}]
    )
    assert found.unknown.tolist() == [0, 2, 255]
    assert found.read_field(b"fullDocument").kinds.tolist() == [0, 0, 0]


def test_an_event_with_next_to_nothing_is_read() -> None:
    found = read_all([EVENT])
    assert (found.cluster_time[0], found.wall_time[0], found.txn_number[0]) == (0, MISSING, MISSING)
    assert found.event_namespaces[1][found.event_namespaces[0][0]] == (None, None)
    assert found.document_id.kinds.tolist() == [0]


@pytest.mark.parametrize("name", [n.decode() for n in change_event_arrays._FIELDS])
def test_a_field_of_a_type_that_it_never_has_is_refused(name: str) -> None:
    with pytest.raises(DamagedDocument, match=r"document 1 .*an invalid type"):
        read_all([EVENT, {**EVENT, name: {"$undefined": True}}])


def test_a_field_that_is_there_twice_is_refused() -> None:
    body = write({**EVENT, "ns": {}})
    twice = body[4:-1] + write({"ns": {}})[4:-1]
    event = (len(twice) + 5).to_bytes(4, "little") + twice + b"\0"
    with pytest.raises(DamagedDocument, match="twice"):
        read_events(BsonDocuments.of_list([event]))


@pytest.mark.parametrize("left_out", list(EVENT))
def test_an_event_without_token_or_operation_is_refused(left_out: str) -> None:
    event = {name: value for name, value in EVENT.items() if name != left_out}
    with pytest.raises(DamagedDocument, match="document 1 "):
        read_all([EVENT, event])


def test_texts_of_values_are_checked() -> None:
    raw = write({"a": "x"}).replace(b"x", b"\xff")
    with pytest.raises(DamagedDocument, match=r"document 1 .* at its byte 4, .* not valid UTF-8"):
        BsonDocuments.of_list([write({"a": "é"}), raw]).read_field(b"a").to_strings()


def test_whole_numbers_of_every_type_are_numbers() -> None:
    numbers = [
        {"$numberInt": "-5"}, {"$numberLong": str(-(2**63))}, {"$date": {"$numberLong": "-1"}}, True, False,
        {"$timestamp": {"t": 1, "i": 2}}, {"$numberDouble": "1.0"}, "1", None,
    ]  # fmt: skip
    found, valid = BsonDocuments.of_list([write({"a": n}) for n in numbers]).read_field(b"a").to_int64s()
    assert found.tolist() == [-5, -(2**63), -1, 1, 0, 1 << 32 | 2, 0, 0, 0]
    assert valid.tolist() == [True] * 6 + [False] * 3
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    "said",
    [
        {"removedFields": [None]}, {"truncatedArrays": ["a"]}, {"truncatedArrays": [{"field": "a"}]}, {"truncatedArrays": [{"field": "a", "newSize": "1"}]},
    ],
)  # fmt: skip
def test_a_description_of_another_form_is_refused_with_its_row(said: dict[str, Any]) -> None:
    good = {
        "updateDescription": {
            "removedFields": ["a", "b"],
            "truncatedArrays": [{"field": "a", "newSize": {"$numberInt": "1"}}] * 3,
        }
    }
    found = read_all([{**EVENT, **good}, {**EVENT, "updateDescription": said}, {**EVENT, **good}])
    name, read_lists = (
        ("removedFields", removed_fields) if "removedFields" in said else ("truncatedArrays", truncated_arrays)
    )
    with pytest.raises(DamagedDocument, match="document 1 "):
        read_lists(found.update_parts[name.encode()])
