"""Heartbeats: the offset moves on a quiet database, too, and a statement of the user keeps its log moving.

See "Heartbeats" of the Debezium connector documents, ``heartbeat.interval.ms`` and ``heartbeat.action.query``. Offsets are in the state
tables, so a heartbeat writes no record: it makes the offset durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.spi.source import Source

log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats: the first when a run begins to stream, then one every ``heartbeat.interval.ms``.

    :param commit: makes the offset durable if there is nothing to capture
    """

    def __init__(
        self,
        config: ConnectorConfig,
        source: Source,
        commit: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = config.heartbeat_interval_ms / 1000
        self._query = config.heartbeat_statement()
        self._source, self._commit, self._clock = source, commit, clock
        self._last: float | None = None

    def beat_if_due(self) -> None:
        """Send a heartbeat if one is due. Call it between two transactions, when there is an offset.

        :raises CdcError: the statement fails
        """
        now = self._clock()
        if not self._interval_s or (self._last is not None and now - self._last < self._interval_s):
            return
        self._last = now
        self._commit()
        if self._query:
            log.debug("Heartbeat: %s", self._query)
            self._source.execute_statement(self._query)
