"""Positions of PostgreSQL: LSNs as it writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, format_lsn, parse_lsn

LSNS = st.integers(0, (1 << 64) - 1)
POSITIONS = st.builds(
    PostgresPosition, LSNS, st.sampled_from(["", "7123456789012345678", "7"]), st.integers(0, (1 << 32) - 1)
)


@given(LSNS)
def test_an_lsn_is_read_as_it_is_written(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == parse_lsn(format_lsn(lsn).lower()) == lsn


@pytest.mark.parametrize("text", ["", "16", "16/", "/B3", "1/123456789", "123456789/1", "G/1", "1/1/1", "-1/1"])
def test_other_texts_are_no_lsn(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)


@given(POSITIONS)
def test_a_position_is_read_as_it_is_written(position: PostgresPosition) -> None:
    assert PostgresPosition.from_json(position.to_json()) == position


@given(POSITIONS, POSITIONS)
def test_positions_of_one_cluster_are_ordered_by_their_lsns_and_others_not_at_all(
    one: PostgresPosition, other: PostgresPosition
) -> None:
    comparable = not (one.system and other.system) or one.system == other.system
    assert one.has_reached(other) == (comparable and one.lsn >= other.lsn)
    assert one.has_reached(one)


@pytest.mark.parametrize(
    "document",
    [
        {}, {"lsn": 7}, {"lsn": "x"}, {"lsn": "0/1", "system": 7}, {"lsn": "0/1", "timeline": "1"}, {"lsn": "0/1", "timeline": True},
        {"lsn": "0/1", "timeline": -1}, {"lsn": "0/1", "file": "x"},
    ],
)  # fmt: skip
def test_other_documents_are_no_position(document: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        PostgresPosition.from_json(document)
