"""Captures of MongoDB that are killed, while other members of the replica set take over."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pymongo
import pytest

from dev.servers.mongodb import ReplicaSet
from tests.support.fork import Forks
from tests.support.leftovers import consistent
from tests.support.mongodb import MongoConnector, mongodb_connector
from tests.support.mongodb_work import Work, same

pytestmark = pytest.mark.crash

DATABASE = "crash"


class Bench:
    """A writer on a replica set, and a connector whose runs die."""

    def __init__(self, members: ReplicaSet, forks: Forks, folder: Path) -> None:
        self.members, self._forks, self._folder = members, forks, folder
        self.client: pymongo.MongoClient[dict[str, object]] = members.connect()
        self.client.drop_database(DATABASE)
        self.work = Work(self.client, DATABASE, 5)
        self.connector: MongoConnector = mongodb_connector(
            members.url(), folder, database_include_list=DATABASE, batch_max_rows=20, snapshot_max_threads=2
        )
        self.died: Counter[str] = Counter()

    def run(self, at: int) -> bool:
        """One run that dies at a step; whether it did."""
        ended = self._forks.start(
            "tests.support.crash:capture", folder=str(self._folder), kind="mongodb", at=at,
            options=self.connector.properties, secrets=self.connector.secrets,
        ).wait()  # fmt: skip
        assert ended.error == "", ended.text
        assert ended.signal in (0, signal.SIGKILL)
        if ended.signal:
            self.died[(self._folder / "died").read_text()] += 1
        return bool(ended.signal)

    def ends_equal(self) -> None:
        """A run that nobody kills makes good what was left, and the next one goes on from there."""
        for times in (0, 5):
            self.work.write(times)
            self.connector.capture()
            found = super(MongoConnector, self.connector).rows(f"{DATABASE}.letters")
            same([row["document"] for row in found], self.work.collection.find())
        consistent(self.connector)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(
        "tests.support.crash",
        "airflow_provider_cdc.sources.mongodb.source",
        "airflow_provider_cdc.sources.mongodb.documents.extended_json",
    ) as forks:
        yield forks


@pytest.fixture(scope="module")
def members() -> Iterator[ReplicaSet]:
    with ReplicaSet() as members:
        yield members


@pytest.fixture
def bench(members: ReplicaSet, forks: Forks, folder: Path) -> Iterator[Bench]:
    bench = Bench(members, forks, folder)
    with contextlib.closing(bench.client):
        yield bench


def test_a_snapshot_killed_at_many_steps_is_finished_by_later_runs(bench: Bench) -> None:
    """Each run comes a little further than the one before; documents change in between."""
    bench.work.write(60)
    step, runs = 1, 0
    while bench.run(step):
        bench.work.write(2)
        step, runs = step + 7, runs + 1
    assert runs > 3
    bench.ends_equal()


def test_a_stream_killed_at_random_steps_beside_elections_loses_and_repeats_nothing(bench: Bench) -> None:
    bench.work.write(20)
    bench.connector.capture()
    r = Random(11)
    for turn in range(12):
        bench.work.write(15)
        if turn == 4:
            with contextlib.suppress(pymongo.errors.AutoReconnect):  # the member that answers is no longer primary
                bench.client.admin.command({"replSetStepDown": 5, "force": True})
        if turn == 8:
            with bench.members.without(bench.members.primary()):
                bench.members.primary()
                bench.work.write(5)
                bench.run(r.randrange(1, 40))
        bench.run(r.randrange(1, 40))
    assert bench.died.total() > 6
    bench.ends_equal()
