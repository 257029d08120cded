"""Keeps errors of a signal channel away from capture."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.store_interfaces import SignalChannel

log = logging.getLogger(__name__)

_SHORTEST_S = 1.0
_LONGEST_S = 10.0
_REPEAT_S = 300.0
"""Seconds after which the same error is logged again."""


class GuardedChannel:
    """A channel that never raises: an error becomes a warning, and the channel is tried again after a growing pause.

    :param name: as ``signal.enabled.channels`` has it
    """

    def __init__(self, name: str, channel: SignalChannel) -> None:
        self.name, self._channel = name, channel
        self._pause = 0.0
        self._again = 0.0
        self._last_warning: tuple[str, float] | None = None

    def poll(self) -> Sequence[SentSignal]:
        if time.monotonic() < self._again:
            return []
        try:
            signals = [_signal(item, self.name) for item in self._channel.poll()]
        except Exception as e:
            self._failed(e)
            return []
        if self._last_warning is not None:
            log.info("The signal channel %s works again.", self.name)
        self._pause, self._last_warning = 0.0, None
        return signals

    def acknowledge(self, signals: Sequence[SentSignal]) -> None:
        try:
            self._channel.acknowledge(signals)
        except Exception as e:
            self._failed(e)

    def close(self) -> None:
        try:
            self._channel.close()
        except Exception as e:
            log.warning("The signal channel %s could not be closed: %s: %s", self.name, type(e).__name__, e)

    def _failed(self, error: Exception) -> None:
        self._pause = min(max(_SHORTEST_S, 2 * self._pause), _LONGEST_S)
        self._again = time.monotonic() + self._pause
        text = f"{type(error).__name__}: {error}"
        if (
            self._last_warning is None
            or self._last_warning[0] != text
            or time.monotonic() - self._last_warning[1] > _REPEAT_S
        ):
            self._last_warning = text, time.monotonic()
            log.warning("The signal channel %s cannot be read for now; capture continues. %s", self.name, text)


def _signal(item: object, channel: str) -> SentSignal:
    if not isinstance(item, SentSignal):  # a custom channel may return anything
        raise TypeError(f"the channel returned a {type(item).__name__} instead of a SentSignal")
    return replace(item, channel=channel)  # a channel with another name than the enabled one would be refused


__all__ = ["GuardedChannel"]
