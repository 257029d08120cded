"""The task that applies to a relational database, on a real change log and a real database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.retention.target_progress import needs_of
from airflow_provider_cdc.operators import apply_to_database
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.base.connector_apply_report import build_connector_alias
from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "apply-to-database")
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def apply(shop_connector: ShopConnector, given: Any = None, **more: Any) -> dict[str, Any]:
    operator = ApplyToDatabaseOperator(
        task_id="apply", definition=shop_connector.definition, conn_id="warehouse", **more
    )
    return operator.execute(given or context())


@contextlib.contextmanager
def goes_on(shop_connector: ShopConnector) -> Iterator[Future[dict[str, Any]]]:
    """An apply that continues for an hour, or until the block ends."""
    operator = ApplyToDatabaseOperator(
        task_id="apply", definition=shop_connector.definition, conn_id="warehouse", run_for=timedelta(hours=1)
    )
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(operator.execute, context())
        try:
            yield running
        finally:
            operator.on_kill()


def rows(folder: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "warehouse.db") as connection:
        return sorted(connection.execute("SELECT id, note FROM shop_inventory_orders").fetchall())


def test_tables_equal_the_source_and_assets_say_what_has_changed(shop_connector: ShopConnector, tmp_path: Path) -> None:
    shop_connector.order(1, "first")
    capture(shop_connector)
    given = context()
    result = apply(shop_connector, given)
    assert result.pop("seconds") >= 0
    place = f"sqlite:///{tmp_path}/warehouse.db/cdc_applied"
    assert result == {
        "connector": "shop",
        "target": place,
        "last_batch": 1,
        "events": 1,
        "tables": ["shop.inventory.orders"],
    }
    assert rows(tmp_path) == [(1, "first")]
    ((_, events),) = given["outlet_events"].items()
    (event,) = events.asset_alias_events
    assert event.dest_asset_key.uri == "cdc://shop/shop.inventory.orders"
    assert event.extra["rows"] == {"r": 1}
    shop_connector.order(2, "second")
    capture(shop_connector)
    assert apply(shop_connector)["events"] == 1
    assert rows(tmp_path) == [(1, "first"), (2, "second")]
    assert apply(shop_connector)["events"] == 0


@pytest.mark.parametrize("lost", ["connection", "driver parameter"])
def test_a_target_connection_that_cannot_be_used_fails_the_task_by_name_without_another_try(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """AF02, AF13"""
    if lost == "connection":
        monkeypatch.delenv("AIRFLOW_CONN_WAREHOUSE")
    else:
        connect(monkeypatch, "warehouse", conn_type="postgres", host="db", extra={"cursor_factory": "x"})
    with pytest.raises(AirflowFailException, match=r"(?i)connection warehouse.*(does not exist|: cursor_factory)"):
        apply(shop_connector)


def test_one_that_goes_on_applies_what_comes_and_ends_when_it_is_killed(
    shop_connector: ShopConnector, tmp_path: Path
) -> None:
    shop_connector.order(1, "first")
    capture(shop_connector)
    operators = [
        ApplyToDatabaseOperator(
            task_id="apply", definition=shop_connector.definition, conn_id="warehouse", run_for=timedelta(hours=1)
        )
        for _ in range(2)  # as while one run hands over to the next
    ]
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(operator.execute, context()) for operator in operators]
        try:
            for n in range(2, 5):
                shop_connector.order(n, "more")
                capture(shop_connector)
                wait_until(lambda n=n: (tmp_path / "warehouse.db").exists() and len(rows(tmp_path)) == n)
            assert not any(one.done() for one in running)
        finally:
            for operator in operators:
                operator.on_kill()
        results = [one.result(LONGEST_S) for one in running]
    assert _series(shop_connector)["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 4
    # events of assets rather twice than never: the one that ends last may tell what the other one has left
    assert 4 <= sum(result["events"] for result in results) <= 8
    assert rows(tmp_path) == [(1, "first"), (2, "more"), (3, "more"), (4, "more")]


def test_one_that_goes_on_ends_when_its_time_is_over(shop_connector: ShopConnector, tmp_path: Path) -> None:
    shop_connector.order(1, "first")
    capture(shop_connector)
    began = time.monotonic()
    assert apply(shop_connector, run_for=1.5)["events"] == 1
    assert time.monotonic() - began >= 1.5


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_S
    while True:
        with contextlib.suppress(sqlite3.OperationalError):  # the table is not there yet
            if true():
                return
        assert time.monotonic() < end
        time.sleep(0.05)


def test_batches_that_the_database_needs_are_kept(shop_connector: ShopConnector, tmp_path: Path) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    apply(shop_connector)
    shop_connector.order(2)
    capture(shop_connector)
    (need,) = needs_of(Storage(shop_connector.definition.changelog), "shop")
    assert (need.target, need.after) == ("database", 1)


def test_a_connection_that_the_sink_has_no_dialect_for_fails_for_good(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "warehouse", conn_type="http", host="example.org")
    with pytest.raises(AirflowFailException, match=r"(?s)has the type 'http'.*postgres"):
        apply(shop_connector)


def test_a_property_that_there_is_not_fails_for_good(shop_connector: ShopConnector) -> None:
    with pytest.raises(AirflowFailException, match=r"insert\.mod: unknown property; did you mean insert\.mode"):
        apply(shop_connector, sink={"insert.mod": "upsert"})


def test_a_database_that_cannot_be_reached_is_tried_again(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "warehouse", conn_type="postgres", host="127.0.0.1", port=1, login="a", password="top-secret")
    capture(shop_connector)
    with pytest.raises(AirflowException) as caught:
        apply(shop_connector, sink={"flush.max.retries": 0})
    assert not isinstance(caught.value, AirflowFailException)
    assert "top-secret" not in str(caught.value)


def test_what_was_measured_is_kept_also_of_a_run_that_has_failed(
    shop_connector: ShopConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.order(1, "first")
    capture(shop_connector)
    apply(shop_connector)
    before = _series(shop_connector)
    assert before["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 1
    fresh = before["shop.inventory.orders"].histograms["apply.FreshnessInSeconds"]
    assert (sum(fresh.classes), 0 <= fresh.total < LONGEST_S) == (1, True)
    assert (before[""].gauges["apply.LastRunFailed"], before[""].gauges["apply.FailedTables"]) == (0, 0)
    with sqlite3.connect(tmp_path / "warehouse.db") as connection:
        connection.execute("CREATE UNIQUE INDEX one ON shop_inventory_orders (note)")
    shop_connector.order(2, "first")
    capture(shop_connector)
    with pytest.raises(AirflowException, match="could not be applied"):
        apply(shop_connector)
    after = _series(shop_connector)
    assert (after[""].gauges["apply.LastRunFailed"], after[""].gauges["apply.FailedTables"]) == (1, 1)
    assert after[""].gauges["apply.LastBatch"] == 2
    with sqlite3.connect(tmp_path / "warehouse.db") as connection:
        connection.execute("DROP INDEX one")
    apply(shop_connector)
    again = _series(shop_connector)
    assert again["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 2
    assert again[""].counters["apply.TotalNumberOfFailedRuns"] == 1
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="sqlite:////nowhere/state.db")
    shop_connector.order(3, "third")
    assert apply(shop_connector)["events"] == 0  # nothing is captured, and that nothing can be kept fails no one


def test_changes_of_a_failed_run_are_reported_by_the_next_successful_one(
    shop_connector: ShopConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_to_database, "EVERY_S", 0.0)  # measurements in between are recorded, too
    shop_connector.database.create_table("inventory.lines", {"id": "int64", "note": "string"}, key=("id",))
    shop_connector.order(1, "first")
    capture(shop_connector)
    apply(shop_connector)
    with sqlite3.connect(tmp_path / "warehouse.db") as connection:
        connection.execute("CREATE UNIQUE INDEX one ON shop_inventory_orders (note)")
    failed = context()
    for number, run_for in enumerate((None, 1.5), 2):
        shop_connector.order(number, "first")
        with shop_connector.database.transaction() as t:
            t.insert("inventory.lines", {"id": number, "note": ""})
        capture(shop_connector)
        with pytest.raises(AirflowException, match="could not be applied"):
            apply(shop_connector, failed, run_for=run_for)
    assert not failed["outlet_events"][build_connector_alias("shop")].asset_alias_events
    with sqlite3.connect(tmp_path / "warehouse.db") as connection:
        connection.execute("DROP INDEX one")
    given = context()
    result = apply(shop_connector, given)
    assert (result["events"], result["tables"]) == (4, ["shop.inventory.lines", "shop.inventory.orders"])
    events = {
        e.dest_asset_key.uri: e.extra for e in given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    }
    assert events["cdc://shop/shop.inventory.lines"] == {
        "rows": {"c": 2}, "last_batch": 3, "location": "shop_inventory_lines",
    }  # fmt: skip
    assert events["cdc://shop/shop.inventory.orders"]["rows"] == {"c": 2}
    assert apply(shop_connector)["events"] == 0


def test_changes_of_an_ended_run_are_reported_by_the_next_one(shop_connector: ShopConnector, tmp_path: Path) -> None:
    """Airflow may have given the task up, and then takes no event of it."""
    shop_connector.order(1, "first")
    capture(shop_connector)
    with goes_on(shop_connector) as running:
        wait_until(lambda: (tmp_path / "warehouse.db").exists() and rows(tmp_path) == [(1, "first")])
    assert running.result(LONGEST_S)["events"] == 1
    shop_connector.order(2, "second")
    capture(shop_connector)
    ended = ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse")
    ended.on_kill()
    for _ in range(2):  # what an earlier one has left stays, too
        ended.execute(context())
    given = context()
    assert apply(shop_connector, given)["events"] == 2
    (event,) = given["outlet_events"][build_connector_alias("shop")].asset_alias_events
    assert event.extra == {"rows": {"r": 1, "c": 1}, "last_batch": 2, "location": "shop_inventory_orders"}
    assert apply(shop_connector)["events"] == 0


def test_one_that_goes_on_reports_what_it_measures_while_it_does(
    shop_connector: ShopConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_to_database, "EVERY_S", 0.0)
    shop_connector.order(1, "first")
    capture(shop_connector)
    with goes_on(shop_connector) as running:
        wait_until(lambda: "shop.inventory.orders" in _series(shop_connector))
        assert "apply.TotalNumberOfRuns" not in _series(shop_connector)[""].counters  # it continues
    assert running.result(LONGEST_S)["events"] == 1
    found = _series(shop_connector)
    assert found["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 1
    assert found[""].counters["apply.TotalNumberOfRuns"] == 1


def test_metrics_are_kept_by_the_state_connection_of_the_task(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AF14: there need not be a cdc_state_default."""
    shop_connector.order(1, "first")
    capture(shop_connector)
    monkeypatch.setenv("AIRFLOW_CONN_CDC_OTHER", os.environ["AIRFLOW_CONN_CDC_STATE_DEFAULT"])
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    apply(shop_connector, state_conn_id="cdc_other")
    assert _series(shop_connector)["shop.inventory.orders"].counters["apply.TotalNumberOfEventsApplied"] == 1


def _series(shop_connector: ShopConnector) -> dict[str, Any]:
    """Topic → what applies have measured."""
    return {
        one.topic: one
        for one in shop_connector.store.metrics.load_series("shop")
        if one.producer.startswith("apply database ")
    }
