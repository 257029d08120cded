"""The example DAGs, as the DAG processor sees them. They run in ``tests/system``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "dags"
FLEETS = [path for path in FOLDER.glob("*.py") if path.with_suffix("").is_dir()]
"""Files with a DAG for each definition in the folder of their name."""
DAGS = sorted(
    path for path in FOLDER.glob("*.py") if path.stem != "inventory" and path not in FLEETS
)  # that one holds the connectors
CAPTURES = [path for path in DAGS if path.stem.endswith("_to_delta")]
FORMS = [path for path in DAGS if path.stem.startswith("cdc_")]
HEAVY = (
    "pyspark", "pyarrow", "numpy", "numba", "pandas", "pymysql", "pymysqlreplication", "oracledb", "ibm_db", "pymongo", "orjson",
    "zstandard", "s3fs", "alembic", "airflow_provider_cdc.state", "airflow_provider_cdc.changelog",
    "airflow_provider_cdc.core.capture.connector_capture", "airflow_provider_cdc.sources.mysql.source",
    "airflow_provider_cdc.sources.oracle.source", "airflow_provider_cdc.sources.db2.source", "airflow_provider_cdc.sources.debezium.source",
    "airflow_provider_cdc.plugins.plugin_app",
)  # fmt: skip
PARSE = """
import json, os, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.providers.standard.decorators.python
sys.path.append(sys.argv[1].rpartition("/")[0])
own = set(sys.modules)

def parse(path):
    began = time.process_time()
    namespace = {"__name__": "example", "__file__": path}
    exec(compile(open(path).read(), path, "exec"), namespace)
    took, loaded = time.process_time() - began, sorted(set(sys.modules) - own)
    for dag in namespace["fleet"].dags.values() if "fleet" in namespace else [namespace["dag"]]:
        tell(dag, path, took, loaded)

def tell(dag, path, took, loaded):
    print(json.dumps({
        "file": path, "cpu_s": took, "loaded": loaded,
        "tasks": {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks},
        "schedule": str(dag.schedule), "max_active_runs": dag.max_active_runs, "catchup": dag.catchup,
        "start_date": str(dag.start_date), "dag_id": dag.dag_id,
        "retries": {t.task_id: t.retries for t in dag.tasks},
        "params": {name: dag.params.get_param(name).serialize() for name in dag.params},
    }), flush=True)

for path in sys.argv[1:]:
    if child := os.fork():
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"{path} ended with {status}")
    else:
        parse(path)
        break
"""
"""Each file in a separate process, forked from one that has Airflow already, as the DAG processor does it."""


@cache
def all_parsed() -> dict[Path, list[dict[str, Any]]]:
    """The DAG files as the DAG processor sees them, each with its DAGs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_CONN", "AIRFLOW_VAR"))}
    command = [sys.executable, "-c", PARSE, *map(str, [*DAGS, *FLEETS])]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=FOLDER.parent)
    assert result.returncode == 0, result.stderr
    found = [dict(json.loads(line)) for line in result.stdout.splitlines() if line.startswith("{")]
    dags: dict[Path, list[dict[str, Any]]] = {}
    for one in found:
        dags.setdefault(Path(one["file"]), []).append(one | {"file": Path(one["file"]).stem})
    return dags


def parse(path: Path) -> dict[str, Any]:
    return all_parsed()[path][0]


@pytest.fixture(params=[*DAGS, *FLEETS], ids=lambda path: path.stem)
def parsed_dags(request: pytest.FixtureRequest) -> dict[str, Any]:
    return parse(request.param)


def test_parsing_it_loads_nothing_heavy(parsed_dags: dict[str, Any]) -> None:
    loaded = [m for m in parsed_dags["loaded"] if m.startswith(tuple(f"{h}." for h in HEAVY)) or m in HEAVY]
    assert loaded == []


def test_parsing_it_takes_no_time_worth_mentioning(parsed_dags: dict[str, Any]) -> None:
    assert parsed_dags["cpu_s"] < 1  # measured: 0.15


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
def test_it_is_called_as_its_file(path: Path) -> None:
    parsed = parse(path)
    assert (parsed["dag_id"], len(all_parsed()[path])) == (parsed["file"], 1)


