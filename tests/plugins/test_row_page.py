"""Requests from the page of a row, beside the story itself: the columns of a key, and connections to target databases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.plugins import authorization
from tests.plugins.conftest import ClientFactory, capture
from tests.support.airflow.airflow_connector import ShopConnector

API = "/api/v1/connectors/shop/row"


@pytest.fixture(autouse=True)
def visible_row(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture a row, and allow the pages to show it."""
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    shop_connector.order(1)
    capture(shop_connector)


def post(client_factory: ClientFactory, path: str, body: dict[str, Any], status: int = 200) -> Any:
    answer = client_factory().post(f"{API}{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def list_looks(shop_connector: ShopConnector) -> int:
    return [e.notification.type for e in shop_connector.store.list_notifications("shop")].count("VIEWED")


def test_the_columns_of_a_key_are_reported_and_nothing_is_recorded(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    (column,) = post(client_factory, "/key", {"table": "inventory.orders"})
    assert (column["name"], column["type"]) == ("id", "int64")
    assert column["form"]
    assert "No connector has captured" in post(client_factory, "/key", {"table": "inventory.oders"}, 409)["detail"]
    assert list_looks(shop_connector) == 0


def test_viewed_rows_are_shown_to_users_who_may_see_rows(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """The key of a row is a part of it."""
    post(client_factory, "", {"table": "inventory.orders", "key": ["1"]})

    def shown_values(name: str, role: str) -> dict[str, str]:
        events = client_factory(name, role).get("/api/v1/connectors/shop/events").json()
        (found,) = [one["additional_data"] for one in events if one["type"] == "VIEWED"]
        return dict(found)

    seen = {"connector_name": "shop", "by": "ada", "table": "inventory.orders"}
    assert shown_values("ada", "ADMIN") == {**seen, "key": "1"}
    assert shown_values("eve", "VIEWER") == {**seen, "key": "not shown"}


def test_keys_and_conditions_are_shown_to_those_who_may_see_rows(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """A key may be a mail address; the log of a repair has thousands of them."""
    secret = "ann@example.com"
    ranges = [{"data-collection": "inventory.orders", "after": [secret], "upto": [secret]}]
    data = {"data-collections": ["inventory.orders"], "key-ranges": ranges}
    shop_connector.store.send("shop", SentSignal("a", "execute-snapshot", json.dumps(data)))
    shop_connector.store.send("shop", SentSignal("b", "execute-snapshot", json.dumps({**data, "more": "x" * 3000})))
    told = {
        "connector_name": "shop",
        "maximum_key": secret,
        "what": json.dumps({"filters": {"a": f"mail = '{secret}'"}}),
    }
    notification = Notification(aggregate_type="Incremental Snapshot", type="IN_PROGRESS", additional_data=told)
    shop_connector.store.add_notification("shop", notification)
    for name, role, shown in (("ada", "ADMIN", True), ("eve", "VIEWER", False)):
        client = client_factory(name, role)
        for route in ("signals", "events"):
            answer = client.get(f"/api/v1/connectors/shop/{route}")
            assert answer.status_code == 200
            assert (secret in answer.text) == shown, (route, role)
        assert "inventory.orders" in client.get("/api/v1/connectors/shop/signals").text


def test_the_row_as_of_a_time_and_beside_the_source(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    row = {"table": "inventory.orders", "key": ["1"]}
    found = post(client_factory, "", row | {"as_of": "2020-01-01T00:00:00Z", "compare": True})
    assert found["as_of"].startswith("2020-01-01T00:00:00")
    assert found["changes"] == []
    assert found["source"]["row"] is not None or found["source"]["equal"] is not None
    assert list_looks(shop_connector) == 1


def test_a_connection_to_a_target_database_is_for_those_who_may_edit_it(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"table": "inventory.orders", "key": ["1"], "connections": ["warehouse"]}
    monkeypatch.setattr(authorization, "may_connect", lambda user, conn_id, team, *, edit: not edit)
    assert "warehouse" in post(client_factory, "", row, 403)["detail"]
    assert list_looks(shop_connector) == 0
    monkeypatch.setattr(authorization, "may_connect", lambda user, conn_id, team, *, edit: True)
    post(client_factory, "", row)
    assert list_looks(shop_connector) == 1
