"""The jobs on a Spark cluster, with change log and tables in an object store: the same as on one machine, also when processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from dev import paths
from dev.bootstrap.jars import ensure
from dev.servers import S3, SparkCluster
from tests.support.change_log.replay import Replay
from tests.support.connectors import Connector, mysql_connector
from tests.support.patience import LONGEST_S
from tests.support.sources.mysql.workload import WORDS_OF_MARIADB, Writer

pytestmark = [pytest.mark.long, pytest.mark.mysql, pytest.mark.every_kind]

BUCKET = "lake"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


@dataclass
class RemoteJobs:
    """Jobs of one connector that run on a cluster; nothing of theirs is in a folder of this machine."""

    cluster: SparkCluster
    s3: S3
    kind: str
    folder: Path
    prefix: str
    scheme: str = "s3a"

    @property
    def location(self) -> str:
        return f"{self.scheme}://{BUCKET}/{self.prefix}/tables/{{database}}/{{table}}"

    def connector(self, server: Any, name: str, **properties: Any) -> Connector:
        connector = mysql_connector(server, self.folder / name, **properties)
        connector.changelog = ChangeLog(f"{self.scheme}://{BUCKET}/{self.prefix}/{name}")
        connector.replay = Replay(connector.changelog, connector.name)
        return connector

    def start(self, connector: Connector, job: str, *arguments: Any) -> subprocess.Popen[bytes]:
        """Begin a job, as ``spark-submit`` of a worker of Airflow would."""
        settings = {
            "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.cores.max": "2",
            "spark.hadoop.fs.s3a.endpoint": self.s3.endpoint, "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false", "spark.hadoop.fs.s3a.endpoint.region": self.s3.region,
        }  # fmt: skip
        command = [
            Path(sys.executable).with_name("spark-submit"), "--master", self.cluster.url, "--driver-memory", "1g",
            "--jars", ",".join(map(str, ensure(self.kind, "s3"))), *(w for kv in settings.items() for w in ("--conf", "=".join(kv))),
            paths.ROOT / "spark_jobs" / job, "--changelog", connector.changelog.storage.url, "--connector", connector.name,
            "--location", self.location, "--target", self.kind, *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ, **self.s3.environment, "PYTHONPATH": str(paths.ROOT), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        with self.log.open("ab") as log:
            return subprocess.Popen(
                list(map(str, command)),
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, connector: Connector, job: str, *arguments: Any) -> int:
        return self.start(connector, job, *arguments).wait(LONGEST_S)

    def apply(self, connector: Connector) -> None:
        assert self.run(connector, "apply_changes.py") == 0, self.said()

    def verify(self, server: Any, connector: Connector, **properties: Any) -> dict[str, Any]:
        """Compare every value of the tables with the source, on the cluster too."""
        reference = self.connector(server, "now", snapshot_mode="initial_only", topic_prefix="now", **properties)
        reference.capture()
        found = self.folder / "verified.json"
        ended = self.run(reference, "verify_tables.py", "--json", found)
        assert ended in (0, 1), self.said()
        return dict(json.loads(found.read_text()))

    @property
    def log(self) -> Path:
        return self.folder / "jobs.log"

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]


@pytest.fixture
def remote_jobs(
    cluster: SparkCluster, s3: S3, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> RemoteJobs:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    if BUCKET not in {bucket["Name"] for bucket in s3.connect().list_buckets()["Buckets"]}:
        s3.bucket(BUCKET)
    remote = RemoteJobs(cluster, s3, kind, tmp_path, f"{kind}-{zlib.crc32(request.node.name.encode())}")
    remote.log.touch()
    return remote


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_random_work_ends_in_equal_tables(mariadb: Any, remote_jobs: RemoteJobs, scheme: str) -> None:
    database, remote_jobs.scheme = f"cluster_{remote_jobs.kind}_{scheme}", scheme
    with mariadb.connect(autocommit=True) as connection:
        writer = Writer(connection, database, 21, ddl=0.012, words=WORDS_OF_MARIADB)
        writer.prepare()
        writer.write(50)
        connector = remote_jobs.connector(mariadb, "log", database_include_list=database)
        for transactions in (300, 300):
            connector.capture()
            remote_jobs.apply(connector)
            writer.write(transactions)
    connector.capture()
    remote_jobs.apply(connector)
    verified = remote_jobs.verify(mariadb, connector, database_include_list=database)
    assert verified["equal"], verified
    assert sum(table["source"] for table in verified["tables"]) > 100


def test_what_kills_drivers_and_executors_at_any_moment_loses_and_doubles_nothing(
    mariadb: Any, remote_jobs: RemoteJobs
) -> None:
    """A warm apply works off a hundred batches, one after another; its driver or one of its executors is killed every few seconds."""
    database, chance = f"killed_{remote_jobs.kind}", random.Random(31)
    with mariadb.connect(autocommit=True) as connection:
        writer = Writer(connection, database, 31, words=WORDS_OF_MARIADB)
        writer.prepare()
        writer.write(50)
        connector = remote_jobs.connector(mariadb, "log", database_include_list=database)
        connector.capture()
        ended = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            killer = threads.submit(_kill, remote_jobs, connector, chance, ended)
            try:
                until = time.monotonic() + 3 * LONGEST_S
                while (
                    len(connector.changelog.list_batches(connector.name)) < 100
                    or _count_least_kills(remote_jobs) < 4
                    or _count_rounds(remote_jobs) < 2
                ):
                    assert time.monotonic() < until, remote_jobs.said()
                    assert not killer.done(), remote_jobs.said()
                    writer.write(10)
                    connector.capture()
                    time.sleep(0.5)
            finally:
                ended.set()
            killer.result()
    remote_jobs.apply(connector)
    verified = remote_jobs.verify(mariadb, connector, database_include_list=database)
    assert verified["equal"], verified


def _count_least_kills(remote: RemoteJobs) -> int:
    """Return the number of kills of drivers, or of executors, whichever is less."""
    said = remote.log.read_text(errors="replace")
    return min(said.count(text) for text in ("killed a driver", "killed an executor"))


def _count_rounds(remote: RemoteJobs) -> int:
    """Count the rounds in which a warm apply has brought tables further."""
    return remote.log.read_text(errors="replace").count(
        " INFO airflow_provider_cdc.targets.lake.jobs.continuous_apply: Round "
    )


def _kill(remote: RemoteJobs, connector: Connector, chance: random.Random, ended: threading.Event) -> None:
    longer = 1.0
    while not ended.is_set():
        rounds = _count_rounds(remote)
        process = remote.start(connector, "apply_changes.py", "--run-for", "600")
        for _ in range(chance.randint(1, 4)):
            if not ended.wait(longer * chance.uniform(5, 20)) and remote.cluster.kill_executor(chance.randrange(2)):
                _note(remote, "killed an executor")
        ended.wait(longer * chance.uniform(0, 5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _note(remote, "killed a driver")
        if _count_rounds(remote) == rounds:  # a slow machine needs longer to get anywhere at all
            longer *= 1.5


def _note(remote: RemoteJobs, text: str) -> None:
    with remote.log.open("a") as log:
        log.write(f"\n{text}\n")
