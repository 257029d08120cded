"""Offsets as they are stored, and what each of their transitions leaves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState

_position = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
_pending = st.builds(
    PendingTable,
    held=st.booleans(),
    request=st.none() | st.integers(1, 9),
    select=st.none() | st.text(max_size=3),
    streamed=st.booleans(),
    due=st.booleans(),
)
_snapshots = st.builds(
    SnapshotState,
    pending=st.dictionaries(st.sampled_from("abcd"), _pending),
    read_at=st.dictionaries(st.sampled_from("abcd"), _position),
)
_offsets = st.builds(
    Offset,
    position=st.none() | _position,
    seq=st.integers(0, 2**62),
    batch=st.integers(0, 2**40),
    snapshot=_snapshots,
    tables_filter=st.text(max_size=5),
)


@given(_offsets)
def test_an_offset_means_the_same_after_its_way_through_json(offset: Offset) -> None:
    assert Offset.model_validate(json.loads(json.dumps(offset.to_document()))) == offset


def test_an_offset_of_an_unknown_form_is_refused() -> None:
    """A field of a newer release must not be lost by reading and writing the offset."""
    with pytest.raises(ValidationError, match="Extra inputs"):
        Offset.model_validate({"seq": 1, "colour": "red"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Offset.model_validate({"snapshot": {"colour": "red"}})


@given(_snapshots, st.sets(st.sampled_from("abcd")))
def test_a_transition_leaves_the_committed_offset_alone(state: SnapshotState, names: set[str]) -> None:
    before = state.model_copy(deep=True)
    state.add_pending(dict.fromkeys(names, True), request=3, selects={"a": "SELECT 1"}, streamed=names)
    state.record_read(names, {"entry": 1})
    state.record_passed(names)
    state.remove_pending(names)
    state.rename_tables({name: name + "x" for name in names})
    state.without_requests()
    assert state == before


@given(_snapshots, st.booleans())
def test_a_table_that_is_wanted_whole_for_one_reason_is_read_whole(state: SnapshotState, held: bool) -> None:
    pending_state = state.add_pending({"a": held}, request=7, selects={"a": "SELECT 1"})
    before, after = state.pending.get("a"), pending_state.pending["a"]
    assert (after.select is None) == (before is not None and before.select is None)
    assert pending_state.add_pending({"a": held}).pending["a"].select is None


@given(_snapshots)
def test_a_table_that_is_due_is_read_when_its_request_has_failed(state: SnapshotState) -> None:
    left = state.without_requests().pending
    for name, table in state.pending.items():
        assert (name in left) == (table.request is None or table.due)
    assert all(table.request is None and table.select is None for table in left.values())


def test_a_table_is_due_when_a_statement_and_a_request_want_it() -> None:
    """Whichever comes first."""
    rewritten, pending_state = (
        SnapshotState().add_pending({"a": True}),
        SnapshotState().add_pending({"a": True}, request=7),
    )
    assert rewritten.add_pending({"a": True}, request=7).pending["a"].due
    assert pending_state.add_pending({"a": True}).pending["a"].due
    assert not pending_state.add_pending({"a": True}, request=8).pending["a"].due
    assert not rewritten.add_pending({"a": True}).pending["a"].due


def test_a_renamed_table_waits_under_its_new_name_and_is_read_whole() -> None:
    state = SnapshotState().add_pending({"a": False}, request=7, selects={"a": "SELECT 1"}, streamed=["a"])
    assert state.rename_tables({"a": "b", "x": "y"}).pending == {"b": PendingTable(held=True, request=7, streamed=True)}
