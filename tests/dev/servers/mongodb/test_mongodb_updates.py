"""The oplog's differences of random updates: applied to the document before, they give the document after."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.servers.mongodb.storage import diffs
from dev.servers.mongodb.updates import updates
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import UNDEFINED, are_identical, decode, encode
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.values.keystring import encode as keystring
from tests.support.sources.mongodb.mongodb_updates import DOCUMENTS, OPERATORS, SCALARS


@given(before=DOCUMENTS, update=OPERATORS)
def test_the_difference_of_operators_gives_the_document_after(before: dict[str, Any], update: dict[str, Any]) -> None:
    kept = encode(before)
    try:
        updated = updates.parse_update(update).applied(before)
    except MongoError as error:
        if error.code not in {2, 9, 14, 28, 40, 52, 56, 66}:
            raise
        return
    assert encode(before) == kept, "the document before was changed"
    assert updated.diff is not None
    assert updated.changed or are_identical(updated.document, before)
    assert encode(diffs.apply_diff(before, updated.diff)) == encode(updated.document)


@given(before=DOCUMENTS, after=DOCUMENTS)
def test_the_difference_of_two_documents_gives_the_second(before: dict[str, Any], after: dict[str, Any]) -> None:
    diff = diffs.compute_diff(before, after)
    if diff is not None:
        assert order.key(_sort_fields(diffs.apply_diff(before, diff))) == order.key(_sort_fields(after))


def _sort_fields(value: Any) -> Any:
    """The value with its fields in one order: a field that moved is set in place."""
    if isinstance(value, dict):
        return {name: _sort_fields(value[name]) for name in sorted(value)}
    return [_sort_fields(item) for item in value] if isinstance(value, list) else value


@given(DOCUMENTS)
def test_documents_come_back_from_their_bytes(document: dict[str, Any]) -> None:
    assert encode(decode(encode(document))) == encode(document)


@given(st.lists(SCALARS.filter(lambda value: value is not UNDEFINED), min_size=2, max_size=2))
def test_texts_of_tokens_order_as_the_values_do(pair: list[Any]) -> None:
    one, other = pair
    keys, texts = (order.key(one), order.key(other)), (keystring([one])[0], keystring([other])[0])
    assert (keys[0] < keys[1]) == (texts[0] < texts[1])


def test_a_conflict_of_paths_is_refused() -> None:
    with pytest.raises(MongoError) as failed:
        updates.parse_update({"$set": {"a.b": 1}, "$unset": {"a": ""}})
    assert failed.value.code == 40
