"""Places in the redo log."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.oracle.position import OraclePosition, ThreadCommits


def test_a_position_is_the_same_after_json() -> None:
    position = OraclePosition(
        90, 100, {1: ThreadCommits(105, frozenset({"1.2.3", "4.5.6"})), 2: ThreadCommits(103)}, 7, 42
    )
    document = position.to_json()
    assert document == {
        "scn": "90", "read_scn": "100", "commit_scn": "105:1:1.2.3-4.5.6,103:2:", "resetlogs": "7", "dbid": 42,
    }  # fmt: skip
    assert OraclePosition.from_json(document) == position


@pytest.mark.parametrize(
    ("text", "commits"),
    [
        ("324567900:1:6.28.807", {1: ThreadCommits(324567900, frozenset({"6.28.807"}))}),
        ("10:1:a-b,12:2:c", {1: ThreadCommits(10, frozenset("ab")), 2: ThreadCommits(12, frozenset("c"))}),
        ("324567900", {1: ThreadCommits(324567900)}),
        ('324567897: "0x2832343233323:1"', {1: ThreadCommits(324567897, frozenset({"2832343233323"}))}),
    ],
)
def test_documented_offsets_are_read(text: str, commits: dict[int, ThreadCommits]) -> None:
    assert OraclePosition.from_json({"scn": "9", "commit_scn": text}).commits == commits


@pytest.mark.parametrize("document", [{}, {"scn": "x"}, {"scn": "1", "commit_scn": "y:1"}])
def test_other_offsets_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not a position in an Oracle redo log"):
        OraclePosition.from_json(document)


def test_commits_up_to_the_place_are_captured() -> None:
    position = OraclePosition(90, 100).advance_commits(105, 1, frozenset({"a"}))
    assert position.has_commit(100, 2, "x")
    assert not position.has_commit(101, 2, "x")
    assert position.has_commit(104, 1, "x")
    assert position.has_commit(105, 1, "a")
    assert not position.has_commit(105, 1, "b")
    both = position.advance_commits(105, 1, frozenset({"b"}))
    assert both.has_commit(105, 1, "a")
    assert both.has_commit(105, 1, "b")
    assert not both.has_commit(106, 1, "a")


def test_reading_on_forgets_what_is_behind() -> None:
    position = (
        OraclePosition(90, 100).advance_commits(105, 1, frozenset({"a"})).advance_commits(103, 2, frozenset({"b"}))
    )
    assert position.advance_read_scn(104).commits == {1: ThreadCommits(105, frozenset({"a"}))}
    assert position.advance_read_scn(104).read_scn == 104
    assert position.advance_read_scn(99).read_scn == 100


def test_which_of_two_places_is_further() -> None:
    here = OraclePosition(90, 100)
    assert here.has_reached(OraclePosition(95, 100))
    assert not here.has_reached(OraclePosition(80, 101))
    further = here.advance_commits(105, 1, frozenset({"a"}))
    assert further.has_reached(here)
    assert not here.has_reached(further)
    assert further.has_reached(further)
    assert OraclePosition(1, 105).has_reached(further)


def test_transaction_ids_of_debezium_are_those_of_here() -> None:
    """Debezium writes XIDs as bytes; the commit at which its offset ends is captured."""
    position = OraclePosition.from_json({"scn": "90", "commit_scn": "105:1:06001c0027030000-0600210028030000"})
    assert position.has_commit(105, 1, "6.28.807")
    assert position.has_commit(105, 1, "6.33.808")
    assert not position.has_commit(105, 1, "6.1.809")
