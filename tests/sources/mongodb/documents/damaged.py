"""Reads of whole and of damaged documents: ``python -m tests.sources.mongodb.documents.damaged FROM TO`` prints a line for each document.

A separate process, because kernels run uncompiled there (``NUMBA_DISABLE_JIT``): then numpy refuses to read behind the end of a buffer.
"""

import sys
from collections.abc import Callable
from random import Random

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import read_events
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DocumentError
from airflow_provider_cdc.sources.mongodb.documents.document_updates import apply_update
from airflow_provider_cdc.sources.mongodb.documents.extended_json import JsonForm, format_keys, format_values
from airflow_provider_cdc.sources.mongodb.documents.order_keys import order_keys
from airflow_provider_cdc.sources.mongodb.documents.server_reply import read_reply
from dev.java_json import random_bson
from tests.support.sources.mongodb.mongodb_json import write

EVENT = {
    "_id": {"_data": "8265"}, "operationType": "update", "clusterTime": {"$timestamp": {"t": 5, "i": 6}}, "wallTime": {"$date": {"$numberLong": "77"}}, "ns": {"db": "d", "coll": "c"},
    "documentKey": {"_id": {"$numberInt": "1"}}, "updateDescription": {"updatedFields": {"l.0": "x"}, "removedFields": ["a"], "truncatedArrays": [{"field": "l", "newSize": {"$numberInt": "1"}}], "disambiguatedPaths": {}},
}  # fmt: skip
BEFORE = write({"a": {"$numberInt": "1"}, "l": [None, None]})
REPLY = {
    "cursor": {
        "id": {"$numberLong": "5"},
        "nextBatch": [EVENT, EVENT],
        "ns": "d.c",
        "postBatchResumeToken": {"_data": "82"},
    }
}


def damage_bytes(random: Random, raw: bytes) -> bytes:
    """The same, cut off, or with some other bytes in it; one in five stays whole."""
    choice = random.randint(0, 4)
    if choice == 0:
        return raw
    if choice == 1:
        return raw[: random.randint(0, len(raw) - 1)]
    out = bytearray(raw)
    for _ in range(random.randint(1, 3)):
        out[random.randrange(len(out))] = random.choice((0, 1, 4, 5, 0x0F, 0x7F, 0x80, 0xFF, random.randint(0, 255)))
    return bytes(out)


def outcome(read: Callable[[], object]) -> str:
    """Return the result of a read, or the error that it ends in."""
    try:
        return repr(read())
    except DocumentError as e:
        return f"{type(e).__name__}: {e}"


def outcomes(seed: int) -> list[str]:
    """Read a document, an event, a reply and an update, whole or damaged, and return the outcomes."""
    random = Random(seed)
    document = damage_bytes(random, random_bson.document(random))
    event, reply = damage_bytes(random, write(EVENT)), damage_bytes(random, write(REPLY))
    description = damage_bytes(random, write(EVENT["updateDescription"]))
    of_one = BsonDocuments.of_list([document])
    found = [outcome(lambda form=form: format_values(of_one.document_values, form).to_pylist()) for form in JsonForm]  # type: ignore[misc]
    found.append(outcome(lambda: format_values(of_one.document_values, replace_not_utf8=True).to_pylist()))
    found.append(outcome(lambda: format_keys(of_one.read_field(b"v")).to_pylist()))
    found.append(outcome(lambda: order_keys(of_one.read_field(b"v")).to_pylist()))
    found.append(outcome(lambda: _event(event)))
    found.append(
        outcome(lambda: [read_reply(reply).documents.read_bytes(i) for i in range(len(read_reply(reply).documents))])
    )
    found.append(outcome(lambda: apply_update(BEFORE, description)))
    return found


def _event(raw: bytes) -> list[object]:
    events = read_events(BsonDocuments.of_stream(raw))
    values = [events.cluster_time, events.wall_time, *events.fragment_numbers, events.event_namespaces[0]]
    return [
        *(v.tolist() for v in values),
        *map(events.operation_text, range(len(events))),
        events.token_data.to_strings().to_pylist(),
        format_keys(events.document_id).to_pylist(),
    ]


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(outcomes(number))
