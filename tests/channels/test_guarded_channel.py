"""Trouble of a channel stays with the channel."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_cdc.channels import guarded_channel
from airflow_provider_cdc.channels.guarded_channel import GuardedChannel
from airflow_provider_cdc.core.model.connector_signal import SentSignal

SIGNAL = SentSignal("1", "log", None, "mine", "o")


class _Channel:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.polls = 0

    def _next(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def poll(self) -> Any:
        self.polls += 1
        return self._next()

    def acknowledge(self, signals: Sequence[SentSignal]) -> None:
        self._next()

    def close(self) -> None:
        self._next()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(guarded_channel.time, "monotonic", lambda: now[0])
    return now


def test_a_channel_that_fails_is_asked_again_after_growing_pauses(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    channel = _Channel(*[OSError("gone")] * 4, [SIGNAL], OSError("gone"))
    guard = GuardedChannel("mine", channel)
    requests = []
    with caplog.at_level(logging.INFO):
        while not guard.poll():
            requests.append((clock[0] - 100, channel.polls))
            clock[0] += 0.5
    first = {polls: at for at, polls in reversed(requests)}
    assert first == {1: 0, 2: 1, 3: 3, 4: 7}
    assert [r.getMessage() for r in caplog.records] == [
        "The signal channel mine cannot be read for now; capture continues. OSError: gone",
        "The signal channel mine works again.",
    ]
    assert guard.poll() == []
    clock[0] += 1
    assert channel.polls == 6


def test_the_pause_does_not_grow_for_ever(clock: list[float]) -> None:
    channel = _Channel(*[OSError("gone")] * 50)
    guard = GuardedChannel("mine", channel)
    for _ in range(20):
        guard.poll()
        clock[0] += 10
    assert channel.polls == 20


def test_other_trouble_is_reported_at_once(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    guard = GuardedChannel(
        "mine", _Channel(OSError("gone"), OSError("gone"), ValueError("strange"), ValueError("strange"))
    )
    for _ in range(3):
        guard.poll()
        clock[0] += 10
    assert [r.getMessage().partition(". ")[2] for r in caplog.records] == ["OSError: gone", "ValueError: strange"]
    clock[0] += 600
    guard.poll()
    assert len(caplog.records) == 3


def test_a_channel_that_gives_something_else_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    for answer in (["text"], None, [None]):
        assert GuardedChannel("mine", _Channel(answer)).poll() == []
    assert "the channel returned a str instead of a SentSignal" in caplog.text
    assert len(caplog.records) == 3


def test_nothing_comes_out_of_acknowledging_and_closing(caplog: pytest.LogCaptureFixture) -> None:
    guard = GuardedChannel("mine", _Channel(OSError("a"), OSError("b")))
    guard.acknowledge([SIGNAL])
    guard.close()
    assert ["OSError: a" in caplog.text, "OSError: b" in caplog.text] == [True, True]
