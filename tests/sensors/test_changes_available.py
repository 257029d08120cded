"""The sensor: it continues at once where it can, and otherwise leaves the waiting to the triggerer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowFailException, TaskDeferred


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "sensor")
    yield shop_connector
    shop_connector.store.close()


def sensor(shop_connector: ShopConnector, **more: Any) -> ChangesAvailableSensor:
    return ChangesAvailableSensor(task_id="wait", definition=shop_connector.definition, conn_id="shop", **more)


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def test_before_the_first_capture_it_succeeds_at_once(shop_connector: ShopConnector) -> None:
    assert sensor(shop_connector).execute(context()) is None


def test_with_nothing_to_capture_it_is_deferred_with_its_timeout(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(shop_connector, timeout=90, poll_interval=3).execute(context())
    assert deferred.value.timeout == timedelta(seconds=90)
    trigger = deferred.value.trigger
    assert isinstance(trigger, ChangesAvailableTrigger)
    assert trigger.poll_interval == 3
    assert trigger.access["definition"] == shop_connector.definition.to_document()


def test_with_something_to_capture_it_succeeds_at_once(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    shop_connector.order(1)
    assert sensor(shop_connector).execute(context()) is None


def test_an_unreachable_source_is_waited_for_in_the_triggerer(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    connect(monkeypatch, "shop", conn_type="cdc_mariadb", host="127.0.0.1", port=1, login="cdc", password="hunter2")
    from airflow_provider_cdc.connector import ConnectorDefinition

    definition = ConnectorDefinition("shop", "mariadb", "/lake", {"database.server.id": 4711})
    shop_connector.store.register_connector(
        replace(shop_connector.store.find_registration("shop"), properties=_properties(definition))
    )
    with pytest.raises(TaskDeferred):
        ChangesAvailableSensor(task_id="wait", definition=definition, conn_id="shop").execute(context())


def _properties(definition: Any) -> Any:
    from airflow_provider_cdc.connector import build_registration, parse_config
    from airflow_provider_cdc.hooks.source import CdcSourceHook

    return build_registration(
        definition, parse_config(definition, CdcSourceHook("shop").resolve_properties())
    ).properties


def test_what_a_person_must_mend_fails_the_task_for_good(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "shop", conn_type="cdc_memory", host="no such database")
    with pytest.raises(AirflowFailException, match="no such database"):
        sensor(shop_connector).execute(context())
    with pytest.raises(AirflowFailException, match="mend this"):
        sensor(shop_connector).execute_complete(context(), {"error": "mend this"})


def test_without_the_triggerer_it_asks_from_the_worker(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    waiting = sensor(shop_connector, deferrable=False)
    assert not waiting.poke(context())
    shop_connector.order(1)
    assert waiting.poke(context())
