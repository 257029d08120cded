"""Source databases, for all triggers of a triggerer: one question for all connectors that capture the same one.

>>> async with shared_source(access) as source:
...     end = await source.end(access, await source.properties(access))
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.triggers.blocking_call_threads import get_loop_threads

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

T = TypeVar("T")

log = logging.getLogger(__name__)

YOUNG_S = 1.0
"""An answer is shared between equal questions within this time."""
REFRESH_S = 60.0
"""How often an Airflow connection is looked up again, as long as its values can be used."""


class SharedSource:
    """A source database, for all connectors that capture it with the same connection and the same settings. Made by :func:`shared_source`.

    Nothing of it stays open: the end of its log is read by a connection that is closed again.
    """

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._answers = _SharedAnswers()
        self._properties: dict[str, Any] | None = None
        self.users = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in a thread."""
        return await get_loop_threads().run(self._key, call)

    async def resolve_properties(self, access: ConnectorAccess) -> dict[str, Any]:
        """Return the properties from the connection, which hold secrets.

        They are looked up once a minute, and after an error of the source, as they may have been corrected.
        """
        return await self._answers.get_answer("properties", lambda: self._look_up(access), REFRESH_S)

    async def read_log_end(
        self, access: ConnectorAccess, properties: dict[str, Any], young_s: float = YOUNG_S
    ) -> Position:
        """Return the end of the log.

        :param access: who asks; its definition can be used
        :param properties: from :meth:`resolve_properties`
        :param young_s: how long ago it may have been asked for, a second at most
        :raises CdcError: the source cannot be queried
        """
        try:
            return await self._answers.get_answer(
                "end", lambda: self.run(lambda: access.end_of_log(properties)), min(young_s, YOUNG_S)
            )
        except CdcError:
            self._answers.discard_answer("properties")
            raise

    async def _look_up(self, access: ConnectorAccess) -> dict[str, Any]:
        try:
            self._properties = await self.run(access.resolve_properties)
        except Exception as e:
            if self._properties is None:
                raise
            # Airflow says the same when its API server does not answer: a working connection is not given up for that
            log.warning(
                "Connection %s cannot be looked up; continuing with its last known settings. %s", access.conn_id, e
            )
        return self._properties


class _SharedAnswers:
    """Answers to questions, each asked once for all that ask it at about the same time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def get_answer(self, key: str, ask: Callable[[], Awaitable[T]], young_s: float) -> T:
        """Return the present answer, or one that is at most ``young_s`` seconds old.

        An error is at most a second old.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._request_answer(key, ask, young_s))
            task.add_done_callback(_consume_error)
        return await asyncio.shield(task)

    def discard_answer(self, key: str) -> None:
        """Discard an answer, so that the next request asks again."""
        self._tasks.pop(key, None)

    async def _request_answer(self, key: str, ask: Callable[[], Awaitable[T]], young_s: float) -> T:
        rest = min(young_s, YOUNG_S)
        try:
            answer = await ask()
            rest = young_s
            return answer
        finally:
            asyncio.get_running_loop().call_later(rest, self._old, key, asyncio.current_task())

    def _old(self, key: str, task: asyncio.Task[Any] | None) -> None:
        """Forget this answer, not one that has come after it."""
        if self._tasks.get(key) is task:
            self.discard_answer(key)


def _consume_error(task: asyncio.Task[Any]) -> None:
    """Read the error of a task: if all that wait have been cancelled, the event loop would report it as its own."""
    if not task.cancelled():
        task.exception()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedSource]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def shared_source(access: ConnectorAccess) -> AsyncIterator[SharedSource]:
    """Yield the source of a connector, for as long as any trigger waits for it.

    :raises ConfigError: there is no such kind of source, or the definition holds a secret
    """
    sources = _of_loop.setdefault(asyncio.get_running_loop(), {})
    key = await get_loop_threads().run(("source", access.conn_id), access.source_key)
    source = sources.setdefault(key, SharedSource(key))
    source.users += 1
    try:
        yield source
    finally:
        source.users -= 1
        if not source.users:
            del sources[key]
