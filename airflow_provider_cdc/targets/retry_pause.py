"""Decides the time at which a failed table is retried, by runs that continue with the others."""

from __future__ import annotations

import dataclasses
import time

SHORTEST_S, LONGEST_S = 1.0, 300.0
"""Pauses before a table that has failed is tried again: each is twice as long as the one before."""
AWAY_S = 30.0
"""The longest pause after an error that may pass by itself: a target that is back is up to date within a minute."""


@dataclasses.dataclass(slots=True)
class RetryPause:
    """The time at which a failed table is retried.

    :param pause: in seconds
    :param due: on the monotonic clock
    """

    pause: float = dataclasses.field(default_factory=lambda: SHORTEST_S)
    due: float = dataclasses.field(default_factory=lambda: time.monotonic() + SHORTEST_S)

    def extend_pause(self, *, needs_person: bool = True) -> RetryPause:
        """Return the next pause.

        :param needs_person: the same error comes again until a person has repaired its cause
        """
        pause = min(self.pause * 2, LONGEST_S if needs_person else AWAY_S)
        return RetryPause(pause, time.monotonic() + pause)
