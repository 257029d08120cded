"""Limits of calls from the API server to sources, change logs and targets: how long, how many, and how many of one system or user."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceBusy, SourceUnavailable
from airflow_provider_cdc.services.connectors import bounded_calls
from airflow_provider_cdc.services.connectors.bounded_calls import (
    CallPlaces,
    call_log_in_time,
    call_source_in_time,
    call_targets_in_time,
    set_caller,
)
from tests.support.patience import wait_until

AskAs = Callable[[str | None, str], str]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[AskAs]:
    """Ask a source that never answers, as a user. The source is a stand-in: it waits for the end of the test."""
    ends, places = threading.Event(), CallPlaces("source", most=6, most_of_system=3, most_of_caller=4)
    monkeypatch.setattr(bounded_calls, "_sources", places)

    def ask(user: str | None, conn_id: str) -> str:
        def run() -> str:
            if user is not None:
                set_caller(user)
            try:
                call_source_in_time(0.05, conn_id, lambda: ends.wait(60), name="The source")
            except SourceBusy as e:
                return e.message
            except SourceUnavailable:
                return "no answer"
            return "answered"

        return contextvars.Context().run(run)

    yield ask
    ends.set()
    wait_until(lambda: not places._calls, "no call waits")


def test_no_system_takes_all_places(hanging: AskAs) -> None:
    assert [hanging(f"user {i}", "tarpit") for i in range(3)] == ["no answer"] * 3
    assert hanging("ann", "tarpit") == "3 checks of this source are already waiting for answers."
    assert hanging("ann", "other") == "no answer"


def test_no_user_takes_all_places(hanging: AskAs) -> None:
    assert [hanging("ann", f"tarpit {i}") for i in range(4)] == ["no answer"] * 4
    assert hanging("ann", "other") == "4 of your checks of sources are already waiting for answers."
    assert hanging("bob", "other") == "no answer"
    assert hanging(None, "one more") == "no answer"  # a command has no user, and shares the places of the process
    assert hanging("cid", "the last") == "6 checks of sources are already waiting for answers."


def test_a_call_that_never_ends_takes_a_place_of_its_own_system_only(
    hanging: AskAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(6):
        hanging(f"user {i % 2}", f"tarpit {i // 3}")
    assert "6 checks" in hanging("bob", "other")
    monkeypatch.setattr(bounded_calls, "_HUNG_S", 0)
    assert hanging("bob", "other") == "no answer"
    assert "3 checks of this source" in hanging("bob", "tarpit 1")


@pytest.mark.parametrize("bound", [call_log_in_time, call_targets_in_time])
def test_each_kind_of_system_has_places_of_its_own(hanging: AskAs, bound: Any) -> None:
    for i in range(6):
        hanging(f"user {i % 2}", f"tarpit {i // 3}")
    assert bound(5, "tarpit 0", lambda: 1) == 1


def test_an_answer_or_an_error_returns_the_place() -> None:
    for _ in range(20):
        assert call_source_in_time(5, "shop", lambda: 1, name="The source") == 1
        with pytest.raises(ZeroDivisionError):
            call_source_in_time(5, "shop", lambda: 1 / 0, name="The source")


def test_a_call_that_gets_no_thread_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        for _ in range(20):
            with pytest.raises(RuntimeError, match="thread"):
                call_source_in_time(1, "shop", lambda: 1, name="The source")
    assert call_source_in_time(5, "shop", lambda: 1, name="The source") == 1
