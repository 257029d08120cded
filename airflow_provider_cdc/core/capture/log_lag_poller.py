"""Asks the source how far a connector is from both ends of its log: once a minute at most, over the runs too, since runs may be short and many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.log_headroom import BEHIND, GONE_AT, LogWindow
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.spi.source import Source

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
QUERIED_AT: Final = "LogQueriedAtInSeconds"
"""Beside the metrics of the last run, in the state tables only: the next run reads from it when to ask; it is of no use to people."""


class LogLagPoller:
    """The distances that a source has reported between a position and both ends of its log.

    :param before: metrics of the last run: context → name → value
    """

    def __init__(
        self, source: Source, before: Mapping[str, Mapping[str, Any]], clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._clock = source, clock
        last = before.get("streaming", {})
        self._last_metrics: dict[str, Value] = {name: last[name] for name in (BEHIND, GONE_AT) if name in last}
        self._asked_at: float = last.get(QUERIED_AT, 0)

    def measure_lag(self, position: Position | None, *, ask: bool = True) -> dict[str, Value]:
        """Return what is known of the log; empty for a source that does not report it.

        :param position: up to which everything is durable
        :param ask: the source may be asked: not while a run fails, which may be because it does not answer
        """
        if ask and position is not None and not 0 <= self._clock() - self._asked_at < EVERY_S:
            self._ask(position)
        return dict(self._last_metrics)

    def to_stored_metrics(self, metrics: Mapping[str, Mapping[str, Value]]) -> dict[str, Mapping[str, Value]]:
        """Return the metrics of a run as the state tables keep them for the next one."""
        if not self._last_metrics or "streaming" not in metrics:
            return dict(metrics)
        return {**metrics, "streaming": {**metrics["streaming"], QUERIED_AT: self._asked_at}}

    def _ask(self, position: Position) -> None:
        try:
            window = self._source.log_window(position)
        except CdcError as e:  # the run itself matters more, and it will meet the error
            log.info("The range of the source's log could not be read: %s", e.message)
            window = None
            if not self._last_metrics:
                return
        if window is not None or self._last_metrics:
            self._last_metrics = {**(window or LogWindow()).to_metrics()}
            # never later than now: otherwise it would be asked again at once
            self._asked_at = float(int(self._clock()))
