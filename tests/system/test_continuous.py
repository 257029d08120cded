"""The DAG that captures and applies all the time, in a real Airflow: changes are in the table within seconds, also while runs change."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from dev.airflow import Airflow, Services
from dev.patience import overload

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long]

DAG = "inventory_mariadb_continuous"
LATEST_S = 60.0
"""Changes are in the table sooner even while one run hands over to the next; a machine with more work than cores takes as many times longer. Without a hand-over, the new run's Spark would
have to start first, after the old one has ended."""


@pytest.fixture
def running_dag(airflow: Airflow, services: Services) -> Any:
    services.until(lambda: services.request("GET", f"/api/v2/dags/{DAG}")[0] == 200, 120, f"{DAG} is parsed")
    services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": False})
    yield
    services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": True})
    for run in services.json("GET", f"/api/v2/dags/{DAG}/dagRuns?limit=100")["dag_runs"]:
        if run["state"] == "running":
            services.json("PATCH", f"/api/v2/dags/{DAG}/dagRuns/{run['dag_run_id']}", {"state": "failed"})
    turns = ApplyTurns(
        Storage(str(airflow.home / "cdc" / "changelog")),
        "inventory",
        "delta",
        f"{airflow.home}/cdc/lake/{{database}}/{{table}}",
    )
    services.until(
        lambda: all((turns.read_turn(n) or {"ended": True})["ended"] for n in turns.list_numbers()),
        120,
        "the jobs have ended",
    )


def test_changes_are_applied_within_seconds_while_one_run_hands_over_to_the_next(
    airflow: Airflow, services: Services, inventory: Any, running_dag: Any
) -> None:
    lake = airflow.home / "cdc" / "lake" / "inventory" / "orders"
    services.until(lambda: (lake / "_delta_log").exists(), 400, "the first run has made the tables")
    written: dict[int, float] = {}
    busy = 1.0
    for number in range(10_000, 20_000):
        inventory.sql(f"INSERT INTO inventory.orders (id) VALUES ({number})")
        written[number] = time.time()
        busy = max(busy, overload())
        if states(services).get("success", 0) >= 2:  # two hand-overs
            break
        assert len(written) < 900, states(services)
        time.sleep(0.5)
    last = max(written)
    services.until(lambda: last in visible(lake), 120, "the last order is in the table")
    seen = visible(lake)
    late = {n: round(seen[n] - at, 1) for n, at in written.items() if seen.get(n, 1e12) - at > LATEST_S * busy}
    waits = sorted(seen[n] - at for n, at in written.items())
    print(
        f"{len(waits)} orders, p50 {waits[len(waits) // 2]:.1f} s, p95 {waits[len(waits) * 95 // 100]:.1f} s, max {waits[-1]:.1f} s"
    )
    assert not late
    logs = "\n".join(file.read_text() for file in (airflow.home / "logs" / f"dag_id={DAG}").rglob("*.log"))
    assert "has taken over" in logs
    assert "freshness" in logs


def states(services: Services) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in services.json("GET", f"/api/v2/dags/{DAG}/dagRuns?limit=100")["dag_runs"]:
        found[run["state"]] = found.get(run["state"], 0) + 1
    assert "failed" not in found
    return found


def visible(table: Path) -> dict[int, float]:
    """Id → when the commit that first had it was there, by the files of Delta's log."""
    import pyarrow.parquet as pq

    seen: dict[int, float] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        at = entry.stat().st_mtime
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action and (table / action["add"]["path"]).exists():
                content = pq.read_table(table / action["add"]["path"], partitioning=None)
                column = next(name for name in content.column_names if name == "id" or name.startswith("col-"))
                for number in content[column].to_pylist():
                    seen.setdefault(number, at)
    return seen
