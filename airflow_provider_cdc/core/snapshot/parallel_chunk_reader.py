"""Reads the chunks of tables by several readers at once, on one view of the database."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession

Group = dict[TableId, list[SnapshotChunk]]
Item = Group | RowBlock | SnapshotChunk


class GroupLookahead:
    """The items that are read, with a lookahead no further than to the next row."""

    def __init__(self, items: Generator[Item]) -> None:
        self._items = items
        self._waiting: deque[Item | BaseException] = deque()

    def __next__(self) -> Item:
        if not self._waiting:
            return next(self._items)
        item = self._waiting.popleft()
        if isinstance(item, BaseException):
            raise item
        return item

    def read_group(self) -> Group | None:
        """Return the next group; ``None`` at the end."""
        try:
            item = next(self)
        except StopIteration:
            return None
        assert isinstance(item, dict)
        return item

    def rows_follow(self) -> bool:
        """Check whether another row follows. An error counts as one, and is raised when its turn comes."""
        while True:
            try:
                self._waiting.append(next(self._items))
            except StopIteration:
                return False
            except BaseException as e:  # raised when its turn comes: the tables that are complete are committed first
                self._waiting.append(e)
            item = self._waiting[-1]
            if isinstance(item, BaseException) or (isinstance(item, RowBlock) and len(item)):
                return True

    def close(self) -> None:
        """End the readers."""
        self._items.close()


def in_parallel(
    session: SnapshotSession, chunks: list[SnapshotChunk], readers: int
) -> Iterator[RowBlock | SnapshotChunk]:
    """Blocks of all chunks, read by several threads, and each chunk when it has ended; at most a few blocks wait at any time."""
    waiting: queue.Queue[RowBlock | SnapshotChunk | BaseException | None] = queue.Queue(maxsize=2)
    todo = iter(chunks)
    lock, stop = threading.Lock(), threading.Event()

    def hand_over(item: RowBlock | SnapshotChunk | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return waiting.put(item, timeout=0.5)
            except queue.Full:
                continue

    def work() -> None:
        try:
            while not stop.is_set():
                with lock:
                    chunk = next(todo, None)
                if chunk is None:
                    break
                for block in session.read(chunk):
                    hand_over(block)
                    if stop.is_set():
                        return
                hand_over(chunk)
            hand_over(None)
        except BaseException as e:  # handed to the consumer, which raises it
            hand_over(e)

    count = max(1, min(readers, len(chunks)))
    with ThreadPoolExecutor(count, thread_name_prefix="cdc-snapshot") as pool:
        for _ in range(count):
            pool.submit(work)
        try:
            ended = 0
            while ended < count:
                item = waiting.get()
                if item is None:
                    ended += 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
