"""Updates applied to documents: as a real server has applied them, and as the stand-in does to random ones."""

from typing import Any

import pytest
from hypothesis import given, settings

from airflow_provider_cdc.sources.mongodb.documents.document_errors import (
    AmbiguousPath,
    DamagedDocument,
    UpdateMismatch,
)
from airflow_provider_cdc.sources.mongodb.documents.document_updates import apply_update
from dev.servers.mongodb.storage import diffs
from dev.servers.mongodb.updates import updates
from dev.servers.mongodb.values.documents import encode
from dev.servers.mongodb.values.errors import MongoError
from tests.sources.mongodb.documents import recorded
from tests.support.sources.mongodb.mongodb_json import read, write
from tests.support.sources.mongodb.mongodb_updates import DOCUMENTS, OPERATORS

INT = {"$numberInt": "1"}


def apply_to_document(before: dict[str, Any], dotted_names: bool = True, **said: Any) -> Any:
    description = {"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **said}
    return read(apply_update(write(before), write(description), dotted_names=dotted_names))


def truncated_array(field: str, size: int) -> dict[str, Any]:
    return {"field": field, "newSize": {"$numberInt": str(size)}}


def test_every_recorded_update_with_its_paths_gives_the_document_after() -> None:
    """All values, and the order of fields."""
    found = [(apply_update(before, said), after) for before, said, after, clear in recorded.updates() if clear]
    assert len(found) > 100
    assert [read(got) for got, _ in found] == [read(after) for _, after in found]
    assert sum(got == after for got, after in found) >= 0.98 * len(found)


def test_a_recorded_update_without_its_paths_gives_the_document_after_or_none() -> None:
    right = ambiguous = 0
    for before, message, after, clear in recorded.updates():
        if not clear:
            try:
                assert apply_update(before, message) == after
                right += 1
            except AmbiguousPath:
                ambiguous += 1
    assert right > 80
    assert ambiguous > 20


def test_the_order_and_the_types_of_everything_else_stay() -> None:
    before = {"_id": INT, "b": {"$numberDouble": "-0.0"}, "a": {"x": {"$undefined": True}, "y": [{"$symbol": "s"}]}}
    actual = apply_to_document(before, updatedFields={"a.x": None, "new": "n"}, disambiguatedPaths={})
    assert list(actual) == ["_id", "b", "a", "new"]
    assert actual["a"] == {"x": None, "y": [{"$symbol": "s"}]}
    assert actual["b"] == {"$numberDouble": "-0.0"}


def test_arrays_are_cut_before_elements_are_set_and_filled_up_to_them() -> None:
    actual = apply_to_document(
        {"l": [INT, INT, INT]},
        updatedFields={"l.0": "x"},
        truncatedArrays=[truncated_array("l", 1)],
        disambiguatedPaths={},
    )
    assert actual == {"l": ["x"]}
    assert apply_to_document({"l": ["a"]}, updatedFields={"l.3": "d"}, disambiguatedPaths={}) == {
        "l": ["a", None, None, "d"]
    }
    assert apply_to_document(
        {"l": [["a", "b"]]}, truncatedArrays=[truncated_array("l.0", 0)], disambiguatedPaths={}
    ) == {"l": [[]]}


def test_names_with_dots_dollars_and_digits() -> None:
    before = {"x": {"y": "path"}, "x.y": "name", "$d": {"0": "zero"}, "": {"": "empty"}}
    paths = {"x.y": ["x.y"], "$d.0": ["$d", "0"], ".": ["", ""]}
    actual = apply_to_document(before, updatedFields={"x.y": "N", "$d.0": "Z", ".": "E"}, disambiguatedPaths=paths)
    assert actual == {"x": {"y": "path"}, "x.y": "N", "$d": {"0": "Z"}, "": {"": "E"}}
    assert apply_to_document(before, removedFields=["x.y"], disambiguatedPaths={}) == {**before, "x": {}}
    assert apply_to_document(
        {"l": ["a"]}, updatedFields={"l.0": "b"}, disambiguatedPaths={"l.0": ["l", {"$numberInt": "0"}]}
    ) == {"l": ["b"]}


@pytest.mark.parametrize(
    "said",
    [{"updatedFields": {"x.y": "new"}}, {"removedFields": ["x.y"]}, {"truncatedArrays": [truncated_array("x.y", 0)]}],
)
def test_a_path_with_two_meanings_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(AmbiguousPath, match=r"'x\.y'.*showExpandedEvents"):
        apply_to_document({"x": {"y": []}, "x.y": []}, **said)


def test_a_path_with_one_meaning_is_followed_without_help() -> None:
    assert apply_to_document({"x": {"y": [INT]}}, removedFields=["x.y"]) == {"x": {}}
    assert apply_to_document({"x.y": INT}, removedFields=["x.y"]) == {}
    assert apply_to_document({"x": {"y": [INT]}}, truncatedArrays=[truncated_array("x.y", 0)]) == {"x": {"y": []}}
    assert apply_to_document({"x": "no document"}, updatedFields={"x.y": INT}) == {"x": "no document", "x.y": INT}
    with pytest.raises(AmbiguousPath):
        apply_to_document({"x": {}}, updatedFields={"x.y": INT})  # a new field x.y would look the same
    assert apply_to_document({"x": {}}, dotted_names=False, updatedFields={"x.y": INT}) == {"x": {"y": INT}}


@pytest.mark.parametrize(
    "said",
    [
        {"updatedFields": {"a.b": INT}}, {"updatedFields": {"gone.b": INT}}, {"updatedFields": {"l.x": INT}}, {"removedFields": ["gone"]}, {"removedFields": ["l.0"]},
        {"truncatedArrays": [truncated_array("l", 3)]}, {"truncatedArrays": [truncated_array("a", 0)]}, {"truncatedArrays": [truncated_array("gone", 0)]}, {"updatedFields": {"l.99999999999": INT}},
    ],
)  # fmt: skip
def test_an_update_of_another_document_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UpdateMismatch, match="does not fit"):
        apply_to_document({"a": "secret", "l": [INT]}, disambiguatedPaths={}, **said)


def test_errors_show_no_values() -> None:
    with pytest.raises(UpdateMismatch) as refused:
        apply_to_document({"a": "secret"}, updatedFields={"a.b": "hidden"}, disambiguatedPaths={})
    assert "secret" not in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(DamagedDocument):
        apply_update(b"\5\0\0\0\1", write({}))


@given(before=DOCUMENTS, update=OPERATORS)
@settings(deadline=None, max_examples=200)
def test_random_operators_give_the_document_that_the_stand_in_has(
    before: dict[str, Any], update: dict[str, Any]
) -> None:
    try:
        updated = updates.parse_update(update).applied(before)
    except MongoError:
        return
    assert updated.diff is not None
    check(before, updated.diff, encode(updated.document))


@given(before=DOCUMENTS, after=DOCUMENTS)
@settings(deadline=None, max_examples=200)
def test_random_changes_give_the_document_that_the_stand_in_has(before: dict[str, Any], after: dict[str, Any]) -> None:
    diff = diffs.compute_diff(before, after)
    if diff is not None:
        check(before, diff, encode(diffs.apply_diff(before, diff)))


def check(before: dict[str, Any], diff: dict[str, Any], after: bytes) -> None:
    """With its paths disambiguated an update gives the document after, without them this or an error."""
    assert apply_update(encode(before), encode(diffs.describe_diff(diff, expanded=True))) == after
    try:
        plain = apply_update(encode(before), encode(diffs.describe_diff(diff, expanded=False)))
    except AmbiguousPath:
        return
    assert plain == after
