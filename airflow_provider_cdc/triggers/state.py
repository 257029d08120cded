"""Asking the state tables again and again from the triggerer, without holding up its event loop."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.core.errors import TerminalError, TransientError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook

if TYPE_CHECKING:
    from airflow_provider_cdc.state.store import StateStore

T = TypeVar("T")


class Closeable(Protocol):
    """What has connections."""

    def close(self) -> None: ...


_SLOWEST = 8
"""A state database that cannot be reached is asked less and less often, down to this times the interval."""
_PATIENCE_S = 2.0
"""How long one question may wait for the database before it counts as failed; it is asked again after that."""
LOG_EVERY_S = 10.0
"""How often a trigger writes into the log of its task while nothing changes."""


async def answers(state_conn_id: str, ask: Callable[[StateStore], T], interval: float, *, log: Any) -> AsyncIterator[T]:
    """What the state tables answer to one question, asked every ``interval`` seconds, for ever.

    Questions are asked in a thread. A database that cannot be reached is asked again; its connection is looked up anew then,
    as somebody may have mended it.

    :raises TerminalError: a person must act
    """
    from sqlalchemy.exc import OperationalError

    store: StateStore | None = None
    failures = 0
    try:
        while True:
            try:
                if store is None:
                    store = await asyncio.to_thread(_open, state_conn_id)
                answer = await asyncio.to_thread(ask, store)
            except (TransientError, OperationalError) as e:
                failures += 1
                reason = getattr(e, "orig", None) or e
                log.warning("The state tables cannot be asked (%d in a row), trying again: %s", failures, reason)
                if store is not None:
                    await close_in_thread(store)
                    store = None
            else:
                failures = 0
                yield answer
            await asyncio.sleep(interval * min(2**failures, _SLOWEST))
    finally:
        if store is not None:
            await close_in_thread(store)


async def close_in_thread(opened: Closeable) -> None:
    """Close what has connections in a thread: one that is lost may take its time, and every trigger of the process would wait."""
    await asyncio.shield(asyncio.to_thread(opened.close))


def _open(state_conn_id: str) -> StateStore:
    store = CdcStateHook(state_conn_id).get_conn(patience_s=_PATIENCE_S)
    try:
        store.verify()
    except BaseException:
        store.close()
        raise
    return store


@dataclass(frozen=True, slots=True)
class PollResult:
    """The answer to one question to the state tables.

    :param text: for the log
    :param stage: how far it is; a new stage is logged at once, the same one now and then
    :param event: what the trigger fires; ``None`` as long as it waits
    """

    text: str
    stage: str = ""
    event: dict[str, Any] | None = None


class StateTrigger(BaseTrigger):
    """Waits for something that shows in the state tables.

    All that it knows is in its arguments and in the state tables, so that any triggerer can take it over at any time. Arguments
    hold ids of connections, never what is in them. Fires what :meth:`ask` says, or ``{"error": …}`` when a person must act.

    :param connector: name of the connector
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two questions
    """

    def __init__(self, connector: str, *, state_conn_id: str = DEFAULT_CONN_ID, poll_interval: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connector, self.state_conn_id, self.poll_interval = connector, state_conn_id, poll_interval

    def arguments(self) -> dict[str, Any]:
        """Those of the subclass's own."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        common = {"state_conn_id": self.state_conn_id, "poll_interval": self.poll_interval}
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"connector": self.connector, **self.arguments(), **common}

    @abc.abstractmethod
    def ask(self, store: StateStore) -> PollResult:
        """Ask once; also for those who wait in a worker.

        :raises CdcError: a person must act, or the question can be asked again
        """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        logged_at, stage = 0.0, None
        found = answers(self.state_conn_id, self.ask, self.poll_interval, log=self.log)
        try:
            async with contextlib.aclosing(found) as found:  # type: ignore[type-var]
                async for answer in found:
                    now = time.monotonic()
                    if answer.event is not None or answer.stage != stage or now - logged_at >= LOG_EVERY_S:
                        self.log.info("%s", answer.text)
                        logged_at, stage = now, answer.stage
                    if answer.event is not None:
                        yield TriggerEvent(answer.event)  # type: ignore[no-untyped-call]
                        return
        except TerminalError as e:
            yield TriggerEvent({"error": str(e)})  # type: ignore[no-untyped-call]
