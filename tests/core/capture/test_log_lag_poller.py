"""Distances from a connector to both ends of its source's log: asked once a minute over all runs, absent where unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.capture.log_lag_poller import QUERIED_AT, LogLagPoller
from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.support.airflow.airflow_connector import ShopConnector, make_shop

ANSWERS: list[LogWindow | Exception | None] = []
ASKED: list[str] = []


class ReportingSource(MemorySource):
    """Reports positions of its log that a test sets."""

    def log_window(self, position: Position) -> LogWindow | None:
        ASKED.append(str(position))
        if isinstance(answer := ANSWERS[0], Exception):
            raise answer
        return answer


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "log_watch")
    ASKED.clear()
    monkeypatch.setattr("airflow_provider_cdc.connector.load_source", lambda kind: ReportingSource)
    yield shop_connector
    shop_connector.store.close()


def run(shop_connector: ShopConnector, answer: LogWindow | Exception | None) -> tuple[dict[str, Any], dict[str, float]]:
    """Run the capture; return its metrics, and the gauges of the log that are kept over all runs."""
    ANSWERS[:] = [answer]
    url = shop_connector.store.database.engine.url.render_as_string(hide_password=False)
    with open_capture(shop_connector.definition, url, secrets={"memory.database": "log_watch"}) as capture:
        found = capture.run().metrics["streaming"]
    assert QUERIED_AT not in found, "bookkeeping is not for the tasks behind it"
    ((kept, _),) = shop_connector.store.metrics.map_connector_totals(lambda *one: one, "shop")
    return found, {name: value for name, value in kept.gauges.items() if name.startswith("streaming.Log")}


def set_last_run(shop_connector: ShopConnector, seconds: float) -> None:
    """The last run was so long ago."""
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    metrics = {context: dict(values) for context, values in record.metrics.items()}
    metrics["streaming"][QUERIED_AT] -= seconds
    shop_connector.store.record_run_end("shop", None, metrics)


def test_it_is_asked_once_a_minute_over_runs_with_and_without_changes(shop_connector: ShopConnector) -> None:
    found, kept = run(shop_connector, LogWindow(70, 5e9))
    assert (found["LogBytesBehindSource"], found["LogGoneAtInSeconds"]) == (70, 5e9)
    assert kept == {f"streaming.{name}": float(found[name]) for name in ("LogBytesBehindSource", "LogGoneAtInSeconds")}
    for key in (1, 2):
        shop_connector.order(key)
        assert run(shop_connector, LogWindow(0))[1] == kept
        assert run(shop_connector, LogWindow(0))[1] == kept  # there is nothing to capture
    assert len(ASKED) == 1
    set_last_run(shop_connector, 61)
    found, kept = run(shop_connector, LogWindow(0))
    assert (found["LogBytesBehindSource"], found["LogGoneAtInSeconds"]) == (0, -1)
    assert LogWindow.from_metrics(kept, "streaming.") == LogWindow(0, None)
    assert "streaming.LogGoneAtInSeconds" not in kept, "what was known before is not known now"
    assert ASKED == ["entry 1", "entry 3"]


@pytest.mark.parametrize("answer", [None, SourceUnavailable("it is away")])
def test_what_is_not_reported_is_absent_and_costs_no_run(shop_connector: ShopConnector, answer: Any) -> None:
    found, kept = run(shop_connector, answer)
    assert not [name for name in found if name.startswith("Log")]
    assert kept == {}
    run(shop_connector, LogWindow(70, 5e9))
    set_last_run(shop_connector, 61)
    assert LogWindow.from_metrics(run(shop_connector, answer)[1], "streaming.") == LogWindow()


def test_a_run_that_fails_does_not_ask(shop_connector: ShopConnector) -> None:
    source = ReportingSource.__new__(ReportingSource)
    watch = LogLagPoller(source, {"streaming": {"LogBytesBehindSource": 7, QUERIED_AT: 0.0}})
    ANSWERS[:] = [SourceUnavailable("it is away")]
    assert watch.measure_lag(object(), ask=False) == {"LogBytesBehindSource": 7}  # type: ignore[arg-type]
    assert ASKED == []
