"""Turns: one applies at a time, the next one takes over at once, and one that has died is not waited for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from airflow_provider_cdc.changelog import turns as module
from airflow_provider_cdc.changelog.storage import Storage
from airflow_provider_cdc.changelog.turns import Turn, Turns
from tests.support.patience import LONGEST_S


@pytest.fixture
def turns(storage: Storage) -> Turns:
    return Turns(storage, "shop", "delta", "/lake/{table}")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits are shorter."""
    for name, seconds in (("LOOK_S", 0.02), ("BEAT_S", 0.05), ("DEAD_S", 1.5)):
        monkeypatch.setattr(module, name, seconds)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_one_begins_at_once_and_the_next_one_when_it_has_ended(turns: Turns, hurried: None) -> None:
    went: list[str] = []

    def work(name: str, turn: Turn) -> None:
        with turn:
            assert turn.wait(lambda: bool(turn.successor))
            went.append(f"{name} begins")
            until(lambda: turn.successor or name == "b")
            went.append(f"{name} ends")
            turn.done({"name": name})

    threads = []
    for name in "ab":
        threads.append(threading.Thread(target=work, args=(name, turns.take(name))))
        threads[-1].start()
        until(lambda name=name: turns.find(name))
        if name == "a":
            until(lambda: went)
    for thread in threads:
        thread.join()
    assert went == ["a begins", "a ends", "b begins", "b ends"]
    found = [turns.find(name) for name in "ab"]
    assert [(f["ended"], f["report"]) for f in found if f] == [(True, {"name": "a"}), (True, {"name": "b"})]


def test_one_that_waits_makes_room_too(turns: Turns, hurried: None) -> None:
    with turns.take("a") as first, turns.take("b") as second:
        until(lambda: first.successor == "b")
        with turns.take("c") as third:
            until(lambda: second.successor)
            assert not second.wait(lambda: bool(second.successor))
            assert not third.wait(lambda: True)
        assert first.successor


def test_who_shows_no_sign_of_life_is_not_waited_for(turns: Turns, hurried: None) -> None:
    dead = turns.take("dead")
    dead._show = lambda: None  # type: ignore[method-assign]
    dead._thread = threading.Thread(target=dead._show)
    dead.__enter__()
    with turns.take("next") as turn:
        began = time.monotonic()
        assert turn.wait(lambda: False)
        assert time.monotonic() - began >= 1
    assert "no sign of life" in (turns.find("dead") or {})["error"]


def test_who_died_long_ago_is_not_waited_for_at_all(turns: Turns) -> None:
    turns.create(1, {"owner": "dead", "at": time.time() - 60})
    with turns.take("next") as turn:
        began = time.monotonic()
        assert turn.wait(lambda: False)
        assert time.monotonic() - began < module.DEAD_S / 2


def test_one_that_is_slow_and_alive_is_waited_for(turns: Turns, hurried: None) -> None:
    with turns.take("slow") as slow, turns.take("next") as turn:
        began = time.monotonic()
        assert not turn.wait(lambda: time.monotonic() - began > 3)
        assert slow.successor == "next"


def test_a_turn_can_be_ended_from_outside_by_its_owner_alone(turns: Turns, hurried: None) -> None:
    assert not turns.stop("a")
    with turns.take("a") as turn:
        assert not turns.stop("b")
        assert turns.stop("a")
        until(lambda: turn.successor)
    assert "nobody" in turn.successor
    with turns.take("b") as turn:
        assert turn.wait(lambda: False)


def test_whether_somebody_is_at_work_is_known_before_a_turn_is_taken(turns: Turns, storage: Storage) -> None:
    assert not turns.busy()
    with turns.take("a"):
        assert turns.busy()
    assert not turns.busy()
    turns.create(2, {"owner": "dead", "at": time.time() - 3600, "ended": False, "report": None, "error": ""})
    assert not turns.busy()


def test_many_that_begin_at_once_have_different_numbers(turns: Turns, hurried: None) -> None:
    found: list[int] = []
    barrier = threading.Barrier(6)

    def begin(name: str) -> None:
        turn = turns.take(name)
        barrier.wait()
        with turn:
            found.append(turn.number)

    threads = [threading.Thread(target=begin, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 6


def test_how_the_last_ones_have_ended_stays_and_no_more(turns: Turns, hurried: None) -> None:
    for n in range(module._KEPT + 5):
        with turns.take(str(n)) as turn:
            turn.done({})
    assert len(turns.numbers()) == module._KEPT + 1
    assert turns.find(str(module._KEPT + 4)) is not None


def test_an_error_is_in_the_file(turns: Turns) -> None:
    def fail() -> None:
        with turns.take("a"):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert (turns.find("a") or {})["error"] == "broken"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"at": "x"}', b"\xff"])
def test_a_file_that_makes_no_sense_is_no_turn(turns: Turns, storage: Storage, text: bytes) -> None:
    storage.replace(turns._path(7), text)
    with turns.take("a") as turn:
        assert turn.number == 8
        assert turn.wait(lambda: False)
