"""Waiting for snapshots and for what becomes of signals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.snapshot_completed import SnapshotCompletedSensor
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, TaskDeferred, cdc_command


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "snapshot-sensor")
    yield shop_connector
    shop_connector.store.close()


def sensor(**more: Any) -> SnapshotCompletedSensor:
    return SnapshotCompletedSensor(**{"task_id": "wait", "connector": "shop", "poll_interval": 0.05, **more})


def send_snapshot(shop_connector: ShopConnector, state: SignalState | None = None, message: str = "") -> int:
    number = shop_connector.store.send("shop", SentSignal("a", "execute-snapshot", "{}"))
    if state is not None:
        shop_connector.store.set_signal_state("shop", number, state, message, {"left": 0, "rows": 7})
    return number


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def test_a_signal_that_is_done_already_needs_no_waiting(shop_connector: ShopConnector) -> None:
    result = sensor(number=send_snapshot(shop_connector, SignalState.DONE)).execute(context())
    assert (result["state"], result["progress"]) == ("done", {"left": 0, "rows": 7})


def test_otherwise_it_waits_in_the_triggerer(shop_connector: ShopConnector) -> None:
    number = send_snapshot(shop_connector, SignalState.RUNNING)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(number=str(number), timeout=60).execute(context())
    trigger = deferred.value.trigger
    assert isinstance(trigger, SignalCompletedTrigger)
    assert (trigger.number, trigger.poll_interval) == (number, 0.05)
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 60


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_signal_that_is_not_carried_out_fails_the_task_for_good(
    shop_connector: ShopConnector, deferrable: bool
) -> None:
    number = send_snapshot(shop_connector, SignalState.REFUSED, "no captured table has the name x")
    with pytest.raises(AirflowFailException, match="was refused: no captured table has the name x"):
        sensor(number=number, deferrable=deferrable).execute(context())
    with pytest.raises(AirflowFailException, match="failed: disk is full"):
        sensor(number=number).execute_complete(
            context(), {"number": 1, "type": "execute-snapshot", "state": "failed", "message": "disk is full"}
        )


def test_without_a_number_it_waits_for_the_initial_snapshot(shop_connector: ShopConnector) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor().execute(context())
    assert isinstance(deferred.value.trigger, InitialSnapshotTrigger)
    capture(shop_connector)
    assert sensor().execute(context()) == {"seq": 1, "batch": 1}


def test_it_takes_what_the_sending_task_returned(shop_connector: ShopConnector) -> None:
    number = send_snapshot(shop_connector, SignalState.DONE)
    assert sensor(number={"number": number, "id": "a"}).execute(context())["number"] == number


def test_it_waits_in_a_worker_where_that_is_wanted(shop_connector: ShopConnector) -> None:
    running = threading.Timer(0.3, capture, (shop_connector,))
    running.start()
    assert sensor(deferrable=False).execute(context()) == {"seq": 1, "batch": 1}
    running.join()


@pytest.mark.parametrize("number", ["seven", {"id": "a"}])
def test_what_is_no_number_is_refused(shop_connector: ShopConnector, number: Any) -> None:
    with pytest.raises(AirflowFailException, match="is not the number of a signal"):
        sensor(number=number).execute(context())


def test_a_number_that_no_one_sent_fails_the_task(shop_connector: ShopConnector) -> None:
    with pytest.raises(AirflowFailException, match="has no signal 99"):
        sensor(number=99).execute(context())


def test_state_tables_that_are_missing_fail_the_task(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    number = send_snapshot(shop_connector)
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(AirflowFailException, match=cdc_command("state migrate")):
        sensor(number=number).execute(context())


def test_an_error_that_the_trigger_found_fails_the_task(shop_connector: ShopConnector) -> None:
    with pytest.raises(AirflowException, match="a person must act"):
        sensor().execute_complete(context(), {"error": "a person must act"})
