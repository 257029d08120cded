"""Items that a thread makes while the caller works on earlier ones."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from airflow_provider_cdc.core import read_ahead as read_ahead_module
from airflow_provider_cdc.core.read_ahead import map_ahead, read_ahead
from tests.support.patience import LONGEST_S


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "cdc-read-ahead"]


def test_the_next_item_is_made_while_the_caller_works_on_one() -> None:
    second = threading.Event()

    def yield_items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with read_ahead(yield_items()) as items:
        assert next(items) == 1
        assert second.wait(LONGEST_S)
        assert list(items) == [2]
    assert not _threads()


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def yield_and_fail() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    found = list[int]()
    with pytest.raises(ValueError, match="two"), read_ahead(yield_and_fail()) as items:
        found.extend(items)
    assert (found, _threads()) == ([1], [])


def test_leaving_early_ends_the_thread_and_makes_no_more_items() -> None:
    made = list[int]()

    def many() -> Iterator[int]:
        for number in range(10**9):
            made.append(number)
            yield number

    with read_ahead(many()) as items:
        assert next(items) == 0
    assert (len(made) <= 3, _threads()) == (True, [])


def test_leaving_early_cancels_the_call_that_the_thread_waits_for() -> None:
    cancelled = threading.Event()

    def waiting() -> Iterator[int]:
        yield 1
        assert cancelled.wait(LONGEST_S)
        raise OSError("cancelled")

    with read_ahead(waiting(), cancelled.set) as items:
        assert next(items) == 1
    assert (cancelled.is_set(), _threads()) == (True, [])


@pytest.mark.parametrize("error", [None, ValueError("two")], ids=["end", "error"])
def test_nothing_is_cancelled_after_the_last_item(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """The thread may be alive for a moment after it has handed over the last item; a cancel then would end the caller's next call."""

    class SlowToEnd(threading.Thread):
        def run(self) -> None:
            super().run()
            time.sleep(0.2)

    monkeypatch.setattr(threading, "Thread", SlowToEnd)
    cancels = list[int]()

    def yield_items() -> Iterator[int]:
        yield 1
        if error is not None:
            raise error

    expected = contextlib.nullcontext() if error is None else pytest.raises(ValueError, match="two")
    with expected, read_ahead(yield_items(), lambda: cancels.append(1)) as items:
        list(items)
    assert (cancels, _threads()) == ([], [])


def test_a_call_that_begins_after_the_cancel_is_cancelled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead_module, "_CANCEL_S", 0.05)
    leaving, cancelled = threading.Event(), threading.Event()
    cancels = list[int]()

    def cancel() -> None:
        cancels.append(1)
        if len(cancels) == 1:
            leaving.set()  # the thread is between two calls: this cancel ends none
        else:
            cancelled.set()

    def yield_and_wait() -> Iterator[int]:
        yield 1
        assert leaving.wait(LONGEST_S)
        assert cancelled.wait(LONGEST_S)

    with read_ahead(yield_and_wait(), cancel) as items:
        assert next(items) == 1
    assert (len(cancels) >= 2, _threads()) == (True, [])


def test_a_thread_that_has_ended_is_not_cancelled() -> None:
    cancelled = threading.Event()
    with read_ahead(iter([1]), cancelled.set) as items:
        assert list(items) == [1]
        for thread in _threads():
            thread.join(LONGEST_S)
    assert not cancelled.is_set()


def _map_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("cdc-map-ahead")]


def test_results_come_in_the_order_of_their_items() -> None:
    def work(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number

    assert list(map_ahead(work, range(50))) == list(range(50))
    assert not _map_threads()


def test_many_items_are_worked_on_at_once_and_no_more_than_allowed() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work(number: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return number

    assert list(map_ahead(work, range(60), most=8)) == list(range(60))
    assert most == 8


@pytest.mark.parametrize("taken", [1, 2, 5, 40])
def test_no_more_is_done_for_nothing_than_for_something(taken: int) -> None:
    done = list[int]()

    def work(number: int) -> int:
        done.append(number)
        return number

    results = map_ahead(work, range(10**6))
    for _ in range(taken):
        next(results)
    results.close()
    assert len(done) <= 3 * taken
    assert len(done) <= taken + 16
    assert not _map_threads()


def test_one_item_takes_no_thread() -> None:
    names = set[str]()
    assert list(map_ahead(lambda _: names.add(threading.current_thread().name), [1])) == [None]
    assert names == {threading.current_thread().name}


def test_an_error_of_later_work_waits_for_its_turn() -> None:
    def work(number: int) -> int:
        if number == 4:
            raise ValueError("four")
        return number

    results = map_ahead(work, range(9))
    assert list(itertools.islice(results, 4)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="four"):
        next(results)
    assert not _map_threads()
