"""Records of a collection, from the snapshot to the delete; and fields that are left out or renamed, wherever an event has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dev.servers.mongodb import MongoDb
from tests.support.change_log.rendered import capture_records
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector

IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


def document(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def test_each_operation_is_a_record_with_its_mark_its_document_and_its_place(
    uri: str, tmp_path: Path, database: Any
) -> None:
    """Topic and source have the prefix, not the connector's name; images are texts, and their schemas say that they are JSON."""
    orders = database.orders
    orders.insert_many([{"_id": n, "n": n} for n in range(3)])
    connector = mongodb_connector(uri, tmp_path, topic_prefix="fulfillment", database_include_list=database.name)
    found = capture_records(connector, schemas=True)
    orders.insert_one({"_id": 7, "n": 7})
    orders.update_one({"_id": 7}, {"$set": {"n": 8}})
    orders.replace_one({"_id": 1}, {"other": True})
    orders.delete_one({"_id": 2})
    found += capture_records(connector, schemas=True)
    assert {record["topic"] for record in found} == {f"fulfillment.{database.name}.orders"}
    *found, tombstone = found
    assert (tombstone["key"]["payload"], tombstone["value"]) == ({"id": "2"}, None)
    values = [record["value"]["payload"] for record in found]
    assert [(v["op"], v["source"]["snapshot"], document(v["after"]), v["before"]) for v in values] == [
        *(("r", mark, {"_id": n, "n": n}, None) for n, mark in enumerate(("first", "true", "last"))),
        ("c", "false", {"_id": 7, "n": 7}, None),
        ("u", "false", {"_id": 7, "n": 8}, None),
        ("u", "false", {"_id": 1, "other": True}, None),
        ("d", "false", None, None),
    ]  # fmt: skip
    assert {(v["source"]["name"], v["source"]["connector"]) for v in values} == {("fulfillment", "mongodb")}
    places = [(v["source"]["ts_ms"], v["source"]["ord"]) for v in values[3:]]
    assert places == sorted({*places}), "each has a place of its own, in the order of the oplog"
    for record in found:
        nodes = {node["field"]: node for node in record["value"]["schema"]["fields"]}
        for image in ("before", "after"):
            described = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
            assert nodes[image] == described | {"field": image}


def test_fields_are_left_out_and_renamed_where_a_server_says_small_documents_whole(tmp_path: Path) -> None:
    with MongoDb({"whole_bytes": 60}) as server, server.connect() as client:
        test_fields_are_left_out_and_renamed_wherever_an_event_has_them(server.url(), tmp_path, client.shop)


def test_fields_are_left_out_and_renamed_wherever_an_event_has_them(uri: str, tmp_path: Path, database: Any) -> None:
    """In documents, in those of before, and in all three parts of what an update says; one rule after the other, of all collections that it is about."""
    orders, notes = (database.create_collection(name, **IMAGES) for name in ("orders", "notes"))
    was = {
        "_id": 1, "card": {"number": 5, "x": 1}, "secret": "s", "list": [*"abcd"], "address": {"zip": 1, "street": "s"}, "hidden": [*"xyz"],
        "rest": "x" * 500,  # so that the server logs what has changed, and not the document
    }  # fmt: skip
    orders.insert_one(was)
    notes.insert_one(was)
    connector = mongodb_connector(
        uri, tmp_path, database_include_list=database.name, capture_mode="change_streams_update_full_with_pre_image",
        field_exclude_list=f"*.orders.card.number,{database.name}.ord*.secret,*.orders.hidden",
        field_renames="*.orders.list:tags,*.orders.tags:labels,*.orders.address.zip:code",
    )  # fmt: skip
    read = {str(r["topic"]).rpartition(".")[2]: document(r["value"]["after"]) for r in capture_records(connector)}
    rest = {"rest": "x" * 500}
    shown = {"_id": 1, "card": {"x": 1}, "labels": [*"abcd"], "address": {"code": 1, "street": "s"}} | rest
    assert read == {"orders": shown, "notes": was}
    short = {"list": {"$slice": ["$list", 2]}, "hidden": {"$slice": ["$hidden", 1]}}
    orders.update_one({}, [{"$set": {**short, "card.number": 6, "n": 1}}, {"$unset": ["secret", "address.zip"]}])
    (update,) = [record["value"] for record in capture_records(connector)]
    assert document(update["before"]) == shown
    after = {"_id": 1, "card": {"x": 1}, "labels": [*"ab"], "address": {"street": "s"}, "n": 1} | rest
    assert document(update["after"]) == after
    text = update["updateDescription"]
    fields = document(text["updatedFields"])
    whole = [{}, {"card": {"x": 1}}, {"address": {"street": "s"}}, {"card": {"x": 1}, "address": {"street": "s"}}]
    assert fields in [{"n": 1} | said for said in whole], "a server may say a small document whole"
    assert text["removedFields"] == (None if "address" in fields else ["address.code"])
    assert text["truncatedArrays"] == [{"field": "labels", "size": 2}]
