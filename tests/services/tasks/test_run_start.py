"""A sensor begins a run as long as a target lacks anything, and waits after a failure that a person must repair."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.lifecycle import next_run
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from airflow_provider_cdc.triggers import changes_available
from airflow_provider_cdc.triggers.apply_due import ApplyDueTrigger
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.patience import LONGEST_S

TASK = "d.t.-1"
"""The task of :func:`tests.support.airflow.airflow_connector.context`."""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop = make_shop(monkeypatch, tmp_path, "start")
    monkeypatch.setattr(next_run, "FIRST_PAUSE_S", 1.0)
    yield shop
    shop.store.close()


def capture(shop: ShopConnector) -> Any:
    return CaptureOperator(task_id="capture", definition=shop.definition, conn_id="shop").execute(context())


def sensor(shop: ShopConnector, **more: Any) -> ChangesAvailableSensor:
    arguments = {"task_id": "wait", "definition": shop.definition, "conn_id": "shop", "poll_interval": 0.1}
    return ChangesAvailableSensor(**{**arguments, "applied_by": ["t"], **more})


def defer(shop: ShopConnector, **more: Any) -> ChangesAvailableTrigger:
    """Return the trigger of the sensor, as the triggerer makes it."""
    with pytest.raises(TaskDeferred) as e:
        sensor(shop, **more).execute(context())
    _, arguments = e.value.trigger.serialize()
    return ChangesAvailableTrigger(**json.loads(json.dumps(arguments)))


async def await_first_event(trigger: Any, within: float = LONGEST_S) -> dict[str, Any] | None:
    """Return the first event; ``None`` if there is none in so many seconds."""
    try:
        return dict((await asyncio.wait_for(anext(trigger.run()), within)).payload)
    except TimeoutError:
        return None


def first_event(trigger: Any, within: float = LONGEST_S) -> dict[str, Any] | None:
    return asyncio.run(await_first_event(trigger, within))


@pytest.fixture
def warehouse(shop: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a target database that is away: it does not exist."""
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse/tables.db")
    return tmp_path / "warehouse"


def apply(shop: ShopConnector) -> Any:
    operator = ApplyToDatabaseOperator(task_id="t", definition=shop.definition, conn_id="warehouse")
    return operator.execute(context())


def test_a_target_that_was_away_is_owed_what_was_captured_until_an_apply_succeeds(
    shop: ShopConnector, warehouse: Path
) -> None:
    shop.order(1)
    capture(shop)
    with pytest.raises(AirflowException):
        apply(shop)
    applies_due = ApplyDueTrigger("shop", TASK, poll_interval=0.1)
    assert first_event(defer(shop), 0.5) is None  # not at once
    event = first_event(defer(shop))
    assert event is not None
    assert "not" in event["reason"]
    due = first_event(applies_due)
    assert due is not None
    assert due["connector"] == "shop"
    sensor(shop).execute(context())  # in a worker, too: nothing is deferred

    warehouse.mkdir()
    capture(shop)  # finds nothing
    assert apply(shop)["events"] == 1
    assert first_event(defer(shop), 1.5) is None
    assert first_event(applies_due, 0.5) is None
    record = shop.store.find_connector("shop")
    assert record is not None
    (target,) = record.targets
    assert (target.target, target.batch, target.failures, target.task) == ("database", record.last_batch, 0, TASK)

    shutil.rmtree(warehouse)  # away again, and the target has what was captured: nothing is owed
    assert first_event(defer(shop), 1.5) is None


def test_one_trigger_of_an_asset_fires_once_for_each_try(
    shop: ShopConnector, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_run, "AT_WORK_S", 1.0)
    shop.order(1)
    capture(shop)
    with pytest.raises(AirflowException):
        apply(shop)

    async def count_events() -> int:
        events = 0
        try:
            async with asyncio.timeout(3.5):
                async for _ in ApplyDueTrigger("shop", TASK, poll_interval=0.05).run():
                    events += 1
        except TimeoutError:
            return events
        raise AssertionError("the trigger has ended")

    assert 2 <= asyncio.run(count_events()) <= 4


