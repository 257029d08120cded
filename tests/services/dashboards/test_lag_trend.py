"""The trend of a lag: from measurements of any spacing, with one that is wrong among them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.services.dashboards.connector_overview import load_overview
from airflow_provider_cdc.services.dashboards.lag_trend import find_lag_trend
from tests.cli.conftest import capture, run
from tests.support.airflow.airflow_connector import make_shop

NOW = 1_764_000_000.0
STEPS = st.sampled_from([10, 60, 300])
SLOPES = st.one_of(st.floats(0.05, 1.0), st.floats(-5.0, -0.05))


def list_pieces(lag_s: float, slope: float, step: int) -> list[tuple[float, float]]:
    """The largest lags of pieces of time, of a lag that has changed evenly for twenty minutes."""
    largest_ago = step if slope > 0 else 0
    return [(NOW - ago, max(lag_s - slope * (ago - largest_ago), 0.0)) for ago in range(1200, 0, -step)]


@given(st.floats(1_500, 20_000), SLOPES, STEPS)
def test_a_lag_that_changes_evenly_has_its_direction_its_rate_and_its_end(
    lag_s: float, slope: float, step: int
) -> None:
    pieces = list_pieces(lag_s, slope, step)
    if step < 300:
        pieces[-2] = (pieces[-2][0], pieces[-2][1] * 3)
    trend = find_lag_trend(lag_s, NOW, pieces, step)
    assert trend is not None
    if abs(slope) * 900 < 0.02 * lag_s:
        assert (trend.direction, trend.caught_up_in_s) == ("stays", None)
        return
    assert trend.direction == ("grows" if slope > 0 else "shrinks")
    assert trend.per_minute_s == pytest.approx(slope * 60, rel=0.15)
    if slope < 0:
        assert trend.caught_up_in_s == pytest.approx(lag_s / -slope, rel=0.25)
    else:
        assert trend.caught_up_in_s is None


@given(st.floats(0, 59), SLOPES, STEPS)
def test_a_small_lag_has_no_trend(lag_s: float, slope: float, step: int) -> None:
    assert find_lag_trend(lag_s, NOW, list_pieces(lag_s, slope, step), step) is None


def test_one_measurement_is_no_trend_and_an_old_one_is_none_of_now() -> None:
    assert find_lag_trend(700.0, NOW, [], 10) is None
    assert find_lag_trend(700.0, NOW, [(NOW - 30, 600.0)], 10) is None
    assert find_lag_trend(700.0, NOW, [(NOW - 1000, 100.0)], 10) is None
    assert find_lag_trend(None, NOW, [(NOW - 300, 600.0)], 10) is None


@pytest.mark.parametrize(
    ("before_s", "text"),
    [
        (1200, "grows by (1[5-9]|2[0-9]) s a minute"),
        (1800, "shrinks: caught up in about (60|65|70|75|80|85|90) min"),
        (1505, "stays the same"),
    ],
)
def test_page_and_status_say_whether_the_lag_grows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], before_s: float, text: str
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    shop = make_shop(monkeypatch, tmp_path, f"lag {tmp_path.name}")
    shop.order(1)
    capture(shop)
    now = datetime.now(UTC)
    for minutes in range(15, -1, -5):
        lag_s = 1500 + (before_s - 1500) * minutes / 15
        series = {"": MetricSeries(gauges={"streaming.MilliSecondsBehindSource": 1000.0 * lag_s})}
        at = now - timedelta(minutes=minutes)
        shop.store.metrics.add_measurements(MetricSamples("shop", "capture", {}, at, series, ended=False))
    (line,) = load_overview(shop.store)
    assert line.lag_trend is not None
    assert re.fullmatch(text, line.lag_trend.text)
    run("status", "shop")
    shown = f"  Lag:        25 min behind the source, {line.lag_trend.text}; measured 0 s ago\n"
    assert shown in capsys.readouterr().out
    shop.store.close()
