"""The code that executors get is all that they need of this project."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles

from airflow_provider_cdc.targets.lake.executors.executor_packages import build_code_archive, ship_driver_code
from tests.targets.lake.on_cluster import bare_python

PROGRAM = """
import numpy, pyarrow, airflow_provider_cdc, airflow_provider_cdc.targets.lake.events.partial_updates
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates
said = {"updateDescription": pyarrow.array([{"updatedFields": '{"b": 1.5}', "removedFields": ["a"]}])}
print(airflow_provider_cdc.__file__, *partial_updates("mongodb").apply_updates(['{"_id": 1,"a": 1}'], numpy.array([-1]), said)[0])
"""


def test_partial_updates_are_applied_by_code_that_was_sent(tmp_path: Path) -> None:
    sent = tmp_path / "code.zip"
    sent.write_bytes(build_code_archive())
    environment = {"PYTHONPATH": str(sent), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [bare_python(tmp_path), "-c", PROGRAM],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    where, text = ran.stdout.strip().split(" ", 1)
    assert where.startswith(str(sent))
    assert text == '{"_id": 1,"b": 1.5}'


class Cluster:
    """Stands in for a context of a cluster: how long it takes to send a file, and whether that fails, is not up to a test with a real one."""

    master = "spark://somewhere:7077"

    def __init__(self, *failures: Exception) -> None:
        self.sent, self._failures = list[str](), list(failures)

    def addPyFile(self, path: str) -> None:
        time.sleep(0.2)
        if self._failures:
            raise self._failures.pop()
        self.sent.append(path)


def test_no_thread_goes_on_before_the_code_is_sent_and_a_failure_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    cluster: Any = Cluster(RuntimeError("no room"))
    with pytest.raises(RuntimeError, match="no room"):
        ship_driver_code(cluster)
    seen = list[int]()

    def ship_code() -> None:
        ship_driver_code(cluster)
        seen.append(len(cluster.sent))

    threads = [threading.Thread(target=ship_code) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1, 1, 1]
