"""Lets a run notice that people have paused, stopped or restarted the connector: it polls the state tables, and the run ends."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState, StateStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StopCondition:
    """The conditions under which a run ends by itself.

    :param restarts: number of restart requests when the run began; one more ends the run
    """

    deadline: float | None = None
    requested: bool = False
    restarts: int = 0

    @property
    def is_due(self) -> bool:
        return self.requested or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def left_s(self) -> float | None:
        """Seconds until the run is to end; ``None`` if it ends when there is nothing left to do."""
        return None if self.deadline is None else self.deadline - time.monotonic()


class ControlPoller:
    """Polls what people want of a connector.

    :param interval_s: seconds between two looks
    """

    def __init__(self, connector: str, store: StateStore, stop: StopCondition, interval_s: float) -> None:
        self._connector, self._store, self._stop, self._interval_s = connector, store, stop, interval_s
        self._looked = 0.0

    @property
    def is_stop_due(self) -> bool:
        """Return whether the run is to end, as it was asked to or its time is over. Does not poll."""
        return self._stop.is_due

    def is_stop_requested(self) -> bool:
        """Return whether the run is to end; polls if the interval is over."""
        if time.monotonic() - self._looked >= self._interval_s:
            self.poll_control()
        return self._stop.requested

    def poll_control(self) -> None:
        """Poll now."""
        self._looked = time.monotonic()
        control = self._store.load_control(self._connector)
        if self._stop.requested:
            return
        if control.desired_state is not DesiredState.RUNNING:
            log.warning("The connector was %s%s%s: the run ends.", control.desired_state, _by(control), _why(control))
        elif control.restarts != self._stop.restarts:
            log.warning("A restart of the connector was requested%s%s: the run ends.", _by(control), _why(control))
        else:
            return
        self._stop.requested = True


def _by(control: ConnectorControl) -> str:
    return f" by {control.by}" if control.by else ""


def _why(control: ConnectorControl) -> str:
    return f" ({control.reason})" if control.reason else ""
