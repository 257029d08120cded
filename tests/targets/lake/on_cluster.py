"""The job of the relational sink on a cluster whose executors have another Python than the driver: one without this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev import paths
from dev.servers import SparkCluster
from tests.support.connectors import Connector
from tests.support.patience import LONGEST_S


def bare_python(folder: Path) -> Path:
    """A Python that has the libraries of this one, and nothing of this project."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if "cdc" not in found.name and found.suffix != ".pth":
            (libraries / found.name).symlink_to(found)
    python = folder / "bare-python"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}"\nexec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return python


@dataclass
class SinkJob:
    """Runs of ``apply_to_database.py`` on a cluster, as a worker of Airflow would submit them.

    :param python: of the executors
    :param properties: of the sink
    :param options: of the change log's storage
    :param settings: of Spark
    """

    cluster: SparkCluster
    folder: Path
    python: Path
    properties: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def log(self) -> Path:
        return self.folder / "job.log"

    def start(self, connector: Connector, *arguments: str) -> subprocess.Popen[bytes]:
        settings = {
            "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "500m", "spark.cores.max": "2",
            **self.settings,
        }  # fmt: skip
        command = [
            Path(sys.executable).with_name("spark-submit"), "--master", self.cluster.url, "--driver-memory", "500m",
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))), paths.ROOT / "spark_jobs" / "apply_to_database.py",
            "--changelog", connector.changelog.storage.url, "--connector", connector.name, "--staged-from", "1",
            "--result", self.result, *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ, "PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "CDC_SINK_PROPERTIES": json.dumps(self.properties), "CDC_STORAGE_OPTIONS": json.dumps(self.options),
        }  # fmt: skip
        with self.log.open("ab") as log:
            return subprocess.Popen(
                list(map(str, command)), cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip

    def run(self, connector: Connector) -> dict[str, Any]:
        """Run the job to its end, and return the result that it reports."""
        ended = self.start(connector).wait(LONGEST_S)
        assert ended == 0, self.said()
        return dict(json.loads(self.result.read_text()))

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]
