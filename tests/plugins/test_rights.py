"""Who may do what: each route of the OpenAPI document × each role × logged out, and single DAGs."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airflow_provider_cdc.plugins.app import app
from tests.plugins.conftest import Asked
from tests.support.face import Shop

BODIES: dict[str, Any] = {
    "snapshot": {"tables": ["inventory.orders"]},
    "forget-target": {"target": "delta", "location": "/lake"},
    "rebuild": {"tables": ["inventory.orders"]},
    "restore-offset": {"version": 1},
    "set-offset": {"position": {"entry": 1}},
    "repair-gap": {"repair": "snapshot"},
    "key": {"table": "inventory.orders"},
    "row": {"table": "inventory.orders", "key": ["1"]},
    "definition": {"source": "mariadb", "name": "shop", "conn_id": "shop"},
}
"""What routes with a body are sent; others take an empty object."""
ALLOWED = {
    "read": {"VIEWER", "USER", "OP", "ADMIN"},
    "operate": {"USER", "OP", "ADMIN"},
    "administer": {"OP", "ADMIN"},
    "rows": {"USER", "OP", "ADMIN"},
}
"""Right → the roles of Airflow's simple auth manager that have it: the table of docs/security.md."""
ROUTES = [
    (method, path, operation["x-right"])
    for path, methods in app.openapi()["paths"].items()
    for method, operation in methods.items()
]


def called(client: TestClient, method: str, path: str, connector: str = "shop") -> int:
    """The status of an answer to a request that is well-formed."""
    url = path.replace("{connector}", connector).replace("{batch}", "1").replace("{connection}", "shop")
    body = BODIES.get(path.rpartition("/")[2], {}) if method == "post" else None
    answer = client.request(method, url, json=body, follow_redirects=False)
    assert answer.status_code < 500, answer.text
    assert answer.status_code != 422, answer.text
    return answer.status_code


def test_the_document_has_every_right() -> None:
    assert {right for _, _, right in ROUTES} == set(ALLOWED)
    assert len(ROUTES) >= 33


@pytest.mark.parametrize("role", ["VIEWER", "USER", "OP", "ADMIN", None])
def test_each_route_is_allowed_or_refused_as_the_table_says(
    shop: Shop, asked: Asked, role: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    client = asked(role=role)
    for method, path, right in ROUTES:
        status = called(client, method, path)
        if role is None:
            assert status == 401, (path, status)
        elif role in ALLOWED[right]:
            assert status in (200, 409), (path, status)  # what is planned for may not be there
        else:
            assert status == 403, (path, status)
    assert shop.store.control("shop").wanted == "running"  # plans change nothing


def test_rows_are_shown_to_nobody_unless_the_configuration_names_the_connector(shop: Shop, asked: Asked) -> None:
    answer = asked().post("/api/v1/connectors/shop/row", json=BODIES["row"])
    assert answer.status_code == 403
    assert "AIRFLOW__CDC__SHOW_ROWS_OF=shop" in answer.json()["error"]["repair"]
    assert [e.notification.type for e in shop.store.notifications("shop")].count("LOOKED_AT") == 0


def test_what_a_user_may_do_is_said(shop: Shop, asked: Asked) -> None:
    found = {
        role: asked(role=role).get("/api/v1/connectors/shop").json()["rights"]
        for role in ("VIEWER", "USER", "OP", "ADMIN")
    }
    assert found == {role: [right for right in ALLOWED if role in ALLOWED[right]] for role in found}


@pytest.mark.parametrize(
    ("name", "role", "seen"),
    [("ann", "USER", {"shop"}), ("bob", "VIEWER", {"billing"}), ("ada", "ADMIN", {"shop", "billing", "script"})],
)
def test_everybody_sees_the_connectors_of_the_dags_that_they_may_read(
    fleet: Shop, asked: Asked, name: str, role: str, seen: set[str]
) -> None:
    client = asked(name, role)
    found = client.get("/api/v1/connectors").json()
    assert {row["connector"] for row in found["connectors"]} == seen
    assert found["total"] == len(seen)
    measured = client.get("/metrics")
    assert measured.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    (runs,) = [f for f in text_string_to_metric_families(measured.text) if f.name == "cdc_run_TotalNumberOfRuns"]
    assert {sample.labels["connector"] for sample in runs.samples} == seen
    for connector in ("shop", "billing", "script"):
        for method, path, _ in ROUTES:
            if "{connector}" in path and connector not in seen:
                assert called(client, method, path, connector) == 404, path


def test_who_may_not_see_a_connector_is_told_the_same_as_of_one_that_is_not_there(fleet: Shop, asked: Asked) -> None:
    client = asked("ann", "USER")
    for method, path, _ in ROUTES:
        if "{connector}" in path:
            body = BODIES.get(path.rpartition("/")[2], {}) if method == "post" else None
            hidden, missing = (
                client.request(method, path.replace("{connector}", name).replace("{batch}", "1"), json=body).text
                for name in ("billing", "nothing")
            )
            assert hidden.replace("billing", "nothing") == missing


def test_metrics_need_a_login(shop: Shop, asked: Asked) -> None:
    assert asked(role=None).get("/metrics").status_code == 401
