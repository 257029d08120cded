"""How far to mine at a time, and how long to wait in between.

Without settings the window tunes itself: it grows until a step takes some seconds, and shrinks when a step has very many rows. With
``log.mining.batch.size.*`` it follows the documented rule: sizes in SCNs that change by the smallest one. In both cases a jump of the
SCN is mined in one step (Debezium Oracle connector, "SCN gap detection"), and ``log.mining.log.count.min`` is respected. Pauses are the
documented ones; unless they are set, there is none while the stream is behind.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.metrics import WindowCounters

log = logging.getLogger(__name__)

AIM_SECONDS: Final = 5.0
AIM_ROWS: Final = 500_000
OVERHEAD_FACTOR: Final = 4
"""A step takes at least so many times as long as it takes LogMiner to begin: finding the first row means reading the log up to it."""
MOST_GROWTH: Final = 4.0
SMALLEST: Final = 100
LARGEST: Final = 10**12

_SIZES = ("log_mining_batch_size_min", "log_mining_batch_size_max", "log_mining_batch_size_default")
_SLEEPS = tuple(f"log_mining_sleep_time_{part}_ms" for part in ("min", "max", "default", "increment"))


@dataclass(frozen=True, slots=True)
class Window:
    """The SCNs of one step: those after ``start`` (with it, where a stream begins) up to and with ``end``.

    :param gap: a jump of the SCN was taken at once
    """

    start: int
    end: int
    gap: bool = False

    @property
    def empty(self) -> bool:
        return self.end <= self.start


class Windows:
    """Chooses the windows of one stream, one after the other.

    ::

        window = windows.next(start, current_scn, time_of=session.scn_time, borders=session.borders)
        ... mine it ...
        windows.done(rows, seconds, session.start_seconds)
        sleep(windows.pause)

    :ivar size: SCNs of the next window, as far as there are so many
    :ivar pause: seconds to wait before the next look for changes
    """

    def __init__(self, config: OracleConfig, counters: WindowCounters | None = None) -> None:
        self._config = config
        self.documented = bool(config.model_fields_set & set(_SIZES))
        self.size = config.log_mining_batch_size_default
        self._documented_sleep = bool(config.model_fields_set & set(_SLEEPS))
        self._sleep_ms = config.log_mining_sleep_time_default_ms
        self._last: Window | None = None
        self._caught_up = False
        self._empty = False
        self.counters = counters or WindowCounters()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next look for changes."""
        only_archived = self._config.log_mining_archive_log_only_mode
        if only_archived and self._empty:
            return self._config.log_mining_archive_log_only_scn_poll_interval_ms / 1000
        return self._sleep_ms / 1000

    @property
    def caught_up(self) -> bool:
        """Whether the last window ended where the database was."""
        return self._caught_up

    def next(
        self,
        start: int,
        current: int,
        *,
        time_of: Callable[[int], datetime.datetime | None] | None = None,
        borders: Callable[[int], Sequence[int]] | None = None,
    ) -> Window:
        """The window that begins at ``start``.

        :param start: where the last window ended, or where the stream begins
        :param current: the last SCN that can be mined now
        :param time_of: when an SCN was reached, ``None`` when the database does not know any more
        :param borders: the last SCNs of logs that are complete, those after an SCN, ascending
        """
        self.counters.steps += 1
        if current <= start:
            return self._ended(Window(start, start), behind=False, shrunk=False)
        shrunk = self._resize(start, current) if self.documented else False
        end = min(start + self.size, current)
        count = self._config.log_mining_log_count_min
        if count and borders and end < current:
            ends = borders(start)
            end = max(end, min(ends[count - 1], current) if len(ends) >= count else current)
        if self.documented and self._last is not None and end <= self._last.end:
            end = current
        gap = end < current and self._is_gap(current, time_of)
        if gap:
            self.counters.gaps += 1
            log.info("The SCN jumped from %d to %d; the jump is mined in one step.", start, current)
            end = current
        return self._ended(Window(start, end, gap), behind=end < current, shrunk=shrunk)

    def done(self, rows: int, seconds: float, begin_seconds: float = 0.0) -> None:
        """Learn from the last window.

        :param rows: that LogMiner gave
        :param seconds: from opening the session to the last row
        :param begin_seconds: of these, until the first row came
        """
        if self.documented or self._last is None or self._last.gap or self._last.empty:
            return
        aim = max(AIM_SECONDS, OVERHEAD_FACTOR * begin_seconds)
        factor = min(aim / max(seconds, 1e-3), AIM_ROWS / max(rows, 1))
        whole = self._last.end - self._last.start >= self.size
        if factor < 1 or whole:  # a window that the present cut short says nothing about larger ones
            factor = min(max(factor, 1 / MOST_GROWTH), MOST_GROWTH)
            base = self._last.end - self._last.start if factor < 1 else self.size
            self.size = min(max(int(base * factor), SMALLEST), LARGEST)

    def _resize(self, start: int, current: int) -> bool:
        """Change the size by the documented rule. Returns whether it shrank."""
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

    def _ended(self, window: Window, *, behind: bool, shrunk: bool) -> Window:
        config = self._config
        step = config.log_mining_sleep_time_increment_ms
        if behind:
            shorter = self._sleep_ms - step if self._documented_sleep else 0
            self._sleep_ms = max(shorter, config.log_mining_sleep_time_min_ms)
        elif not shrunk:
            self._sleep_ms = min(self._sleep_ms + step, config.log_mining_sleep_time_max_ms)
        self._caught_up = not behind
        self._empty = window.empty
        self.counters.empty += window.empty
        self._last = window
        return window
