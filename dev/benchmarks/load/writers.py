"""Processes that write to the server for as long as a measurement lasts: steady changes of a table, and rows that say when they
were written."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import deque
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self

import pymysql

from dev.benchmarks.load.workload import row

CHANGES_PER_S = 1000
TRANSACTION_CHANGES = 10
PROBE_S = 0.2
_AWAY = 500
"""Rows that are deleted at a time, before they are inserted again."""


class Writers:
    """Both processes, in a ``with`` block.

    :param address: arguments of a connection
    :param table: with consecutive ids from 1, as :mod:`dev.benchmarks.load.workload` fills it
    :param probe: table of timestamps
    """

    def __init__(self, address: dict[str, Any], table: str, rows: int, probe: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ended: Event = context.Event()
        self._count: Synchronized[int] = context.Value("q", 0)
        arguments = (self._ended, address)
        self._processes = [
            context.Process(target=_change, args=(*arguments, table, rows, self._count), daemon=True),
            context.Process(target=_probe, args=(*arguments, probe), daemon=True),
        ]

    @property
    def changes(self) -> int:
        """Row changes so far."""
        return self._count.value

    @property
    def alive(self) -> bool:
        return all(process.is_alive() for process in self._processes)

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        for process in self._processes:
            process.join(timeout=10)


def _change(ended: Event, address: dict[str, Any], table: str, rows: int, count: Synchronized[int]) -> None:
    """Transactions of eight updates, a delete, and the insert of a row that was deleted a while ago, all over the table."""
    r, away = random.Random(7), deque[int]()
    updates = TRANSACTION_CHANGES - 2
    with pymysql.connect(**address, autocommit=False) as connection, connection.cursor() as cursor:
        for _ in _iterate_ticks(ended, TRANSACTION_CHANGES / CHANGES_PER_S):
            ids = ",".join(str(1 + r.randrange(rows)) for _ in range(updates))
            done = cursor.execute(f"UPDATE {table} SET qty = COALESCE(qty, 0) % 1000000 + 1 WHERE id IN ({ids})")
            away.append(1 + r.randrange(rows))
            done += cursor.execute(f"DELETE FROM {table} WHERE id = {away[-1]}")
            if len(away) > min(_AWAY, rows // 100):
                done += cursor.execute(f"INSERT IGNORE INTO {table} VALUES {row(away.popleft())}")
            connection.commit()
            count.value += done


def _probe(ended: Event, address: dict[str, Any], table: str) -> None:
    """A row now and then with the time before it was written, in microseconds since 1970."""
    with pymysql.connect(**address, autocommit=True) as connection, connection.cursor() as cursor:
        for _ in _iterate_ticks(ended, PROBE_S):
            cursor.execute(f"INSERT INTO {table} (at_us) VALUES ({time.time_ns() // 1000})")


def _iterate_ticks(ended: Event, seconds: float) -> Any:
    """Come round so often; what was missed is made up for, up to a second."""
    due = time.monotonic()
    while not ended.is_set():
        yield
        due = max(due + seconds, time.monotonic() - 1)
        time.sleep(max(due - time.monotonic(), 0))
