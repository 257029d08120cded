"""A snapshot that executors of a Spark cluster read: how it scales with readers on slow connections, and its processor time and memory per row.

The cluster is Spark's own, with two workers on this machine. For the scaling, each connection of a reader receives five megabytes a second. The clock runs
from the moment in which all readers have their views.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable
from airflow_provider_cdc.state.state_store import StateStore
from dev import paths
from dev.benchmarks.load.slow_proxy import SlowProxy
from dev.benchmarks.load.workload import DATABASE, RowWriter
from dev.benchmarks.measure import machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report
from dev.servers import SparkCluster
from dev.servers.mysql_family import MySqlFamily

BARS = [
    Bar("ratio.speed_of_8_readers", 6.5),
    Bar("ratio.cpu_per_row", 1.3, at_most=True),
    Bar("spark.largest_python_mb", 500, at_most=True),
    Bar("spark.capture_mb", 600, at_most=True),
]
SLOW_BYTES_PER_S = 5_000_000
_TICKS = os.sysconf("SC_CLK_TCK")


class SubmittedReaders:
    """Implements :class:`airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator.ReaderJob` by ``spark-submit``."""

    def __init__(self, cluster: SparkCluster, definition: ConnectorDefinition, secrets: dict[str, Any]) -> None:
        self._cluster, self._definition, self._secrets = cluster, definition, secrets
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, snapshot: str, readers: int) -> None:
        definition = self._definition
        command = [
            Path(sys.executable).with_name("spark-submit"), "--master", self._cluster.url, "--conf", "spark.ui.enabled=false",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.executor.memory=512m",
            paths.ROOT / "spark_jobs" / "read_tables.py", "--changelog", definition.changelog, "--connector", definition.name,
            "--source", definition.source, "--snapshot", snapshot, "--readers", readers,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "CDC_SOURCE_PROPERTIES": json.dumps(self._secrets),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._process = subprocess.Popen(
            [*map(str, command)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def find_error(self) -> CdcError | None:
        if self._process is None or self._process.poll() is None:
            return None
        return SourceUnavailable(f"spark-submit has ended with {self._process.returncode}.")

    def cancel(self, patience_s: float) -> None:
        if self._process is not None:
            self._process.wait(patience_s)


class ProcessWatch:
    """Samples the processor time and the memory of Spark's processes. In a ``with`` block."""

    def __init__(self) -> None:
        self._cpu_s, self._python_mb = dict[int, float](), dict[int, float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    @property
    def largest_python_mb(self) -> float:
        return max(self._python_mb.values(), default=0.0)

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    words = (process / "cmdline").read_bytes()
                    if b"pyspark.daemon" not in words and b"CoarseGrainedExecutorBackend" not in words:
                        continue
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                    pid = int(process.name)
                    self._cpu_s[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                    if b"pyspark.daemon" in words:
                        mb = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
                        self._python_mb[pid] = max(mb, self._python_mb.get(pid, 0.0))
                except (OSError, IndexError):
                    continue


def run(options: argparse.Namespace, server: MySqlFamily, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Measure the readers."""
    logging.getLogger("airflow_provider_cdc").setLevel(logging.WARNING)
    report = Report(5)
    with server.connect(autocommit=False) as connection, report.step(f"a table of {options.rows:,} rows") as step:
        writer = RowWriter(connection, step.progress)
        writer.prepare("whole")
        _fill(writer, connection, options.rows)
        connection.cursor().execute(f"ANALYZE TABLE {DATABASE}.whole")
    document: dict[str, Any] = {"rows": options.rows}
    with SparkCluster(cores=4) as cluster:
        with report.step("embedded, two threads") as step:
            document["embedded"] = _measure(server, options, folder / "embedded", None, 2)
            step.done(_describe(document["embedded"]))
        with report.step("Spark, two readers") as step:
            document["spark"] = _measure(server, options, folder / "spark", cluster, 2)
            step.done(_describe(document["spark"]))
        with SlowProxy(server.host, server.port, SLOW_BYTES_PER_S) as proxy:
            for readers in (1, 8):
                with report.step(f"Spark, {readers} readers of 5 MB/s each") as step:
                    done = _measure(server, options, folder / f"slow{readers}", cluster, readers, proxy.port)
                    document[f"slow_{readers}"] = done
                    step.done(_describe(done))
    document["ratio"] = {
        "speed_of_8_readers": round(document["slow_1"]["seconds"] / document["slow_8"]["seconds"], 2),
        "cpu_per_row": round(document["spark"]["cpu_s"] / document["embedded"]["cpu_s"], 2),
    }
    document["load"] = machine.load()
    return document, BARS


def _fill(writer: RowWriter, connection: Any, rows: int) -> None:
    """Fill the table: some rows one by one, and the others by copies of them."""
    first = min(rows, 200_000)
    writer.fill("whole", first)
    done = first
    while done < rows:
        more = min(done, rows - done)
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {DATABASE}.whole SELECT id + {done}, name, amount, created, qty, score, note, flag FROM {DATABASE}.whole WHERE id <= {more}"
            )
        connection.commit()
        done += more


def _measure(
    server: MySqlFamily,
    options: argparse.Namespace,
    folder: Path,
    cluster: SparkCluster | None,
    readers: int,
    port: int = 0,
) -> dict[str, Any]:
    properties = {
        "database.server.id": 4800, "table.include.list": f"{DATABASE}.whole", "snapshot.mode": "initial_only",
        "snapshot.max.threads": readers, "snapshot.engine": "embedded" if cluster is None else "spark",
    }  # fmt: skip
    definition = ConnectorDefinition("bench", options.server, f"{folder}/changelog", properties)
    place = {"database.hostname": server.host, "database.user": server.user, "database.password": server.password}
    secrets = {**place, "database.port": server.port}
    store = StateStore(f"sqlite:///{folder}.db")
    store.create_tables()
    job = (
        None
        if cluster is None
        else SubmittedReaders(cluster, definition, {**place, "database.port": port or server.port})
    )
    began, cpu_began_s = [time.monotonic()], time.process_time()
    with (
        ProcessWatch() as watch,
        open_capture(definition, f"sqlite:///{folder}.db", secrets=secrets, reader_job=job) as capture,
    ):
        if cluster is not None:
            threading.Thread(target=_wait_for_group, args=(folder, began), daemon=True).start()
        result = capture.run()
        seconds = time.monotonic() - began[0]
    if result.events != options.rows:
        raise Problem(f"{result.events:,} rows were read instead of {options.rows:,}: the figures mean nothing.")
    own_cpu_s = time.process_time() - cpu_began_s
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(own_cpu_s + watch.cpu_s, 1),
        "rows_per_s": round(options.rows / seconds),
        "largest_python_mb": round(watch.largest_python_mb),
        "capture_mb": round(_own_mb()),
    }


def _wait_for_group(folder: Path, began: list[float]) -> None:
    while not [*folder.glob("changelog/bench/snapshots/*/group-1.json")]:
        time.sleep(0.02)
    began[0] = time.monotonic()


def _own_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _describe(done: dict[str, Any]) -> str:
    return f"{done['seconds']:.1f} s, {done['rows_per_s']:,} rows/s, {done['cpu_s']:.1f} CPU s, Python {done['largest_python_mb']} MB"
