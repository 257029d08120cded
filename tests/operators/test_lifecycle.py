"""Tasks that steer a connector, on real state, a real change log and a memory source."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.lifecycle import TITLES, ConnectorLifecycleOperator, LifecycleAction
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, AirflowSkipException
from tests.support.patience import wait_until


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "lifecycle-operator", signal_poll_interval_ms=50)
    shop_connector.order(1)
    capture(shop_connector)
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector, **more: Any) -> dict[str, Any]:
    return CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop", **more).execute(
        context()
    )


def steer(action: str, **more: Any) -> dict[str, Any]:
    return ConnectorLifecycleOperator(task_id="t", connector="shop", action=action, **more).execute(context())


def running(shop_connector: ShopConnector) -> tuple[threading.Thread, list[Any]]:
    """A capture that is alive."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(capture(shop_connector, run_for=60))
        except Exception as e:
            results.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: shop_connector.store.find_connector("shop").owner, "the run has its lease")
    return thread, results


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_a_connector_that_is_halted_ends_its_run_and_the_next_ones_are_skipped(
    shop_connector: ShopConnector, action: str
) -> None:
    thread, results = running(shop_connector)
    status = steer(action, reason="upgrade of the database")
    assert (status["owner"], status["desired_state"]) == (None, {"pause": "paused", "stop": "stopped"}[action])
    thread.join(20)
    assert isinstance(results[0], dict)  # it ended well
    shop_connector.order(2)
    with pytest.raises(AirflowSkipException, match=r"upgrade of the database") as caught:
        capture(shop_connector)
    assert "d r" in str(caught.value)  # who asked
    assert steer("resume")["desired_state"] == "running"
    assert capture(shop_connector)["events"] == 1


def test_a_run_that_does_not_end_in_time_fails_the_task_and_stays_asked(shop_connector: ShopConnector) -> None:
    with (
        shop_connector.store.acquire_lease("shop", "somebody slow", wait_s=0),
        pytest.raises(AirflowException, match="somebody slow of shop has not ended"),
    ):
        steer("pause", wait_for_end=0.2)
    assert shop_connector.store.load_control("shop").desired_state == "paused"


def test_a_restart_ends_the_run_that_is_alive_and_skips_nothing(shop_connector: ShopConnector) -> None:
    thread, results = running(shop_connector)
    time.sleep(0.3)
    steer("restart")
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(results[0], dict)
    shop_connector.order(2)
    assert capture(shop_connector)["events"] == 1


def test_status_returns_the_shown_state(shop_connector: ShopConnector) -> None:
    status = steer("status")
    assert (status["connector"], status["state"], status["batch"]) == ("shop", "unassigned", 1)


def test_a_dry_run_reports_what_would_be_done_and_does_nothing(shop_connector: ShopConnector) -> None:
    before = shop_connector.store.load_offset("shop")
    plan = steer("offset-reset", plan_only=True)
    assert plan["plan_only"] is True
    assert (plan["effect"], plan["problems"]) == ("snapshot", [])
    assert shop_connector.store.load_offset("shop") == before


def test_what_cannot_be_taken_back_has_to_be_confirmed(shop_connector: ShopConnector) -> None:
    before = shop_connector.store.load_offset("shop")
    for confirm in (None, "", "shpo"):
        with pytest.raises(AirflowFailException, match="confirm the change with shop"):
            steer("offset-reset", confirm=confirm)
    assert shop_connector.store.load_offset("shop") == before
    assert steer("offset-reset", confirm="shop")["position"] is None
    assert capture(shop_connector)["events"] >= 1  # everything was read again


def test_the_offset_goes_to_a_position_and_back_to_an_earlier_one(shop_connector: ShopConnector) -> None:
    first = shop_connector.store.load_offset("shop")
    assert first.offset is not None
    shop_connector.order(2)
    capture(shop_connector)
    moved = steer("offset-set", confirm="shop", position=first.offset.position, reason="once more")
    assert moved["position"] == first.offset.position
    assert "once more" in shop_connector.store.offset_history("shop", 1)[0].reason
    assert capture(shop_connector)["events"] == 1
    restored = steer("offset-restore", confirm="shop", version=str(first.version))
    assert restored["position"] == first.offset.position


@pytest.mark.parametrize(
    ("action", "more", "message"),
    [
        ("dance", {}, "Valid values are: status, pause"),
        ("offset-set", {"position": "somewhere"}, "is not a position"),
        ("offset-restore", {"version": "old"}, "is not the version"),
        ("repair-gap", {"repair": "glue"}, "Valid values are: snapshot, incremental, skip"),
        ("offset-reset", {"plan_only": "perhaps"}, "valid values are true and false"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    shop_connector: ShopConnector, action: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        steer(action, confirm="shop", **more)


def test_a_gap_is_shown_and_repaired(shop_connector: ShopConnector) -> None:
    assert steer("repair-gap", repair="snapshot", plan_only=True)["gap"] is None
    shop_connector.order(2)
    shop_connector.database.purge_log()
    shop_connector.order(3)
    gap = steer("repair-gap", repair="snapshot", plan_only=True)["gap"]
    assert gap["connector"] == "shop"
    with pytest.raises(AirflowFailException, match="confirm the change with shop"):
        steer("repair-gap", repair="snapshot")
    assert steer("repair-gap", repair="snapshot", confirm="shop")["gap"] == gap
    assert capture(shop_connector)["events"] >= 3


def test_a_connector_is_deleted_with_its_change_log(shop_connector: ShopConnector) -> None:
    changelog = Path(shop_connector.definition.changelog) / "shop"
    assert steer("delete", confirm="shop", with_changelog="true", plan_only="true")["plan_only"] is True
    assert shop_connector.store.find_connector("shop")
    steer("delete", confirm="shop", with_changelog="true", plan_only="false")
    assert shop_connector.store.find_connector("shop") is None
    assert not any(changelog.rglob("*.parquet"))


def test_every_action_has_a_title() -> None:
    assert set(TITLES) == set(LifecycleAction)
