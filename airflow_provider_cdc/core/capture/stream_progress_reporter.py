"""Reports how far the stream is: events, position, and how long after the source it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from airflow_provider_cdc.core.model.job_progress import format_duration
from airflow_provider_cdc.core.model.run_metrics import EventMetrics
from airflow_provider_cdc.core.reporting.progress_reporter import EVERY_S, ProgressBoard, ProgressReporter

BEHIND_S: Final = 10.0
"""A stream that is less behind is up to date: that is no work that ends."""


class StreamProgress:
    """The stream of one run.

    :param events: that the run has written
    :param metrics: of its stream
    :param where: it is now
    """

    def __init__(
        self, board: ProgressBoard, events: Callable[[], int], metrics: EventMetrics, where: Callable[[], str], logger: logging.Logger
    ) -> None:  # fmt: skip
        self._board, self._events, self._metrics, self._where, self._log = board, events, metrics, where, logger
        self._work: ProgressReporter | None = None
        self._began = self._end = 0.0
        self._first: float | None = None

    def start_stretch(self, *, bounded: bool) -> None:
        """Begin a stretch of the log.

        :param bounded: it ends at the present end of the log
        """
        self.end_stretch()
        self._work = ProgressReporter("Streaming", "events", done=self._events(), board=self._board, logger=self._log)
        self._first, self._began, self._end = None, time.monotonic(), time.time() if bounded else 0.0

    def end_stretch(self) -> None:
        """End the stretch of the log."""
        work, self._work = self._work, None
        if work is not None:
            work.close()

    def report_if_due(self, about: str = "") -> None:
        """
        :param about: purpose of the stream
        """
        if self._work is None:
            return
        if self._first is None and self._new():
            self._first = self._reached()
        if self._work.is_due:
            self._report_progress(self._work, about)

    def _report_progress(self, work: ProgressReporter, about: str) -> None:
        now = [f"now at {self._where()}", about]
        behind_s, way = 0.0, None
        if self._first is not None and self._new(EVERY_S):
            reached = self._reached()
            behind_s = max(time.time() - reached, 0.0)
            end = max(self._end or time.time(), reached)
            if end > self._first:
                way = (max(reached - self._first, 0.0), end - self._first)
        late = behind_s > BEHIND_S
        if late:
            now.append(f"{format_duration(behind_s)} behind the source")
        work.report_progress(self._events(), span=way if late else None, now=", ".join(filter(None, now)), shown=late)

    def _new(self, lately_s: float | None = None) -> bool:
        """Return whether there was an event since the stretch began, or of late."""
        since = self._began if lately_s is None else time.monotonic() - lately_s
        return self._metrics.at is not None and self._metrics.at >= max(since, self._began)

    def _reached(self) -> float:
        """Return the time at which the last event was made at the source, in seconds since 1970."""
        assert self._metrics.at is not None
        return time.time() - (time.monotonic() - self._metrics.at) - self._metrics.behind_ms / 1000


__all__ = ["BEHIND_S", "StreamProgress"]
