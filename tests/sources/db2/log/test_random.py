"""Random work of several writers, read by streams that are ended anywhere, while the agent is stopped and started: the changes add up to the tables.

What the tables held at a position that the server derives from its own log (``table_at``).
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from unittest.mock import patch

import pytest

from airflow_provider_cdc.sources.db2.log import commit_windows, stream
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeMerger
from airflow_provider_cdc.sources.db2.position import lsn_bytes
from dev.servers.db2 import Db2
from dev.servers.db2.engine.driver import Connection
from tests.sources.db2.log.streamed import Row, StreamedSchema, replay_events
from tests.support.sources.db2.db2_manners import draw_server_options

TABLES = ("A", "B", "C")
WRITERS = 3
SECONDS = 6.0
COLUMNS = "(ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40), N BIGINT)"


class Writer(threading.Thread):
    """Changes rows of all tables at random; each writer has its own keys, so that none waits for another."""

    def __init__(self, on: StreamedSchema, number: int, seed: int) -> None:
        super().__init__(name=f"writer {number}")
        self._on, self._number, self._random = on, number, random.Random(seed * 10 + number)
        self._next = 0
        self.until = time.monotonic() + SECONDS
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self._on.server.connect(f"W{self._number}") as connection:
                keys: dict[str, set[int]] = {table: set() for table in TABLES}
                while time.monotonic() < self.until:
                    tried = {table: set(ids) for table, ids in keys.items()}
                    done = self._work(connection, tried)
                    if done and self._random.random() < 0.8:
                        connection.commit()
                        keys = tried
                    else:
                        connection.rollback()
                    time.sleep(self._random.choice((0, 0, 0.01, 0.05)))
        except Exception as e:
            self.error = e

    def _work(self, connection: Connection, keys: dict[str, set[int]]) -> bool:
        """Change some rows. Gives whether that has worked: the test server's engine gives up on a sequence that too many want at once."""
        try:
            for _ in range(self._random.choice((1, 1, 2, 5, 20))):
                connection.execute(self._statement(keys))
        except Exception as e:
            if "X0Y84" not in str(e):
                raise
            return False
        return True

    def _statement(self, keys: dict[str, set[int]]) -> str:
        table, roll = self._random.choice(TABLES), self._random.random()
        name, ids = f"{self._on.namespace}.{table}", keys[table]
        if not ids or roll < 0.4:
            ids.add(new := self._new())
            return f"INSERT INTO {name} VALUES ({new}, 'w{self._number}', {self._random.randrange(10**12)})"
        key = self._random.choice(sorted(ids))
        if roll < 0.65:
            return f"UPDATE {name} SET V = '{self._random.randrange(1000)}', N = NULL WHERE ID = {key}"
        ids.discard(key)
        if roll < 0.8:
            ids.add(new := self._new())
            return f"UPDATE {name} SET ID = {new} WHERE ID = {key}"
        return f"DELETE FROM {name} WHERE ID = {key}"

    def _new(self) -> int:
        self._next += 1
        return self._next * WRITERS + self._number


def tables_at(on: StreamedSchema, table: str, lsn: bytes) -> list[Row]:
    """The rows of a table at a position, as the server's log has them."""
    rows = [dict(zip(("ID", "V", "N"), row, strict=True)) for row in on.server.table_at(on.namespace, table, lsn)]
    return sorted(rows, key=lambda row: row["ID"])


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [True, False])
def test_changes_add_up_to_the_tables_at_every_position(db2_factory: Callable[..., Db2], pairs: bool) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    db2 = db2_factory(**draw_server_options(rng))
    on = StreamedSchema(db2)
    on.create(*(f"{table} {COLUMNS}" for table in TABLES), upd_to_del_ins=pairs, before_prefix=None if pairs else "X")
    on.begin()
    reached = [on.position]
    writers = [Writer(on, number, seed) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        while any(writer.is_alive() for writer in writers):
            with (
                patch.object(ChangeMerger.__init__, "__defaults__", (rng.choice((1, 3, 20, 1000)),)),
                patch.object(stream, "FETCH_ROWS", rng.choice((1, 2, 7, 1000))),
                patch.object(commit_windows, "FIRST", rng.choice((1, 2, 50))), patch.object(commit_windows, "LEAST", 1),
                patch.object(commit_windows, "MOST", rng.choice((1, 3, 1000))),
            ):  # fmt: skip
                for item in itertools.islice(on.stream(), rng.randrange(1, 60)):
                    if not getattr(item, "open", False):
                        reached.append(on.position)
            db2.agent(rng.choice(("stop", "start", "pause", "resume", "start", "resume")))
    finally:
        for writer in writers:
            writer.join()
        db2.agent("start")
        db2.agent("resume")
    assert [writer.error for writer in writers] == [None] * WRITERS
    on.read()
    reached.append(on.position)
    assert len(on.events) > 30
    commits = [lsn_bytes(e.commit) for e in on.events]
    assert commits == sorted(commits)
    assert len({(e.table, e.change) for e in on.events}) == len(on.events)
    for position in (reached[0], reached[-1], *rng.sample(reached, min(8, len(reached)))):
        so_far = [e for e in on.events if lsn_bytes(e.commit) <= position.commit_lsn]
        for table in TABLES:
            assert replay_events(so_far, table) == tables_at(on, table, position.commit_lsn)
