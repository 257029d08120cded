"""Documents read from their texts: bytes → text → bytes, and text → bytes → text."""

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mongodb.documents import extended_json_parser
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from dev.java_json import random_bson
from tests.sources.mongodb.documents import recorded
from tests.support.sources.mongodb.mongodb_json import write

POINTER = 0x0C


def text(document: bytes) -> str:
    return str(format_values(BsonDocuments.of_list([document]).document_values)[0].as_py())


def pointers(document: bytes) -> bool:
    """Check whether a document has a pointer anywhere, whose text is that of a document."""
    return '"$ref": ' in text(document)


@given(st.integers(0, 2**63))
@settings(max_examples=600, deadline=None)
def test_bytes_of_every_type_are_those_that_the_text_was_made_of(seed: int) -> None:
    document = random_bson.document(Random(seed), odd=False)
    read = extended_json_parser.parse_document(text(document))
    assert text(read) == text(document)
    if not pointers(document):
        assert read == document


@given(st.integers(0, 2**63))
@settings(max_examples=400, deadline=None)
def test_the_text_stays_whatever_the_document_looks_like(seed: int) -> None:
    """Names such as ``$date``, decimals and doubles in unusual forms."""
    document = text(random_bson.document(Random(seed)))
    assert text(extended_json_parser.parse_document(document)) == document


def test_every_type_was_among_them() -> None:
    kinds = {random_bson.value(Random(seed), 0, odd=False)[0] for seed in range(2000)}
    assert kinds == set(random_bson.KINDS)


def test_every_recorded_document_comes_back() -> None:
    documents = [document for before, _, after, _ in recorded.updates() for document in (before, after)]
    assert len(documents) > 500
    assert [extended_json_parser.parse_document(text(one)) for one in documents] == documents


@pytest.mark.parametrize(
    "document",
    [
        {"$date": "today"}, {"$oid": "5"}, {"$oid": {"$numberInt": "5"}}, {"$numberLong": "many"}, {"$numberLong": "9" * 30}, {"$numberDecimal": "1E9999"},
        {"$code": {"$numberInt": "1"}}, {"$symbol": None}, {"$undefined": False}, {"$minKey": {"$numberInt": "2"}}, {"$timestamp": {"t": "x", "i": "y"}},
        {"$binary": "?", "$type": "00"}, {"$binary": "", "$type": "0"}, {"$regex": {"$numberInt": "1"}, "$options": ""}, {"$code": "x", "$scope": None},
        {"$maxKey": {"$numberDouble": "1.0"}}, {"$date": True}, {"$date": {"$numberInt": "1"}, "more": "x"},
    ],
)  # fmt: skip
def test_a_document_that_is_no_value_after_all_stays_a_document(document: object) -> None:
    inner = b"".join(_element(name, value) for name, value in document.items())  # type: ignore[attr-defined]
    raw = random_bson.encode_document({"v": (0x03, struct.pack("<i", len(inner) + 5) + inner + b"\0")})
    assert extended_json_parser.parse_document(text(raw)) == raw


def test_fields_of_a_document_are_never_the_value_of_a_type_at_its_top() -> None:
    raw = random_bson.encode_document({"$date": (0x10, struct.pack("<i", 5))})
    assert extended_json_parser.parse_document(text(raw)) == raw


@pytest.mark.parametrize("wrong", ["", "[]", "5", '{"a": 1', '{"a": 5000000000}', '{"a": }'])
def test_what_is_no_document_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        extended_json_parser.parse_document(wrong)


def _element(name: str, value: object) -> bytes:
    """Encode a field, without reading its value as that of a type."""
    if isinstance(value, dict) and value.keys() <= {"$numberInt", "$numberDouble"}:
        return write({name: value})[4:-1]
    if isinstance(value, dict):
        inner = b"".join(_element(*item) for item in value.items())
        return b"\3" + name.encode() + b"\0" + struct.pack("<i", len(inner) + 5) + inner + b"\0"
    return write({name: value})[4:-1]
