"""Actions from a page: the plan of an action, the action itself, and the record of who, when and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import ACTION, Notification, NotificationType
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from tests.plugins.conftest import ClientFactory, capture
from tests.support.airflow.airflow_connector import SHOP, ShopConnector

API = "/api/v1/connectors/shop/actions"


def post_action(
    client_factory: ClientFactory, action: str, body: dict[str, Any], status: int = 200, **query: Any
) -> Any:
    answer = client_factory("ann", "OP").post(f"{API}/{action}", json=body, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def audit(shop_connector: ShopConnector) -> list[dict[str, str]]:
    found = shop_connector.store.list_notifications("shop", limit=100)
    return [
        {"type": n.type, **n.additional_data}
        for n in (one.notification for one in found)
        if n.aggregate_type == "Action"
    ]


def test_pausing_says_what_it_does_does_it_and_is_recorded(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    plan = post_action(client_factory, "pause", {"reason": "upgrade <b>"})
    assert (plan["done"], plan["confirm"]) == (False, False)
    assert "No run is active; new runs are skipped." in plan["lines"]
    assert (shop_connector.store.load_control("shop").desired_state, audit(shop_connector)) == ("running", [])
    with shop_connector.store.acquire_lease("shop", "the run", wait_s=0):
        assert "The run the run ends at the next boundary" in post_action(client_factory, "pause", {})["lines"][0]
    assert post_action(client_factory, "pause", {"reason": "upgrade <b>"}, plan=False)["done"] is True
    control = shop_connector.store.load_control("shop")
    assert (control.desired_state, control.by, control.reason) == ("paused", "ann", "upgrade <b>")
    assert "paused by ann" in post_action(client_factory, "resume", {})["lines"][0]
    post_action(client_factory, "resume", {"reason": "done"}, plan=False)
    post_action(client_factory, "stop", {}, plan=False)
    assert shop_connector.store.load_control("shop").desired_state == "stopped"
    assert audit(shop_connector) == [
        {"type": "REQUESTED", "connector_name": "shop", "by": "ann", "action": "pause", "reason": "upgrade <b>"},
        {"type": "REQUESTED", "connector_name": "shop", "by": "ann", "action": "resume", "reason": "done"},
        {"type": "REQUESTED", "connector_name": "shop", "by": "ann", "action": "stop"},
    ]


def test_a_snapshot_names_its_tables_and_wants_the_connectors_name(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    body = {"tables": ["inventory.ord.*"], "replace": True, "reason": "rows differ"}
    plan = post_action(client_factory, "snapshot", body)
    assert plan["confirm"] is True
    assert "1 table is snapshotted again, in chunks beside the stream: inventory.orders." in plan["lines"]
    assert any("EMPTIED" in text for text in plan["lines"])
    for confirm in ({}, {"confirm": "shopp"}):
        refused = post_action(client_factory, "snapshot", body, 409, plan=False, **confirm)
        assert refused["error"]["safe"] == "Nothing was changed."
    assert (shop_connector.store.signals_of("shop"), audit(shop_connector)) == ([], [])
    done = post_action(client_factory, "snapshot", body, plan=False, confirm="shop")
    (signal,) = shop_connector.store.signals_of("shop")
    assert (signal.number, signal.sent_by, signal.type) == (done["signal"], "ann", "execute-snapshot")
    assert json.loads(signal.data or "") == {
        "type": "incremental",
        "data-collections": ["inventory.ord.*"],
        "replace": True,
    }
    assert [(one["by"], one["reason"]) for one in audit(shop_connector)] == [("ann", "rows differ")]
    assert "is received" in post_action(client_factory, "stop-snapshot", {})["lines"][0]
    stopped = post_action(client_factory, "stop-snapshot", {}, plan=False, confirm="shop")
    capture(shop_connector)
    assert {s.number: s.state for s in shop_connector.store.signals_of("shop")}[stopped["signal"]] == "done"


def test_a_blocking_snapshot_can_be_read_by_spark(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    body = {"tables": ["inventory.orders"], "type": "blocking", "on_spark": True, "reason": "new lake"}
    plan = post_action(client_factory, "snapshot", body)
    assert "as a whole, by executors of Spark; changes wait until it is complete: inventory.orders." in plan["lines"][0]
    post_action(client_factory, "snapshot", body, plan=False, confirm="shop")
    (signal,) = shop_connector.store.signals_of("shop")
    assert json.loads(signal.data or "")["engine"] == "spark"
    post_action(client_factory, "snapshot", {**body, "type": "incremental"}, 409)


@pytest.mark.parametrize("name", ["a+b", "net ", 'say "it" twice', "a,b", "(", "x=1:2", "orders|lines"])
def test_a_snapshot_of_a_name_that_a_page_shows_reads_that_table_alone(
    shop_connector: ShopConnector, client_factory: ClientFactory, name: str
) -> None:
    table = f"inventory.{name}"
    shop_connector.database.create_table(table, SHOP, key=("id",))
    with shop_connector.database.transaction() as transaction:
        transaction.insert(table, {"id": 1, "note": ""})
    shop_connector.order(7)
    capture(shop_connector)
    before = shop_connector.store.load_offset("shop").offset
    body = {"tables": [table], "type": "blocking"}
    assert post_action(client_factory, "snapshot", body)["lines"][0].endswith(f": {table}.")
    post_action(client_factory, "snapshot", body, plan=False, confirm="shop")
    capture(shop_connector)
    ((signal,), after) = shop_connector.store.signals_of("shop"), shop_connector.store.load_offset("shop").offset
    assert signal.state == SignalState.DONE
    assert before is not None
    assert after is not None
    assert after.seq - before.seq == 2  # its structure and its row


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"tables": ["inventory.oders"]}, 409, "did you mean inventory.orders?"),
        ({"tables": ["("]}, 409, "is not a regular expression"),
        ({"tables": ["(.*.*.*.*.*.*)*x"]}, 409, "may take longer than a run can wait"),
        ({"tables": []}, 422, "tables"),
        ({"tables": ["x"], "type": "fast"}, 422, "incremental"),
        ({"tables": ["x"], "where": "1=1"}, 422, "where"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_sent(
    shop_connector: ShopConnector, client_factory: ClientFactory, body: dict[str, Any], status: int, text: str
) -> None:
    assert text in json.dumps(post_action(client_factory, "snapshot", body, status, plan=False, confirm="shop"))
    assert shop_connector.store.signals_of("shop") == []


def test_nothing_is_done_by_a_plan_that_is_about_something_else_by_now(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """Only the subject of a plan counts: a run that ends meanwhile, or more rows that were read, do not matter."""
    snapshot = {"tables": ["inventory.*"]}
    plan = post_action(client_factory, "snapshot", snapshot)
    post_action(client_factory, "snapshot", snapshot, plan=False, confirm="shop", about=plan["about"])
    shop_connector.database.create_table("inventory.lines", {"id": "int64"}, key=("id",))
    capture(shop_connector)
    refused = post_action(client_factory, "snapshot", snapshot, 409, plan=False, confirm="shop", about=plan["about"])
    assert "have changed since the plan was made. Now: 2 tables" in refused["error"]["message"]
    assert refused["error"]["repair"] == "check the new plan"
    assert len(shop_connector.store.signals_of("shop")) == 1
    stop = post_action(client_factory, "stop-snapshot", {})
    assert "no snapshot is stopped" in stop["lines"][0]
    post_action(
        client_factory,
        "snapshot",
        snapshot,
        plan=False,
        confirm="shop",
        about=post_action(client_factory, "snapshot", snapshot)["about"],
    )
    post_action(client_factory, "stop-snapshot", {}, 409, plan=False, confirm="shop", about=stop["about"])
    pause = post_action(client_factory, "pause", {})
    with shop_connector.store.acquire_lease("shop", "the run", wait_s=0):
        assert post_action(client_factory, "pause", {})["about"] == pause["about"]
    shop_connector.store.set_control("shop", DesiredState.STOPPED, "bob")
    post_action(client_factory, "pause", {}, 409, plan=False, about=pause["about"])
    assert shop_connector.store.load_control("shop").by == "bob"
    post_action(client_factory, "pause", {}, plan=False, about=post_action(client_factory, "pause", {})["about"])
    assert shop_connector.store.load_control("shop").by == "ann"


def test_what_a_target_holds_back_is_released(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    access = access_of(record)
    assert access is not None
    reports = ApplyReports(access.open_change_log().storage, "shop")
    reports.register_target("delta", "/lake")
    body = {"target": "delta", "location": "/lake"}
    assert "has applied batches up to 0" in post_action(client_factory, "forget-target", body)["lines"][0]
    assert len(reports.list_reports()) == 1
    post_action(client_factory, "forget-target", body, 409, plan=False)
    post_action(client_factory, "forget-target", body, plan=False, confirm="shop")
    assert reports.list_reports() == []
    (kept,) = audit(shop_connector)
    assert json.loads(kept["parameters"]) == body
    post_action(client_factory, "forget-target", body, 409)


def test_the_record_of_actions_outlives_other_notifications(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    post_action(client_factory, "pause", {}, plan=False)
    retention = StateRetention(None, None, timedelta(0), None)
    shop_connector.store.prune_rows("shop", retention, datetime.now(UTC) + timedelta(days=1))
    assert [one.notification.aggregate_type for one in shop_connector.store.list_notifications("shop")] == ["Action"]


def asked_for(client_factory: ClientFactory) -> list[dict[str, Any]]:
    answer = client_factory("eve", "VIEWER").get(API)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_what_was_asked_for_is_there_however_many_runs_have_come_to_their_ends_since(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """Runs that no one has asked for on a page, such as a comparison of every night, record what they have come to as well."""
    post_action(client_factory, "pause", {"reason": "upgrade"}, plan=False)
    data = {"connector_name": "shop", "by": "airflow", "action": "verify", "dag": "nightly"}
    for n in range(100):
        shop_connector.store.add_notification("shop", Notification(aggregate_type=ACTION, type=NotificationType.COMPLETED, additional_data={**data, "run": f"run {n}"}))  # fmt: skip
    assert [(one["action"], one["fate"]) for one in asked_for(client_factory)] == [("pause", "done")]


def test_parameters_too_long_for_a_record_are_cut(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    tables = [rf"inventory\.orders|{'x' * 700}{n}" for n in range(150)]
    post_action(client_factory, "snapshot", {"tables": tables}, plan=False, confirm="shop")
    ((_, beginning),) = asked_for(client_factory)[0]["parameters"].items()
    assert beginning.startswith('{"tables": ["inventory')


def test_the_outcome_of_a_signal_is_shown_for_its_action(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """An action does not end when its signal is sent."""
    post_action(client_factory, "stop-snapshot", {}, plan=False, confirm="shop")
    number = post_action(client_factory, "snapshot", {"tables": ["inventory.orders"]}, plan=False, confirm="shop")[
        "signal"
    ]

    def newest() -> tuple[str, str, bool]:
        found = asked_for(client_factory)[0]
        return found["fate"], found["outcome"], found["ended_at"] is not None

    assert newest() == ("queued", "", False)
    shop_connector.store.set_signal_state("shop", number, SignalState.RUNNING)
    assert newest() == ("running", "", False)
    shop_connector.store.set_signal_state("shop", number, SignalState.REFUSED, "it has <b>no key")
    assert newest() == ("failed", "it has <b>no key", True)
    assert asked_for(client_factory)[1]["fate"] == "queued"
    shop_connector.store.prune_rows(
        "shop", StateRetention(None, None, None, timedelta(0)), datetime.now(UTC) + timedelta(days=1)
    )
    assert newest()[0] == "not known"
