"""Validators of the stand-in's collections: which documents they keep out, and what the error says of it, by MongoDB's manual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo.errors import OperationFailure, WriteError

from dev.servers.mongodb import MongoDb
from dev.servers.mongodb.query import queries
from dev.servers.mongodb.query.filter_explanations import explain_filter
from dev.servers.mongodb.query.json_schema import Schema
from dev.servers.mongodb.values.errors import MongoError

KEYWORDS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"bsonType": "int"}, [1], [Int64(1), 1.0, "1", None, True]), ({"bsonType": ["int", "null"]}, [1, None], [Int64(1), "x"]),
    ({"bsonType": "number"}, [1, Int64(1), 1.0, Decimal128("1")], ["1", True]), ({"type": "boolean"}, [True], [1]), ({"type": "object"}, [{}], [[]]),
    ({"minimum": 2}, [2, 2.5, Decimal128("2"), "a", None], [1, 1.9, float("nan")]), ({"maximum": 2}, [2, -5], [3, float("nan")]),
    ({"minimum": 2, "exclusiveMinimum": True}, [3], [2]), ({"maximum": 2, "exclusiveMaximum": True}, [1], [2]),
    ({"multipleOf": 3}, [6, 6.0, Decimal128("9"), "x"], [7, 6.5, float("inf")]), ({"minLength": 2}, ["äö", 1], ["ä"]), ({"maxLength": 2}, ["äö"], ["äöü"]),
    ({"pattern": "^a"}, ["ab", 1], ["ba"]), ({"minItems": 1}, [[1], {}], [[]]), ({"maxItems": 1}, [[1]], [[1, 2]]),
    ({"uniqueItems": True}, [[1, 2], [{"a": 1}, {"a": 2}]], [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
    ({"items": {"bsonType": "int"}}, [[1], [], "x"], [[1, "x"]]), ({"items": [{"bsonType": "int"}]}, [[1, "x"], []], [["x"]]),
    ({"items": [{}], "additionalItems": False}, [[1]], [[1, 2]]), ({"items": [{}], "additionalItems": {"bsonType": "int"}}, [["x", 1]], [[1, "x"]]),
    ({"properties": {"a": {"bsonType": "int"}}}, [{"a": 1}, {}, "x"], [{"a": "x"}]), ({"required": ["a"]}, [{"a": None}, 1], [{}]),
    ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}, {}], [{"b": 1}]),
    ({"patternProperties": {"^n": {"bsonType": "int"}}, "additionalProperties": False}, [{"n1": 1}], [{"n1": "x"}, {"m": 1}]),
    ({"additionalProperties": {"bsonType": "int"}}, [{"b": 1}], [{"b": "x"}]), ({"minProperties": 1}, [{"a": 1}, []], [{}]),
    ({"maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 2}]), ({"dependencies": {"a": ["b"]}}, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}]),
    ({"dependencies": {"a": {"properties": {"b": {"bsonType": "int"}}}}}, [{"a": 1}, {"b": "x"}], [{"a": 1, "b": "x"}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [2], [0, 4]), ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, [5, 1], [3]),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2]), ({"not": {"bsonType": "int"}}, ["x"], [1]), ({"enum": [1, "a", {"x": 1, "y": 2}]}, [1.0, "a", {"y": 2, "x": 1}], [2, None]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), KEYWORDS, ids=str)
def test_a_keyword_of_a_schema_lets_through_what_the_manual_says(
    schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    """Alone, below a field, and turned round; what is refused is explained, and what is not has nothing to explain."""
    whole = Schema(schema)
    below, turned = ({"$jsonSchema": {"properties": {"f": one}}} for one in (schema, {"not": schema}))
    for value, refused in [*((value, False) for value in good), *((value, True) for value in bad)]:
        assert bool(whole.broken(value)) is refused
        document = {"_id": 1, "f": value}
        assert queries.compile_filter(below)(document) is not queries.compile_filter(turned)(document)
        for query in (below, turned):
            if not queries.compile_filter(query)(document):
                (rule,) = explain_filter(query, document)["schemaRulesNotSatisfied"]
                assert rule["propertiesNotSatisfied"][0]["details"]


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"nonsense": 1}, 9), ({"$ref": "x"}, 9), ({"type": "integer"}, 9), ({"type": "int"}, 2), ({"bsonType": "nonsense"}, 2), ({"bsonType": 1}, 14),
        ({"type": "object", "bsonType": "object"}, 9), ({"minimum": "x"}, 14), ({"exclusiveMinimum": True}, 9), ({"multipleOf": 0}, 9), ({"maxLength": -1}, 9),
        ({"pattern": "("}, 51091), ({"required": []}, 9), ({"required": ["a", "a"]}, 9), ({"enum": []}, 9), ({"enum": [1, 1]}, 9), ({"allOf": []}, 2),
        ({"properties": []}, 14), ({"properties": {"a": {"minimum": "x"}}}, 14), ({"additionalProperties": 1}, 14), ({"title": 1}, 14),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(schema: dict[str, Any], code: int) -> None:
    with pytest.raises(MongoError) as refused:
        queries.compile_filter({"$jsonSchema": schema})
    assert refused.value.code == code


def _leaf(operator: str, specified: Any, reason: str, **more: Any) -> dict[str, Any]:
    return {"operatorName": operator, "specifiedAs": specified, "reason": reason, **more}


EXPLAINED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": {"$gt": 5}}, {"a": 1}, _leaf("$gt", {"a": {"$gt": 5}}, "comparison failed", consideredValue=1)),
    ({"a": 5}, {"a": [1, 2]}, _leaf("$eq", {"a": 5}, "comparison failed", consideredValues=[1, 2])),
    ({"a": 5}, {}, _leaf("$eq", {"a": 5}, "field was missing")),
    ({"a": {"$ne": 1}}, {"a": 1}, _leaf("$ne", {"a": {"$ne": 1}}, "comparison succeeded", consideredValue=1)),
    ({"a": {"$in": [1]}}, {"a": 2}, _leaf("$in", {"a": {"$in": [1]}}, "no matching value found in array", consideredValue=2)),
    ({"a": {"$nin": [1]}}, {"a": 1}, _leaf("$nin", {"a": {"$nin": [1]}}, "matching value found in array", consideredValue=1)),
    ({"a": {"$exists": True}}, {}, _leaf("$exists", {"a": {"$exists": True}}, "path does not exist")),
    ({"a": {"$exists": False}}, {"a": 1}, _leaf("$exists", {"a": {"$exists": False}}, "path does exist")),
    (
        {"a": {"$type": "int"}}, {"a": "x"},
        _leaf("$type", {"a": {"$type": "int"}}, "type did not match", consideredValue="x", consideredType="string"),
    ),
    (
        {"a": {"$size": 1}}, {"a": 1},
        _leaf("$size", {"a": {"$size": 1}}, "type did not match", consideredType="int", expectedType="array", consideredValue=1),
    ),
    ({"$expr": {"$eq": ["$a", 1]}}, {"a": 2}, _leaf("$expr", {"$expr": {"$eq": ["$a", 1]}}, "expression did not match", expressionResult=False)),
    (
        {"a": 1, "b": {"$gt": 0}}, {"a": 1, "b": 0},
        {"operatorName": "$and", "clausesNotSatisfied": [
            {"index": 1, "details": _leaf("$gt", {"b": {"$gt": 0}}, "comparison failed", consideredValue=0)},
        ]},
    ),
    (
        {"$nor": [{"a": 1}, {"a": 2}]}, {"a": 2},
        {"operatorName": "$nor", "clausesSatisfied": [{"index": 1, "details": _leaf("$eq", {"a": 2}, "comparison succeeded", consideredValue=2)}]},
    ),
    ({"a": {"$not": {"$lt": 5}}}, {"a": 1}, {"operatorName": "$not", "details": _leaf("$lt", {"a": {"$lt": 5}}, "comparison succeeded", consideredValue=1)}),
    ({"$nor": [{"$jsonSchema": {"required": ["a"]}}]}, {"a": 2}, {"operatorName": "$nor", "clausesSatisfied": [
        {"index": 0, "details": {"operatorName": "$jsonSchema", "reason": "schema matched"}},
    ]}),
]  # fmt: skip


@pytest.mark.parametrize(("query", "document", "details"), EXPLAINED, ids=str)
def test_why_a_filter_is_not_met_is_reported_in_the_form_of_the_manual(
    query: dict[str, Any], document: dict[str, Any], details: dict[str, Any]
) -> None:
    assert not queries.compile_filter(query)(document)
    assert explain_filter(query, document) == details


# collections


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of a set of one."""
    with MongoDb() as server, server.connect() as connected:
        yield connected


