"""Updates applied to the texts of documents, as targets do it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates
from airflow_provider_cdc.sources.mongodb import field_rewriter
from airflow_provider_cdc.sources.mongodb.documents import extended_json_parser
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import BsonContainer
from airflow_provider_cdc.sources.mongodb.documents.document_updates import apply_update
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from airflow_provider_cdc.sources.mongodb.documents.update_description_columns import removed_fields, truncated_arrays
from airflow_provider_cdc.sources.mongodb.field_rewriter import rewrite_document
from airflow_provider_cdc.sources.mongodb.field_rules import FieldRule
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from dev.servers.mongodb.storage import diffs
from dev.servers.mongodb.updates import updates
from dev.servers.mongodb.values.documents import encode
from dev.servers.mongodb.values.errors import MongoError
from tests.sources.mongodb.documents import recorded
from tests.support.sources.mongodb.mongodb_json import read, write
from tests.support.sources.mongodb.mongodb_updates import DOCUMENTS, OPERATORS


def strict(documents: list[bytes]) -> list[Any]:
    return format_values(BsonDocuments.of_list(documents).document_values).to_pylist()


def encode_updates(descriptions: list[bytes]) -> dict[str, pa.Array]:
    """The columns of events."""
    found = BsonDocuments.of_list(descriptions)
    updated, paths = (
        format_values(found.read_field(name)).to_pylist() for name in (b"updatedFields", b"disambiguatedPaths")
    )
    removed = removed_fields(found.read_field(b"removedFields")).to_pylist()
    cut = truncated_arrays(found.read_field(b"truncatedArrays")).to_pylist()
    columns = zip(updated, removed, cut, strict=True)
    names = ("updatedFields", "removedFields", "truncatedArrays")
    return {
        "updateDescription": pa.array([dict(zip(names, one, strict=True)) for one in columns]),
        "disambiguatedPaths": pa.array(paths, pa.string()),
    }


def apply_updates(before: list[Any], descriptions: list[bytes], follows: list[int] | None = None) -> Any:
    chain = np.array(follows or [-1] * len(before), np.int64)
    return partial_updates("mongodb").apply_updates(before, chain, encode_updates(descriptions))


def test_every_recorded_update_gives_the_text_that_it_gives_in_bytes() -> None:
    given_ = [one for one in recorded.updates() if one[3]]
    found, problems = apply_updates(strict([one[0] for one in given_]), [one[1] for one in given_])
    assert problems == {}
    assert found.to_pylist() == strict([apply_update(before, description) for before, description, _, _ in given_])
    # which is the document after it, but for the order of fields in some
    right = [got == text for got, text in zip(found.to_pylist(), strict([one[2] for one in given_]), strict=True)]
    assert sum(right) >= 0.98 * len(right)


@given(first=DOCUMENTS, changes=st.lists(st.tuples(st.booleans(), OPERATORS), min_size=1, max_size=8))
@settings(deadline=None, max_examples=100)
def test_random_updates_follow_each_other_and_what_begins_again_does_not(
    first: dict[str, Any], changes: list[tuple[bool, dict[str, Any]]]
) -> None:
    """The document after each, by the stand-in."""
    document, bases, chain, descriptions, after = first, list[Any](), list[int](), list[bytes](), list[bytes]()
    for anew, change in changes:
        before = first if anew else document
        try:
            updated = updates.parse_update(change).applied(before)
        except MongoError:
            continue
        chain.append(len(after) - 1 if after and not anew else -1)
        bases.append(None if chain[-1] >= 0 else strict([encode(before)])[0])
        assert updated.diff is not None
        descriptions.append(encode(diffs.describe_diff(updated.diff, expanded=True)))
        document = updated.document
        after.append(encode(document))
    if after:
        found, problems = apply_updates(bases, descriptions, chain)
        assert problems == {}
        assert found.to_pylist() == strict(after)


@pytest.mark.parametrize("new", [None, "renamed"])
def test_an_update_without_fields_or_with_renamed_ones_is_one_of_the_document_without_them(new: str | None) -> None:
    tried = 0
    for before, description, after, clear in recorded.updates():
        names = [name for name in read(after) if name != "_id" and "." not in name]
        if not clear or apply_update(before, description) != after or not names:
            continue
        rules = [FieldRule("*", "*", (name,), new and f"{new}_{name}") for name in names[::2]]
        parts = BsonContainer.from_bson(description).elements
        for part in parts:
            if part.name == b"updatedFields":
                part.value = rewrite_document(part.encode_bson(), rules, dotted=True)
            elif part.name == b"disambiguatedPaths":
                part.value = field_rewriter._paths(part.encode_bson(), rules)
        columns = encode_updates([BsonContainer(k.DOCUMENT, parts).encode_bson()])
        fields = columns["updateDescription"].to_pylist()[0]
        fields["removedFields"] = field_rewriter._names(fields["removedFields"], rules)
        fields["truncatedArrays"] = field_rewriter._arrays(fields["truncatedArrays"], rules)
        columns["updateDescription"] = pa.array([fields])
        base = strict([rewrite_document(before, rules)])
        found, problems = partial_updates("mongodb").apply_updates(base, np.array([-1]), columns)
        assert problems == {}, (rules, description)
        assert found.to_pylist() == strict([rewrite_document(after, rules)])
        tried += 1
    assert tried > 100


def test_what_does_not_fit_is_reported_and_so_is_what_follows_it() -> None:
    lost = write({"updatedFields": {}, "removedFields": ["gone"], "truncatedArrays": [], "disambiguatedPaths": {}})
    more = write({"updatedFields": {"b": "x"}, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": {}})
    found, problems = apply_updates(['{"a": "secret"}', None, '{"a": 1}'], [lost, more, more], [-1, 0, -1])
    assert found.to_pylist() == [None, None, '{"a": 1,"b": "x"}']
    assert problems.keys() == {0, 1}
    assert "gone" in problems[0]
    assert "secret" not in problems[0]


def test_a_path_that_may_be_a_name_is_reported_when_the_server_has_not_said_which_it_is() -> None:
    before = strict([write({"x": {"y": "path"}, "x.y": "name"})])
    description = {"updatedFields": {"x.y": "new"}, "removedFields": [], "truncatedArrays": []}
    _, problems = apply_updates(before, [write(description)])
    assert "x.y" in problems[0]
    found, problems = apply_updates(before, [write({**description, "disambiguatedPaths": {"x.y": ["x.y"]}})])
    assert problems == {}
    assert read(extended_json_parser.parse_document(found[0].as_py())) == {"x": {"y": "path"}, "x.y": "new"}


def test_an_event_that_says_nothing_is_no_update() -> None:
    _, problems = partial_updates("mongodb").apply_updates(['{"a": 1}'], np.array([-1]), {})
    assert problems == {0: "the event does not contain the change description"}


def test_sources_without_such_updates_have_none() -> None:
    with pytest.raises(ConfigError):
        partial_updates("memory")
