"""Pauses of tables that have failed, in a run that continues with the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from airflow_provider_cdc.targets.retry_pause import RetryPause

log = logging.getLogger(__name__)


class TablePauses:
    """Tables that have failed, and when each is tried again: after pauses that grow.

    >>> pauses = TablePauses()
    >>> pauses.finish_round({"p.s.t": "it has no key"})
    >>> pauses.start_round()
    >>> pauses.find_skip_reason("p.s.t"), pauses.find_skip_reason("p.s.other"), pauses.has_due_table()
    ('it has no key', '', False)
    """

    def __init__(self) -> None:
        self._pauses = dict[str, tuple[RetryPause, str]]()
        self._waiting = set[str]()

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def clear(self) -> None:
        """Have all tables tried in the next round."""
        self._pauses.clear()

    def has_due_table(self) -> bool:
        """Check whether a table is to be tried."""
        now = time.monotonic()
        return any(retry.due <= now for retry, _ in self._pauses.values())

    def start_round(self) -> None:
        """Begin a round, in which tables are not tried that are not due yet."""
        now = time.monotonic()
        self._waiting = {topic for topic, (retry, _) in self._pauses.items() if retry.due > now}

    def find_skip_reason(self, topic: str) -> str:
        """Return why a table that is not tried in this round has failed; empty if it is tried."""
        return self._pauses[topic][1] if topic in self._waiting else ""

    def finish_round(self, failed: Mapping[str, str]) -> None:
        """End a round.

        :param failed: topic → why, also of those that were not tried
        """
        pauses = dict[str, tuple[RetryPause, str]]()
        for topic, error in failed.items():
            if topic in self._waiting:
                pauses[topic] = self._pauses[topic]
                continue
            retry = self._pauses[topic][0].extend_pause() if topic in self._pauses else RetryPause()
            pauses[topic] = retry, error
            log.info("The table of %s is retried in %.0f s, or by the next run.", topic, retry.pause)
        self._pauses = pauses
