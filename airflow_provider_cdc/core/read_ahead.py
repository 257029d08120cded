"""Makes items in a thread while the caller works on earlier ones: the database waits less for us, and we wait less for it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_LOOK_S = 0.05
"""Seconds between two checks of a thread whose items are not taken: are they still wanted?"""
_CANCEL_S = 1.0
"""Seconds between two cancels of a thread that does not end."""


def _nothing() -> None:
    return None


@contextlib.contextmanager
def read_ahead(items: Iterator[Item], cancel: Callable[[], None] = _nothing) -> Iterator[Iterator[Item]]:
    """Give the same items, of which the next one is made while the caller works on one. Memory: two more items.

        >>> with read_ahead(iter([1, 2])) as items:
        ...     print(list(items))
        [1, 2]

    Leaving the block waits for the thread. The iterator raises the errors of making an item.

    :param cancel: ends the call that the thread may be in, if the caller leaves the block before the last item; it may be repeated.
        It is not called after the last item: a driver would end the next call of the connection instead
    """
    handed: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(1)
    ended, exhausted = threading.Event(), threading.Event()

    def hand(item: tuple[bool, Item | BaseException | None]) -> bool:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                handed.put(item, timeout=_LOOK_S)
                return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not hand((True, item)):
                    return
            exhausted.set()
            hand((False, None))
        except BaseException as e:  # the iterator raises it
            exhausted.set()
            hand((False, e))

    def taken() -> Iterator[Item]:
        while True:
            more, item = handed.get()
            if more:
                yield item  # type: ignore[misc]
            elif item is None:
                return
            else:
                raise item  # type: ignore[misc]

    thread = threading.Thread(target=make, name="cdc-read-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        while thread.is_alive():  # a call that begins after a cancel needs another one
            if not exhausted.is_set():
                cancel()
            thread.join(_CANCEL_S)
