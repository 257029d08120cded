"""Positions in what the capture agent has published."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.db2.position import (
    NOTE_INTERVAL_US,
    Db2Position,
    lsn_bytes,
    lsn_text,
    previous_lsn,
    resized_lsn,
)

LSN = bytes.fromhex("0000002500000d080025")


def test_a_position_is_the_same_after_json() -> None:
    position = Db2Position(
        LSN, published_us=7, seen_us=6, mark=8, acknowledged={"SHOP.ORDERS": LSN + b"\1"}, created_us={"SHOP.ORDERS": 3}
    )
    document = position.to_json()
    assert document == {
        "commit_lsn": "00000025:00000d08:0025", "published_us": 7, "seen_us": 6, "mark": 8, "acknowledged": {"SHOP.ORDERS": "00000025:00000d08:002501"},
        "created_us": {"SHOP.ORDERS": 3},
    }  # fmt: skip
    assert Db2Position.from_json(document) == position
    assert Db2Position.from_json(Db2Position(LSN, awaits=9).to_json()) == Db2Position(LSN, awaits=9)


def test_an_lsn_is_resized_to_the_length_of_the_databases_lsns() -> None:
    assert resized_lsn(LSN, bytes(16)) == LSN + bytes(6)
    assert resized_lsn(LSN + bytes(6), LSN) == LSN
    assert resized_lsn(b"", LSN) == bytes(10), "before every LSN"
    assert resized_lsn(b"", b"") == bytes(16)
    assert resized_lsn(LSN + b"\1", LSN) == LSN + b"\1", "only zero bytes are cut off"


def test_a_position_notes_once_an_hour_that_nothing_was_published_after_it() -> None:
    position = Db2Position(LSN, published_us=1_000)
    assert position.seen_at(1_000 + NOTE_INTERVAL_US - 1) == position
    noted = position.seen_at(1_000 + NOTE_INTERVAL_US)
    assert (noted.seen_us, noted.newer_than_us) == (1_000 + NOTE_INTERVAL_US, 1_000 + NOTE_INTERVAL_US)
    assert noted.seen_at(noted.seen_us + 1) == noted
    end = Db2Position(LSN, seen_us=1_000 + NOTE_INTERVAL_US)
    assert not position.has_reached(end), "a run looks once, and notes the look"
    assert noted.has_reached(end)
    assert Db2Position(LSN + b"\1").has_reached(end)


def test_a_change_table_made_at_another_time_is_another_change_table() -> None:
    position = Db2Position(LSN, created_us={"SHOP.ORDERS": 3})
    assert [position.is_another(*one) for one in (("SHOP.ORDERS", 3), ("SHOP.ORDERS", 4), ("SHOP.PARTS", 4))] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("lsn", ["", "00", "00000025", "00000025:00000d08:0025", "00000000:00000000:0000000000010a02"])
def test_the_text_of_an_lsn(lsn: str) -> None:
    assert lsn_text(lsn_bytes(lsn)) == lsn


@pytest.mark.parametrize(
    ("document", "lsn"),
    [
        ({"commit_lsn": "00000025:00000d08:0025", "change_lsn": None, "event_serial_no": None}, LSN),
        ({"commit_lsn": "00000025:00000d08:0025", "change_lsn": "NULL"}, LSN),
        # the offset may be within the transaction, which is then captured again
        ({"commit_lsn": "00000025:00000d08:0025", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}, previous_lsn(LSN)),
        ({"commit_lsn": "NULL"}, b""),
    ],
)  # fmt: skip
def test_documented_offsets_are_read(document: dict[str, Any], lsn: bytes) -> None:
    assert Db2Position.from_json(document).commit_lsn == lsn


@pytest.mark.parametrize(
    "document", [{}, {"commit_lsn": "x"}, {"commit_lsn": "123"}, {"commit_lsn": "00", "published_us": "x"}]
)
def test_other_offsets_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not a position in the changes of a Db2 database"):
        Db2Position.from_json(document)


def test_the_lsn_before_another_one() -> None:
    assert previous_lsn(b"\x01\x00") == b"\x00\xff"
    assert previous_lsn(b"\x00\x00") == b""


def test_a_reader_has_reached_an_lsn() -> None:
    here = Db2Position(LSN)
    assert here.has_reached(here)
    assert here.has_reached(Db2Position(b""))
    assert not Db2Position(b"").has_reached(here)
    assert here.has_reached(Db2Position(previous_lsn(LSN), published_us=10**18))


def test_lsns_of_different_lengths_are_compared_as_if_zero_bytes_followed() -> None:
    assert Db2Position(b"\x01").has_reached(Db2Position(b"\x01\x00\x00"))
    assert not Db2Position(b"\x01").has_reached(Db2Position(b"\x01\x00\x01"))
    assert Db2Position(b"\x02").has_reached(Db2Position(b"\x01\xff\xff"))


def test_the_end_of_the_log_is_reached_with_its_mark_and_never_by_a_clock() -> None:
    end = Db2Position(LSN, awaits=100)
    assert not Db2Position(LSN, published_us=10**18, mark=99).has_reached(end)
    assert Db2Position(LSN, mark=100).has_reached(end)
    assert not Db2Position(previous_lsn(LSN), mark=101).has_reached(end)
    assert end.has_reached(Db2Position(LSN, awaits=99))
    assert not end.has_reached(Db2Position(LSN, awaits=101))


def test_reading_on_never_goes_back_and_forgets_what_is_behind() -> None:
    position = Db2Position(LSN, 5, acknowledged={"A": LSN + b"\1", "B": LSN + b"\3"})
    assert position.advance_commit(previous_lsn(LSN), 3) == position
    on = position.advance_commit(LSN + b"\2", 9, 7)
    assert (on.commit_lsn, on.published_us, on.mark, on.acknowledged) == (LSN + b"\2", 9, 7, {"B": LSN + b"\3"})
    assert on.advance_commit(on.commit_lsn, 8, 6) == on


def test_what_people_see() -> None:
    assert str(Db2Position(LSN, 5)) == "LSN 00000025:00000d08:0025"
    assert str(Db2Position(b"")) == "the start of the log"
