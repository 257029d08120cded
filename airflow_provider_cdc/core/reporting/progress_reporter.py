"""Progress reports of everything that takes longer than a few seconds: to its log, and to a board that pages and commands read.

    >>> with ProgressReporter("Snapshot", "rows", board=changelog.board("shop")) as progress:
    ...     for block in blocks:
    ...         rows += len(block)
    ...         if progress.due:
    ...             progress.report_progress(rows, span=(rows, estimated), now="now shop.orders")

Work that takes less than :data:`EVERY_S` reports nothing, and costs a look at the clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, Self

from airflow_provider_cdc.core.model.job_progress import JobProgress, can_estimate

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
"""Between two lines."""
LATELY_S: Final = 60.0
"""Rates are those of so long."""


class ProgressBoard(Protocol):
    """Board where other processes see the current work. Nothing of it is needed for a result."""

    def show_progress(self, work: JobProgress) -> None:
        """Replace the entry of this work, which ``what`` and ``where`` identify. May raise."""

    def clear_progress(self, work: JobProgress) -> None:
        """Remove the entry of the work: it has ended. May raise."""


class ProgressReporter:
    """Reports how far one work is. For one thread at a time.

    :param name: it is
    :param unit: name of the counted items, plural
    :param where: which one of several at the same time
    :param done: the count at the beginning
    :param board: ``None``: only the log gets reports
    :param logger: whose lines they are
    """

    def __init__(
        self,
        name: str,
        unit: str,
        *,
        where: str = "",
        done: float = 0,
        board: ProgressBoard | None = None,
        logger: logging.Logger = log,
    ) -> None:
        self._name, self._unit, self._where, self._board, self._log = name, unit, where, board, logger
        self._began_at, self._began = time.time(), time.monotonic()
        now = self._began
        self._due = now + EVERY_S
        self._counted, self._way = deque([(now, float(done))]), deque[tuple[float, float]]()
        self._shown: JobProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_due(self) -> bool:
        """True if it is time to report."""
        return time.monotonic() >= self._due

    def report_progress(
        self,
        done: float,
        total: float | None = None,
        *,
        span: tuple[float, float] | None = None,
        now: str = "",
        shown: bool = True,
    ) -> JobProgress:
        """Report the progress.

        :param span: the way that is done and all of it, if these are not ``done`` and ``total``; the way has to begin at 0
        :param now: the current step
        :param shown: on the board too; else it is taken away from there
        """
        moment = time.monotonic()
        self._due = moment + EVERY_S
        way, end = span or (done, total)
        part = None if not end else min(max(way / end, 0.0), 1.0)
        if not self._way:
            self._way.append((self._counted[0][0], 0.0))
        speed = _rate(self._way, moment, way)
        left_s = None
        if end is not None and speed and can_estimate(part, moment - self._began):
            left_s = max(end - way, 0.0) / speed
        per_s = _rate(self._counted, moment, float(done))
        work = JobProgress(
            self._name, self._where, self._unit, done, total, per_s, part, left_s, now, self._began_at, time.time()
        )
        self._log.info("%s", work.progress_text)
        if shown:
            self._show(work)
        else:
            self.close()
        return work

    def close(self) -> None:
        """Remove the work from the board: it has ended, or need not be shown for now."""
        work, self._shown = self._shown, None
        if work is not None and self._board is not None:
            self._try(self._board.clear_progress, work)

    def _show(self, work: JobProgress) -> None:
        if self._board is not None and self._try(self._board.show_progress, work):
            self._shown = work

    def _try(self, action: Callable[[JobProgress], None], work: JobProgress) -> bool:
        try:
            action(work)
        except Exception as e:  # the work itself matters more
            self._log.warning("The progress of %s cannot be shown: %s", self._name.lower(), e)
            return False
        return True


class ProgressTicker:
    """Reports every few seconds, by a thread, how far a work is that cannot look at the clock itself. In a ``with`` block.

    :param told: the arguments of :meth:`ProgressReporter.report_progress` now; called by the thread
    """

    def __init__(self, progress: ProgressReporter, arguments: Callable[[], dict[str, Any]]) -> None:
        self._progress, self._arguments = progress, arguments
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="cdc-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._progress.close()

    def _tick(self) -> None:
        while not self._over.wait(EVERY_S):
            self._progress.report_progress(**self._arguments())


def _rate(points: deque[tuple[float, float]], moment: float, value: float) -> float | None:
    """Return how much is added in a second of late; ``None`` if nothing is."""
    if value < points[-1][1]:  # it was taken back, or another one began
        points.clear()
    points.append((moment, value))
    while len(points) > 2 and points[1][0] <= moment - LATELY_S:
        points.popleft()
    since, before = points[0]
    seconds = moment - since
    return (value - before) / seconds if seconds > 0 and value > before else None


__all__ = ["EVERY_S", "ProgressBoard", "ProgressReporter", "ProgressTicker"]
