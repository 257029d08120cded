"""The example DAGs, as the DAG processor sees them. They run in ``tests/system``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DAGS = sorted((Path(__file__).resolve().parents[2] / "dags").glob("*.py"))
HEAVY = (
    "pyspark", "pyarrow", "numpy", "numba", "pandas", "pymysql", "pymysqlreplication", "oracledb", "pymongo", "orjson",
    "zstandard", "s3fs", "alembic", "airflow_provider_cdc.state", "airflow_provider_cdc.changelog",
    "airflow_provider_cdc.core.connector", "airflow_provider_cdc.sources.mysql.source",
    "airflow_provider_cdc.sources.oracle.source", "airflow_provider_cdc.plugins.app",
)  # fmt: skip
PARSE = """
import json, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
own = set(sys.modules)
began = time.process_time()
namespace = {"__name__": "example", "__file__": sys.argv[1]}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), namespace)
dag = namespace["dag"]
print(json.dumps({
    "cpu_s": time.process_time() - began,
    "loaded": sorted(set(sys.modules) - own),
    "tasks": {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks},
    "schedule": str(dag.schedule), "max_active_runs": dag.max_active_runs, "catchup": dag.catchup,
    "start_date": str(dag.start_date), "dag_id": dag.dag_id,
    "retries": {t.task_id: t.retries for t in dag.tasks},
}))
"""


@pytest.fixture(scope="module", params=DAGS, ids=lambda path: path.stem)
def parsed(request: pytest.FixtureRequest) -> dict[str, Any]:
    path: Path = request.param
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_CONN", "AIRFLOW_VAR"))}
    result = subprocess.run(
        [sys.executable, "-c", PARSE, str(path)], capture_output=True, text=True, env=environment, cwd=path.parents[1]
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout.splitlines()[-1])) | {"file": path.stem}


def test_parsing_it_loads_nothing_heavy(parsed: dict[str, Any]) -> None:
    loaded = [m for m in parsed["loaded"] if m.startswith(tuple(f"{h}." for h in HEAVY)) or m in HEAVY]
    assert loaded == []


def test_parsing_it_takes_no_time_worth_mentioning(parsed: dict[str, Any]) -> None:
    assert parsed["cpu_s"] < 1  # measured: 0.15


def test_it_is_called_as_its_file(parsed: dict[str, Any]) -> None:
    assert parsed["dag_id"] == parsed["file"]


def test_it_waits_then_captures_then_applies_one_run_at_a_time(parsed: dict[str, Any]) -> None:
    assert parsed["tasks"] == {"wait": ["capture"], "capture": ["apply"], "apply": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (1, False, "@continuous")
    assert parsed["start_date"] != "None"
    assert set(parsed["retries"].values()) == {3}
