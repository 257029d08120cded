"""Says how far an apply is, while it works: tables, and of each table that is at work, which of its batches."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

log = logging.getLogger("spark_jobs.progress")

EVERY_S = 5.0
"""Between two lines; work that takes less says nothing."""
SHOWN = 8
"""Tables at work that a line names."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AtWork:
    """A table that is worked on.

    :param after: its last batch when the work began
    :param first: the batches that are applied now
    """

    after: int
    first: int
    last: int


class Progress:
    """How far one round is. Tables report from their threads; who waits for them has the lines written.

    :param tables: that are worked on
    :param last: the batch that all of them will have
    """

    def __init__(self, tables: int = 0, last: int = 0) -> None:
        self._tables, self._last, self._done = tables, last, 0
        self._at_work: dict[str, AtWork] = {}
        self._due = time.monotonic() + EVERY_S

    def begins(self, topic: str, after: int) -> None:
        """A table is worked on from now on.

        :param after: its last batch
        """
        self._at_work[topic] = AtWork(after, after + 1, after + 1)

    def applies(self, topic: str, first: int, last: int) -> None:
        """A table is brought from one batch to another, in one commit."""
        known = self._at_work.get(topic)
        self._at_work[topic] = AtWork(first - 1 if known is None else known.after, first, last)

    def ends(self, topic: str) -> None:
        self._at_work.pop(topic, None)

    def watch(self, futures: Collection[Future[T]]) -> Iterator[Future[T]]:
        """Futures as they end, each of which is a table."""
        ended: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        while self._done < len(futures):
            try:
                future = ended.get(timeout=max(self._due - time.monotonic(), 0.0))
            except queue.Empty:
                self._say()
                continue
            self._done += 1
            yield future

    def _say(self) -> None:
        self._due = time.monotonic() + EVERY_S
        log.info("%s", self.text())

    def text(self) -> str:
        """The line.

        >>> progress.text()
        '3 of 200 tables are done; at work: shop.orders (batches 1 to 20 of 523), shop.lines (batch 7 of 9)'
        """
        tables = sorted(self._at_work.copy().items())
        shown = [f"{topic} ({self._batches(at)})" for topic, at in tables[:SHOWN]]
        more = f" and {len(tables) - SHOWN} more" if len(tables) > SHOWN else ""
        done = f"{self._done} of {self._tables} tables are done"
        return f"{done}; at work: {', '.join(shown)}{more}" if shown else done

    def _batches(self, at: AtWork) -> str:
        total = max(self._last - at.after, at.last - at.after)
        first, last = at.first - at.after, at.last - at.after
        return f"batch {first} of {total}" if first == last else f"batches {first} to {last} of {total}"
