"""Pages show a connector to those who may see the DAG that captures it: the plugin's app, asked over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airflow_provider_cdc.hooks.connector import ConnectorAccess
from airflow_provider_cdc.plugins.app import app
from airflow_provider_cdc.runtime import ConnectorDefinition
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.face import Shop, connect, make_shop

ANN = SimpleAuthManagerUser(username="ann", role="USER")
BOB = SimpleAuthManagerUser(username="bob", role="USER")
ADA = SimpleAuthManagerUser(username="ada", role="ADMIN")
MAY_READ = {"ann": {"shop_dag"}, "bob": {"billing_dag"}}


class PerDag(SimpleAuthManager):
    """Rights on single DAGs, which Airflow's own simple manager does not have: those of :data:`MAY_READ`, all for administrators."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        return self._is_admin(user) or (details is not None and details.id in MAY_READ.get(user.username, ()))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    """Connectors ``shop`` and ``billing``, captured by a DAG each, and ``script``, captured by none."""
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", PerDag())
    monkeypatch.setattr(DagModel, "get_team_name", staticmethod(lambda dag_id: None))  # there is no metadata DB here
    shop = make_shop(monkeypatch, tmp_path, "rights")
    for name, dag in (("shop", "shop_dag"), ("billing", "billing_dag"), ("script", None)):
        database = MemoryDatabase(name)
        database.create_table("inventory.orders", {"id": "int64"}, key=("id",))
        connect(monkeypatch, name, conn_type="cdc_memory", host=name)
        definition = ConnectorDefinition(name, "memory", shop.definition.changelog, {"poll.interval.ms": 10})
        access = ConnectorAccess(definition, name)
        with access.capture(owner="test", lease_ttl_s=5, lease_wait_s=5, dag=dag) as capture:
            capture.run()
    yield shop
    app.dependency_overrides.clear()
    shop.store.close()


def _asked(user: SimpleAuthManagerUser) -> TestClient:
    app.dependency_overrides[get_user] = lambda: user
    return TestClient(app)


@pytest.mark.parametrize(("user", "seen"), [(ANN, {"shop"}), (BOB, {"billing"}), (ADA, {"shop", "billing", "script"})])
def test_everybody_sees_the_connectors_of_the_dags_that_they_may_read(
    shop: Shop, user: SimpleAuthManagerUser, seen: set[str]
) -> None:
    client = _asked(user)
    assert {row["connector"] for row in client.get("/connectors.json").json()} == seen
    measured = client.get("/metrics")
    assert measured.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    (runs,) = [f for f in text_string_to_metric_families(measured.text) if f.name == "cdc_run_TotalNumberOfRuns"]
    assert {sample.labels["connector"] for sample in runs.samples} == seen
    listed = client.get("/").text
    for name in ("shop", "billing", "script"):
        assert (f"/connectors/{name}" in listed) is (name in seen)
        for page in (f"/connectors/{name}", f"/connectors/{name}/batches/1"):
            assert client.get(page).status_code == (200 if name in seen else 404)
    assert client.get("/connectors/no-such").status_code == 404


def test_who_may_not_see_a_connector_is_told_the_same_as_of_one_that_is_not_there(shop: Shop) -> None:
    client = _asked(ANN)
    hidden, missing = client.get("/connectors/billing"), client.get("/connectors/nothing")
    assert hidden.json()["detail"].replace("billing", "nothing") == missing.json()["detail"]
