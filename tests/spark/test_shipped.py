"""The code that executors get is all that they need of this project."""

from __future__ import annotations

import subprocess
from pathlib import Path

from spark_jobs.shipped import archive
from tests.spark.on_cluster import bare_python

PROGRAM = """
import numpy, pyarrow, airflow_provider_cdc, spark_jobs.completed
from airflow_provider_cdc.core.spi.partial_updates import partial_updates
said = {"updateDescription": pyarrow.array([{"updatedFields": '{"b": 1.5}', "removedFields": ["a"]}])}
print(airflow_provider_cdc.__file__, *partial_updates("mongodb").applied(['{"_id": 1,"a": 1}'], numpy.array([-1]), said)[0])
"""


def test_partial_updates_are_applied_by_code_that_was_sent(tmp_path: Path) -> None:
    sent = tmp_path / "code.zip"
    sent.write_bytes(archive())
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
