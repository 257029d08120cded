"""The relational sink on a cluster, killed at moments that are held open: before and while executors stage, before and within the merge, and after it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.parallel.staging_workers import PREFIX
from airflow_provider_cdc.targets.database.progress.marker_table import MarkerTable
from dev.servers import SparkCluster
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S, wait_until
from tests.targets.database.apply.test_database_apply import in_order, rows, write_transactions
from tests.targets.database.parallel.test_staged_parallel_apply import left, sink
from tests.targets.lake.on_cluster import SinkJob

pytestmark = [pytest.mark.spark, pytest.mark.crash]

TABLE, THERE = "s.one", "p_s_one"
_GATES = f"""
CREATE FUNCTION gate_of_stages() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE '%%.{PREFIX}%%') THEN
    PERFORM pg_advisory_xact_lock_shared(1);
  END IF;
END $$;
CREATE EVENT TRIGGER gate_of_stages ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION gate_of_stages();
CREATE FUNCTION gate_of_merges() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(2); RETURN NULL; END $$;
CREATE TRIGGER gate_of_merges BEFORE INSERT ON {THERE} FOR EACH STATEMENT EXECUTE FUNCTION gate_of_merges();
"""
"""Who holds the lock 1 keeps executors from making staging tables, who holds 2 keeps the driver within its merge."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


class Target:
    """A database that is held at a moment of the run, and the source that it follows."""

    def __init__(self, url: str, folder: Path) -> None:
        self.engine, self._r = sa.create_engine(url, poolclass=sa.NullPool), Random(3)
        self.source = MemoryDatabase(str(folder))
        self.source.create_table(TABLE, {"id": "int64!", "a": "string", "b": "int32"}, key=("id",))
        self.connector: Connector = memory_connector(self.source, folder, topic_prefix="p")
        self._before: Any = []
        self.go_on()
        sink(self.engine, self.connector).apply()  # makes the tables

    def go_on(self) -> None:
        """More batches, of which the target has none."""
        self._before = in_order(self.source.copy_rows(TABLE))
        for _ in range(3):
            write_transactions(self.source, TABLE, self._r, 10)
            self.connector.capture()

    def with_gates(self) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(_GATES)

    @contextlib.contextmanager
    def held(self, moment: str) -> Iterator[None]:
        """A thread that comes to a moment waits there."""
        with self.engine.connect() as connection:
            match moment:
                case "staging":
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1)")
                case "merge":
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(2)")
                case "marker":
                    connection.exec_driver_sql("SELECT 1 FROM cdc_applied FOR UPDATE")
            yield

    def waits(self) -> int:
        """Count the sessions that wait for a lock of this database."""
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return int(found.scalar_one())

    @property
    def batch(self) -> int:
        with self.engine.connect() as connection:
            return MarkerTable("cdc_applied", self.connector.name).read(connection).batch

    def equal(self, *, before: bool = False) -> bool:
        """Check whether it is as the source is, or was before its last batches."""
        return in_order(rows(self.engine, THERE)) == (
            self._before if before else in_order(self.source.copy_rows(TABLE))
        )

    def ended(self) -> None:
        assert self.equal()
        assert self.batch == self.connector.changelog.list_batches(self.connector.name)[-1]
        assert left(self.engine) == []


@pytest.fixture
def target(postgres: Any, tmp_path: Path) -> Iterator[Target]:
    with postgres.database("killed") as database:
        target = Target(postgres.url(database), tmp_path)
        target.with_gates()
        target.go_on()
        yield target
        target.engine.dispose()


@pytest.fixture
def job(cluster: SparkCluster, target: Target, tmp_path: Path) -> SinkJob:
    url = target.engine.url.render_as_string(hide_password=False)
    return SinkJob(cluster, tmp_path, Path(sys.executable), {"connection.url": url})


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, and what it has started on this machine: not the executors, which are children of others."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("moment", ["before", "staging", "marker", "merge", "after"])
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_equal(job: SinkJob, target: Target, moment: str) -> None:
    with target.held(moment):
        process = job.start(target.connector)
        if moment == "before":
            wait_until(lambda: job.cluster.executors, "executors begin")
        elif moment == "after":
            wait_until(lambda: target.equal() or process.poll() is not None, "the merge is committed")
        else:
            wait_until(lambda: target.waits() or process.poll() is not None, "somebody waits at the moment")
        assert process.poll() is None, job.said()
        _kill(process)
        if moment in ("marker", "merge"):
            assert left(target.engine)
    wait_until(lambda: target.waits() == 0, "whoever has waited has ended")
    assert target.equal(before=moment != "after")
    wait_until(lambda: not job.cluster.executors, "executors end without their driver")
    target.go_on()
    job.run(target.connector)
    target.ended()


def test_executors_that_are_killed_while_they_stage_and_when_they_have_change_nothing(
    job: SinkJob, target: Target
) -> None:
    with target.held("marker"):
        with target.held("staging"):
            process = job.start(target.connector)
            wait_until(lambda: target.waits() or process.poll() is not None, "an executor stages")
            assert job.cluster.kill_executor(0), job.said()
        staged = "are staged by"  # of the whole log: what Spark says of a lost executor is long
        wait_until(
            lambda: staged in job.log.read_text(errors="replace") and target.waits() == 1 and left(target.engine),
            "all is staged",
        )
        assert job.cluster.kill_executor(0)
        assert target.equal(before=True)
    assert process.wait(LONGEST_S) == 0, job.said()
    target.ended()


def test_of_two_drivers_at_once_one_writes_and_nothing_is_left(job: SinkJob, target: Target) -> None:
    one, other = (
        replace(job, folder=job.folder / name, settings={"spark.cores.max": "1"}) for name in ("one", "other")
    )
    for each in (one, other):
        each.folder.mkdir()
    with target.held("marker"):
        running = [each.start(target.connector) for each in (one, other)]
        wait_until(lambda: target.waits() == 2 or any(p.poll() is not None for p in running), "both have staged")
    assert [process.wait(LONGEST_S) for process in running] == [0, 0], one.said() + other.said()
    assert sorted("Another run applies" in each.log.read_text() for each in (one, other)) == [False, True]
    target.ended()
