"""The application that works in the ``inventory`` database while it is captured."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

from dev.demonstration.kit import Kit


class LiveWriter:
    """An application that does not stop for capture: a transaction every few milliseconds. A context manager.

    :ivar done: what it did → how often
    """

    def __init__(self, kit: Kit, pause_s: float = 0.02) -> None:
        self._kit, self._pause_s = kit, pause_s
        self._chance = random.Random(2)
        self._stop = threading.Event()
        self._wanted: list[tuple[str, ...]] = []
        self._thread = threading.Thread(target=self._work, name="live-writer", daemon=True)
        self._error: BaseException | None = None
        self.done: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End after the transaction that is going on.

        :raises BaseException: whatever ended the writer before
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def change_schema(self, *statements: str) -> None:
        """Have it run DDL statements between two transactions."""
        self._wanted.append(statements)

    def _work(self) -> None:
        try:
            with self._kit.connect() as connection, connection.cursor() as cursor:
                while not self._stop.is_set():
                    if self._wanted:
                        for statement in self._wanted.pop(0):
                            cursor.execute(statement)
                        self.done["schema changes"] += 1
                    try:
                        self.transaction(connection, cursor)
                    except Exception as e:
                        if not self._kit.begins_again(e):
                            raise
                        connection.rollback()
                        self.done["begun again"] += 1
                    time.sleep(self._pause_s)
        except BaseException as e:  # raised by stop()
            self._error = e

    def transaction(self, connection: Any, cursor: Any) -> None:
        """Some changes, committed or rolled back, on a connection of the kit."""
        chance, did = self._chance, Counter[str]()
        for _ in range(chance.choice((1, 1, 2, 5))):
            did[self._change(cursor)] += 1
        if self._kit.savepoint and chance.random() < 0.05:
            cursor.execute(self._kit.savepoint)
            for _ in range(2):
                self._change(cursor)
            cursor.execute("ROLLBACK TO SAVEPOINT before_second_thoughts")
            self.done["rolled back to a savepoint"] += 1
        if chance.random() < 0.05:
            connection.rollback()
            self.done["rolled back"] += 1
        else:
            connection.commit()
            self.done["transactions"] += 1
            self.done += did

    def _change(self, cursor: Any) -> str:
        """Make a change of a random kind, and return the kind's name."""
        kit, chance = self._kit, self._chance
        kinds = {"inserts": kit.inserts, "updates": kit.updates, "deletes": kit.deletes, "key changes": kit.key_changes}
        what = chance.choices(list(kinds), (5, 6, 2, 1))[0]
        kinds[what](cursor, chance)
        return what
