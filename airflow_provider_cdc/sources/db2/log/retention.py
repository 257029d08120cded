"""Looks at the age of a stream's positions, without asking the database each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from airflow_provider_cdc.sources.db2.asn.registrations import Registration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.log.questions import Questions
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.pruning import DEFAULT_MINUTES, holds_older, is_old, retention_minutes, too_old

PARAMETERS_SECONDS: Final = 60.0
"""For so long the limit is taken to be what it was."""


class Retention:
    """Looks at the age of one stream's positions."""

    def __init__(self, config: Db2Config, questions: Questions) -> None:
        self._config, self._questions = config, questions
        self._minutes, self._asked_at = DEFAULT_MINUTES, -PARAMETERS_SECONDS

    def check(self, position: Db2Position, now_us: int, tables: Sequence[Registration]) -> None:
        """Make sure that nothing behind a position was pruned for its age. One whose time is not known was looked at when the run began.

        :param now_us: the database's clock
        :param tables: which the stream reads
        :raises PositionLost: it may have been
        """
        if not position.younger_us:
            return
        if time.monotonic() - self._asked_at > PARAMETERS_SECONDS:
            self._minutes = self._questions.ask(lambda c: retention_minutes(c, self._config), "the agent's parameters")
            self._asked_at = time.monotonic()
        if is_old(position, now_us, self._minutes):
            kept = self._questions.ask(lambda c: holds_older(c, self._config, position, tables), str(position))
            if not kept:
                raise too_old(position, self._minutes, self._config)
