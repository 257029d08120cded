"""Partial updates of documents, folded from event to event: as a plain model of a collection has it, however the events are cut into pieces."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.reading.partial_document_updates import NOWHERE, DocumentBuilder, DocumentEvents
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates

Document = dict[str, int]
LOST = object()
"""Of the model: no one knows the document."""


def text(document: Any) -> str | None:
    return None if document is None else json.dumps(document, separators=(",", ": "))


def draw_event(r: Random, documents: dict[int, Any], number: int) -> dict[str, Any]:
    """Draw an event, and apply it to the model."""
    key = r.randrange(5)
    there = documents.get(key)
    op = r.choice(["c", "r", "u", "u", "u", "partial", "partial", "partial", "partial", "d", "t"])
    if op == "t" and r.random() < 0.8:
        op = "partial"
    event: dict[str, Any] = {"key": key, "op": op, "after": None, "before": None, "said": None}
    if op in ("c", "r", "u"):
        documents[key] = {"_id": key, "n": number}
        event["after"] = documents[key]
    elif op == "d":
        documents[key] = None
    elif op == "t":
        documents.clear()
    else:
        event["op"] = "u"
        base = there
        if r.random() < 0.2:
            base = event["before"] = {"_id": key, "from": number}
        gone = r.random() < 0.15
        event["said"] = {"updatedFields": f'{{"f{r.randrange(3)}": {number}}}', "removedFields": ["n"] if gone else []}
        if base is None or base is LOST or (gone and "n" not in base):
            documents[key] = LOST
        else:
            documents[key] = {**base, **json.loads(event["said"]["updatedFields"])}
            if gone:
                del documents[key]["n"]
    return event | {"expected": documents.get(key)}


def changes(events: list[dict[str, Any]], first: int) -> DocumentEvents:
    op = np.array([one["op"] for one in events], object)
    lacks = np.array([one["said"] is not None for one in events], np.bool_)
    after, before = (pa.array([text(one[name]) for one in events], pa.string()) for name in ("after", "before"))
    said_type = pa.struct({"updatedFields": pa.string(), "removedFields": pa.list_(pa.string())})
    said = {
        "updateDescription": pa.array([one["said"] for one in events], said_type),
        "disambiguatedPaths": pa.array(["{}"] * len(events)),
    }
    keys = [one["key"] for one in events]
    return DocumentEvents(keys, op, first + np.arange(len(events)), lacks, after, before, said)


@pytest.mark.parametrize("seed", range(60))
def test_events_in_pieces_are_folded_as_a_model_does_it(seed: int) -> None:
    """The table has what the events before a piece have made, as one has that is written step by step."""
    r = Random(seed)
    documents: dict[int, Any] = {key: {"_id": key, "n": 0} for key in range(5) if r.random() < 0.5}
    fold, number, lost = DocumentBuilder(partial_updates("mongodb")), 0, 0
    for _ in range(8):
        table = {key: document for key, document in documents.items() if document is not LOST}
        events = [draw_event(r, documents, number + i) for i in range(r.randrange(1, 12))]
        some = changes(events, number)
        for key in fold.find_needed_keys(some):
            fold.present[key] = text(table.get(key))  # type: ignore[index]
        found, unknown = fold.apply_events(some)
        for at, event in enumerate(events):
            if event["op"] != "t":
                assert unknown[at] == (event["expected"] is LOST)
                assert unknown[at] or found[at].as_py() == text(event["expected"])
        assert fold.lost.keys() == {key for key, document in documents.items() if document is LOST}
        assert fold.present == {}
        number, lost = number + len(events), lost + int(unknown.sum())
    assert lost or seed


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_of_a_key_goes_on_with_the_next_piece(seed: int) -> None:
    """Events by key, as executors have them; no one asks the table again."""
    r = Random(seed)
    documents: dict[int, Any] = {0: {"_id": 0, "n": 0}}
    events = [one for one in (draw_event(r, documents, i) for i in range(60)) if one["key"] == 0 and one["op"] != "t"]
    documents, events = {0: {"_id": 0, "n": 0}}, events or []
    fold = DocumentBuilder(partial_updates("mongodb"), present={0: text(documents[0])})
    whole = DocumentBuilder(partial_updates("mongodb"), present={0: text(documents[0])})
    expected, lost = whole.apply_events(changes(events, 0))
    at = 0
    while at < len(events):
        size = r.randrange(1, 4)
        found, unknown = fold.apply_events(changes(events[at : at + size], at), keep={0})
        assert unknown.tolist() == lost[at : at + size].tolist()
        actual, wanted = found.to_pylist(), expected[at : at + size].to_pylist()
        assert [g for g, u in zip(actual, unknown, strict=True) if not u] == [w for w, u in zip(wanted, unknown, strict=True) if not u]  # fmt: skip
        at += size
    assert fold.lost == whole.lost


def test_why_a_document_is_not_known_is_said_of_its_first_event() -> None:
    text = {"updatedFields": '{"a": 1}', "removedFields": []}
    one = {"key": 1, "op": "u", "after": None, "before": None, "said": text}
    fold = DocumentBuilder(partial_updates("mongodb"))
    fold.apply_events(changes([one, one], 7))
    assert (fold.lost[1].seq, fold.lost[1].why) == (7, NOWHERE)
    fold.apply_events(changes([one], 9))
    assert fold.lost[1].seq == 7
    fold.apply_events(changes([{**one, "op": "d", "said": None}], 10))
    assert fold.lost == {}
