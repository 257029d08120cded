"""Alerts about connectors, by real runs and what they have measured; and the example DAG that sends them."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits, format_alerts
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException
from tests.support.patience import wait_until

HOUR = timedelta(hours=1)


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, f"alerts {tmp_path.name}")
    capture(shop_connector)
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def record_apply(shop_connector: ShopConnector, at: datetime | None = None, **gauges: float) -> None:
    """A run of an apply has measured this."""
    values = {"apply.LastRunFailed": 0.0, "apply.FailedTables": 0.0, "apply.LastBatch": 1.0}
    values |= {f"apply.{name}": value for name, value in gauges.items()}
    tags = {"target": "delta", "place": "1a2b"}
    shop_connector.store.metrics.add_measurements(
        MetricSamples(
            "shop", "apply delta 1a2b", tags, at or datetime.now(UTC), {"": MetricSeries(gauges=values)}, ended=True
        )
    )


def alert_ending(kind: str) -> str:
    """Return the ending of an alert of this kind."""
    return f" [{kind}]. Check: airflow cdc status shop"


def list_alerts(shop_connector: ShopConnector, *, later: timedelta = timedelta(), **limits: float) -> list[str]:
    return format_alerts(
        shop_connector.store.list_connectors(),
        shop_connector.store.metrics.load_series(),
        AlertLimits(**limits),
        datetime.now(UTC) + later,
    )


def test_a_connector_that_is_well_needs_no_one(shop_connector: ShopConnector) -> None:
    record_apply(shop_connector)
    assert list_alerts(shop_connector) == []


def test_a_run_that_has_failed_is_reported_with_its_error(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    for table in ("inventory.a b", "inventory.a_b"):  # both have the topic shop.inventory.a_b
        shop_connector.database.create_table(table, {"id": "int64!"}, key=("id",))
    with pytest.raises(AirflowException):
        capture(shop_connector)
    (text,) = list_alerts(shop_connector)
    assert re.match(r"shop: the last run failed \d s ago: .* would both have the topic", text)
    assert text.endswith(alert_ending("RunFailed"))
    assert "\n" not in text


def test_a_killed_run_is_reported_as_one(shop_connector: ShopConnector) -> None:
    shop_connector.store.leases._ttl_ms = 50
    shop_connector.store.leases.acquire("shop", "worker 7", 0)
    (text,) = wait_until(lambda: list_alerts(shop_connector), "the lease has ended")
    assert "The run worker 7 did not release its lease: the process was killed" in text


def test_silence_is_reported_after_its_time_only(shop_connector: ShopConnector) -> None:
    assert list_alerts(shop_connector, later=HOUR / 2) == []
    assert list_alerts(shop_connector, later=2 * HOUR) == [
        f"shop: no run since the last run ended 2 h ago{alert_ending('NoRun')}"
    ]
    with shop_connector.store.acquire_lease("shop", "alive", wait_s=0):
        assert list_alerts(shop_connector, later=2 * HOUR) == []


def test_an_apply_is_silent_only_while_batches_wait_for_it(shop_connector: ShopConnector) -> None:
    record_apply(shop_connector, datetime.now(UTC) - 3 * HOUR)
    assert list_alerts(shop_connector) == []
    shop_connector.order(1)
    capture(shop_connector)
    assert list_alerts(shop_connector) == [
        f"shop: the apply to delta (1a2b) last ran 3 h ago, and batches up to 2 are not applied{alert_ending('ApplySilent')}"
    ]


def test_an_apply_that_fails_is_reported_and_how_many_tables_it_concerns(shop_connector: ShopConnector) -> None:
    record_apply(shop_connector, LastRunFailed=1)
    assert list_alerts(shop_connector) == [
        f"shop: the apply to delta (1a2b) failed 0 s ago{alert_ending('ApplyFailed')}"
    ]
    record_apply(shop_connector, LastRunFailed=1, FailedTables=3)
    assert list_alerts(shop_connector) == [
        f"shop: the apply to delta (1a2b) could not update 3 tables{alert_ending('TablesLeftBehind')}"
    ]


def test_a_capture_that_is_too_far_behind_is_reported(shop_connector: ShopConnector) -> None:
    series = {"": MetricSeries(gauges={"streaming.MilliSecondsBehindSource": 700_000.0})}
    shop_connector.store.metrics.add_measurements(
        MetricSamples("shop", "capture", {}, datetime.now(UTC), series, ended=False)
    )
    assert list_alerts(shop_connector) == [f"shop: 700 s behind its source{alert_ending('BehindSource')}"]
    assert list_alerts(shop_connector, behind_s=701) == []


def test_a_log_that_is_removed_soon_is_reported_also_while_the_connector_is_paused(
    shop_connector: ShopConnector,
) -> None:
    def record_log_end(at: float) -> None:
        series = {"": MetricSeries(gauges={"streaming.LogGoneAtInSeconds": at})}
        shop_connector.store.metrics.add_measurements(
            MetricSamples("shop", "capture", {}, datetime.now(UTC), series, ended=False)
        )

    record_log_end(datetime.now(UTC).timestamp() + 3630)
    soon = [
        f"shop: its source removes the log at its position in 1 h: changes that are not captured by then are lost{alert_ending('LogEnds')}"
    ]
    assert list_alerts(shop_connector) == soon
    assert list_alerts(shop_connector, log_left_s=3000) == []
    shop_connector.store.set_control("shop", DesiredState.PAUSED, "ann", "upgrade")
    assert list_alerts(shop_connector) == soon
    record_log_end(datetime.now(UTC).timestamp() - 130)
    assert "removes the log at its position now: it was due 2 min ago" in list_alerts(shop_connector)[0]
    shop_connector.store.set_control("shop", DesiredState.STOPPED, "ann", "for good")
    assert list_alerts(shop_connector) == []


@pytest.mark.parametrize("expected", [DesiredState.PAUSED, DesiredState.STOPPED])
def test_what_someone_has_paused_or_stopped_is_no_trouble(
    shop_connector: ShopConnector, expected: DesiredState
) -> None:
    record_apply(shop_connector, LastRunFailed=1)
    shop_connector.store.set_control("shop", expected, "ann", "holidays")
    assert list_alerts(shop_connector, later=9 * HOUR) == []


def test_the_example_dag_fails_with_a_sentence_for_each(shop_connector: ShopConnector) -> None:
    dag = runpy.run_path(str(Path(__file__).parents[3] / "dags" / "inventory_alerts.py"))["dag"]
    look = dag.get_task("look").python_callable
    look()
    record_apply(shop_connector, LastRunFailed=1)
    with pytest.raises(AirflowException, match="the apply to delta"):
        look()
