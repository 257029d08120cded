"""Relational tables by way of a real cluster: a load that is large, and drivers and executors that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.staging_workers import PREFIX
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev import paths
from dev.servers import SparkCluster
from tests.support.connectors import Connector, memory_connector, mysql_connector
from tests.support.patience import LONGEST_S
from tests.support.workloads import large
from tests.targets.lake.jobs.test_apply_to_database import TABLES, engine, equal, source, url, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.crash]
__all__ = ["engine", "source", "url"]

ROWS = int(os.environ.get("CDC_TEST_SINK_ROWS", "5000000"))
"""Fewer are only to try the test."""
PYTHON_MB = 500
"""The most memory of a Python of an executor: its libraries, a partition, and what Spark keeps until it writes it to disk."""
_TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


@dataclass
class ClusterJob:
    """Runs of the job on a cluster, as a worker of Airflow would submit them."""

    cluster: SparkCluster
    url: str
    folder: Path
    more: tuple[str, ...] = ()
    said: Path = field(init=False)

    def __post_init__(self) -> None:
        self.said = self.folder / "jobs.log"
        self.said.touch()

    def start(self, connector: Connector, *arguments: str) -> subprocess.Popen[bytes]:
        settings = {
            "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "500m", "spark.cores.max": "2",
        }  # fmt: skip
        command = [
            Path(sys.executable).with_name("spark-submit"), "--master", self.cluster.url, "--driver-memory", "500m",
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))), paths.ROOT / "spark_jobs" / "apply_to_database.py",
            "--changelog", connector.changelog.storage.url, "--connector", connector.name, *self.more, *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ, "PYTHONPATH": str(paths.ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "CDC_SINK_PROPERTIES": json.dumps({"connection.url": self.url}),
        }  # fmt: skip
        with self.said.open("ab") as log:
            return subprocess.Popen(
                list(map(str, command)),
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, connector: Connector) -> None:
        assert self.start(connector).wait(LONGEST_S) == 0, self.text()[-6000:]

    def text(self) -> str:
        return self.said.read_text(errors="replace")

    def note(self, text: str) -> None:
        with self.said.open("a") as log:
            log.write(f"\n{text}\n")


def test_what_kills_drivers_and_executors_at_any_moment_loses_and_doubles_nothing(
    cluster: SparkCluster, engine: sa.Engine, url: str, source: MemoryDatabase, tmp_path: Path
) -> None:
    """A run works off what comes, batch after batch; its driver or one of its executors is killed every few seconds."""
    connector, r = memory_connector(source, tmp_path, topic_prefix="p"), Random(7)
    job, ended = ClusterJob(cluster, url, tmp_path, ("--staged-from", "1")), threading.Event()
    write_batches(source, connector, r)
    with ThreadPoolExecutor(1) as threads:
        killer = threads.submit(_kill, job, connector, Random(8), ended)
        try:
            until = time.monotonic() + 3 * LONGEST_S
            while min(job.text().count(f"killed {what}") for what in ("a driver at work", "an executor")) < 3:
                assert time.monotonic() < until, job.text()[-6000:]
                assert not killer.done(), job.text()[-6000:]
                write_batches(source, connector, r)
                time.sleep(0.5)
        finally:
            ended.set()
        killer.result()
    write_batches(source, connector, r)  # what killed runs have left goes when the marker has moved on
    job.run(connector)
    equal(engine, source)
    assert len(TABLES) == 3


def _kill(job: ClusterJob, connector: Connector, chance: random.Random, ended: threading.Event) -> None:
    longer = 1.0
    while not ended.is_set():
        before = job.text().count("are staged by")
        process = job.start(connector, "--run-for", "600")
        for _ in range(chance.randint(0, 3)):
            if not ended.wait(longer * chance.uniform(4, 12)) and job.cluster.kill_executor(chance.randrange(2)):
                job.note("killed an executor")
        ended.wait(longer * chance.uniform(4, 12))
        worked = job.text().count("are staged by") > before
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            job.note("killed a driver at work" if worked else "killed a driver that had not begun")
        else:
            job.note(f"a driver has ended by itself, {process.returncode}")
        if not worked:  # a slow machine needs longer to get anywhere at all
            longer *= 1.5


# -- much -------------------------------------------------------------------------------------------------------------


@dataclass
class LargeSnapshot:
    """A table with many rows, captured by a snapshot."""

    database: Any
    connector: Connector
    digest: tuple[int, int]

    @property
    def table(self) -> str:
        """Its name in the target."""
        return f"p_{self.database.name}_orders"


@pytest.fixture(scope="module")
def many_rows(mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeSnapshot]:
    with mariadb.database("many") as database:
        large.create(database, "orders")
        for first in range(1, ROWS, ROWS // 5):
            large.fill(database, "orders", ROWS // 5, first)
        folder = tmp_path_factory.mktemp("many")
        connector = mysql_connector(mariadb, folder, database_include_list=database.name, topic_prefix="p")
        connector.capture()
        digest = _digest(database)
        assert digest[0] == ROWS
        yield LargeSnapshot(database, connector, digest)


def test_five_million_rows_come_equal_by_two_workers(
    cluster: SparkCluster, many_rows: LargeSnapshot, postgres: Any, tmp_path: Path
) -> None:
    """The rows in PostgreSQL are those of MariaDB, value by value."""
    with postgres.database("alone") as name:
        job = ClusterJob(cluster, postgres.url(name), tmp_path)
        assert _apply_and_kill(job, many_rows).python < PYTHON_MB
        _assert_target_equals(job, many_rows, many_rows.digest)


def test_five_million_rows_come_equal_although_an_executor_is_killed_and_then_changes_of_a_fifth(
    cluster: SparkCluster, many_rows: LargeSnapshot, postgres: Any, tmp_path: Path
) -> None:
    with postgres.database("killed") as name:
        job = ClusterJob(cluster, postgres.url(name), tmp_path)
        _apply_and_kill(job, many_rows, kill=True)
        _assert_target_equals(job, many_rows, many_rows.digest)
        many_rows.database.sql("UPDATE orders SET note = CONCAT('changed ', id), price = price + 1 WHERE id % 10 = 3")
        many_rows.database.sql("DELETE FROM orders WHERE id % 10 = 4")
        many_rows.connector.capture()
        many_rows.digest = _digest(many_rows.database)
        _apply_and_kill(job, many_rows)
        _assert_target_equals(job, many_rows, many_rows.digest)


def _apply_and_kill(job: ClusterJob, many: LargeSnapshot, *, kill: bool = False) -> _ResourceUsage:
    with _ResourceUsage(job.cluster) as watched:
        process = job.start(many.connector)
        watched.driver = process.pid
        if kill:
            engine = open_engine(DatabaseTargetConfig.parse({"connection.url": job.url}))
            _wait_until(lambda: _list_staging_tables(engine))
            engine.dispose()
            assert job.cluster.kill_executor(0)
            job.note("killed an executor")
        assert process.wait(LONGEST_S) == 0, job.text()[-6000:]
    assert "are staged by" in job.text()
    print(f"{'an executor was killed: ' if kill else ''}{watched.told()}\n{job.text()}")
    return watched


def _assert_target_equals(job: ClusterJob, many: LargeSnapshot, digest: tuple[int, int]) -> None:
    """The target has the rows of the source, and nothing is left over."""
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": job.url}))
    assert _digest_there(engine, many.table) == digest
    assert _list_staging_tables(engine) == []
    engine.dispose()


def _list_staging_tables(engine: sa.Engine) -> list[str]:
    return [name for name in sa.inspect(engine).get_table_names() if name.startswith(PREFIX)]


_COLUMNS = "id, customer, quantity, price, note, {}, paid, weight"


def _digest(database: Any) -> tuple[int, int]:
    """Number of rows, and a number in which every value of theirs is."""
    columns = _COLUMNS.format("DATE_FORMAT(made_at, '%Y-%m-%d %H:%i:%s.%f')")
    part = f"CAST(CONV(SUBSTR(MD5(CONCAT_WS('|', {columns})), 1, 15), 16, 10) AS UNSIGNED)"
    ((rows, number),) = database.sql(f"SELECT COUNT(*), BIT_XOR({part}) FROM orders")
    return int(rows), int(number)


def _digest_there(engine: sa.Engine, table: str) -> tuple[int, int]:
    columns = _COLUMNS.format("to_char(made_at, 'YYYY-MM-DD HH24:MI:SS.US')")
    part = f"('x' || lpad(substr(md5(concat_ws('|', {columns})), 1, 15), 16, '0'))::bit(64)::bigint"
    with engine.connect() as connection:
        rows, number = connection.exec_driver_sql(f"SELECT count(*), bit_xor({part}) FROM {table}").one()
    return int(rows), int(number)


def _wait_until(true: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


class _ResourceUsage:
    """Seconds, CPU seconds and the most memory of the driver, of the executors, and of each Python of theirs, in a ``with`` block."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster, self._ended, self.driver = cluster, threading.Event(), 0
        self._cpu: dict[str, dict[int, float]] = {"driver": {}, "executors": {}}
        self._most = dict.fromkeys(self._cpu, 0.0)
        self.python = 0.0
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _ResourceUsage:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._ended.set()
        self._thread.join()

    def told(self) -> str:
        sizes = ", ".join(
            f"{who} {sum(self._cpu[who].values()):.0f} CPU s and {self._most[who]:.0f} MB at most" for who in self._cpu
        )
        return f"{self.seconds:.1f} s, {sizes}, {self.python:.0f} MB one Python of an executor"

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            below = _make_process_tree()
            for who, roots in (("driver", [self.driver]), ("executors", self._cluster.executors)):
                pids = {pid for root in roots if root for pid in below(root)}
                memory = 0.0
                for pid in pids:
                    try:
                        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                        memory += (own := int(fields[21]) * 4096 / 1e6)
                        if who == "executors" and pid not in roots:
                            self.python = max(self.python, own)
                        self._cpu[who][pid] = (int(fields[11]) + int(fields[12])) / _TICK
                    except OSError:
                        continue  # it has just ended
                self._most[who] = max(self._most[who], memory)


def _make_process_tree() -> Callable[[int], set[int]]:
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(process.name))

    def descendants_of(root: int) -> set[int]:
        found, todo = set[int](), [root]
        while todo:
            one = todo.pop()
            found.add(one)
            todo += children.get(one, [])
        return found

    return descendants_of
