"""Turns: one applies at a time, the next one takes over at once, and one that has died is not waited for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports import apply_turns as module
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurn, ApplyTurns
from airflow_provider_cdc.core.errors import StorageFull, StorageUnavailable
from tests.support.counted import CallCounter
from tests.support.patience import LONGEST_S


@pytest.fixture
def turns(storage: Storage) -> ApplyTurns:
    return ApplyTurns(storage, "shop", "delta", "/lake/{table}")


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits are shorter, but that for one who shows no sign of life: on a busy machine no one shows one all the time."""
    for name, seconds in (("POLL_S", 0.02), ("BEAT_S", 0.05)):
        monkeypatch.setattr(module, name, seconds)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_one_begins_at_once_and_the_next_one_when_it_has_ended(turns: ApplyTurns, short_waits: None) -> None:
    went: list[str] = []

    def work_in_turn(name: str, turn: ApplyTurn) -> None:
        with turn:
            assert turn.wait_for_earlier_turns(lambda: bool(turn.successor))
            went.append(f"{name} begins")
            wait_until(lambda: turn.successor or name == "b")
            went.append(f"{name} ends")
            turn.set_report({"name": name})

    threads = []
    for name in "ab":
        threads.append(threading.Thread(target=work_in_turn, args=(name, turns.open_turn(name))))
        threads[-1].start()
        wait_until(lambda name=name: turns.find_turn(name))
        if name == "a":
            wait_until(lambda: went)
    for thread in threads:
        thread.join()
    assert went == ["a begins", "a ends", "b begins", "b ends"]
    found = [turns.find_turn(name) for name in "ab"]
    assert [(f["ended"], f["report"]) for f in found if f] == [(True, {"name": "a"}), (True, {"name": "b"})]


def test_one_that_waits_makes_room_too(turns: ApplyTurns, short_waits: None) -> None:
    with turns.open_turn("a") as first, turns.open_turn("b") as second:
        wait_until(lambda: first.successor == "b")
        with turns.open_turn("c") as third:
            wait_until(lambda: second.successor)
            assert not second.wait_for_earlier_turns(lambda: bool(second.successor))
            assert not third.wait_for_earlier_turns(lambda: True)
        assert first.successor


