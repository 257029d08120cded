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
from airflow_provider_cdc.services.tasks.run_start import RunStart
from airflow_provider_cdc.triggers.changes_available import RECHECK, something_to_capture

PAUSE_S = 300.0
"""How long a connector that cannot be checked waits for changes of the others before it is reported: a run that fails follows at once, and the next one waits
after that failure.
"""


class AnyChangesTrigger(BaseTrigger):
    """Fires when there is something to capture of any of several connectors.

    One that is down, or that waits after a failure, does not disturb the others: it is polled again.

    Fires ``{"connector", "reason"}``: the first that has something; or, if none has for five minutes, one for which a person must act: the task that captures it
    finds out and fails. While a connector waits after a failure, it fires ``{"recheck": true}`` every five minutes, as
    :class:`~airflow_provider_cdc.triggers.changes_available.ChangesAvailableTrigger` does.

    :param accesses: from :meth:`from_accesses`. As they are, a hundred connectors were more than a column of MySQL takes, which is 64 KB
    :param poll_interval: seconds between two polls
    :param start: a :class:`~airflow_provider_cdc.services.tasks.run_start.RunStart` as JSON
    """

    def __init__(self, accesses: str, poll_interval: float = 10.0, start: dict[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.accesses, self.poll_interval, self.start = accesses, poll_interval, start

    @classmethod
    def from_accesses(
        cls, accesses: list[ConnectorAccess], poll_interval: float = 10.0, start: RunStart | None = None
    ) -> Self:
        """Build a trigger for these connectors."""
        documents = json.dumps([access.to_document() for access in accesses], separators=(",", ":"))
        conditions = None if start is None else start.to_document()
        return cls(base64.b85encode(zlib.compress(documents.encode(), 9)).decode(), poll_interval, conditions)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"accesses": self.accesses, "poll_interval": self.poll_interval, "start": self.start}

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
        yield TriggerEvent({"recheck": True} if event["reason"] == RECHECK else event)  # type: ignore[no-untyped-call]

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
        start = RunStart.from_document(self.start)
        return await something_to_capture(access, self.poll_interval, log=self.log, start=start)
