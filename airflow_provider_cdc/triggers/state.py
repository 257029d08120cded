"""Polls the state tables from the triggerer, without blocking its event loop."""

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
    """An object that has connections."""

    def close(self) -> None: ...


_SLOWEST = 8
"""An unreachable state database is polled at growing intervals, up to this many times ``poll_interval``."""
_PATIENCE_S = 2.0
"""Seconds that one poll may wait for the database before it counts as failed; the next poll follows."""
LOG_EVERY_S = 10.0
"""How often a trigger writes into the log of its task while nothing changes."""


async def answers(state_conn_id: str, ask: Callable[[StateStore], T], interval: float, *, log: Any) -> AsyncIterator[T]:
    """The results of one query to the state tables, every ``interval`` seconds, for ever.

    Queries run in a thread. If the database cannot be reached, the query is repeated, with its connection looked up again, as
    it may have been corrected.

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
    """Close an object with connections in a thread: closing a lost connection may take long, and would block every trigger of the process."""
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
    """The result of one poll of the state tables.

    :param text: for the log
    :param stage: the progress; a new stage is logged at once, the same one now and then
    :param event: what the trigger fires; ``None`` as long as it waits
    """

    text: str
    stage: str = ""
    event: dict[str, Any] | None = None


class StateTrigger(BaseTrigger):
    """Waits for something that the state tables show.

    It keeps nothing besides its arguments and the state tables, so that any triggerer can take it over at any time. Arguments
    hold ids of connections, never their contents. Fires the event of :meth:`ask`, or ``{"error": …}`` when a person must act.

    :param connector: name of the connector
    :param state_conn_id: Airflow connection to the state tables
    :param poll_interval: seconds between two polls
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
        """Poll once; also used by sensors that wait in a worker.

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