def test_a_fleet_has_a_dag_for_each_definition_and_none_is_broken() -> None:
    dags = {dag["dag_id"]: dag for path in FLEETS for dag in all_parsed()[path]}
    assert sorted(dags) == ["cdc_fleet_mariadb", "cdc_fleet_oracle"]
    mariadb, oracle = dags["cdc_fleet_mariadb"], dags["cdc_fleet_oracle"]
    assert mariadb["tasks"] == {"wait": ["capture"], "capture": ["apply", "captured"], "apply": [], "captured": []}
    assert (mariadb["schedule"], mariadb["retries"]) == (
        "@continuous",
        {"wait": 5, "capture": 5, "apply": 5, "captured": 5},
    )
    assert oracle["tasks"] == {"capture": ["apply", "captured"], "apply": [], "captured": []}
    assert oracle["schedule"] == "*/15 6-20 * * *"


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_it_waits_then_captures_then_applies_one_run_at_a_time(path: Path) -> None:
    parsed = parse(path)
    assert parsed["tasks"] == {"wait": ["capture"], "capture": ["apply", "captured"], "apply": [], "captured": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (1, False, "@continuous")
    assert parsed["start_date"] != "None"
    assert set(parsed["retries"].values()) == {3}


@pytest.mark.parametrize("source", ["mariadb", "oracle"])
def test_one_that_is_continuous_captures_and_applies_side_by_side_and_lets_two_runs_overlap(source: str) -> None:
    parsed = parse(FOLDER / f"inventory_{source}_continuous.py")
    assert parsed["tasks"] == {"capture": [], "apply": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (2, False, "1:00:00")


def test_one_applies_for_all_what_the_others_capture() -> None:
    for source in ("mariadb", "oracle"):
        parsed = parse(FOLDER / f"inventory_{source}_capture.py")
        assert parsed["tasks"] == {"capture": []}
        assert (parsed["max_active_runs"], parsed["schedule"]) == (2, "1:00:00")
    parsed = parse(FOLDER / "inventory_apply.py")
    assert parsed["tasks"] == {"apply": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (2, False, "1:00:00")


def test_the_group_has_one_task_that_captures_all_of_its_connectors() -> None:
    parsed = parse(FOLDER / "inventory_group.py")
    assert parsed["tasks"] == {"wait": ["capture"], "capture": ["apply", "captured"], "apply": [], "captured": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (1, False, "@continuous")


def test_the_one_that_maintains_tables_runs_daily_and_by_itself() -> None:
    parsed = parse(FOLDER / "inventory_maintain_tables.py")
    assert parsed["tasks"] == {"inventory": []}
    assert (parsed["max_active_runs"], parsed["catchup"], parsed["schedule"]) == (1, False, "@daily")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_offers_the_connectors_and_is_started_by_people_only(path: Path) -> None:
    parsed = parse(path)
    assert parsed["schedule"] == "None"
    connector = parsed["params"]["connector"]
    assert connector["schema"]["enum"] == ["inventory", "inventory_oracle"]
    assert connector["value"] == "inventory"
    assert "section" not in connector["schema"]  # shown at once
    assert all(param["schema"].get("title") for param in parsed["params"].values())


def test_the_ad_hoc_form_offers_the_tables_that_the_include_lists_name() -> None:
    parsed = parse(FOLDER / "cdc_ad_hoc_snapshot.py")
    tables = parsed["params"]["tables"]["schema"]
    assert tables["examples"] == [
        "INVENTORY.CUSTOMERS", "INVENTORY.ORDERS", "INVENTORY.PRODUCTS",
        "inventory.customers", "inventory.orders", "inventory.products",
    ]  # fmt: skip
    assert tables["values_display"]["inventory.orders"] == "inventory.orders (inventory)"
    assert parsed["tasks"] == {"check": ["send"], "send": ["wait"], "wait": []}


def test_a_dag_can_start_with_the_changes_of_a_table() -> None:
    parsed = parse(FOLDER / "on_inventory_orders.py")
    assert "cdc://inventory/inventory.inventory.orders/captured" in parsed["schedule"]
    assert "CdcChangeTrigger" in parsed["schedule"]