SCHEMA = {"$jsonSchema": {"title": "orders", "required": ["n"], "properties": {"n": {"bsonType": "int", "description": "a count"}}}}  # fmt: skip


@pytest.fixture
def orders_collection(client: Any) -> Any:
    """A collection that wants a number, with a document from before."""
    client.drop_database("checked")
    client.checked.orders.insert_one({"_id": "old"})
    client.checked.command("collMod", "orders", validator=SCHEMA)
    return client.checked.orders


def test_the_manuals_example_of_an_error_is_reported_as_there(orders_collection: Any) -> None:
    with pytest.raises(WriteError) as failed:
        orders_collection.insert_one({"_id": 1, "n": "x"})
    assert failed.value.code == 121
    broken = {
        "propertyName": "n", "description": "a count",
        "details": [_leaf("bsonType", {"bsonType": "int"}, "type did not match", consideredValue="x", consideredType="string")],
    }  # fmt: skip
    rules = [{"operatorName": "properties", "propertiesNotSatisfied": [broken]}]
    details = {"operatorName": "$jsonSchema", "title": "orders", "schemaRulesNotSatisfied": rules}
    assert (failed.value.details or {})["errInfo"] == {"failingDocumentId": 1, "details": details}


def _option(more: dict[str, bool]) -> dict[str, bool]:
    """The option as commands have it, where pymongo has no name for it."""
    return {"bypassDocumentValidation": True} if more else {}


