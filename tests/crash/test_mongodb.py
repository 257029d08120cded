"""Captures of MongoDB that are killed, while other members of the replica set take over."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pymongo
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import TableSchema
from dev.servers.mongodb import ReplicaSet, ShardedCluster
from tests.support.change_log.log_consistency import consistent
from tests.support.patience import wait_until
from tests.support.processes.fork import Forks
from tests.support.sources.mongodb import mongodb_columns
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, mongodb_connector
from tests.support.sources.mongodb.mongodb_work import CollectionWork, assert_same_documents, draw_deployment_options
from tests.targets.database.apply.test_database_apply import rows, sink

pytestmark = pytest.mark.crash

DATABASE = "crash"


class ShardedWork(CollectionWork):
    """Work on a collection that is spread over the shards, by a hash or by ranges of its keys."""

    hashed = True

    def spread(self) -> None:
        """Shard the collection."""
        namespace = self.collection.full_name
        self.client.admin.command({"shardCollection": namespace, "key": {"_id": "hashed" if self.hashed else 1}})
        if not self.hashed:
            for middle in (5, 20, "5"):
                self.client.admin.command({"split": namespace, "middle": {"_id": middle}})

    def move(self, id_: Any, to: str) -> None:
        """Bring the chunk of a key to another shard."""
        find = {"_id": id_}
        self.client.admin.command({"moveChunk": self.collection.full_name, "find": find, "to": to})

    def _drop(self) -> None:
        super()._drop()
        self.spread()


class CrashBench:
    """A writer on a deployment, and a connector whose runs die."""

    def __init__(
        self,
        deployment: Any,
        url: str,
        forks: Forks,
        folder: Path,
        work: type[CollectionWork] = CollectionWork,
        **properties: object,
    ) -> None:
        self.members, self._forks, self._folder = deployment, forks, folder
        self.client: pymongo.MongoClient[dict[str, object]] = deployment.connect()
        self.client.drop_database(DATABASE)
        self.work = work(self.client, DATABASE, 5)
        self.connector: MongoConnector = mongodb_connector(
            url,
            folder,
            database_include_list=DATABASE,
            batch_max_rows=20,
            snapshot_max_threads=2,
            **properties,
        )
        self.died: Counter[str] = Counter()

    def run(self, at: int) -> bool:
        """Run a capture that dies at a step; return True if it died."""
        ended = self._forks.start(
            "tests.support.processes.crash:capture", folder=str(self._folder), kind="mongodb", at=at,
            options=self.connector.properties, secrets=self.connector.secrets,
        ).wait()  # fmt: skip
        assert ended.error == "", ended.text
        assert ended.signal in (0, signal.SIGKILL)
        if ended.signal:
            self.died[(self._folder / "died").read_text()] += 1
        return bool(ended.signal)

    def ends_equal(self) -> None:
        """A run that no one kills makes good what was left, and the next one continues from there."""
        for times in (0, 5):
            self.work.write(times)
            self.connector.capture()
            found = super(MongoConnector, self.connector).rows(f"{DATABASE}.letters")
            assert_same_documents([row["document"] for row in found], self.work.collection.find())
        consistent(self.connector)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(
        "tests.support.processes.crash",
        "airflow_provider_cdc.sources.mongodb.source",
        "airflow_provider_cdc.sources.mongodb.documents.extended_json",
        "airflow_provider_cdc.sources.mongodb.columns.row_conversion",
    ) as forks:
        yield forks


@pytest.fixture(scope="module")
def members() -> Iterator[ReplicaSet]:
    with ReplicaSet() as members:
        yield members


@pytest.fixture
def bench(members: ReplicaSet, forks: Forks, folder: Path) -> Iterator[CrashBench]:
    bench = CrashBench(members, members.url(), forks, folder)
    with contextlib.closing(bench.client):
        yield bench


def test_a_snapshot_killed_at_many_steps_is_finished_by_later_runs(bench: CrashBench) -> None:
    """Each run comes a little further than the one before; documents change in between."""
    bench.work.write(60)
    step, runs = 1, 0
    while bench.run(step):
        bench.work.write(2)
        step, runs = step + 7, runs + 1
    assert runs > 3
    bench.ends_equal()


def test_a_stream_killed_at_random_steps_beside_elections_loses_and_repeats_nothing(bench: CrashBench) -> None:
    bench.work.write(20)
    bench.connector.capture()
    r = Random(11)
    for turn in range(12):
        bench.work.write(15)
        if turn == 4:
            with contextlib.suppress(pymongo.errors.AutoReconnect):  # the member that answers is no longer primary
                bench.client.admin.command({"replSetStepDown": 5, "force": True})
        if turn == 8:
            with bench.members.without_member(bench.members.primary()):
                bench.members.primary()
                bench.work.write(5)
                bench.run(r.randrange(1, 40))
        bench.run(r.randrange(1, 40))
    assert bench.died.total() > 6
    bench.ends_equal()


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_stream_killed_on_deployments_of_all_manners_loses_and_repeats_nothing(
    forks: Forks, folder: Path, seed: int
) -> None:
    """Take members down: beside an arbiter, the majority then stands still. Some captures read only secondaries."""
    r = Random(seed)
    options = {name: value for name, value in draw_deployment_options(r).items() if name != "commit_lag_ms"}
    arbiter = r.random() < 0.5
    with ReplicaSet({"noop_seconds": 1, **options}, count=2 if arbiter else 3, arbiters=arbiter) as members:
        preference = "" if arbiter else r.choice(("", "&readPreference=secondary", "&readPreference=nearest"))
        bench = CrashBench(members, members.url() + preference, forks, folder)
        with contextlib.closing(bench.client):
            bench.work.write(30)
            bench.run(r.randrange(3, 20))
            for turn in range(8):
                bench.work.write(10)
                if turn == 4:
                    down = r.choice(members.secondaries())
                    with members.without_member(down):
                        bench.work.write(5)
                        bench.run(r.randrange(1, 40))
                bench.run(r.randrange(1, 40))
            wait_until(lambda: len(members.secondaries()) == 2 - arbiter, "all members are there")
            concern = {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": "majority"}}
            bench.client.admin.command(concern)  # with arbiters, writes do not wait for one by themselves
            bench.ends_equal()


@contextlib.contextmanager
def moving(work: ShardedWork, shards: tuple[str, ...]) -> Iterator[Counter[str]]:
    """Chunks move from shard to shard meanwhile."""
    stop, moved, chance = threading.Event(), Counter[str](), Random(3)

    def move() -> None:
        while not stop.is_set():
            to = chance.choice(shards)
            work.move(chance.choice((1, 7, 30, "7", 2.5, {"n": 1})), to)
            moved[to] += 1
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        mover = pool.submit(move)
        try:
            yield moved
        finally:
            stop.set()
            mover.result()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    """Two shards of three members, and a router."""
    with ShardedCluster({"noop_seconds": 1}, members=3) as started:
        yield started


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("hashed", [True, False], ids=["hash", "ranges"])
def test_a_stream_of_a_sharded_cluster_killed_beside_moved_chunks_and_elections_loses_and_repeats_nothing(
    cluster: ShardedCluster, forks: Forks, folder: Path, hashed: bool
) -> None:
    bench = CrashBench(cluster, cluster.router.url(), forks, folder, ShardedWork)
    work, shards, r = bench.work, tuple(cluster.sets), Random(12)
    assert isinstance(work, ShardedWork)
    work.hashed = hashed
    with contextlib.closing(bench.client):
        work.spread()
        work.write(30)
        with moving(work, shards) as moved:
            bench.run(5)  # within the snapshot
            bench.connector.capture()
        for turn in range(9):
            work.write(12)
            members = cluster.sets[r.choice(shards)]
            if turn == 3:
                with members.primary().direct() as client, contextlib.suppress(pymongo.errors.AutoReconnect):
                    client.admin.command({"replSetStepDown": 5, "force": True})
            stopped = members.without_member(members.primary()) if turn in (5, 7) else contextlib.nullcontext()
            with stopped, moving(work, shards) as more:
                bench.run(r.randrange(1, 40))
            moved += more
        assert bench.died.total() > 4
        assert {*moved} == {*shards}
        bench.ends_equal()


class ColumnBench(CrashBench):
    """The same, with documents as columns that a table of a database follows."""

    def __init__(self, members: ReplicaSet, forks: Forks, folder: Path) -> None:
        columns = {"document_columns_list": r"crash\.letters", "document_columns_depth": 2, "document_columns_max": 50}
        super().__init__(members, members.url(), forks, folder, **columns)
        self.engine = sa.create_engine(f"sqlite:///{folder}/target.db")

    def ends_equal(self) -> None:
        self.connector.capture()
        consistent(self.connector)
        self.applied_equal()
        self.work.write(5)
        self.connector.capture()
        self.applied_equal()

    def applied_equal(self) -> None:
        """Check that the captured and the applied documents have every value of the collection."""
        sink(self.engine, self.connector, collection__name__format="letters").apply()
        (schema,) = self.newest()
        replayed = super(MongoConnector, self.connector).rows(f"{DATABASE}.letters")
        for found in (replayed, rows(self.engine, "letters")):
            mongodb_columns.assert_same_documents(found, schema, self.work.collection, 2)

    def newest(self) -> list[TableSchema]:
        """The newest schema of each table in the change log."""
        found: dict[str, TableSchema] = {}
        for manifest in self.connector.changelog.read_manifests(self.connector.name):
            found |= {topic: versions[max(versions, key=int)] for topic, versions in manifest.schemas.items()}
        return list(found.values())


def test_columns_that_runs_find_before_they_are_killed_are_neither_lost_nor_found_twice(
    members: ReplicaSet, forks: Forks, folder: Path
) -> None:
    """A column comes with the first document that has the field: in a snapshot of two readers, in the stream, within transactions."""
    bench = ColumnBench(members, forks, folder)
    with contextlib.closing(bench.client):
        bench.work.write(60)
        step = 1
        while bench.run(step):
            bench.work.write(2)
            step += 9
        r = Random(3)
        for _ in range(8):
            bench.work.write(12)
            bench.run(r.randrange(1, 40))
        assert bench.died.total() > 6
        bench.ends_equal()
        assert len(bench.newest()[0].columns) == 52
