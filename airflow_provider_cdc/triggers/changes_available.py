"""Waits for changes in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.core.errors import TerminalError, TransientError
from airflow_provider_cdc.hooks.connector import ConnectorAccess
from airflow_provider_cdc.triggers.state import close_in_thread

if TYPE_CHECKING:
    from airflow_provider_cdc.runtime import ChangesProbe

_SLOWEST = 8
"""An unreachable source is polled at growing intervals, up to this many times ``poll_interval``."""


class ChangesAvailableTrigger(BaseTrigger):
    """Fires when the source's log has gone past a connector's offset.

    Every ``poll_interval`` seconds, a thread reads the offset from the state tables and the end of the log from the source.
    The trigger keeps nothing besides its arguments and the state tables, so that any triggerer can take it over at any time.
    Arguments hold ids of connections, never their contents.

    Fires ``{"reason": …}``, or ``{"error": …}`` when a person must act.

    :param access: a :class:`~airflow_provider_cdc.hooks.connector.ConnectorAccess` as JSON
    :param poll_interval: seconds between two polls
    """

    def __init__(self, access: dict[str, Any], poll_interval: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.access, self.poll_interval = access, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"access": self.access, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from sqlalchemy.exc import OperationalError

        access = ConnectorAccess.of(self.access)
        probe: ChangesProbe | None = None
        failures = 0
        try:
            while True:
                try:
                    if probe is None:
                        probe = await asyncio.to_thread(access.probe)
                    reason = await asyncio.to_thread(probe.look)
                except TerminalError as e:
                    yield _event(error=str(e))
                    return
                except (TransientError, OperationalError) as e:
                    failures += 1
                    self.log.warning(
                        "Connector %s cannot be asked (%d in a row), trying again: %s",
                        access.definition.name, failures, getattr(e, "orig", e),
                    )  # fmt: skip
                    if probe is not None:  # the connection may have been corrected meanwhile: it is looked up again
                        await close_in_thread(probe)
                        probe = None
                else:
                    failures = 0
                    if reason is not None:
                        yield _event(reason=reason)
                        return
                await asyncio.sleep(self.poll_interval * min(2**failures, _SLOWEST))
        finally:
            if probe is not None:
                await close_in_thread(probe)


def _event(**payload: str) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
