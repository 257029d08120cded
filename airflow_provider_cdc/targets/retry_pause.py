"""Decides the time at which a failed table is retried, by runs that continue with the others."""

from __future__ import annotations

import dataclasses
import time

SHORTEST_S, LONGEST_S = 1.0, 300.0
"""Pauses before a table that has failed is tried again: each is twice as long as the one before."""


@dataclasses.dataclass(slots=True)
class RetryPause:
    """The time at which a failed table is retried.

    :param pause: in seconds
    :param due: on the monotonic clock
    """

    pause: float = dataclasses.field(default_factory=lambda: SHORTEST_S)
    due: float = dataclasses.field(default_factory=lambda: time.monotonic() + SHORTEST_S)

    def extend_pause(self) -> RetryPause:
        pause = min(self.pause * 2, LONGEST_S)
        return RetryPause(pause, time.monotonic() + pause)
