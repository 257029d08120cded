"""Ends of the waiting, each a skip or an error: every sensor, in the triggerer and in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR

from airflow_provider_cdc.core.errors import AccessDenied, CdcError, ConfigError, SourceUnavailable
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.any_changes import AnyChangesSensor
from airflow_provider_cdc.sensors.changes_applied import AppliedSensor
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from airflow_provider_cdc.sensors.snapshot_completed import SnapshotCompletedSensor
from airflow_provider_cdc.sensors.waiting_sensor import WaitingSensor
from airflow_provider_cdc.services.connectors.grouped_connectors import ChangeInspection, GroupedConnector
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferred,
)

Make = Callable[..., WaitingSensor]
NEXT = "execute_complete"


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    """Captured to the end of its log, so that every sensor has to wait."""
    shop_connector = make_shop(monkeypatch, tmp_path, "waiting")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def _changes(shop_connector: ShopConnector, **more: Any) -> WaitingSensor:
    return ChangesAvailableSensor(
        **{"task_id": "wait", "definition": shop_connector.definition, "conn_id": "shop", **more}
    )


def _any_changes(shop_connector: ShopConnector, **more: Any) -> WaitingSensor:
    one = GroupedConnector(definition=shop_connector.definition, conn_id="shop")
    return AnyChangesSensor(**{"task_id": "wait", "connectors": [one], **more})


def _applied_sensor(shop_connector: ShopConnector, **more: Any) -> WaitingSensor:
    return AppliedSensor(**{"task_id": "wait", "connector": "shop", **more})


def _snapshot(shop_connector: ShopConnector, **more: Any) -> WaitingSensor:
    from airflow_provider_cdc.core.model.connector_signal import SentSignal

    number = shop_connector.store.send("shop", SentSignal("a", "execute-snapshot", "{}"))
    return SnapshotCompletedSensor(**{"task_id": "wait", "connector": "shop", "number": number, **more})


SENSORS = {"changes": _changes, "any-changes": _any_changes, "applied": _applied_sensor, "snapshot": _snapshot}
ASKED = {
    "changes": "airflow_provider_cdc.sensors.changes_available.ChangesAvailableSensor._look",
    "any-changes": "airflow_provider_cdc.sensors.any_changes.inspect_changes",
    "applied": "airflow_provider_cdc.triggers.changes_applied.AppliedTrigger.poll_once",
    "snapshot": "airflow_provider_cdc.triggers.signal_completed.SignalCompletedTrigger.poll_once",
}
"""The call by which each sensor asks."""
every_sensor = pytest.mark.parametrize("name", SENSORS)


def break_method(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(ASKED[name], fail)


def trigger_failed(sensor: BaseOperator, error: str) -> Any:
    """Resume a task as Airflow does after its trigger has failed or its time was over."""
    return sensor.resume_execution(TRIGGER_FAIL_REPR, {"error": error, "traceback": ["ZeroDivisionError"]}, context())


@every_sensor
def test_the_time_being_over_skips_the_task_where_that_is_wanted(shop_connector: ShopConnector, name: str) -> None:
    with pytest.raises(AirflowSkipException):
        trigger_failed(SENSORS[name](shop_connector, soft_fail=True), "Trigger timeout")
    with pytest.raises(AirflowSensorTimeout):
        trigger_failed(SENSORS[name](shop_connector), "Trigger timeout")
    worker = SENSORS[name](shop_connector, soft_fail=True, deferrable=False, timeout=0.01, poll_interval=0.01)
    with pytest.raises(AirflowSkipException):
        worker.execute(context())


@every_sensor
def test_the_execution_timeout_holds_in_the_triggerer(shop_connector: ShopConnector, name: str) -> None:
    """AF08: it had no effect there: the task waited for its timeout of a week."""
    short = timedelta(seconds=25)
    sensor = SENSORS[name](shop_connector, soft_fail=True, execution_timeout=short)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context())
    assert deferred.value.timeout == short
    with pytest.raises(AirflowTaskTimeout, match="execution_timeout"):
        trigger_failed(sensor, "Trigger timeout")
    longer = SENSORS[name](shop_connector, soft_fail=True, timeout=5, execution_timeout=short)
    with pytest.raises(AirflowSkipException):
        trigger_failed(longer, "Trigger timeout")


@pytest.mark.parametrize("soft_fail", [True, False])
@every_sensor
def test_a_trigger_that_crashes_fails_the_task_which_is_tried_again(
    shop_connector: ShopConnector, name: str, soft_fail: bool
) -> None:
    with pytest.raises(TaskDeferralError):
        trigger_failed(SENSORS[name](shop_connector, soft_fail=soft_fail), "Trigger failure")


@pytest.mark.parametrize("name", ["changes", "applied", "snapshot"])
def test_an_error_of_the_trigger_that_needs_a_person_fails_the_task_with_its_message(
    shop_connector: ShopConnector, name: str
) -> None:
    """AF24"""
    sensor = SENSORS[name](shop_connector, soft_fail=True)
    with pytest.raises(AirflowFailException, match="Access denied for user"):
        sensor.resume_execution(NEXT, {"event": {"error": "Access denied for user 'cdc'"}}, context())


def test_a_signal_that_fails_fails_the_task_whatever_soft_fail_is(shop_connector: ShopConnector) -> None:
    event = {"number": 1, "type": "execute-snapshot", "state": "failed", "message": "disk is full"}
    with pytest.raises(AirflowFailException, match="disk is full"):
        _snapshot(shop_connector, soft_fail=True).resume_execution(NEXT, {"event": event}, context())


DENIED = AccessDenied("Access denied.", remedy="grant it")


@pytest.mark.parametrize("deferrable", [True, False])
@every_sensor
def test_an_error_that_needs_a_person_fails_the_task_before_it_waits(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, name: str, deferrable: bool
) -> None:
    sensor = SENSORS[name](shop_connector, soft_fail=True, deferrable=deferrable)
    break_method(monkeypatch, name, DENIED)
    if name == "any-changes" and deferrable:  # its trigger asks
        with pytest.raises(TaskDeferred):
            sensor.execute(context())
        return
    with pytest.raises(AirflowFailException, match="Access denied"):
        sensor.execute(context())


@pytest.mark.parametrize("error", [DENIED, SourceUnavailable("It does not answer.", remedy="start it")])
@every_sensor
def test_no_answer_at_the_end_of_the_time_is_no_skip(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, name: str, error: CdcError
) -> None:
    sensor = SENSORS[name](shop_connector, soft_fail=True)
    break_method(monkeypatch, name, error)
    with pytest.raises(AirflowFailException, match=r"sensor timed out.*(Access denied|does not answer)"):
        trigger_failed(sensor, "Trigger timeout")


def test_changes_that_come_with_the_end_of_the_time_are_captured(shop_connector: ShopConnector) -> None:
    shop_connector.order(2)
    assert trigger_failed(_changes(shop_connector, soft_fail=True), "Trigger timeout") is None


def test_a_group_whose_source_is_away_at_the_end_of_the_time_is_captured_and_fails_there(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = _any_changes(shop_connector, soft_fail=True)
    away = ChangeInspection(
        sensor.connector_accesses[0], error=SourceUnavailable("It does not answer.", remedy="start it")
    )  # type: ignore[attr-defined]
    monkeypatch.setattr("airflow_provider_cdc.sensors.any_changes.inspect_changes", lambda *_: [away])
    assert not sensor.poke(context())
    assert trigger_failed(sensor, "Trigger timeout") is None


def test_a_connector_that_is_paused_skips_its_task(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_cdc.core.errors import ConnectorHalted

    break_method(monkeypatch, "changes", ConnectorHalted("shop is paused.", remedy="resume it"))
    with pytest.raises(AirflowSkipException, match="paused"):
        _changes(shop_connector, deferrable=False, soft_fail=True).execute(context())
    with pytest.raises(AirflowSkipException, match="paused"):
        trigger_failed(_changes(shop_connector, soft_fail=True), "Trigger timeout")


@every_sensor
def test_a_mistake_of_ours_is_an_error(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    break_method(monkeypatch, name, ZeroDivisionError("float modulo"))
    with pytest.raises((ZeroDivisionError, AirflowException), match="float modulo"):
        SENSORS[name](shop_connector, soft_fail=True, deferrable=False).execute(context())
    with pytest.raises((ZeroDivisionError, AirflowException), match="float modulo"):
        trigger_failed(SENSORS[name](shop_connector, soft_fail=True), "Trigger timeout")


@every_sensor
def test_intervals_are_seconds_or_a_timedelta_and_never_nothing(shop_connector: ShopConnector, name: str) -> None:
    assert SENSORS[name](shop_connector, poll_interval=timedelta(seconds=5)).poll_interval == 5
    for wrong in (0, -1, timedelta(0)):
        with pytest.raises(ConfigError, match=r"poll_interval must be more than 0 seconds"):
            SENSORS[name](shop_connector, poll_interval=wrong)
