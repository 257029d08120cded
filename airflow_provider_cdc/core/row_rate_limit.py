"""A limit of the rows that snapshots read in a second, so that the source has time for its own work."""

from __future__ import annotations

import time
from collections.abc import Callable


class RowRateLimit:
    """Makes readers wait until rows that were read are paid for, at so many rows a second.

    Rows are counted after they were read, since a block's size is not known before. A pause in the reading earns nothing: afterwards, the rate is
    the same.

    :param rows_per_second: 0 = no limit
    :param now: returns the time in seconds

    >>> limit = RowRateLimit(1_000)
    >>> limit.record_rows(500)
    >>> limit.compute_pause()  # about half a second
    """

    def __init__(self, rows_per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rows_per_second, now
        self._due = 0.0

    def record_rows(self, rows: int) -> None:
        """Record that rows were read."""
        if self._rate:
            self._due = max(self._due, self._now()) + rows / self._rate

    def compute_pause(self) -> float:
        """Return the seconds until the next rows may be read; 0 if they may be read now."""
        return max(0.0, self._due - self._now()) if self._rate else 0.0