WRITES = {
    "insert": lambda orders, **more: orders.insert_one({"_id": 1}, **more),
    "many": lambda orders, **more: orders.insert_many([{"_id": 1}, {"_id": 2}], **more),
    "update": lambda orders, **more: orders.update_one({"_id": "good"}, {"$set": {"n": "x"}}, **more),
    "pipeline": lambda orders, **more: orders.update_many({"_id": "good"}, [{"$set": {"n": "x"}}], **more),
    "replace": lambda orders, **more: orders.replace_one({"_id": "good"}, {}, **more),
    "upsert": lambda orders, **more: orders.update_one({"_id": 1}, {"$set": {"m": 1}}, upsert=True, **more),
    "modify": lambda orders, **more: orders.find_one_and_update({"_id": "good"}, {"$unset": {"n": 1}}, **_option(more)),
    "merge": lambda orders, **more: orders.aggregate(
        [{"$limit": 1}, {"$set": {"n": "x"}}, {"$merge": "orders"}], **_option(more)
    ),
    "out": lambda orders, **more: orders.aggregate([{"$unset": "n"}, {"$out": "orders"}], **_option(more)),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_is_validated_unless_it_bypasses_validation(client: Any, orders_collection: Any, name: str) -> None:
    orders_collection.insert_one({"_id": "good", "n": 1})
    before = list(orders_collection.find())
    with client.checked.watch(max_await_time_ms=20) as stream:
        with pytest.raises(OperationFailure) as failed:
            WRITES[name](orders_collection)
        code = failed.value.code
        if name == "many":
            code = (failed.value.details or {})["writeErrors"][0]["code"]
        assert code == 121
        assert list(orders_collection.find()) == before
        assert name == "out" or stream.try_next() is None
        WRITES[name](orders_collection, bypass_document_validation=True)
        assert list(orders_collection.find()) != before
        assert next(stream)["operationType"] in ("insert", "update", "replace", "drop")


@pytest.mark.parametrize(("level", "action"), [("strict", "error"), ("moderate", "error"), ("off", "error"), ("strict", "warn")])  # fmt: skip
def test_the_level_and_the_action_say_what_is_refused(
    client: Any, orders_collection: Any, level: str, action: str
) -> None:
    orders_collection.insert_one({"_id": "good", "n": 1})
    client.checked.command("collMod", "orders", validationLevel=level, validationAction=action)
    refused = {}
    for name, query in (("old", {"_id": "old"}), ("good", {"_id": "good"})):
        try:
            orders_collection.update_one(query, {"$set": {"n": "x"}})
        except WriteError as error:
            refused[name] = error.code
    names = {"strict": ("old", "good"), "moderate": ("good",), "off": ()}[level] if action == "error" else ()
    assert refused == dict.fromkeys(names, 121)


def test_a_validator_is_shown_changed_and_taken_away(client: Any, orders_collection: Any) -> None:
    def options() -> dict[str, Any]:
        (found,) = client.checked.list_collections(filter={"name": "orders"})
        return dict(found["options"])

    assert options() == {"validator": SCHEMA, "validationLevel": "strict", "validationAction": "error"}
    client.checked.command("collMod", "orders", validator={"m": {"$gt": 0}})
    orders_collection.insert_one({"m": 1})
    client.checked.command("collMod", "orders", validator={})
    assert options() == {"validationLevel": "strict", "validationAction": "error"}
    orders_collection.insert_one({})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"validator": {"a": {"$nonsense": 1}}}, 2), ({"validator": 1}, 14), ({"validationLevel": "nonsense"}, 2), ({"validationAction": "nonsense"}, 2),
        ({"validator": {"$jsonSchema": {"nonsense": 1}}}, 9),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["create", "collMod"])
def test_what_is_no_validator_is_refused(
    client: Any, orders_collection: Any, command: str, options: dict[str, Any], code: int
) -> None:
    with pytest.raises(OperationFailure) as failed:
        client.checked.command(command, "orders" if command == "collMod" else "new", **options)
    assert failed.value.code == code
