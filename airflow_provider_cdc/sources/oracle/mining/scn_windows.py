"""Chooses the window of SCNs to mine next, and the pause between windows.

By default the size of the window adapts: it grows until a window takes some seconds, and shrinks when a window has very many rows. With
``log.mining.batch.size.*`` it follows the documented rule: the size grows and shrinks in steps of the minimum. In both cases a jump of
the SCN is mined in one window (Debezium Oracle connector, "SCN gap detection"), and ``log.mining.log.count.min`` is respected. Pauses
follow ``log.mining.sleep.time.*``; if these are not set, there is no pause while the stream lags.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.stream_counters import WindowCounters

log = logging.getLogger(__name__)

AIM_SECONDS: Final = 5.0
AIM_ROWS: Final = 500_000
OVERHEAD_FACTOR: Final = 4
"""A window should take at least this many times as long as LogMiner needs until its first row, since that time is paid per window."""
MOST_GROWTH: Final = 4.0
SMALLEST: Final = 100
LARGEST: Final = 10**12

_SIZES = ("log_mining_batch_size_min", "log_mining_batch_size_max", "log_mining_batch_size_default")
_SLEEPS = tuple(f"log_mining_sleep_time_{part}_ms" for part in ("min", "max", "default", "increment"))


@dataclass(frozen=True, slots=True)
class ScnWindow:
    """A range of SCNs: those after ``start`` (``start`` included in the first window of a stream) up to and including ``end``.

    :param gap: it covers a jump of the SCN
    """

    start: int
    end: int
    gap: bool = False

    @property
    def is_empty(self) -> bool:
        return self.end <= self.start


class WindowPlanner:
    """Chooses the windows of one stream.

    ::

        window = windows.choose_window(start, current_scn, time_of=session.scn_time, log_ends=session.log_ends)
        ... mine it ...
        windows.adapt_window_size(rows, seconds, session.start_seconds)
        sleep(windows.pause_seconds)

    :ivar size: greatest number of SCNs of the next window
    :ivar documented: sizes follow ``log.mining.batch.size.*``
    """

    def __init__(self, config: OracleConfig, counters: WindowCounters | None = None) -> None:
        self._config = config
        self.documented = bool(config.model_fields_set & set(_SIZES))
        self.size = config.log_mining_batch_size_default
        self._documented_sleep = bool(config.model_fields_set & set(_SLEEPS))
        self._sleep_ms = config.log_mining_sleep_time_default_ms
        self._last: ScnWindow | None = None
        self._caught_up = False
        self._empty = False
        self.counters = counters or WindowCounters()

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next window."""
        only_archived = self._config.log_mining_archive_log_only_mode
        if only_archived and self._empty:
            return self._config.log_mining_archive_log_only_scn_poll_interval_ms / 1000
        return self._sleep_ms / 1000

    @property
    def caught_up(self) -> bool:
        """Check whether the last window ended at the database's current SCN."""
        return self._caught_up

    def choose_window(
        self,
        start: int,
        current: int,
        *,
        time_of: Callable[[int], datetime.datetime | None] | None = None,
        log_ends: Callable[[int], Sequence[int]] | None = None,
    ) -> ScnWindow:
        """Choose the window that begins at ``start``.

        :param start: end of the last window, or start of the stream
        :param current: the last SCN that can be mined now
        :param time_of: SCN → its time; ``None`` if the database does not know it any more
        :param log_ends: SCN → the last SCNs of the completed logs after it, ascending
        """
        self.counters.steps += 1
        if current <= start:
            return self._ended(ScnWindow(start, start), behind=False, shrunk=False)
        shrunk = self._resize(start, current) if self.documented else False
        end = min(start + self.size, current)
        count = self._config.log_mining_log_count_min
        if count and log_ends and end < current:
            ends = log_ends(start)
            end = max(end, min(ends[count - 1], current) if len(ends) >= count else current)
        if self.documented and self._last is not None and end <= self._last.end:
            end = current
        gap = end < current and self._is_gap(current, time_of)
        if gap:
            self.counters.gaps += 1
            log.info("The SCN jumped from %d to %d; the gap is mined in one step.", start, current)
            end = current
        return self._ended(ScnWindow(start, end, gap), behind=end < current, shrunk=shrunk)

    def adapt_window_size(self, rows: int, seconds: float, begin_seconds: float = 0.0) -> None:
        """Adapt the size to how long the last window took.

        :param rows: number of rows that LogMiner returned
        :param seconds: from opening the session to the last row
        :param begin_seconds: of these, until the first row
        """
        if self.documented or self._last is None or self._last.gap or self._last.is_empty:
            return
        aim = max(AIM_SECONDS, OVERHEAD_FACTOR * begin_seconds)
        factor = min(aim / max(seconds, 1e-3), AIM_ROWS / max(rows, 1))
        whole = self._last.end - self._last.start >= self.size
        if factor < 1 or whole:  # a window that was limited by the current SCN says nothing about larger ones
            factor = min(max(factor, 1 / MOST_GROWTH), MOST_GROWTH)
            base = self._last.end - self._last.start if factor < 1 else self.size
            self.size = min(max(int(base * factor), SMALLEST), LARGEST)

    def _resize(self, start: int, current: int) -> bool:
        """Change the size by the documented rule; returns whether it shrank."""
        config = self._config
        top, step = start + self.size, config.log_mining_batch_size_min
        if top - current > config.log_mining_batch_size_default and self.size > config.log_mining_batch_size_min:
            self.size = max(self.size - step, config.log_mining_batch_size_min)
            return True
        if current - top > config.log_mining_batch_size_default:
            self.size = min(self.size + step, config.log_mining_batch_size_max)
        return False

    def _is_gap(self, current: int, time_of: Callable[[int], datetime.datetime | None] | None) -> bool:
        config = self._config
        if self._last is None or time_of is None:
            return False
        if current - self._last.end <= config.log_mining_scn_gap_detection_gap_size_min:
            return False
        before, now = time_of(self._last.end), time_of(current)
        if before is None or now is None:
            return False
        most = datetime.timedelta(milliseconds=config.log_mining_scn_gap_detection_time_interval_max_ms)
        return now - before < most

    def _ended(self, window: ScnWindow, *, behind: bool, shrunk: bool) -> ScnWindow:
        config = self._config
        step = config.log_mining_sleep_time_increment_ms
        if behind:
            shorter = self._sleep_ms - step if self._documented_sleep else 0
            self._sleep_ms = max(shorter, config.log_mining_sleep_time_min_ms)
        elif not shrunk:
            self._sleep_ms = min(self._sleep_ms + step, config.log_mining_sleep_time_max_ms)
        self._caught_up = not behind
        self._empty = window.is_empty
        self.counters.empty += window.is_empty
        self._last = window
        return window
