"""Keys that are ordered as a real server orders values, and as the stand-in compares them."""

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.order_keys import order_key, order_keys
from dev.java_json import random_bson
from tests.support.sources.mongodb.mongodb_json import write
from tests.support.sources.mongodb.mongodb_recordings import scenarios


def keys(values: list[Any]) -> list[bytes]:
    documents = BsonDocuments.of_list([write({"v": value}) for value in values])
    return [bytes(key) for key in order_keys(documents.read_field(b"v")).to_pylist()]


def test_recorded_keys_of_every_kind_are_in_the_order_of_the_index() -> None:
    orders = []
    for step in scenarios()["ids"]["steps"]:
        command = step.get("command", {})
        if "find" in command and "cursor" in step["reply"] and ("sort" in command or "min" in command):
            orders.append([document["_id"] for document in step["reply"]["cursor"]["firstBatch"]])
    assert max(map(len, orders)) >= 25
    for order in orders:
        found = keys(order)
        assert found == sorted(found)
        assert len(set(found)) == len(found)


def double(text: str) -> dict[str, str]:
    return {"$numberDouble": text}


def decimal(text: str) -> dict[str, str]:
    return {"$numberDecimal": text}


def test_values_of_all_types_in_order() -> None:
    """(MongoDB manual, "Comparison/Sort Order".)"""
    long = {"$numberLong": str(2**53 + 1)}
    oid = {"$oid": "0" * 24}
    binary = [
        {"$binary": {"base64": b, "subType": s}}
        for b, s in (("", "80"), ("/w==", "00"), ("AA==", "80"), ("AAA=", "00"))
    ]
    order = [
        {"$minKey": 1}, {"$undefined": True}, None,
        double("NaN"), decimal("-Infinity"), double("-1e308"), decimal("-1.51"), double("-1.5"), decimal("-1E-6176"), {"$numberInt": "0"}, double("5e-324"), decimal("0.1"), double("0.1"),
        {"$numberInt": "1"}, decimal("1.1"), {"$numberInt": "9"}, {"$numberInt": "10"}, double("9007199254740992.0"), long, double("1e308"), decimal("9.999E+6144"), double("Infinity"),
        "", "\0", "\0\0", "\0a", "\1", "A", "a", "a\0", {"$symbol": "aa"}, "b", "é", "😀",
        {}, {"a": None}, {"b": None}, {"a": {"$numberInt": "1"}}, {"a": {"$numberInt": "1"}, "b": None}, {"a": {"$numberInt": "2"}}, {"b": {"$numberInt": "1"}}, {"a": "x"},
        [], [None], [{"$numberInt": "1"}], [{"$numberInt": "1"}, None], *binary, oid, {"$oid": "f" * 24}, False, True,
        {"$date": {"$numberLong": str(-(2**63))}}, {"$date": {"$numberLong": "-1"}}, {"$date": {"$numberLong": "0"}}, {"$date": {"$numberLong": str(2**63 - 1)}},
        {"$timestamp": {"t": 0, "i": 2**32 - 1}}, {"$timestamp": {"t": 1, "i": 0}}, {"$timestamp": {"t": 2**31, "i": 0}},
        {"$regularExpression": {"pattern": "a", "options": ""}}, {"$regularExpression": {"pattern": "a", "options": "i"}}, {"$regularExpression": {"pattern": "ab", "options": ""}},
        {"$dbPointer": {"$ref": "z", "$id": oid}}, {"$dbPointer": {"$ref": "aa", "$id": oid}}, {"$code": ""}, {"$code": "f"},
        {"$code": "f", "$scope": {}}, {"$code": "f", "$scope": {"a": None}}, {"$code": "g", "$scope": {}}, {"$maxKey": 1},
    ]  # fmt: skip
    found = keys(order)
    for one, other, a, b in zip(found, found[1:], order, order[1:], strict=False):
        assert one < other, (a, b)


@pytest.mark.parametrize(
    "alike",
    [
        [{"$numberInt": "1"}, {"$numberLong": "1"}, double("1.0"), decimal("1.00"), decimal("10E-1")],
        [{"$numberInt": "0"}, double("-0.0"), decimal("-0E+3"), {"$numberLong": "0"}], [double("NaN"), decimal("NaN")], [double("0.5"), decimal("0.50")],
        [double("Infinity"), decimal("Infinity")], ["a", {"$symbol": "a"}], [{"a": {"$numberInt": "1"}}, {"a": double("1.0")}],
    ],
)  # fmt: skip
def test_what_the_server_takes_for_equal_is_equal(alike: list[Any]) -> None:
    assert len(set(keys(alike))) == 1


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), min_size=2, max_size=2))
@settings(deadline=None)
def test_numbers_are_ordered_exactly(pair: list[float]) -> None:
    raws = [(0x12, struct.pack("<q", n)) if isinstance(n, int) else (0x01, struct.pack("<d", n)) for n in pair]
    one, other = (order_key(kind, raw) for kind, raw in raws)
    assert (one < other, one == other) == (pair[0] < pair[1], pair[0] == pair[1])


@given(st.integers(0, 2**63))
@settings(deadline=None)
def test_what_is_within_a_document_decides_as_it_does_alone(seed: int) -> None:
    random = Random(seed)
    values = [random_bson.value(random, 2) for _ in range(2)]
    alone = [order_key(kind, raw) for kind, raw in values]
    inside = [order_key(0x03, random_bson.encode_document({"a": value, "z": (0x7F, b"")})) for value in values]
    listed = [order_key(0x04, random_bson.encode_document({"0": value, "1": (0xFF, b"")})) for value in values]
    for made in (inside, listed):
        assert (made[0] < made[1], made[0] == made[1]) == (alone[0] < alone[1], alone[0] == alone[1])


def test_what_is_not_there_has_no_key() -> None:
    assert order_keys(BsonDocuments.of_list([write({})]).read_field(b"v")).to_pylist() == [None]
