"""The apply with each ``submit=``, end to end: a run that is killed or cancelled in the middle, and the next one, which brings the tables up to date.

The services are stand-ins behind the real hooks of Airflow's providers; the standalone cluster is Spark's own. The runs are real: ``spark-submit`` with the
files, jars and settings that the service got. The package of each run is that of ``airflow cdc spark-files``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.services.submit import PLATFORMS
from airflow_provider_cdc.services.submit.spark_files import build_files
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from dev.bootstrap.jars import ensure
from dev.servers import SparkCluster
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowException
from tests.support.connectors import memory_connector
from tests.support.patience import LONGEST_S, wait_until
from tests.support.servers.spark_runs import MARK, Program, Run, find_processes, kill_processes, spark_submit
from tests.support.servers.spark_services import SERVICES

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TABLES = [f"orders_{number}" for number in range(3)]
ROWS = [{"id": 1, "note": "changed"}, {"id": 2, "note": "new"}]
SETTINGS = {
    "spark.executor.memory": "700m", "spark.cores.max": "2", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}  # fmt: skip
"""Settings of a small job that has little to do."""


class Shop:
    """A source with tables, its change log, and tasks that apply it."""

    def __init__(self, folder: Path) -> None:
        self.mark, self._lake = str(folder), folder / "lake"
        database = MemoryDatabase(str(folder))
        for table in TABLES:
            database.create_table(f"inventory.{table}", {"id": "int64", "note": "string"}, key=("id",))
        self._connector = memory_connector(database, folder / "connector")
        for changes in (("insert", "new"), ("update", "changed")):
            self._write(database, *changes)
            self._connector.capture()

    def _write(self, database: MemoryDatabase, change: str, note: str) -> None:
        with database.transaction() as t:
            for table in TABLES:
                if change == "update":
                    t.update(f"inventory.{table}", {"id": 1}, {"id": 1, "note": note})
                else:
                    for key in (1, 2):
                        t.insert(f"inventory.{table}", {"id": key, "note": note})

    def build_task(self, submit: Any, **more: Any) -> ApplyChangesOperator:
        return ApplyChangesOperator(
            task_id="apply", definition=self._connector.definition(), location=f"{self._lake}/{{table}}", threads=1,
            jars=",".join(map(str, ensure("delta"))), conf=SETTINGS, submit=submit, **more,
        )  # fmt: skip

    def has_commits(self) -> bool:
        """Return whether the apply has begun to write."""
        return any(self._lake.glob("*/_delta_log/*.json"))

    def find_stale_tables(self) -> list[str]:
        """Return the tables that are not equal to the source."""
        return [table for table in TABLES if self._read(table) != ROWS]

    def _read(self, table: str) -> list[dict[str, Any]]:
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(f"{self._lake}/{table}"):
            return []
        rows = deltalake.DeltaTable(f"{self._lake}/{table}").to_pyarrow_table(columns=["id", "note"]).to_pylist()
        return sorted(rows, key=lambda row: int(row["id"]))

    @contextmanager
    def start_task(self, submit: Any) -> Iterator[RunningTask]:
        """Run a task up to its first commit; at the end of the block, wait for its end."""
        task = RunningTask(self.build_task(submit))
        wait_until(lambda: self.has_commits() or task.ended, "the apply writes")
        assert not task.ended, task.error
        yield task
        task.wait()

    def check_next_run(self, submit: Any) -> None:
        """Run the next try, and compare all tables."""
        assert self.find_stale_tables(), "the first run was not in the middle"
        self.build_task(submit).execute(context(try_number=2))
        assert self.find_stale_tables() == []


class RunningTask:
    """A task in a thread."""

    def __init__(self, operator: ApplyChangesOperator) -> None:
        self.operator = operator
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._execute, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(LONGEST_S)
        assert self.ended

    def _execute(self) -> None:
        try:
            self.operator.execute(context())
        except AirflowException as e:
            self.error = e


class OwnService:
    """A service as a user may write one: each run is a process of this machine."""

    poll_interval = 0.2

    def __init__(self, files: Path) -> None:
        self._files = files
        self._runs: dict[str, Run] = {}

    def submit(self, job: SparkJob) -> str:
        script, package = (f"{self._files}/{name}" for name in (Path(job.script).name, "airflow_provider_cdc.zip"))
        program = Program(script, job.arguments, [package], job.jars, job.conf)
        self._runs.setdefault(job.token, Run(program, spark_submit))
        return job.token

    def inspect(self, run: str) -> JobStatus:
        return JobStatus(self._runs[run].inspect())  # type: ignore[arg-type]

    def cancel(self, run: str) -> None:
        self._runs[run].cancel()


@contextmanager
def open_service(name: str, monkeypatch: pytest.MonkeyPatch, files: Path) -> Iterator[Any]:
    """Open a cluster or a stand-in, and return the value of ``submit=``."""
    if name == "standalone":
        with SparkCluster() as cluster:
            connect(monkeypatch, "spark_default", conn_type="spark", host=cluster.url)
            yield "spark-submit"
            wait_until(lambda: not cluster.executors, "no executor of a job is left")
        return
    if name == "own":
        yield OwnService(files)
        return
    common = {"platform": name, "application_uri": f"file://{files}", "poll_interval": 0.2}
    if name.startswith("emr-"):
        pytest.importorskip("airflow.providers.amazon")
        from tests.support.servers import emr_services

        emr_services.run_jobs(monkeypatch, spark_submit)
        with emr_services.open_aws(monkeypatch) as url:
            yield {**common, **emr_services.create_parameters(name, url)}
    elif name.startswith("dataproc-"):
        pytest.importorskip("google.cloud.dataproc_v1")
        from tests.support.servers.dataproc_service import DataprocService

        with DataprocService(spark_submit) as dataproc:
            dataproc.connect(monkeypatch)
            place = {"cluster_name": "c"} if name == "dataproc-job" else {}
            yield {**common, "region": "eu", "project_id": "p", **place}
    else:
        pytest.importorskip(SERVICES[name].PROVIDER)
        with SERVICES[name](spark_submit) as service:
            service.connect(monkeypatch)
            yield {**common, **service.PARAMETERS}


@pytest.fixture(params=["standalone", "own", *PLATFORMS])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    files = tmp_path / "files"
    files.mkdir()
    for name, content in build_files():
        (files / name).write_bytes(content)
    with open_service(request.param, monkeypatch, files) as submit:
        monkeypatch.setenv(MARK, str(tmp_path))
        yield submit
        kill_processes(str(tmp_path))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_run_that_is_killed_in_the_middle_fails_and_the_next_one_brings_the_tables_up_to_date(
    service: Any, shop: Shop
) -> None:
    with shop.start_task(service) as task:
        assert kill_processes(shop.mark)
    assert task.error is not None
    shop.check_next_run(service)


def test_a_cancelled_run_leaves_no_process_and_the_next_one_brings_the_tables_up_to_date(
    service: Any, shop: Shop
) -> None:
    with shop.start_task(service) as task:
        task.operator.on_kill()
    assert task.error is not None
    wait_until(lambda: not find_processes(shop.mark), "all processes of the run have ended")
    shop.check_next_run(service)


def test_a_worker_of_a_cluster_that_is_killed_in_the_middle_does_not_stop_the_apply(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SparkCluster() as cluster:
        connect(monkeypatch, "spark_default", conn_type="spark", host=cluster.url)
        with shop.start_task("spark-submit") as task:
            assert shop.find_stale_tables()
            worker = cluster.workers[0]
            for pid in (*worker.executors, worker.pid):
                os.kill(pid, signal.SIGKILL)
        assert task.error is None
    assert shop.find_stale_tables() == []
