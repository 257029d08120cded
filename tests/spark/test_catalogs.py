"""Iceberg tables in catalogs that are a server or a database: the same work as in a folder, by two applies at once, with maintenance."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dev.servers import IcebergRest
from tests.spark.lake import spark_environment
from tests.support.patience import LONGEST_S

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("catalog", ["rest", "jdbc"])
def test_random_work_of_two_applies_ends_with_the_rows_of_the_source(catalog: str, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    if catalog == "rest":
        with IcebergRest() as server:
            _work(tmp_path, {"type": "rest", "uri": server.uri}, seed)
    else:
        database = {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "jdbc.user": "cdc", "jdbc.password": "cdc"}
        _work(tmp_path, {"type": "jdbc", "warehouse": f"{tmp_path}/warehouse", **database}, seed)


def _work(folder: Path, settings: dict[str, str], seed: int) -> None:
    child = [sys.executable, "-m", "tests.spark.with_catalog", str(folder), json.dumps(settings), str(seed)]
    ran = subprocess.run(child, capture_output=True, text=True, timeout=LONGEST_S, env=spark_environment(), cwd=folder)
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-8000:]}"
    assert json.loads(ran.stdout.splitlines()[-1])["tables"] > 0
