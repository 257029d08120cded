"""Decides how many chunks share a window of an incremental snapshot, and with it the round trips that a window costs."""

from __future__ import annotations

from typing import Final

CHUNKS: Final = 16
"""Chunks of one window at most."""
ROWS: Final = 16_384
"""Rows of one window at most, if it holds several chunks."""
WINDOW_S: Final = 0.5
"""Seconds that reading the chunks of one window may take, if they are several: the stream writes them in one go."""
WAITING: Final = 0.1
"""Share of a window's time that may go into everything but reading rows: watermarks, catalog queries, round trips."""
_WEIGHT: Final = 0.25
"""Weight of the last window in the moving averages."""


class WindowSize:
    """Makes windows hold as many chunks as it takes for waiting to be a small share of their time.

    On a busy machine both waiting and reading take longer, and their ratio stays the same: its windows hold as many chunks as
    those of an idle one.

        >>> size = WindowSize()
        >>> for _ in range(8):
        ...     size.record_window(0.006, 0.002 * size.compute_chunk_count(1024), 1024 * size.compute_chunk_count(1024), 1024)
        >>> size.compute_chunk_count(1024)
        16
    """

    def __init__(self) -> None:
        self._chunks = 1
        self._waiting_s = self._chunk_s = 0.0

    def compute_chunk_count(self, limit: int) -> int:
        """Return how many chunks of ``limit`` rows the next window holds."""
        return max(min(self._chunks, ROWS // limit), 1)

    def record_window(self, waiting_s: float, reading_s: float, rows: int, limit: int) -> None:
        """Record that a window was read.

        :param waiting_s: seconds that everything else took
        :param reading_s: seconds that reading its rows took
        :param rows: number of its rows
        :param limit: rows of one chunk
        """
        if rows < limit:
            return  # the table's end, or wide rows: says nothing about a whole chunk
        weight = _WEIGHT if self._chunk_s else 1.0
        self._waiting_s += weight * (waiting_s - self._waiting_s)
        self._chunk_s += weight * (reading_s * limit / rows - self._chunk_s)
        chunk_s = max(self._chunk_s, 1e-6)
        chunks = min(self._waiting_s * (1 - WAITING) / (WAITING * chunk_s), WINDOW_S / chunk_s)
        self._chunks = max(min(round(chunks), 2 * self._chunks, CHUNKS), 1)
