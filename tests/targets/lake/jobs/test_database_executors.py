"""Executors of the relational sink: what their Python needs, and what secrets leave behind."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev.servers import SparkCluster
from tests.support.connectors import memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, write_transactions
from tests.targets.lake.on_cluster import SinkJob, bare_python

pytestmark = [pytest.mark.spark]

PASSWORD, OPTION = "sesame-3f1c9b70", "tahini-90bb2e61"
"""Of the database, and of the change log's storage."""
COLUMNS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    wide = {f"column_number_{n}": "int32" for n in range(COLUMNS)}
    source.create_table("s.one", {"id": "int64!", "a": "string", "b": "int32"}, key=("id",))
    source.create_table("s.wide", {"id": "int64!", **wide}, key=("id",))
    return source


class SecretWatch:
    """Looks for texts in whatever is written below folders, and on all command lines, in a ``with`` block: also in what is gone at its end."""

    def __init__(self, folders: list[Path], *secrets: str) -> None:
        self._folders, self._secrets, self._ended = folders, [one.encode() for one in secrets], threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.found, self.files, self._sizes = set[str](), set[str](), dict[Path, int]()

    def __enter__(self) -> SecretWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self._look()

    def _look(self) -> None:
        for path in (
            *(p for folder in self._folders for p in folder.rglob("*")),
            *Path("/proc").glob("[0-9]*/cmdline"),
        ):
            try:
                if not path.is_file():
                    continue
                size = path.stat().st_size  # of a command line it is 0
                if size and self._sizes.get(path) == size:
                    continue
                self._sizes[path] = size
                data = path.read_bytes()
            except OSError:
                continue  # it is gone
            self.files.add(path.name)
            if any(secret in data for secret in self._secrets):
                self.found.add(str(path))


def test_executors_that_have_nothing_of_this_project_write_and_no_secret_is_written_anywhere(
    cluster: SparkCluster, postgres: Any, source: MemoryDatabase, tmp_path: Path
) -> None:
    python = bare_python(tmp_path)
    alone = subprocess.run([python, "-c", "import airflow_provider_cdc"], cwd="/", capture_output=True, check=False)
    assert b"No module named 'airflow_provider_cdc'" in alone.stderr
    connector, r = memory_connector(source, tmp_path / "source", topic_prefix="p"), Random(1)
    for name in ("s.one", "s.wide"):
        write_transactions(source, name, r, 20)
    connector.capture()
    written = tmp_path / "written"
    for name in ("events", "local"):
        (written / name).mkdir(parents=True)
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file://{written}/events",
        "spark.local.dir": str(written / "local"), "spark.broadcast.compress": "false", "spark.rdd.compress": "false",
        # code that is larger is written to disk; that of the tasks is far from it, and the columns alone are larger
        "spark.broadcast.UDFCompressionThreshold": "20000",
    }  # fmt: skip
    with postgres.database("executors") as database:
        url = sa.make_url(postgres.url(database))
        properties = {
            "connection.url": url.set(password=None).render_as_string(), "connection.username": url.username, "connection.password": PASSWORD,
        }  # fmt: skip
        job = SinkJob(cluster, written, python, properties, {"auto_mkdir": True, "key": OPTION}, settings)
        folders = [written, *(worker.folder for worker in cluster.workers)]
        with SecretWatch(folders, PASSWORD, OPTION) as watched:
            done = job.run(connector)
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": postgres.url(database)}))
        for name in ("s.one", "s.wide"):
            assert in_order(rows(engine, f"p_{name.replace('.', '_')}")) == in_order(source.copy_rows(name))
        engine.dispose()
    assert done["ended"]
    assert "2 tables are staged by" in job.log.read_text()
    assert not watched.found
    assert {"job.log", "result.json", "stderr", "cmdline"} <= watched.files
    assert any(name.startswith("cdc_code_") for name in watched.files)
    assert any("app-" in name for name in watched.files), "no event log"
