"""The oplog's differences of random updates: applied to the document before, they give the document after."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from dev.servers.mongodb import diffs, order, updates
from dev.servers.mongodb.documents import UNDEFINED, Symbol, decode, encode, same
from dev.servers.mongodb.errors import MongoError
from dev.servers.mongodb.keystring import encode as keystring

NAMES = st.sampled_from(["a", "b", "c", "0", "1", "x.y", "$d", "é", "long name"])
PARTS = st.sampled_from(["a", "b", "c", "0", "1", "2", "5"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(-(2**40), 2**40).map(Int64), st.sampled_from([0.0, -0.0, 1.5, 3.0, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "é"]), st.sampled_from(["1.50", "-0", "1E+3", "NaN"]).map(Decimal128), st.just(UNDEFINED), st.just(Symbol("s")),
)  # fmt: skip
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5).map(lambda fields: {"_id": 1, **fields})
PATHS = st.lists(PARTS, min_size=1, max_size=3).map(".".join)
OPERATORS = st.fixed_dictionaries(
    {},
    optional={
        "$set": st.dictionaries(PATHS, VALUES, min_size=1, max_size=2),
        "$unset": st.dictionaries(PATHS, st.just(""), min_size=1, max_size=2),
        "$inc": st.dictionaries(PATHS, st.integers(-3, 3), min_size=1, max_size=1),
        "$min": st.dictionaries(PATHS, SCALARS, min_size=1, max_size=1),
        "$push": st.dictionaries(
            PATHS,
            st.one_of(
                VALUES,
                st.fixed_dictionaries(
                    {"$each": st.lists(VALUES, max_size=3)},
                    optional={
                        "$position": st.integers(-3, 6),
                        "$slice": st.integers(-3, 3),
                        "$sort": st.sampled_from([1, -1]),
                    },
                ),
            ),
            min_size=1,
            max_size=1,
        ),
        "$addToSet": st.dictionaries(PATHS, SCALARS, min_size=1, max_size=1),
        "$pop": st.dictionaries(PATHS, st.sampled_from([1, -1]), min_size=1, max_size=1),
        "$pull": st.dictionaries(PATHS, SCALARS.filter(lambda value: value is not UNDEFINED), min_size=1, max_size=1),
        "$rename": st.dictionaries(PATHS, PATHS, min_size=1, max_size=1),
    },
).filter(bool)


@given(before=DOCUMENTS, update=OPERATORS)
def test_the_difference_of_operators_gives_the_document_after(before: dict[str, Any], update: dict[str, Any]) -> None:
    kept = encode(before)
    try:
        updated = updates.parsed(update).applied(before)
    except MongoError as error:
        if error.code not in {2, 9, 14, 28, 40, 52, 56, 66}:
            raise
        return
    assert encode(before) == kept, "the document before was changed"
    assert updated.diff is not None
    assert updated.changed or same(updated.document, before)
    assert encode(diffs.applied(before, updated.diff)) == encode(updated.document)


@given(before=DOCUMENTS, after=DOCUMENTS)
def test_the_difference_of_two_documents_gives_the_second(before: dict[str, Any], after: dict[str, Any]) -> None:
    diff = diffs.between(before, after)
    if diff is not None:
        assert order.key(_sorted(diffs.applied(before, diff))) == order.key(_sorted(after))


def _sorted(value: Any) -> Any:
    """The value with its fields in one order: a field that moved is set in place."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


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
        updates.parsed({"$set": {"a.b": 1}, "$unset": {"a": ""}})
    assert failed.value.code == 40
