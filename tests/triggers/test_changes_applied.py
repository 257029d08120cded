"""Waits for the changes that a target has applied, from real state and a real change log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.trigger_runs import deserialize_trigger, report


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "applied")
    shop_connector.database.create_table("inventory.lines", {"id": "int64!"}, key=("id",))
    for key in (1, 2, 3):  # batches 1 to 3, one order in each
        shop_connector.order(key)
        CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def poll_trigger(shop_connector: ShopConnector, **point: Any) -> Any:
    return deserialize_trigger(AppliedTrigger("shop", **point)).poll_once(shop_connector.store)


def test_without_a_point_it_waits_for_what_is_captured_when_it_begins(shop_connector: ShopConnector) -> None:
    trigger = AppliedTrigger("shop")
    report(shop_connector, 2)
    assert trigger.poll_once(shop_connector.store).event is None
    shop_connector.order(4)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    report(shop_connector, 3)
    waited = deserialize_trigger(trigger)  # as another triggerer takes it over: the point stays
    assert waited.poll_once(shop_connector.store).event == {"batch": 3, "applied": 3, "target": "delta"}


def test_a_batch_is_applied_when_the_target_stands_at_it_or_behind_it(shop_connector: ShopConnector) -> None:
    assert "has applied batch 0; waiting for batch 2" in poll_trigger(shop_connector, batch=2).text
    report(shop_connector, 1)
    assert poll_trigger(shop_connector, batch=2).event is None
    report(shop_connector, 3)
    assert poll_trigger(shop_connector, batch=2).event == {"batch": 2, "applied": 3, "target": "delta"}
    assert poll_trigger(shop_connector, batch=2, target="iceberg").event is None


def test_a_sequence_number_stands_for_the_batch_that_holds_it(shop_connector: ShopConnector) -> None:
    report(shop_connector, 2)
    batches = shop_connector.store.list_batches("shop")[::-1]
    for batch in batches:
        for seq in (batch.first_seq, batch.last_seq):
            event = poll_trigger(shop_connector, seq=seq).event
            assert (event or {"batch": None})["batch"] == (batch.batch if batch.batch <= 2 else None)
    found = poll_trigger(shop_connector, seq=batches[-1].last_seq + 1)
    assert found.event is None
    assert "has not captured up to seq" in found.text


def test_a_place_in_the_log_stands_for_the_first_batch_behind_it(shop_connector: ShopConnector) -> None:
    report(shop_connector, 3)
    for batch in shop_connector.store.list_batches("shop"):
        assert poll_trigger(shop_connector, position=batch.position).event["batch"] == batch.batch
    beyond = {**shop_connector.store.list_batches("shop")[0].position}
    (name,) = beyond
    beyond[name] += 5
    assert "has not captured up to" in poll_trigger(shop_connector, position=beyond).text


def test_a_table_that_lags_holds_up_those_who_wait_for_all_tables_or_for_it(shop_connector: ShopConnector) -> None:
    report(shop_connector, 3, {"shop.inventory.orders": 1}, {"shop.inventory.orders": "disk is full"})
    found = poll_trigger(shop_connector, batch=2)
    assert found.event is None
    assert "shop.inventory.orders: disk is full" in found.text
    assert poll_trigger(shop_connector, batch=2, topic="shop.inventory.orders").event is None
    assert poll_trigger(shop_connector, batch=2, topic="shop.inventory.lines").event["applied"] == 3


def test_a_table_of_a_topic_that_has_several_holds_up_those_who_wait_for_the_topic(
    shop_connector: ShopConnector,
) -> None:
    name, topic = "shop.inventory.orders → /lake/eu", "shop.inventory.orders"
    stands = {name: {"location": "/lake/eu", "topic": topic, "place": {"step": 0, "value": "eu"}}}
    report(shop_connector, 3, {name: 1}, {name: "disk is full"}, table_states=stands)
    found = poll_trigger(shop_connector, batch=2, topic=topic)
    assert found.event is None
    assert f"{name}: disk is full" in found.text
    assert poll_trigger(shop_connector, batch=1, topic=topic).event["applied"] == 1
    assert poll_trigger(shop_connector, batch=2, topic="shop.inventory.lines").event["applied"] == 3


def test_a_topic_that_the_connector_does_not_have_is_waited_for(shop_connector: ShopConnector) -> None:
    report(shop_connector, 3)
    found = poll_trigger(shop_connector, batch=2, topic="shop.inventory.order")
    assert found.event is None
    assert "has captured no table of topic shop.inventory.order yet" in found.text
    assert poll_trigger(shop_connector, batch=2, topic="shop.inventory.orders").event is not None


def test_a_connector_that_has_not_run_is_waited_for(shop_connector: ShopConnector) -> None:
    assert "has captured nothing yet" in AppliedTrigger("other").poll_once(shop_connector.store).text


def test_of_several_targets_the_one_that_is_furthest_behind_counts_unless_one_is_named(
    shop_connector: ShopConnector,
) -> None:
    report(shop_connector, 3, location="/lake/a")
    report(shop_connector, 1, location="/lake/b")
    found = poll_trigger(shop_connector, batch=2)
    assert found.event is None
    assert "Target delta at /lake/b" in found.text
    assert poll_trigger(shop_connector, batch=2, location="/lake/a").event["applied"] == 3
    report(shop_connector, 2, location="/lake/b")
    assert poll_trigger(shop_connector, batch=2).event["applied"] == 2
