"""Fires events of an asset when a target lacks what was captured, for DAGs that only apply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S, find_due_apply
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.triggers.polling_loop import poll_repeatedly
from airflow_provider_cdc.triggers.shared_state import shared_state

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

_GRACE_S = 30.0
"""Seconds that a run has to begin the apply of a new batch, which the batch itself has started."""
_PAUSE_S = 60.0
"""Seconds until the state tables are asked again after an error that needs a person."""


class ApplyDueTrigger(BaseEventTrigger):
    """Fires when an apply is to be tried again, although nothing is captured, for an ``AssetWatcher``.

    :func:`airflow_provider_cdc.dag.apply_dag` uses it. The event's payload is ``{"connector", "reason"}``. It fires once for each try: a failed apply
    is tried again after a pause, see :mod:`airflow_provider_cdc.core.lifecycle.next_run`.

    :param connector: name of the connector
    :param applied_by: the task, as :func:`airflow_provider_cdc.services.tasks.apply_notes.format_task_key` names it
    :param retry_after_s: pause after a failure that needs a person
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two polls
    """

    def __init__(
        self,
        connector: str,
        applied_by: str,
        *,
        retry_after_s: float = RETRY_AFTER_S,
        state_conn_id: str = DEFAULT_CONN_ID,
        poll_interval: float = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connector, self.applied_by, self.retry_after_s = connector, applied_by, retry_after_s
        self.state_conn_id, self.poll_interval = state_conn_id, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("connector", "applied_by", "retry_after_s", "state_conn_id", "poll_interval")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        tried_at: datetime | None = None
        while True:
            try:
                reason = await self._wait_until_due(tried_at)
            except TerminalError as e:  # the trigger of an asset has no task that could fail
                self.log.warning("The state of connector %s cannot be read: %s", self.connector, e)
                await asyncio.sleep(_PAUSE_S)
                continue
            tried_at = datetime.now(UTC)
            self.log.info("Connector %s needs an apply: %s.", self.connector, reason)
            yield TriggerEvent({"connector": self.connector, "reason": reason})  # type: ignore[no-untyped-call]

    async def _wait_until_due(self, tried_at: datetime | None) -> str:
        def ask(record: ConnectorRecord | None, store: StateStore) -> str | None:
            now, retry_after_s = datetime.now(UTC), self.retry_after_s
            return find_due_apply(
                record, [self.applied_by], now, retry_after_s=retry_after_s, tried_at=tried_at, grace_s=_GRACE_S
            )

        async with shared_state(self.state_conn_id) as state:
            polls = poll_repeatedly(
                lambda: state.query_connector(self.connector, ask),
                self.poll_interval,
                whom=f"The state of {self.connector}",
                log=self.log,
            )
            async with aclosing(polls) as polls:  # type: ignore[type-var]
                async for reason in polls:
                    if reason is not None:
                        return reason
        raise AssertionError("polls go on for ever")
