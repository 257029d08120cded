"""Iceberg tables in catalogs that are a server or a database: the same work as in a folder, by two applies at once, with maintenance."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dev.servers import HiveMetastore, IcebergRest
from dev.servers.hive_metastore import LOCKLESS
from tests.support.patience import LONGEST_S
from tests.targets.lake.lake import spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("catalog", ["rest", "jdbc", "hive"])
def test_random_work_of_two_applies_ends_with_the_rows_of_the_source(catalog: str, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    if catalog == "rest":
        with IcebergRest() as server:
            _check_child(tmp_path, {"type": "rest", "uri": server.uri}, seed)
    elif catalog == "hive":
        with HiveMetastore() as server:
            _check_child(tmp_path, _hive(server, tmp_path), seed)
    else:
        database = {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "jdbc.user": "cdc", "jdbc.password": "cdc"}
        _check_child(tmp_path, {"type": "jdbc", "warehouse": f"{tmp_path}/warehouse", **database}, seed)


def test_a_hive_metastore_that_refuses_other_columns_is_named_with_its_setting(tmp_path: Path) -> None:
    setting = "hive.metastore.disallow.incompatible.col.type.changes"
    with HiveMetastore({setting: "true"}) as server:
        ran = _run_child(tmp_path, _hive(server, tmp_path), 5)
    assert ran.returncode
    assert f"set {setting}=false" in ran.stderr


def _hive(server: HiveMetastore, folder: Path) -> dict[str, str]:
    return {"type": "hive", "uri": server.uri, "warehouse": f"{folder}/warehouse", **LOCKLESS}


def _run_child(folder: Path, settings: dict[str, str], seed: int) -> subprocess.CompletedProcess[str]:
    child = [sys.executable, "-m", "tests.targets.lake.with_catalog", str(folder), json.dumps(settings), str(seed)]
    return subprocess.run(
        child, capture_output=True, text=True, timeout=2 * LONGEST_S, env=spark_environment(), cwd=folder
    )


def _check_child(folder: Path, settings: dict[str, str], seed: int) -> None:
    ran = _run_child(folder, settings, seed)
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-8000:]}"
    assert json.loads(ran.stdout.splitlines()[-1])["tables"] > 0
