"""Runs calls that may block or hang in threads, beside the event loop of a triggerer, so that none that hangs keeps the others from running.

>>> sources = CallThreads(at_once=16, patience_s=1.0)
>>> await sources.run("shop_mariadb", source.current_position)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_cdc.hooks.airflow_compat import lend_event_loop

T = TypeVar("T")

_AT_ONCE, _PATIENCE_S = 16, 1.0
"""Most calls of sources and storages at once, and seconds after which one is late."""


class CallThreads:
    """A bounded number of threads.

    A call that takes longer than ``patience_s`` gives its place to the next one and continues apart. So do further calls of its key, one after the other,
    until one of them is in time. So databases that hang, or that never answer packets, delay the others by ``patience_s`` once, and then no more; each
    costs one thread.

    Threads are daemons: one that hangs for minutes does not keep the process from ending.

    :param at_once: calls that run at the same time, besides those that are late
    :param patience_s: after this time a call is late; ``None``: never
    """

    def __init__(self, at_once: int, *, patience_s: float | None = None) -> None:
        self._prompt = _CallSlots(at_once)
        self._late: dict[Hashable, _CallSlots] = {}
        self._patience_s = patience_s

    async def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """Make a call in a thread, and return its result.

        A call whose caller is cancelled runs to its end, and keeps its place until then.

        :param key: the system that may hang, such as a database
        """
        places = await self._entered(key)
        return await _ThreadCall(self, key, places, call).wait_for_result()  # type: ignore[no-any-return]

    async def _entered(self, key: Hashable) -> _CallSlots:
        """Take a place among those where the key belongs when it is free."""
        while True:
            places = self._late.get(key, self._prompt)
            await places.acquire_slot()
            if places is self._late.get(key, self._prompt):
                return places
            places.release_slot()

    def _is_late(self, key: Hashable, places: _CallSlots) -> _CallSlots:
        """Give the place of a call to the next one.

        :return: where the call is now
        """
        apart = self._late.setdefault(key, _CallSlots(1))
        if places is self._prompt:
            places.release_slot()
            apart.used += 1
            return apart
        return places

    def _is_in_time(self, key: Hashable) -> None:
        self._late.pop(key, None)


def get_loop_threads() -> CallThreads:
    """Return the threads of this event loop for calls that may hang, of sources and storages."""
    return _of_loop.setdefault(asyncio.get_running_loop(), CallThreads(_AT_ONCE, patience_s=_PATIENCE_S))


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, CallThreads] = WeakKeyDictionary()


class _ThreadCall:
    """A call in its thread."""

    def __init__(self, threads: CallThreads, key: Hashable, places: _CallSlots, call: Callable[[], Any]) -> None:
        self._threads, self._key, self._places, self._call = threads, key, places, call
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Any] = self._loop.create_future()
        self._done.add_done_callback(_consume_error)
        self._in_time = True
        patience_s = threads._patience_s
        self._timer = None if patience_s is None else self._loop.call_later(patience_s, self._late)
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._work,), name=f"cdc {key}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._leave()
            raise

    async def wait_for_result(self) -> Any:
        return await asyncio.shield(self._done)

    def _work(self) -> None:
        """In the thread."""
        lend_event_loop(self._loop)
        result, error = None, None
        try:
            result = self._call()
        except BaseException as e:  # whatever it is: it is raised where it is waited for
            error = e
        with contextlib.suppress(RuntimeError):  # the event loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _late(self) -> None:
        self._in_time = False
        self._places = self._threads._is_late(self._key, self._places)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._places.release_slot()

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._leave()
        if self._in_time:
            self._threads._is_in_time(self._key)
        if self._done.cancelled():
            return
        if error is None:
            self._done.set_result(result)
        else:
            self._done.set_exception(error)


def _consume_error(done: asyncio.Future[Any]) -> None:
    """Read the error of a call: if no caller waits for the result any more, the event loop would report it as its own."""
    if not done.cancelled():
        done.exception()


class _CallSlots:
    """Places in the order of their requests; all calls come from one event loop."""

    def __init__(self, size: int) -> None:
        self.size, self.used = size, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire_slot(self) -> None:
        if self.used < self.size and not self._waiting:
            self.used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn  # the place is taken for it
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release_slot()
            raise

    def release_slot(self) -> None:
        self.used -= 1
        while self._waiting and self.used < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.used += 1
                turn.set_result(None)
