"""Polls the state tables from the triggerer, without blocking its event loop."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.triggers.blocking_call_threads import get_loop_threads
from airflow_provider_cdc.triggers.polling_loop import poll_repeatedly
from airflow_provider_cdc.triggers.shared_state import SharedState, shared_state

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

LOG_EVERY_S = 10.0
"""How often a trigger writes into the log of its task while nothing changes."""


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of one poll of the state tables.

    :param text: for the log
    :param stage: the progress; a new stage is logged at once, the same one now and then
    :param event: that the trigger fires; ``None`` as long as it waits
    """

    text: str
    stage: str = ""
    event: dict[str, Any] | None = None


class StateTrigger(BaseTrigger):
    """Waits for something that the state tables show.

    It keeps nothing besides its arguments and the state tables, so that any triggerer can take it over at any time. Arguments
    hold ids of connections, never their contents. Fires the event of :meth:`poll_state`, or ``{"error": …}`` when a person must act.

    :param connector: name of the connector
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two polls
    """

    def __init__(self, connector: str, *, state_conn_id: str = DEFAULT_CONN_ID, poll_interval: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connector, self.state_conn_id, self.poll_interval = connector, state_conn_id, poll_interval

    def build_arguments(self) -> dict[str, Any]:
        """Return the arguments that the subclass adds."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        common = {"state_conn_id": self.state_conn_id, "poll_interval": self.poll_interval}
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"connector": self.connector, **self.build_arguments(), **common}

    @abc.abstractmethod
    def poll_state(self, record: ConnectorRecord | None, store: StateStore) -> PollResult | Callable[[], PollResult]:
        """Ask the state tables once.

        :param record: of the connector in the tables
        :return: the result, or a call that finds it out elsewhere, such as in a storage, which may take long, and does without the state tables
        :raises CdcError: a person must act, or a later poll may succeed
        """

    def poll_once(self, store: StateStore) -> PollResult:
        """Poll once, for sensors that wait in a worker.

        :raises CdcError: as :meth:`poll_state`
        """
        result_or_call = self.poll_state(store.find_connector(self.connector), store)
        return result_or_call if isinstance(result_or_call, PollResult) else result_or_call()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        logged_at, stage = 0.0, None
        try:
            async with shared_state(self.state_conn_id) as state:
                polls = poll_repeatedly(
                    lambda: self._poll(state), self.poll_interval, whom="The state of the connector", log=self.log
                )
                async with contextlib.aclosing(polls) as polls:  # type: ignore[type-var]
                    async for answer in polls:
                        now = time.monotonic()
                        if answer.event is not None or answer.stage != stage or now - logged_at >= LOG_EVERY_S:
                            self.log.info("%s", answer.text)
                            logged_at, stage = now, answer.stage
                        if answer.event is not None:
                            yield TriggerEvent(answer.event)  # type: ignore[no-untyped-call]
                            return
        except TerminalError as e:
            yield TriggerEvent({"error": describe_error(e)})  # type: ignore[no-untyped-call]

    async def _poll(self, state: SharedState) -> PollResult:
        result_or_call = await state.query_connector(self.connector, self.poll_state)
        return (
            result_or_call
            if isinstance(result_or_call, PollResult)
            else await get_loop_threads().run(("storage", self.connector), result_or_call)
        )
