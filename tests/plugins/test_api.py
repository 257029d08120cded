"""Answers of the API, from real state and a real change log. Who may ask: test_authorization.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from airflow.sdk import DAG

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.reporting.metrics_monitor import MetricsMonitor
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.api import connector_read_routes
from airflow_provider_cdc.plugins.authorization import KnownDag
from airflow_provider_cdc.plugins.cdc_plugin import CdcPlugin
from airflow_provider_cdc.services.connectors import bounded_calls
from airflow_provider_cdc.services.connectors.bounded_calls import CallPlaces
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.state.state_store import StateStore
from tests.cli.conftest import run
from tests.plugins.conftest import ClientFactory, capture, known_to_airflow
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.airflow.airflow_versions import cdc_command

KNOWN_DAGS = authorization.known_dags
"""Asks Airflow's database, which the fixtures do without."""
API = "/api/v1/connectors"
NASTY = ["<img src=x onerror=alert(1)>", "\"'`${x}", "\u202egnp.exe\u202c", "x" * 10_000, "a\x01b", "名前 🐘"]


def get(client_factory: ClientFactory, path: str = "", **query: Any) -> Any:
    answer = client_factory().get(f"{API}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def line(client_factory: ClientFactory, name: str = "shop") -> dict[str, Any]:
    (found,) = [one for one in get(client_factory)["connectors"] if one["connector"] == name]
    return found


def measure(store: StateStore, connector: str, producer: str, *, ago_s: float, gauges: dict[str, float] | None = None, **topics: MetricSeries) -> None:  # fmt: skip
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    tags = {} if producer == "capture" else {"target": "delta", "place": "1"}
    store.metrics.add_measurements(
        MetricSamples(connector, producer, tags, at, {"": MetricSeries(gauges=gauges or {}), **topics}, True)
    )


def printed_by(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Return the JSON that a command prints."""
    capsys.readouterr()
    run(*command, "-o", "json")
    return capsys.readouterr().out


# -- the overview -------------------------------------------------------------------------------------------------------


def test_the_one_that_wants_to_be_looked_at_most_comes_first(
    fleet: ShopConnector, client_factory: ClientFactory
) -> None:
    fleet.store.record_run_end(
        "script", "The log is gone.\n  Where:  binlog.3\n  Safe:   all before it.\n  Repair: airflow cdc gap script"
    )
    fleet.store.set_control("billing", DesiredState.PAUSED, "ann", "upgrade")
    found = get(client_factory)["connectors"]
    assert [(one["connector"], one["trouble"], one["state"]) for one in found] == [
        ("script", 3, "failed"), ("billing", 1, "paused"), ("shop", 0, "unassigned"),
    ]  # fmt: skip
    assert found[0]["error"]["message"] == "The log is gone."
    assert found[0]["error"]["repair"] == "airflow cdc gap script"
    assert "The log is gone" in found[0]["alerts"][0]["sentence"]
    assert "paused by ann" in found[1]["phase"]
    assert "is idle until its next run" in found[2]["phase"]


def test_it_is_filtered_by_state_source_and_text(fleet: ShopConnector, client_factory: ClientFactory) -> None:
    fleet.store.record_run_end("script", "the disk is full")
    names = lambda **query: [one["connector"] for one in get(client_factory, **query)["connectors"]]  # noqa: E731
    assert names(state="failed") == ["script"]
    assert names(state=["failed", "unassigned"], text="BILL") == ["billing"]
    assert names(text="disk is full") == ["script"]
    assert names(source="mariadb") == []
    assert names(tag="nightly") == []
    found = get(client_factory, text="nothing like it")
    assert (found["total"], found["states"], found["sources"]) == (3, {"failed": 1, "unassigned": 2}, ["memory"])


def test_freshness_is_of_the_last_hour_and_names_the_worst_table(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    def freshness_series(seconds: float) -> MetricSeries:
        return MetricSeries(observed={"apply.FreshnessInSeconds": [seconds]})

    measure(shop_connector.store, "shop", "apply delta 1", ago_s=8000, old=freshness_series(50_000))
    for _ in range(19):
        measure(shop_connector.store, "shop", "apply delta 1", ago_s=60, orders=freshness_series(1.5))
    measure(shop_connector.store, "shop", "apply delta 1", ago_s=60, lines=freshness_series(45))
    fresh = line(client_factory)["freshness"]
    assert (fresh["where"], fresh["commits"], fresh["worst_topic"], fresh["worst_s"]) == ("tables", 20, "lines", 45)
    assert 1 < fresh["p50_s"] <= 2 < fresh["p95_s"] + 0.1 < 60


def test_lag_rate_and_the_oldest_transaction_are_shown(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    gauges = {
        "streaming.MilliSecondsBehindSource": 700_000, "streaming.OldestTransactionAgeInMilliseconds": 90_000,
        "streaming.LogBytesBehindSource": 4_800, "streaming.LogGoneAtInSeconds": 4e9,
    }  # fmt: skip
    events = MetricSeries(counters={"topic.TotalNumberOfEventsCaptured": 6000})
    shop_connector.store.register_connector(ConnectorRegistration("late", "oracle", "/log"))
    measure(shop_connector.store, "late", "capture", ago_s=1000, gauges=gauges, orders=events)
    monitor = MetricsMonitor("late", "capture", [shop_connector.store.metrics.add_measurements])
    monitor.record_metrics({"streaming": {"OldestTransactionId": "7.3.11", "LastEvent": "of orders"}}, {})
    monitor.flush()
    found = line(client_factory, "late")
    assert (found["lag_s"], found["oldest_transaction"]) == (700, {"id": "7.3.11", "age_s": 90})
    assert datetime.now(UTC) - datetime.fromisoformat(found["lag_at"]) < timedelta(seconds=60)
    assert (found["lag_bytes"], found["log_gone_at"]) == (4800, "2096-10-02T07:06:40Z")
    assert (line(client_factory)["lag_bytes"], line(client_factory)["log_gone_at"]) == (None, None)
    assert found["events_per_s"][0]["events_per_s"] == 100  # in a minute: the connector is young
    assert found["events_per_s"][0]["lag_s"] == 700
    assert (found["trouble"], [alert["sentence"] for alert in found["alerts"]]) == (2, ["11 min behind its source"])


def test_how_far_one_is_behind_whose_last_run_has_failed_is_not_known(
    fleet: ShopConnector, client_factory: ClientFactory
) -> None:
    gauges = {
        "streaming.MilliSecondsBehindSource": 0,
        "streaming.LogBytesBehindSource": 0,
        "streaming.LogGoneAtInSeconds": 4e9,
    }
    for name in ("script", "billing"):
        measure(fleet.store, name, "capture", ago_s=1000, gauges=gauges)
    fleet.store.record_run_end("script", "the log is gone")
    failed, rests = line(client_factory, "script"), line(client_factory, "billing")
    assert (failed["state"], failed["lag_s"], failed["lag_at"], failed["lag_bytes"]) == ("failed", None, None, None)
    assert failed["log_gone_at"] is not None  # that continues
    assert (rests["lag_s"], rests["lag_bytes"]) == (0, 0)


def test_the_progress_of_a_snapshot_says_how_long_it_takes(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    number = shop_connector.store.send("shop", SentSignal("a", "execute-snapshot", "{}"))
    progress = {"left": 1, "tables": 1, "table": "inventory.orders", "rows": 250, "of_about": 1000}
    shop_connector.store.set_signal_state("shop", number, SignalState.RUNNING, progress=progress)
    snapshot = line(client_factory)["snapshot"]
    assert (snapshot["part"], "inventory.orders" in snapshot["text"]) == (0.25, True)
    assert snapshot["left_s"] >= 0


def test_when_the_dag_runs_next_is_asked_of_airflow(
    fleet: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    monkeypatch.setattr(authorization, "known_dags", lambda ids: {"shop_dag": KnownDag("shop_dag", None, at, True)})
    assert line(client_factory)["next_run"] == {"at": "2026-03-01T12:00:00Z", "paused": True, "gone": False}
    assert line(client_factory, "script")["next_run"] is None


def test_a_dag_that_no_file_has_any_more_has_no_next_run(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the moment at which the next run would be due."""
    monkeypatch.setattr(authorization, "known_dags", KNOWN_DAGS)
    known_to_airflow(DAG("shop_dag", schedule="@hourly", start_date=datetime.now(UTC)))
    found = line(client_factory)["next_run"]
    assert (found["gone"], found["at"] is not None) == (False, True)
    known_to_airflow()
    assert line(client_factory)["next_run"] == {"at": None, "paused": False, "gone": True}


def test_tags_are_those_of_the_dag(
    fleet: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_to_airflow(
        DAG("shop_dag", schedule=None, tags=["shop's <b>", "cdc"]), DAG("billing_dag", schedule=None, tags=["cdc"])
    )
    monkeypatch.setattr(authorization, "known_dags", KNOWN_DAGS)
    names = lambda **query: [one["connector"] for one in get(client_factory, **query)["connectors"]]  # noqa: E731
    assert names(tag="shop's <b>") == ["shop"]
    assert names(tag=["cdc", "other"]) == ["billing", "shop"]
    assert names(tag="other") == []
    found = get(client_factory, tag="other")
    assert (found["total"], found["tags"]) == (3, ["cdc", "shop's <b>"])
    assert get(client_factory, "/shop")["line"]["tags"] == ["cdc", "shop's <b>"]


def test_the_number_of_queries_does_not_grow_with_connectors_and_tables(
    fleet: ShopConnector, client_factory: ClientFactory
) -> None:
    def queries() -> int:
        seen = []
        listener = lambda *a: seen.append(a[2])  # noqa: E731
        sa.event.listen(sa.Engine, "before_cursor_execute", listener)
        try:
            get(client_factory)
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", listener)
        return len([one for one in seen if not one.startswith("PRAGMA")])

    before = queries()
    for n in range(30):
        fleet.store.register_connector(
            ConnectorRegistration(f"more{n}", "memory", "/log", connections={"dag": f"dag{n}"})
        )
        measure(fleet.store, f"more{n}", "capture", ago_s=10, **{f"t{k}": MetricSeries({"g": 1}) for k in range(20)})
        fleet.store.send(f"more{n}", SentSignal("a", "log", "{}"))
    assert get(client_factory)["total"] == 33
    assert queries() == before <= 12


def test_the_command_prints_the_same(
    shop_connector: ShopConnector, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.loads(printed_by(capsys, "connectors"))
    answered = get(client_factory)["connectors"]
    assert [one.keys() for one in printed] == [one.keys() for one in answered]
    same = [{**one, "next_run": None} for one in answered]
    assert printed == same


# -- one connector ------------------------------------------------------------------------------------------------------


def test_a_connector_shows_its_targets_and_what_keeps_them_back(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    access = access_of(record)
    assert access is not None
    reports = ApplyReports(access.open_change_log().storage, "shop")
    report = reports.register_target("delta", "/lake")
    reports.write({**report, "last_batch": 1, "failed": {"inventory.orders": "column <x> is gone"}})
    found = get(client_factory, "/shop")
    assert found["trouble"] is None
    (target,) = found["targets"]
    assert (target["target"], target["last_batch"]) == ("delta", 1)
    assert target["failed"] == {"inventory.orders": "column <x> is gone"}
    assert found["status"]["metrics"]["streaming"]["Connected"] is True


def test_a_change_log_that_is_away_does_not_hide_the_state(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    shop_connector.store.register_connector(
        ConnectorRegistration("shop", "memory", "no-such-kind://x/y", connections={"source": "shop"})
    )
    found = get(client_factory, "/shop")
    assert (found["targets"], found["line"]["batch"]) == ([], 1)
    assert found["trouble"]


def test_a_change_log_that_does_not_answer_is_waited_for_a_short_time(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of a target is a pipe into which no one writes: who reads it waits."""
    monkeypatch.setattr(connector_read_routes, "_LOG_S", 0.2)
    monkeypatch.setattr(bounded_calls, "_logs", CallPlaces("change log", 8, 2, 8))
    folder = Path(shop_connector.definition.changelog) / "shop" / "applied"
    folder.mkdir(parents=True, exist_ok=True)
    pipe = folder / "delta-0.json"
    os.mkfifo(pipe)
    try:
        for message in (
            "has not answered within 0.2 s",
            "has not answered within 0.2 s",
            "already waiting for answers",
        ):
            found = get(client_factory, "/shop")
            assert message in found["trouble"]
            assert (found["line"]["batch"], found["targets"]) == (1, [])
        assert get(client_factory)["total"] == 1  # the overview reads none
        assert "already waiting for answers" in get(client_factory, "/shop/batches/1")["trouble"]
    finally:
        pipe.rename(folder / "pipe")  # no look after this one reads it
        os.close(os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK))  # those that wait have read it to its end
    while get(client_factory, "/shop")["trouble"] is not None:  # the places are free again
        time.sleep(0.05)


def test_tables_have_their_schema_and_what_was_measured_of_their_topics(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    fresh = MetricSeries(counters={"apply.TotalNumberOfEventsApplied": 3}, observed={"apply.FreshnessInSeconds": [1.5]})
    measure(shop_connector.store, "shop", "apply delta 1", ago_s=1, **{"shop.inventory.orders": fresh})
    (table,) = get(client_factory, "/shop/tables")["tables"]
    assert (table["table"], table["topic"]) == ("inventory.orders", "shop.inventory.orders")
    assert (table["version"], table["columns"], table["key"], table["events"]) == (1, 2, ["id"], 1)
    (target,) = table["targets"]
    assert (target["target"], target["events"], target["freshness_p50_s"]) == ("delta", 3, 1.5)


def test_batches_offsets_signals_and_events_are_as_the_commands_have_them(
    shop_connector: ShopConnector, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    shop_connector.store.send("shop", SentSignal("a", "log", '{"message": "<b>"}', by="ann"))
    for part, command in (("batches", ("batches",)), ("offsets", ("offset", "history")), ("signals", ("signals",))):
        printed = json.loads(printed_by(capsys, *command, "shop"))
        answered = get(client_factory, f"/shop/{part}")
        assert [one.keys() for one in answered] == [one.keys() for one in printed], part
        assert len(answered) >= 1
    lines = printed_by(capsys, "notifications", "shop").splitlines()
    answered = get(client_factory, "/shop/events")
    assert [one.keys() for one in answered] == [json.loads(text).keys() for text in lines[::-1]]
    assert get(client_factory, "/shop/batches", limit=1)[0]["batch"] == 2


def test_a_batch_has_its_files(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    found = get(client_factory, "/shop/batches/2")
    (file,) = found["files"]
    assert (file["topic"], file["rows"], file["counts"]) == ("shop.inventory.orders", 1, {"c": 1})
    assert found["batch"]["batch"] == 2
    assert found["position_before"] != found["batch"]["position"]
    for number in ("3", "0", "-1", str(1 << 70)):
        assert client_factory().get(f"{API}/shop/batches/{number}").status_code == 404


def test_a_schema_change_says_what_it_has_changed(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    shop_connector.database.add_column("inventory.orders", "extra", "int32")
    capture(shop_connector)
    after, before = get(client_factory, "/shop/schema-changes")
    assert before["tables"] == {"inventory.orders": ["+ id int64", "+ note string", "+ key (id)"]}
    assert after["tables"] == {"inventory.orders": ["+ extra int32"]}
    assert get(client_factory, "/shop/schema-changes", table="inventory.none") == []
    assert get(client_factory, "/shop/schema-changes", table="inventory.orders") == [after, before]
    assert get(client_factory, "/shop/schema-changes", limit=1) == [after]
    assert get(client_factory, "/shop/schema-changes", limit=1, before=after["number"]) == [before]


def test_properties_say_where_they_come_from_and_nothing_of_the_connection(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    found = get(client_factory, "/shop/configuration")
    named = {one["name"]: one for one in found["properties"]}
    assert (named["poll.interval.ms"]["by"], named["poll.interval.ms"]["value"]) == ("definition", 10)
    assert (named["memory.database"]["by"], named["memory.database"]["value"]) == ("connection", None)
    assert named["snapshot.mode"]["by"] == "default"
    assert all(one["description"] for one in found["properties"])
    assert found["connections"] == {"source": "shop", "state": "cdc_state_default", "dag": "shop_dag"}


def test_measurements_are_those_of_the_last_runs(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    capture(shop_connector)
    found = get(client_factory, "/shop/metrics")
    assert [one["gauges"]["run.LastRunFailed"] for one in found["runs"]["capture"]] == [0, 0]
    assert {one["topic"] for one in found["series"]} == {"", "shop.inventory.orders"}


@pytest.mark.parametrize("nasty", NASTY)
def test_names_and_texts_of_any_form_are_answered_as_they_are(
    shop_connector: ShopConnector, client_factory: ClientFactory, nasty: str
) -> None:
    shop_connector.store.set_control("shop", DesiredState.PAUSED, nasty[:200], nasty)
    assert nasty in line(client_factory)["phase"]
    assert get(client_factory, text=nasty[:200])["total"] == 1
    assert client_factory().get(f"{API}/{quote(nasty[:200], safe='')}").status_code == 404


# -- what is away -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [API, f"{API}/shop", f"{API}/shop/tables", "/metrics"])
def test_a_database_that_is_away_is_a_sentence(
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{tmp_path}/no/state.db")
    answer = client_factory().get(path)
    assert answer.status_code == 503
    assert "The state database cannot be reached" in answer.json()["detail"]
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{tmp_path}/empty.db")
    answer = client_factory().get(path)
    assert answer.status_code == 503
    assert cdc_command("state migrate") in answer.json()["error"]["repair"]


def test_the_plugin_loads_its_api_only_when_it_is_asked_for() -> None:
    code = (
        "import sys; from airflow_provider_cdc.plugins.cdc_plugin import CdcPlugin; plugin = CdcPlugin();"
        "plugin.react_apps; print([m for m in sys.modules if m.startswith(('airflow_provider_cdc.plugins.a', 'airflow_provider_cdc.state', 'pyarrow'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    assert CdcPlugin().fastapi_apps[0]["url_prefix"] == "/cdc"
