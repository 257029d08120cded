"""The command that shows metrics, after real captures."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import capture, clean, run
from tests.support.face import Shop

TOPIC = "shop.inventory.orders"


def test_before_the_first_run_there_is_nothing(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    run("metrics")
    assert capsys.readouterr().out == "Nothing was measured yet.\n"


def test_runs_are_added_up_by_connector_and_topic(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for key in (1, 2, 3):
        shop.order(key)
        capture(shop)
    capture(shop)
    clean(capsys)
    run("metrics", "shop", "-o", "json")
    whole, topic = json.loads(capsys.readouterr().out)
    assert (whole["topic"], whole["producer"], whole["gauges"]["run.LastRunFailed"]) == ("", "capture", 0)
    assert whole["counters"]["run.TotalNumberOfRuns"] == 4
    assert whole["counters"]["streaming.TotalNumberOfCreateEventsSeen"] == 2
    assert (topic["topic"], topic["counters"]["topic.TotalNumberOfEventsCaptured"]) == (TOPIC, 3)
    assert sum(topic["histograms"]["topic.CaptureFreshnessInSeconds"]["classes"]) == 2
    run("metrics")
    told = capsys.readouterr().out
    assert "run.TotalNumberOfRuns" in told
    assert len(shop.store.metrics.history("shop")) == 4


def test_a_connector_that_is_not_there_is_an_error(shop: Shop) -> None:
    with pytest.raises(SystemExit, match="nobody"):
        run("metrics", "nobody")
