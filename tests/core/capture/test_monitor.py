"""Metrics that runs report to the monitor, of captures and snapshots: while they run, at their end, and when they fail."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.metric_samples import (
    BOUNDS_S,
    Histogram,
    MetricSamples,
    MetricSeries,
    is_counter,
    merge_series,
)
from airflow_provider_cdc.core.reporting import metrics_monitor as module
from airflow_provider_cdc.core.reporting.metrics_monitor import MetricsMonitor
from tests.support.airflow.airflow_connector import ShopConnector, make_shop

ORDERS = "shop.inventory.orders"


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "monitor")
    yield shop_connector
    shop_connector.store.close()


def run(shop_connector: ShopConnector, *sinks: Any, **options: Any) -> list[MetricSamples]:
    """Run the capture, and return the samples that its sinks receive."""
    found: list[MetricSamples] = []
    url = shop_connector.store.database.engine.url.render_as_string(hide_password=False)
    with (
        open_capture(
            shop_connector.definition,
            url,
            secrets={"memory.database": "monitor"},
            sinks=[*sinks, found.append],
            **options,
        ) as capture,
        contextlib.suppress(CdcError),
    ):
        capture.run()
    return found


def sums(found: list[MetricSamples], name: str, topic: str = "") -> float:
    return sum(one.series[topic].counters.get(name, 0) for one in found if topic in one.series)


def test_a_run_reports_what_it_measured_under_the_documented_names_and_counts_what_it_made_durable(
    shop_connector: ShopConnector,
) -> None:
    shop_connector.order(1)
    (first,) = run(shop_connector)
    assert first.ended
    assert (first.connector, first.producer) == ("shop", "capture")
    assert set(first.series) == {"", ORDERS}
    whole = first.series[""]
    assert whole.gauges["snapshot.SnapshotCompleted"] == 1
    assert whole.gauges["run.LastRunFailed"] == 0
    assert whole.counters["run.TotalNumberOfRuns"] == 1
    assert first.series[ORDERS].counters == {"snapshot.RowsScanned": 1, "topic.TotalNumberOfEventsCaptured": 1}
    assert first.series[ORDERS].observed == {}  # rows of a snapshot are as old as they are
    shop_connector.order(2)
    shop_connector.order(3)
    (second,) = run(shop_connector)
    assert second.series[""].counters["streaming.TotalNumberOfCreateEventsSeen"] == 2
    assert second.series[ORDERS].counters["topic.TotalNumberOfEventsCaptured"] == 2
    (seconds,) = second.series[ORDERS].observed["topic.CaptureFreshnessInSeconds"]
    assert 0 <= seconds < 60
    (third,) = run(shop_connector)  # there is nothing
    assert set(third.series) == {""}
    assert third.series[""].counters["run.TotalNumberOfRuns"] == 1
    assert third.series[""].counters["streaming.TotalNumberOfEventsSeen"] == 0


def test_a_run_that_fails_reports_what_it_measured(shop_connector: ShopConnector) -> None:
    run(shop_connector)
    shop_connector.order(1)
    for table in ("inventory.a b", "inventory.a_b"):  # both would have one topic
        shop_connector.database.create_table(table, {"id": "int64!"}, key=("id",))
    shop_connector.database.drop_table("inventory.a b")
    (found,) = run(shop_connector)
    assert found.ended
    assert found.series[""].gauges["run.LastRunFailed"] == 1
    assert found.series[""].counters["run.TotalNumberOfFailedRuns"] == 1
    assert found.series[""].counters["streaming.TotalNumberOfCreateEventsSeen"] == 1


def test_a_run_that_goes_on_reports_meanwhile_and_counts_nothing_twice(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(shop_connector)
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    for key in range(20):
        shop_connector.order(key)
    found = run(shop_connector)
    assert len(found) > 2
    assert [one.ended for one in found] == [False] * (len(found) - 1) + [True]
    assert sums(found, "streaming.TotalNumberOfCreateEventsSeen") == 20
    assert sums(found, "topic.TotalNumberOfEventsCaptured", ORDERS) == 20
    assert sums(found, "run.TotalNumberOfRuns") == 1


def test_a_sink_that_fails_is_named_and_costs_neither_the_run_nor_the_other_sinks(
    shop_connector: ShopConnector, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_delivery(found: MetricSamples) -> None:
        raise OSError("no route to host")

    shop_connector.order(1)
    (found,) = run(shop_connector, fail_delivery)
    assert found.series[""].gauges["run.LastRunFailed"] == 0
    assert "Metrics of connector shop could not be stored" in caplog.text
    assert "no route to host" in caplog.text
    assert shop_connector.store.load_offset("shop").offset is not None


@given(st.lists(st.floats(min_value=-10, max_value=1e6), max_size=50))
def test_every_observed_value_is_in_one_class_of_the_histogram(values: list[float]) -> None:
    kept: dict[str, Any] = {}
    for value in values:
        kept = merge_series(kept, MetricSeries(observed={"f": [value]}))
    histogram = Histogram.from_document(kept["histograms"]["f"]) if values else Histogram()
    for i, upper in enumerate((*BOUNDS_S, math.inf)):
        assert sum(histogram.classes[: i + 1]) == sum(max(v, 0) <= upper for v in values)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=30))
def test_totals_are_reported_as_what_was_added(steps: list[tuple[bool, int]]) -> None:
    """However often it is delivered, and however many attempts there are."""
    reports: list[MetricSamples] = []
    monitor, now, expected = MetricsMonitor("shop", "capture", [reports.append]), 0, 0
    for again, more in steps:
        if again:
            monitor.start_attempt()
            now = 0
        now, expected = now + more, expected + more
        monitor.set_total("n", now)
        if more % 2:
            monitor.flush()
    monitor.flush()
    assert sums(reports, "n") == expected


@pytest.mark.parametrize(
    "name",
    ["MilliSecondsBehindSource", "RemainingTableCount", "NumberOfActiveTransactions", "ChangesApplied", "ScnLag"],
)
def test_what_may_go_down_is_no_counter(name: str) -> None:
    assert not is_counter(name)
