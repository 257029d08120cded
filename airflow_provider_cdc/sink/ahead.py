"""Items that are made in a thread while somebody works on those before: the database has to wait less for us, and we for it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")
_LOOK_S = 0.05
"""How often a thread whose items are not taken looks whether they are still wanted."""


@contextlib.contextmanager
def ahead(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """The same items, of which the next one is made while one is worked on. Memory: one more of them, and one that waits.

        >>> with ahead(iter([1, 2])) as items:
        ...     print(list(items))
        [1, 2]

    What making them raises is raised by the iterator.
    """
    made: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(1)
    ended = threading.Event()

    def hand(item: tuple[bool, Item | BaseException | None]) -> bool:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=_LOOK_S)
                return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not hand((True, item)):
                    return
            hand((False, None))
        except BaseException as e:  # told to who waits for it
            hand((False, e))

    def taken() -> Iterator[Item]:
        while True:
            more, item = made.get()
            if more:
                yield item  # type: ignore[misc]
            elif item is None:
                return
            else:
                raise item  # type: ignore[misc]

    thread = threading.Thread(target=make, name="cdc-ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        thread.join()
