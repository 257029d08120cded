"""Alerts about connectors, by real runs and what they have measured; and the DAG that sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import TargetUnavailable
from airflow_provider_cdc.core.lifecycle.connector_status import status_of
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.dag import alerts_dag
from airflow_provider_cdc.operators.base.apply_metrics import measure_report
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits, format_alert, load_alerts
from airflow_provider_cdc.services.dashboards.connector_overview import load_overview
from airflow_provider_cdc.services.dashboards.overview_models import AlertKind, AttentionLevel
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes
from airflow_provider_cdc.services.tasks.connector_fields import owner_of
from airflow_provider_cdc.services.text.status_texts import status_lines
from tests.cli.conftest import run
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
    page = "errors/ConfigError" if kind == "RunFailed" else f"alerts/{kind}"
    return f" [{kind}]. Check: airflow cdc status shop; page: docs/{page}.md"


def list_alerts(shop_connector: ShopConnector, *, later: timedelta = timedelta(), **limits: float) -> list[str]:
    alerts = load_alerts(shop_connector.store, AlertLimits(**limits), datetime.now(UTC) + later)
    return [format_alert(alert) for alert in alerts]


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


def test_a_run_that_has_failed_leads_to_the_log_of_its_task(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/prod")
    shop_connector.order(1)
    for table in ("inventory.a b", "inventory.a_b"):
        shop_connector.database.create_table(table, {"id": "int64!"}, key=("id",))
    with pytest.raises(AirflowException):
        capture(shop_connector)
    (alert,) = load_alerts(shop_connector.store)
    assert alert.task is not None
    assert (alert.task.dag_id, alert.task.run_id, alert.task.task_id) == ("d", "r", "t")
    assert (alert.task.map_index, alert.task.try_number) == (-1, 1)
    with pytest.raises(SystemExit):
        run("status", "shop")
    output = capsys.readouterr().out
    assert (
        "  Task log:   d.t, run r, try 1: https://airflow.example.com/prod/dags/d/runs/r/tasks/t?try_number=1\n"
        in output
    )


def test_a_killed_run_is_reported_as_one_and_its_lease_leads_to_its_log(shop_connector: ShopConnector) -> None:
    shop_connector.store.leases._ttl_ms = 50
    owner = owner_of(context(map_index=3))
    shop_connector.store.leases.acquire("shop", owner, 0)
    (alert,) = wait_until(lambda: load_alerts(shop_connector.store), "the lease has ended")
    assert f"The run {owner} did not release its lease: the process was killed" in format_alert(alert)
    assert alert.task is not None
    assert alert.task.log_path == "dags/d/runs/r/tasks/t/mapped/3?try_number=1"


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


def test_an_alert_has_the_error_behind_it_in_its_parts_and_the_command_and_page_that_say_more(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    error = TargetUnavailable("The bucket does not answer.", where="s3://lake", safe="All.", remedy="airflow cdc check")
    record_report(shop_connector, 1, failed=True)
    notes = ApplyNotes.from_context(context(try_number=2), "shop", "cdc_state_default", "delta", "/lake")
    notes.record_begin()
    notes.record_failure(error, 1)
    (alert,) = load_alerts(shop_connector.store)
    assert (alert.kind, alert.connector, alert.target) == (AlertKind.APPLY_FAILED, "shop", "delta at /lake")
    assert alert.sentence == "the apply to delta at /lake failed 0 s ago"
    assert (alert.check, alert.page) == ("airflow cdc status shop", "docs/alerts/ApplyFailed.md")
    assert alert.safe == "Everything: the change log keeps all batches that are not applied yet."
    assert alert.cause is not None
    assert (alert.cause.name, alert.cause.message) == ("TargetUnavailable", "The bucket does not answer.")
    assert (alert.cause.where, alert.cause.safe, alert.cause.repair) == ("s3://lake", "All.", "airflow cdc check")
    assert alert.task is not None
    assert (alert.task.text, alert.task.log_path) == ("d.t, run r, try 2", "dags/d/runs/r/tasks/t?try_number=2")
    (summary,) = load_overview(shop_connector.store)
    assert summary.alerts == [alert]
    run("status", "shop", "-o", "json")
    assert json.loads(capsys.readouterr().out)["alerts"] == [alert.model_dump(mode="json")]


def test_a_capture_that_is_too_far_behind_is_reported(shop_connector: ShopConnector) -> None:
    series = {"": MetricSeries(gauges={"streaming.MilliSecondsBehindSource": 700_000.0})}
    shop_connector.store.metrics.add_measurements(
        MetricSamples("shop", "capture", {}, datetime.now(UTC), series, ended=False)
    )
    assert list_alerts(shop_connector) == [f"shop: 11 min behind its source{alert_ending('BehindSource')}"]
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


def record_report(
    shop_connector: ShopConnector, last_batch: int, *applied: str, failed: bool = False, **lagging: int
) -> None:
    """An apply has left a report: its tables have these batches."""
    names = {name.replace("_", "."): batch for name, batch in lagging.items()}
    report: Any = {
        "last_batch": last_batch, "tables": [{"topic": topic, "rows": {"c": 1}, "seconds": 1.0, "first_batch": 1, "last_batch": last_batch, "location": ""} for topic in applied],
        "failed": dict.fromkeys(names, "no space left"), "lagging": names, "table_states": {},
    }  # fmt: skip
    access: Any = SimpleNamespace(state_conn_id="cdc_state_default", definition=shop_connector.definition)
    measure_report(access, "delta", "/lake", report, failed=failed or bool(names))


def list_stale(shop_connector: ShopConnector, *, later: timedelta, **limits: float) -> list[str]:
    return [text for text in list_alerts(shop_connector, later=later, **limits) if "[TableStale]" in text]


def test_a_table_that_lacks_changes_is_reported_when_the_oldest_of_them_is_older_than_the_limit(
    shop_connector: ShopConnector,
) -> None:
    record_report(shop_connector, 1)
    assert list_stale(shop_connector, later=HOUR * 30) == []  # quiet: the table has everything
    shop_connector.order(1)
    capture(shop_connector)
    assert list_stale(shop_connector, later=HOUR / 2) == []
    (text,) = list_stale(shop_connector, later=2 * HOUR)
    assert re.fullmatch(
        r"shop: the table of shop\.inventory\.orders in delta at /lake is 2 h old: it lacks changes that were captured since \[TableStale\]\. "
        r"Check: airflow cdc status shop; page: docs/alerts/TableStale\.md",
        text,
    )
    assert list_stale(shop_connector, later=2 * HOUR, stale_s=3 * 3600) == []
    record_report(shop_connector, 2, "shop.inventory.orders")
    assert list_stale(shop_connector, later=2 * HOUR) == []


def test_a_table_that_fails_alone_is_stale_while_the_others_go_forward(shop_connector: ShopConnector) -> None:
    for _ in range(2):
        shop_connector.order(1)
        capture(shop_connector)
    record_report(shop_connector, 3, shop_inventory_orders=1)
    assert len(list_stale(shop_connector, later=2 * HOUR)) == 1
    record_report(shop_connector, 3)  # a rebuild has brought it up, and the apply had nothing to do
    assert list_stale(shop_connector, later=2 * HOUR) == []
    record_report(shop_connector, 3, shop_inventory_lines=1)  # another one, which lacks nothing
    assert list_stale(shop_connector, later=2 * HOUR) == []


def test_the_dag_fails_with_a_sentence_for_each_and_takes_limits(shop_connector: ShopConnector) -> None:
    notified: list[Any] = []
    dag = alerts_dag(limits={"behind_s": timedelta(minutes=5)}, notify=[notified.append])
    task: Any = dag.get_task("look")
    assert task.on_failure_callback == [notified.append]
    look = task.python_callable
    look(**task.op_kwargs)
    record_apply(shop_connector, LastRunFailed=1)
    with pytest.raises(AirflowException, match="the apply to delta"):
        look(**task.op_kwargs)
    record_apply(shop_connector)
    series = {"": MetricSeries(gauges={"streaming.MilliSecondsBehindSource": 400_000.0})}
    shop_connector.store.metrics.add_measurements(
        MetricSamples("shop", "capture", {}, datetime.now(UTC), series, ended=False)
    )
    with pytest.raises(AirflowException, match=r"6 min behind its source \[BehindSource\]"):
        look(**task.op_kwargs)


def test_a_target_that_lacks_batches_and_that_no_apply_tries_is_reported_by_its_note(
    shop_connector: ShopConnector,
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    note = ("shop", "delta", "/lake", "d.apply.-1")
    shop_connector.store.targets.record_end(*note, 0)

    def silent(later: timedelta) -> list[str]:
        return [alert for alert in list_alerts(shop_connector, later=later) if "[ApplySilent]" in alert]

    assert silent(0.9 * HOUR) == []
    (alert,) = silent(1.1 * HOUR)
    assert "the apply to delta at /lake last ran 1 h ago, and batches up to " in alert
    shop_connector.store.targets.record_begin(*note)  # one that continues notes its progress at its end
    assert silent(1.1 * HOUR) == []
    assert len(silent(2.1 * HOUR)) == 1
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    shop_connector.store.targets.record_end(*note, record.last_batch)
    assert silent(9 * HOUR) == []


def test_an_event_that_was_set_aside_is_reported_for_a_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Alert, overview and status say the same, and the connector has not failed."""
    shop = make_shop(monkeypatch, tmp_path, f"alerts {tmp_path.name}", event_converting_failure_handling_mode="warn")
    shop.database.create_table("inventory.notes", {"id": "int64!", "note": "string"}, key=("id",))
    capture(shop)
    with shop.database.transaction() as t:
        t.insert("inventory.notes", {"id": 1, "note": "half a character: \ud83d"})
    with shop.database.transaction() as t:
        t.update("inventory.notes", {"id": 1}, {"note": "whole"})
    capture(shop)
    (text,) = [text for text in list_alerts(shop) if "[EventSetAside]" in text]
    said = r"1 event was set aside \(UnreadableValue: A value of inventory\.notes .*\), after entry \d+, at 20.* UTC\. The table was read again; its target tables of mode history or log lack the changes in between"  # fmt: skip
    assert re.fullmatch(
        rf"shop: an event of inventory\.notes cannot be read: {said}{re.escape(alert_ending('EventSetAside'))}", text
    )
    (summary,) = load_overview(shop.store)
    assert summary.trouble is AttentionLevel.LATE
    assert [alert for alert in summary.alerts if re.search(said, alert.sentence)]
    record = shop.store.find_connector("shop")
    assert record is not None
    lines = list(status_lines(status_of(record, ())))
    assert [line for line in lines if re.fullmatch(rf"  Set aside:  inventory\.notes: {said}\.", line)]
    assert status_of(record, ()).stopped == {}
    assert [text for text in list_alerts(shop, later=25 * HOUR) if "[EventSetAside]" in text] == []
    shop.store.close()
