"""Makes items in a thread while the caller works on earlier ones: the database waits less for us, and we wait less for it."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Source = TypeVar("Source")
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


def map_ahead(work: Callable[[Source], Item], items: Iterable[Source], most: int = 16) -> Generator[Item, None, None]:
    """Yield the results of some work in the order of its items, of which later ones are worked on meanwhile, by threads.

        >>> list(map_ahead(str, [1, 2, 3]))
        ['1', '2', '3']

    One item is worked on ahead at first, then two, four, up to ``most``: if the caller stops early, or the work finds an end, no more was done for nothing than
    for something. The iterator raises the errors of the work when their item's turn comes.

    :param most: items ahead, and results that wait for the caller
    """
    rest = iter(items)
    for first in itertools.islice(rest, 1):  # often there is no other: then no thread is needed
        yield work(first)
    waiting, allowed = deque[Future[Item]](), 1
    with contextlib.ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        while True:
            for item in itertools.islice(rest, allowed - len(waiting)):
                if pool is None:
                    pool = ThreadPoolExecutor(most, "cdc-map-ahead")
                    stack.callback(pool.shutdown, cancel_futures=True)
                waiting.append(pool.submit(work, item))
            if not waiting:
                return
            yield waiting.popleft().result()
            allowed = min(2 * allowed, most)