def lose_position(shop: ShopConnector) -> None:
    """Let the log lose the position of the connector, and a capture fail with that."""
    capture(shop)
    shop.order(1)
    shop.order(2)
    shop.database.purge_log()
    with pytest.raises(AirflowFailException):
        capture(shop)


def restart(shop: ShopConnector) -> None:
    shop.store.request_restart("shop", "ada")


def pause_and_resume(shop: ShopConnector) -> None:
    from airflow_provider_cdc.core.spi.desired_state import DesiredState

    shop.store.set_control("shop", DesiredState.PAUSED, "ada")
    shop.store.set_control("shop", DesiredState.RUNNING, "ada")


def send_signal(shop: ShopConnector) -> None:
    from airflow_provider_cdc.core.model.connector_signal import SentSignal

    shop.store.send("shop", SentSignal("1", "execute-snapshot", "{}"))


def set_offset(shop: ShopConnector) -> None:
    with shop.store.acquire_lease("shop", "ada", wait_s=0) as lease:
        stored = shop.store.load_offset("shop")
        assert stored.offset is not None
        shop.store.replace_offset(lease, stored, stored.offset, "set by ada")


@pytest.mark.parametrize("repair", [restart, pause_and_resume, send_signal, set_offset])
def test_a_lost_position_begins_no_run_until_something_is_repaired(shop: ShopConnector, repair: Any) -> None:
    lose_position(shop)
    trigger = defer(shop, applied_by=[])
    record = shop.store.find_connector("shop")
    assert record is not None
    assert record.failure is not None
    assert (record.failure.name, record.failure.needs_person) == ("PositionLost", True)
    assert record.failure.waits_until is not None

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger))
        await asyncio.sleep(1)
        assert not waiting.done()
        await asyncio.to_thread(repair, shop)
        event = await waiting
        assert event is not None
        assert "reason" in event

    asyncio.run(run_story())


def test_a_lost_position_begins_a_run_when_its_time_is_over(shop: ShopConnector) -> None:
    lose_position(shop)
    assert first_event(defer(shop, applied_by=[], retry_after=3), 1) is None
    event = first_event(defer(shop, applied_by=[], retry_after=3))
    assert event is not None
    assert "reason" in event


def test_an_error_of_the_check_fails_one_run_and_another_connection_ends_the_wait(
    shop: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop)
    connection = shop.database.name
    monkeypatch.delenv("AIRFLOW_CONN_SHOP")
    with pytest.raises(AirflowFailException, match="Connection shop"):
        sensor(shop).execute(context())
    trigger = defer(shop, applied_by=[])

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger))
        await asyncio.sleep(1)
        assert not waiting.done()
        connect(monkeypatch, "shop", conn_type="cdc_memory", host=connection)
        assert await waiting == {"reason": "the Airflow connection was changed"}

    asyncio.run(run_story())


def test_a_definition_that_is_corrected_is_read_again(shop: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(shop)
    right = shop.definition
    shop.definition = ConnectorDefinition("shop", "memory", right.changelog, {"table.include.lsit": "x"})
    with pytest.raises(AirflowFailException, match=r"table\.include\.lsit"):
        sensor(shop).execute(context())
    monkeypatch.setattr(changes_available, "RECHECK_S", 0.3)
    assert first_event(defer(shop, applied_by=[])) == {"recheck": True}
    with pytest.raises(TaskDeferred):  # the same definition: it waits on
        sensor(shop, applied_by=[]).execute_complete(context(), {"recheck": True})
    shop.definition = right
    assert first_event(defer(shop, applied_by=[]), 1) is None  # there is nothing to capture
    shop.order(1)
    sensor(shop, applied_by=[]).execute_complete(context(), {"recheck": True})  # does not wait
