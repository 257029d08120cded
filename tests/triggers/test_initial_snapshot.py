"""Completion of the initial snapshot, and the waiting for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "initial")
    yield shop_connector
    shop_connector.store.close()


def pending(shop_connector: ShopConnector, tables: dict[str, bool], requests: dict[str, int]) -> None:
    with shop_connector.store.acquire_lease("shop", "a test", wait_s=0) as lease:
        pending = {name: PendingTable(held=held, request=requests.get(name)) for name, held in tables.items()}
        state = SnapshotState(pending=pending)
        shop_connector.store.advance_offset(
            lease,
            shop_connector.store.load_offset("shop"),
            Offset(position={"entry": 1}, seq=7, batch=2, snapshot=state),
        )


def test_before_the_first_run_it_waits_and_says_so(shop_connector: ShopConnector) -> None:
    found = InitialSnapshotTrigger("shop").poll_once(shop_connector.store)
    assert found.event is None
    assert "no capture of shop has run yet" in found.text


def test_tables_that_are_still_to_be_read_are_named(shop_connector: ShopConnector) -> None:
    pending(shop_connector, {"inventory.orders": False, "inventory.lines": False}, {})
    found = InitialSnapshotTrigger("shop").poll_once(shop_connector.store)
    assert found.event is None
    assert "2 tables still to read: inventory.lines, inventory.orders" in found.text


def test_tables_that_a_signal_asks_for_are_not_part_of_it(shop_connector: ShopConnector) -> None:
    pending(shop_connector, {"inventory.orders": True}, {"inventory.orders": 12})
    assert InitialSnapshotTrigger("shop").poll_once(shop_connector.store).event == {"seq": 7, "batch": 2}


def test_after_the_first_run_it_is_complete(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    event = InitialSnapshotTrigger("shop").poll_once(shop_connector.store).event
    assert event is not None
    assert event["batch"] == 1
