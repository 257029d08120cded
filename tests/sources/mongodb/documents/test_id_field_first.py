"""Documents in the order in which they are stored."""

from __future__ import annotations

from random import Random
from typing import Any

import bson

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.id_field_first import id_first


def test_the_key_of_a_document_is_in_front_and_nothing_else_moves() -> None:
    random = Random(1)
    documents: list[dict[str, Any]] = [
        {},
        {"_id": 1},
        {"a": 1},
        {"_i": 2, "_id": 1},
        {"a": {"_id": 5, "b": 1}, "_id": 7, "c": [1]},
    ]
    for _ in range(200):
        fields = [("_id", random.randint(0, 9)), *((name, name * random.randint(0, 30)) for name in "abc")]
        random.shuffle(fields)
        documents.append(dict(fields[random.randint(0, 1) :]))
    found = id_first(BsonDocuments.of_list([_encoded(one) for one in documents]).document_values)
    for number, one in enumerate(documents):
        expected = {"_id": one["_id"], **one} if "_id" in one else one
        assert found.read_bytes(number) == _encoded(expected)


def _encoded(document: dict[str, Any]) -> bytes:
    """Encode a document in the order of its fields. pymongo puts ``_id`` in front, but within another document it does not."""
    return bson.encode({"": document})[6:-1]


def test_documents_that_are_stored_so_are_the_same_bytes() -> None:
    values = BsonDocuments.of_list([bson.encode({"_id": n, "a": n}) for n in range(3)]).document_values
    assert id_first(values) is values
