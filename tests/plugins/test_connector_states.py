"""Answers of the API for connectors in the states that people meet: which of them are in trouble, and where each one stops."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.services.dashboards.overview_models import AttentionLevel
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.airflow.connector_states import BATCHES, STOPPED, ConnectorStates

API = "/api/v1/connectors"
GOOD, LATE, FAILED = AttentionLevel.NONE, AttentionLevel.LATE, AttentionLevel.FAILED
LEVELS = {
    "new": GOOD, "healthy": GOOD, "ended-on-purpose": GOOD, "behind": LATE, "lease-held": LATE, "snapshot-stuck": LATE, "log-end-near": LATE,
    "source-away": FAILED, "position-gone": FAILED, "target-away": FAILED, "row-refused": FAILED, "storage-full": FAILED, "quarantined": FAILED,
    "schema-refused": FAILED,
}  # fmt: skip


@pytest.fixture
def states(shop_connector: ShopConnector, client_factory: ClientFactory, tmp_path: Path) -> dict[str, Any]:
    """The pages' answers about one connector of each state: name → its detail."""
    ConnectorStates(shop_connector.store, tmp_path / "states", shop_connector.store.database.engine).create_all()
    client = client_factory()
    return {name: client.get(f"{API}/{name}").json() for name in LEVELS}


def list_sentences(found: Any) -> list[str]:
    return [alert["sentence"] for alert in found["line"]["alerts"]]


def test_only_connectors_that_need_a_person_are_in_trouble_and_the_picture_has_where_they_stop(
    states: dict[str, Any],
) -> None:
    assert {name: found["line"]["trouble"] for name, found in states.items()} == LEVELS
    assert f"nothing of inventory.orders is captured until it is read again: {STOPPED}" in list_sentences(states["quarantined"])  # fmt: skip
    assert list_sentences(states["snapshot-stuck"]) == ["the snapshot has committed nothing; its last commit was 2 h ago"]  # fmt: skip
    (away,) = states["target-away"]["targets"]
    assert (away["name"], away["run_failed"]) == ("delta at s3://lake/target-away/{table}", True)
    assert (away["last_batch"], away["waiting_events"]) == (BATCHES - 9, 9_000)
    assert away["waiting_since"] > away["ran_at"]
    assert list_sentences(states["target-away"]) == ["the apply to delta at s3://lake/target-away/{table} failed 25 min ago"]  # fmt: skip
    database, lake = states["healthy"]["targets"]
    assert (database["name"], lake["name"]) == ("database sales_dwh", "delta at s3://lake/healthy/{table}")
    assert (lake["run_failed"], lake["waiting_events"], lake["waiting_since"]) == (False, None, None)


def test_small_lines_have_lag_freshness_and_rate_and_those_of_a_young_connector_are_finer(
    states: dict[str, Any],
) -> None:
    healthy = states["healthy"]["line"]
    assert {at["at"] % 300 for at in healthy["events_per_s"]} == {0}
    assert all(at["lag_s"] < 1 for at in healthy["events_per_s"])
    assert len(healthy["freshness"]["points"]) >= 12
    new = states["new"]["line"]["events_per_s"]
    assert [later["at"] - earlier["at"] for earlier, later in pairwise(new)] == [10] * 8
