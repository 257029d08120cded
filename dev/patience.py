"""Waiting for something for as long as there is progress, however slow the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SLOW_S = 30.0
"""After so long without a sign of progress, a message says what is waited for."""


class NoProgress(AssertionError):
    """An error: the awaited event has not come, and nothing has moved for too long."""


def wait_while_moving(
    condition: Callable[[], T],
    awaited: str,
    *,
    signs: Callable[[], object],
    quiet_s: float,
    report: Callable[[str], None] = lambda text: None,
    every_s: float = 0.3,
) -> T:
    """Ask until the answer is true, and give it; give up when nothing moves any more.

    >>> wait_while_moving(lambda: "there", "it is there", signs=lambda: 0, quiet_s=1)
    'there'

    :param signs: what is different whenever there was progress, such as the sizes of log files
    :param quiet_s: seconds without progress after which there is no hope; on a machine with more work than cores, as many times longer
    :param report: is called with the step that is slow, once a wait is long
    :raises NoProgress: names what was waited for, for how long, and how busy the machine is
    """
    began = moved = time.monotonic()
    seen = signs()
    while not (answer := condition()):
        now = time.monotonic()
        if (found := signs()) != seen:
            seen, moved = found, now
        quiet, busy = now - moved, overload()
        if quiet > quiet_s * busy:
            raise NoProgress(
                f"Waited {now - began:.0f} s until {awaited}; nothing has moved for the last {quiet:.0f} s "
                f"(machine: {busy:.1f} times as much work as it has cores for)."
            )
        if quiet > SLOW_S:
            report(f"waiting until {awaited}, nothing has moved for {quiet:.0f} s{machine()}")
        time.sleep(every_s)
    return answer


def overload() -> float:
    """Return the number of processes that want each core, by the mean of the last minute; 1 if cores are free."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def machine() -> str:
    """Return why the machine is slow, if it is: the text is appended to messages."""
    busy = overload()
    return f"; this machine has {busy:.1f} times the work that it has cores for" if busy > 1.5 else ""


def sizes(folders: Iterable[Path]) -> tuple[int, int]:
    """Number and bytes of all files below some folders: a sign of progress of the process that writes there."""
    number = size = 0
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                if path.is_file():
                    number, size = number + 1, size + path.stat().st_size
            except OSError:  # it has just been removed
                continue
    return number, size