def test_who_shows_no_sign_of_life_is_not_waited_for(
    turns: ApplyTurns, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_S", 1.5)
    dead = turns.open_turn("dead")
    dead._show = lambda: None  # type: ignore[method-assign]
    dead._thread = threading.Thread(target=dead._show)
    dead.__enter__()
    with turns.open_turn("next") as turn:
        began = time.monotonic()
        assert turn.wait_for_earlier_turns(lambda: False)
        assert time.monotonic() - began >= 1
    assert "no sign of life" in (turns.find_turn("dead") or {})["error"]


def test_who_died_long_ago_is_watched_for_two_heartbeats_and_no_longer(turns: ApplyTurns, short_waits: None) -> None:
    turns.create_turn(1, {"owner": "dead", "at": time.time() - 60})
    with turns.open_turn("next") as turn:
        began = time.monotonic()
        assert turn.wait_for_earlier_turns(lambda: False)
        assert time.monotonic() - began < module.DEAD_S / 2


def test_one_whose_clock_differs_is_waited_for_as_long_as_it_lives(
    turns: ApplyTurns, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MISSED_BEATS", 80)  # which are four seconds: on a busy machine one may be late
    document = module._document
    monkeypatch.setattr(module, "_document", lambda owner: {**document(owner), "at": time.time() - 3600})
    with turns.open_turn("an hour behind") as behind, turns.open_turn("next") as turn:
        began = time.monotonic()
        assert not turn.wait_for_earlier_turns(lambda: time.monotonic() - began > 5)
        assert behind.successor == "next"


def test_a_disk_that_is_full_for_a_while_ends_no_heartbeat_and_hides_no_successor(
    turns: ApplyTurns, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, replace = threading.Event(), ApplyTurns.replace_turn

    def fail_sometimes(turns: ApplyTurns, number: int, document: dict[str, Any]) -> None:
        if full.is_set():
            refused.append(number)
            raise StorageFull("No space is left where the change log is written.")
        replace(turns, number, document)

    refused: list[int] = []
    monkeypatch.setattr(ApplyTurns, "replace_turn", fail_sometimes)
    with turns.open_turn("a") as turn:
        full.set()
        wait_until(lambda: refused)
        full.clear()
        at = (turns.find_turn("a") or {})["at"]
        wait_until(lambda: (turns.find_turn("a") or {})["at"] > at)
        with turns.open_turn("b"):
            wait_until(lambda: turn.successor == "b")
        full.set()
    assert not (turns.find_turn("a") or {})["ended"]  # the work of the turn is done, whatever its file says


def test_anyone_who_waits_looks_again_if_the_storage_does_not_answer(
    turns: ApplyTurns, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn before ends as soon as another one waits: if that one gave up, no apply would continue."""
    numbers, failures = ApplyTurns.list_numbers, [3]

    def fail_sometimes(turns: ApplyTurns) -> list[int]:
        if threading.current_thread() is threading.main_thread() and failures[0]:
            failures[0] -= 1
            raise StorageUnavailable("503 slow down")
        return numbers(turns)

    with turns.open_turn("a") as turn:
        monkeypatch.setattr(ApplyTurns, "list_numbers", fail_sometimes)
        assert turn.wait_for_earlier_turns(lambda: False)
        assert failures == [0]
        failures[0], _ = 10**9, monkeypatch.setattr(module, "PATIENCE_S", 0.1)
        with pytest.raises(StorageUnavailable, match="slow down"):
            turn.wait_for_earlier_turns(lambda: False)


def test_one_that_is_slow_and_alive_is_waited_for(
    turns: ApplyTurns, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_S", 4)
    with turns.open_turn("slow") as slow, turns.open_turn("next") as turn:
        began = time.monotonic()
        assert not turn.wait_for_earlier_turns(lambda: time.monotonic() - began > 5)
        assert slow.successor == "next"


def test_a_turn_can_be_ended_from_outside_by_its_owner_alone(turns: ApplyTurns, short_waits: None) -> None:
    assert not turns.stop_turn("a")
    with turns.open_turn("a") as turn:
        assert not turns.stop_turn("b")
        assert turns.stop_turn("a")
        wait_until(lambda: turn.successor)
    assert "nobody" in turn.successor
    assert not turns.passed_on("a")
    with turns.open_turn("b") as turn:
        assert turn.wait_for_earlier_turns(lambda: False)
        assert turns.passed_on("a")


def test_reports_of_the_last_owners_are_recorded(turns: ApplyTurns, short_waits: None) -> None:
    with turns.open_turn("a") as turn:
        assert (turns.has_ended("a"), turns.is_announced("a")) == (False, False)
        turn.set_report({})
    assert (turns.has_ended("a"), turns.is_announced("a")) == (True, False)
    for owner in ("a", "had no turn", "a"):
        turns.record_announcement(owner)
    assert turns.list_numbers() == [1]
    assert (turns.has_ended("had no turn"), turns.is_announced("had no turn"), turns.is_announced("b")) == (
        True,
        True,
        False,
    )
    for n in range(module._KEPT - 1):
        turns.record_announcement(str(n))
    assert [turns.is_announced(owner) for owner in ("had no turn", "a", "0")] == [False, True, True]
    turns._storage.replace(turns._announcements, b"{")
    assert not turns.is_announced("a")  # rather twice than never
    turns.record_announcement("a")
    assert turns.is_announced("a")


def test_whether_someone_is_at_work_is_known_before_a_turn_is_taken(turns: ApplyTurns, storage: Storage) -> None:
    assert not turns.has_live_turn()
    with turns.open_turn("a"):
        assert turns.has_live_turn()
    assert not turns.has_live_turn()
    turns.create_turn(2, {"owner": "dead", "at": time.time() - 3600, "ended": False, "report": None, "error": ""})
    assert not turns.has_live_turn()


def test_many_that_begin_at_once_have_different_numbers(turns: ApplyTurns, short_waits: None) -> None:
    found: list[int] = []
    barrier = threading.Barrier(6)

    def begin(name: str) -> None:
        turn = turns.open_turn(name)
        barrier.wait()
        with turn:
            found.append(turn.number)

    threads = [threading.Thread(target=begin, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 6


def test_how_the_last_ones_have_ended_stays_and_no_more(turns: ApplyTurns, short_waits: None) -> None:
    for n in range(module._KEPT + 5):
        with turns.open_turn(str(n)) as turn:
            turn.set_report({})
    assert len(turns.list_numbers()) == module._KEPT + 1
    assert turns.find_turn(str(module._KEPT + 4)) is not None


def test_an_error_is_in_the_file(turns: ApplyTurns) -> None:
    def fail() -> None:
        with turns.open_turn("a"):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert (turns.find_turn("a") or {})["error"] == "broken"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"at": "x"}', b"\xff"])
def test_a_file_that_makes_no_sense_is_no_turn(turns: ApplyTurns, storage: Storage, text: bytes) -> None:
    storage.replace(turns._path(7), text)
    with turns.open_turn("a") as turn:
        assert turn.number == 8
        assert turn.wait_for_earlier_turns(lambda: False)


def test_a_turn_lists_all_turns_with_its_heartbeat_only(turns: ApplyTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    looks, lists = CallCounter(monkeypatch, Storage, "exists"), CallCounter(monkeypatch, Storage, "list")
    with turns.open_turn("a"):
        before = lists.calls
        wait_until(lambda: looks.calls >= 20)
        assert lists.calls == before
