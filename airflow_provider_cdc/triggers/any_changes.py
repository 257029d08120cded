"""Waits in the triggerer for changes of any of several connectors."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any, Self

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.triggers.changes_available import something_to_capture

PAUSE_S = 300.0
"""How long a connector that has failed, or that is broken, waits for changes of the others before it is reported again: a run that fails follows at once, and the
next one waits again.
"""


class AnyChangesTrigger(BaseTrigger):
    """Fires when there is something to capture of any of several connectors.

    One that is down, or of which the last run has failed, does not disturb the others: it is polled again.

    Fires ``{"connector", "reason"}``: the first that has something; or, if none has for five minutes, one for which a person must act: the task that captures it
    finds out and fails.

    :param accesses: from :meth:`from_accesses`. As they are, a hundred connectors were more than a column of MySQL takes, which is 64 KB
    :param poll_interval: seconds between two polls
    """

    def __init__(self, accesses: str, poll_interval: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.accesses, self.poll_interval = accesses, poll_interval

    @classmethod
    def from_accesses(cls, accesses: list[ConnectorAccess], poll_interval: float = 10.0) -> Self:
        """Build a trigger for these connectors."""
        documents = json.dumps([access.to_document() for access in accesses], separators=(",", ":"))
        return cls(base64.b85encode(zlib.compress(documents.encode(), 9)).decode(), poll_interval)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"accesses": self.accesses, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        documents = json.loads(zlib.decompress(base64.b85decode(self.accesses)))
        waiting = [
            asyncio.create_task(self._wait_for_connector(ConnectorAccess.from_document(access))) for access in documents
        ]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            event = next(task for task in waiting if task in done).result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait_for_connector(self, access: ConnectorAccess) -> dict[str, str]:
        name = access.definition.name
        try:
            reason = await self._something(access)
        except Exception as e:  # a mistake in one source must not end the waiting for the others either
            self.log.warning("Connector %s cannot be checked until its error is fixed: %s", name, e)
            await asyncio.sleep(PAUSE_S)
            try:  # a user may have corrected it
                reason = await self._something(access)
            except Exception as still:  # reported by its capture
                reason = f"the check failed: {still}"
        return {"connector": name, "reason": reason}

    async def _something(self, access: ConnectorAccess) -> str:
        return await something_to_capture(access, self.poll_interval, log=self.log, after_failure_s=PAUSE_S)
