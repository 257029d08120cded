"""The command that shows metrics, after real captures."""

from __future__ import annotations

import json

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector

TOPIC = "shop.inventory.orders"


def test_before_the_first_run_there_is_nothing(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("metrics")
    assert capsys.readouterr().out == "Nothing was measured yet.\n"


def test_runs_are_added_up_by_connector_and_topic(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in (1, 2, 3):
        shop_connector.order(key)
        capture(shop_connector)
    capture(shop_connector)
    clean(capsys)
    run("metrics", "shop", "-o", "json")
    whole, topic = json.loads(capsys.readouterr().out)
    assert (whole["topic"], whole["producer"], whole["gauges"]["run.LastRunFailed"]) == ("", "capture", 0)
    assert whole["counters"]["run.TotalNumberOfRuns"] == 4
    assert whole["counters"]["streaming.TotalNumberOfCreateEventsSeen"] == 2
    assert (topic["topic"], topic["counters"]["topic.TotalNumberOfEventsCaptured"]) == (TOPIC, 3)
    assert sum(topic["histograms"]["topic.CaptureFreshnessInSeconds"]["classes"]) == 2
    run("metrics")
    output = capsys.readouterr().out
    assert "run.TotalNumberOfRuns" in output
    assert len(shop_connector.store.metrics.load_run_history("shop")) == 4


def test_a_connector_that_is_not_there_is_an_error(shop_connector: ShopConnector) -> None:
    with pytest.raises(SystemExit, match="nobody"):
        run("metrics", "nobody")


def test_openmetrics_are_what_a_strict_reader_of_the_format_takes(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in (1, 2, 3):
        shop_connector.order(key)
        capture(shop_connector)
    clean(capsys)
    run("metrics", "--openmetrics")
    families = {f.name: f for f in text_string_to_metric_families(capsys.readouterr().out)}
    assert {f.type for f in families.values()} == {"gauge", "counter", "histogram"}
    (runs,) = families["cdc_run_TotalNumberOfRuns"].samples
    assert (runs.labels, runs.value) == ({"connector": "shop"}, 3)
    of_topic = {"connector": "shop", "topic": TOPIC}
    (events,) = families["cdc_topic_TotalNumberOfEventsCaptured"].samples
    assert (events.name, events.labels, events.value) == (
        f"{families['cdc_topic_TotalNumberOfEventsCaptured'].name}_total",
        of_topic,
        3,
    )
    fresh = families["cdc_topic_CaptureFreshnessInSeconds"].samples
    buckets = [s.value for s in fresh if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert [s.value for s in fresh if s.name.endswith("_count")] == [buckets[-1]] == [2]
    kept = next(s for s in shop_connector.store.metrics.load_series("shop") if s.topic == TOPIC)
    assert [s.value for s in fresh if s.name.endswith("_sum")] == [
        kept.histograms["topic.CaptureFreshnessInSeconds"].total
    ]
