"""Runs with staging tables that are killed, and runs beside others: each event is in the tables once, the marker is that of the rows, and no staging table is left."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL
from airflow_provider_cdc.targets.database.progress.marker_table import MarkerTable
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.database.apply.test_database_apply import in_order, rows, write_transactions
from tests.targets.database.killed import start
from tests.targets.database.parallel.test_staged_parallel_apply import left, staged_apply, url

pytestmark = [pytest.mark.crash, pytest.mark.sampled(3)]
__all__ = ["url"]

TABLES = ("s.one", "s.two")


class FollowedSource:
    """A source, and what its tables had at the end of each batch."""

    def __init__(self, folder: Path) -> None:
        self.source, self._r = MemoryDatabase(str(folder)), Random(5)
        for name in TABLES:
            self.source.create_table(name, {"id": "int64!", "a": "string", "b": "int32"}, key=("id",))
        self.connector: Connector = memory_connector(self.source, folder, topic_prefix="p")
        self._at: dict[int, Any] = {0: {name: [] for name in TABLES}}

    def go_on(self) -> None:
        for name in TABLES:
            write_transactions(self.source, name, self._r, 3)
        self.connector.capture()
        last = self.connector.changelog.list_batches(self.connector.name)[-1]
        self._at[last] = {name: in_order(self.source.copy_rows(name)) for name in TABLES}

    def check(self, engine: sa.Engine, *, ended: bool) -> None:
        """The tables have what they had when the batch of their marker ended.

        :param ended: it is the last batch, and nothing else is left
        """
        with engine.connect() as connection:
            markers = MarkerTable("cdc_applied", self.connector.name)
            batch = markers.read(connection).batch if markers.is_created(connection) else 0
            there = set(sa.inspect(connection).get_table_names())
        tables = {name: f"p_{name.replace('.', '_')}" for name in TABLES}
        found = {name: in_order(rows(engine, table)) if table in there else [] for name, table in tables.items()}
        assert found == self._at[batch]
        if ended:
            assert batch == max(self._at)
            assert left(engine) == []


@pytest.fixture
def followed_target(tmp_path: Path) -> FollowedSource:
    return FollowedSource(tmp_path)


def test_a_run_that_is_killed_at_any_statement_is_finished_by_the_next_one(
    engine: sa.Engine, url: str, followed_target: FollowedSource, sampled: CaseSample
) -> None:
    log, connector, r = (
        followed_target.connector.changelog.storage.url,
        followed_target.connector,
        sampled.random("kills"),
    )
    ended, statement, killed = 0, 1, list[int]()
    while ended == 0:
        followed_target.go_on()
        process = start({**EQUAL, "connection.url": url}, log, connector.name, statement=statement, staged=True)
        process.join(LONGEST_S)
        assert process.exitcode in (0, -9)
        followed_target.check(engine, ended=process.exitcode == 0)
        if process.exitcode == 0:
            ended += 1
        else:
            killed.append(len(left(engine)))
        if r.random() < 0.5:
            staged_apply(engine, connector).apply()
            followed_target.check(engine, ended=True)
        statement += r.randrange(1, 30)
        assert statement < 1000
    assert max(killed) > 3, "none was killed in the middle of its work"


def test_runs_at_once_of_which_some_are_killed_apply_each_batch_once(
    engine: sa.Engine, url: str, followed_target: FollowedSource, sampled: CaseSample
) -> None:
    log, connector, r = (
        followed_target.connector.changelog.storage.url,
        followed_target.connector,
        sampled.random("kills"),
    )
    for _ in range(2):
        followed_target.go_on()
        running = [
            start({**EQUAL, "connection.url": url}, log, connector.name, statement=statement, staged=way)
            for statement, way in ((0, True), (r.randrange(30, 90), True), (0, False), (0, True))
        ]
        followed_target.go_on()
        for process in running:
            process.join(LONGEST_S)
        assert [process.exitcode for number, process in enumerate(running) if number != 1] == [0, 0, 0]
        followed_target.check(engine, ended=False)
        followed_target.go_on()  # those that were overtaken or killed may have left tables, which go when the marker moves on
        staged_apply(engine, connector).apply()
        followed_target.check(engine, ended=True)
