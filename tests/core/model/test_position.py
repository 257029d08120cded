"""Positions of every source keep their order through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.sources.memory.position import MemoryPosition


@given(st.integers(0, 99), st.integers(0, 99))
def test_of_two_places_one_has_reached_the_other(a: int, b: int) -> None:
    one, other = MemoryPosition(a), MemoryPosition(b)
    assert isinstance(one, Position)
    assert one.has_reached(other) or other.has_reached(one)
    assert (one.has_reached(other) and other.has_reached(one)) == (one == other)
    parse: Callable[..., MemoryPosition] = MemoryPosition
    assert parse(**json.loads(json.dumps(one.to_json()))) == one
