"""Checks the age of a stream's positions, without a query each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.log.query_connection import QueryConnection
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.sources.db2.pruning_checks import (
    DEFAULT_MINUTES,
    holds_older,
    is_old,
    position_too_old,
    retention_minutes,
)

PARAMETERS_SECONDS: Final = 60.0
"""How long the retention limit is kept before it is read again."""


class PositionAgeCheck:
    """Checks the age of one stream's positions."""

    def __init__(self, config: Db2Config, questions: QueryConnection) -> None:
        self._config, self._questions = config, questions
        self._minutes, self._asked_at = DEFAULT_MINUTES, -PARAMETERS_SECONDS

    def check_position(self, position: Db2Position, now_us: int, tables: Sequence[TableRegistration]) -> None:
        """Make sure that nothing after a position was pruned for its age. A position without a known time was checked when the run began.

        :param now_us: the database's clock
        :param tables: the registrations that the stream reads
        :raises PositionLost: changes may have been pruned
        """
        if not position.newer_than_us:
            return
        if time.monotonic() - self._asked_at > PARAMETERS_SECONDS:
            self._minutes = self._questions.run_query(
                lambda c: retention_minutes(c, self._config), "parameters of the agent"
            )
            self._asked_at = time.monotonic()
        if is_old(position, now_us, self._minutes):
            holds = self._questions.run_query(lambda c: holds_older(c, self._config, position, tables), str(position))
            if not holds:
                raise position_too_old(position, self._minutes, self._config)
