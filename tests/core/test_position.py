"""Offsets as they are stored; positions of every source keep their order through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_cdc.core.position import Offset, Position, SnapshotState
from airflow_provider_cdc.sources.memory.position import MemoryPosition

_place = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
_offsets = st.builds(
    Offset,
    position=st.none() | _place,
    seq=st.integers(0, 2**62),
    batch=st.integers(0, 2**40),
    snapshot=st.builds(
        SnapshotState,
        pending=st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
        tables=st.dictionaries(st.text(max_size=3), _place, max_size=3),
    ),
    tables_filter=st.text(max_size=5),
)


@given(_offsets)
def test_an_offset_means_the_same_after_its_way_through_json(offset: Offset) -> None:
    assert Offset.model_validate(json.loads(json.dumps(offset.document()))) == offset


def test_a_scan_of_an_older_release_is_read_in_chunks_of_the_connectors_size() -> None:
    stored = {"incremental": {"scans": [{"table": "s.a", "request": 7, "after": [3], "upto": [9], "rows": 3}]}}
    found = Offset.model_validate(stored)
    assert found.incremental.scans[0].chunk_rows is None
    assert found.document() == stored


def test_an_offset_of_an_unknown_form_is_refused() -> None:
    """A field of a newer release must not be lost by reading and writing the offset."""
    with pytest.raises(ValidationError, match="Extra inputs"):
        Offset.model_validate({"seq": 1, "colour": "red"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Offset.model_validate({"snapshot": {"colour": "red"}})


def test_changing_a_copy_leaves_the_committed_offset_alone() -> None:
    committed = Offset(snapshot=SnapshotState(pending={"s.a": False}))
    state = committed.snapshot.model_copy(update={"pending": committed.snapshot.pending | {"s.b": True}})
    changed = committed.model_copy(update={"snapshot": state})
    assert committed.snapshot.pending == {"s.a": False}
    assert changed.snapshot.pending == {"s.a": False, "s.b": True}


@given(st.integers(0, 99), st.integers(0, 99))
def test_of_two_places_one_has_reached_the_other(a: int, b: int) -> None:
    one, other = MemoryPosition(a), MemoryPosition(b)
    assert isinstance(one, Position)
    assert one.reached(other) or other.reached(one)
    assert (one.reached(other) and other.reached(one)) == (one == other)
    parse: Callable[..., MemoryPosition] = MemoryPosition
    assert parse(**json.loads(json.dumps(one.to_json()))) == one
