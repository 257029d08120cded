"""Waiting in tests: for as long as it takes on a busy machine, and no longer than there is hope."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST_S = 300.0
"""No wait of the tests that comes true on a quiet machine takes a hundredth of this. No one waits so long but where it never does."""


def wait_until(condition: Callable[[], T], what: str, *, every_s: float = 0.02) -> T:
    """Ask until the answer is true, and give it.

    >>> wait_until(lambda: "yes", "the answer is yes")
    'yes'

    :raises AssertionError: it never became true; names ``what`` was waited for
    """
    end = time.monotonic() + LONGEST_S
    while not (answer := condition()):
        assert time.monotonic() < end, f"not within {LONGEST_S:.0f} s: {what}"
        time.sleep(every_s)
    return answer
