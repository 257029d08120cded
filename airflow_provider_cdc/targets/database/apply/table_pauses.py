"""Pauses of tables that have failed, in a run that goes on with the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from airflow_provider_cdc.changelog.reports.retry import Retry

log = logging.getLogger(__name__)


class Pauses:
    """Tables that have failed, and when each is tried again: after pauses that grow.

    >>> pauses = Pauses()
    >>> pauses.after({"p.s.t": "it has no key"})
    >>> pauses.begin()
    >>> pauses.why("p.s.t"), pauses.why("p.s.other"), pauses.due()
    ('it has no key', '', False)
    """

    def __init__(self) -> None:
        self._found = dict[str, tuple[Retry, str]]()
        self._waiting = set[str]()

    def __bool__(self) -> bool:
        return bool(self._found)

    def clear(self) -> None:
        """Have all tables tried in the next round."""
        self._found.clear()

    def due(self) -> bool:
        """Whether a table is to be tried."""
        now = time.monotonic()
        return any(retry.due <= now for retry, _ in self._found.values())

    def begin(self) -> None:
        """Begin a round, in which tables are not tried that are not due yet."""
        now = time.monotonic()
        self._waiting = {topic for topic, (retry, _) in self._found.items() if retry.due > now}

    def why(self, topic: str) -> str:
        """Why a table has failed that is not tried in this round; empty if it is tried."""
        return self._found[topic][1] if topic in self._waiting else ""

    def after(self, failed: Mapping[str, str]) -> None:
        """End a round.

        :param failed: topic → why, also of those that were not tried
        """
        found = dict[str, tuple[Retry, str]]()
        for topic, error in failed.items():
            if topic in self._waiting:
                found[topic] = self._found[topic]
                continue
            retry = self._found[topic][0].longer() if topic in self._found else Retry()
            found[topic] = retry, error
            log.info("The table of %s is tried again in %.0f s, or by the next run.", topic, retry.pause)
        self._found = found
