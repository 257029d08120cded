"""Counts the calls of a method, which does what it does."""

from __future__ import annotations

import threading
from collections.abc import Sized
from typing import Any

import pytest


class CallCounter:
    """
    >>> asked = CallCounter(monkeypatch, MemorySource, "current_position")

    :ivar calls: how many there were
    :ivar about: if the first argument is a collection, how much was in it, in all calls together
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        self.calls = self.about = 0
        method, lock = getattr(kind, name), threading.Lock()

        def count_and_call(self_: Any, *arguments: Any, **more: Any) -> Any:
            with lock:
                self.calls += 1
                if arguments and isinstance(arguments[0], Sized):
                    self.about += len(arguments[0])
            return method(self_, *arguments, **more)

        monkeypatch.setattr(kind, name, count_and_call)
