"""Check, gap report and charts of the API, from a real source, real state and real runs. Who may ask: test_authorization.py."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.errors import AccessDenied, SourceUnavailable
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.plugins.api import row_history_routes
from airflow_provider_cdc.services.actions import action_execution, connector_run_actions
from airflow_provider_cdc.services.connectors import bounded_calls
from airflow_provider_cdc.services.connectors.bounded_calls import CallPlaces
from airflow_provider_cdc.services.connectors.source_readiness import WAYS_OUT
from airflow_provider_cdc.services.dashboards.connector_charts import MOST
from airflow_provider_cdc.services.row_history import row_history_lookup, target_row_reader
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.cli.conftest import run
from tests.plugins.conftest import ClientFactory, capture
from tests.plugins.test_api import NASTY, printed_by
from tests.plugins.test_authorization import BODIES
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.patience import LONGEST_S, wait_until

API = "/api/v1/connectors/shop"


def post(client_factory: ClientFactory, what: str, status: int = 200, **body: Any) -> Any:
    answer = client_factory().post(f"{API}/{what}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


# -- the check ----------------------------------------------------------------------------------------------------------


def test_the_check_says_what_the_command_says(
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import json

    for _ in range(2):
        shop_connector.order(2)
        found, printed = post(client_factory, "check"), json.loads(printed_by(capsys, "check", "shop"))
        assert {name: value for name, value in found.items() if value is not None} == printed
        assert "the log has advanced" in found["waiting"]
        capture(shop_connector)
    assert post(client_factory, "check")["waiting"] is None
    findings = [Finding("It is slow.", "ALTER SYSTEM", fatal=False), Finding("It has no log.", f"SET {NASTY[0]}")]
    monkeypatch.setattr(MemorySource, "check_prerequisites", lambda self: findings)
    found = post(client_factory, "check")
    assert (found["ready"], found["position"]) == (False, None)
    assert [(one["problem"], one["fix"]) for one in found["findings"]] == [
        ("It has no log.", f"SET {NASTY[0]}"), ("It is slow.", "ALTER SYSTEM"),
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        run("check", "shop")


@pytest.mark.parametrize("what", ["check", "gap"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(AccessDenied("The password is wrong.", remedy="mend it"), 409), (SourceUnavailable("It is down."), 503)],
)
def test_why_a_source_cannot_be_asked_is_a_sentence(
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    error: Exception,
    status: int,
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    for method in ("check_prerequisites", "verify_position"):
        monkeypatch.setattr(MemorySource, method, fail)
    assert post(client_factory, what, status)["error"]["message"] == str(error).splitlines()[0]


@pytest.mark.parametrize("what", ["check", "gap"])
def test_a_source_that_does_not_answer_is_reported_in_time_and_takes_no_more_than_its_places(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    answers = threading.Event()
    places = CallPlaces("source", most=8, most_of_system=2, most_of_caller=8)
    monkeypatch.setattr(bounded_calls, "_sources", places)
    for method in ("check_prerequisites", "verify_position"):
        monkeypatch.setattr(MemorySource, method, lambda *_: answers.wait(30))
    began = time.monotonic()
    for _ in range(2):
        assert "has not answered within 0.2 s" in post(client_factory, what, 503, seconds=0.2)["detail"]
    assert "already waiting for answers" in post(client_factory, what, 503, seconds=0.2)["detail"]
    assert time.monotonic() - began < 10
    answers.set()
    while "already" in client_factory().post(f"{API}/{what}", json={}).text:  # the places are free again
        assert time.monotonic() - began < LONGEST_S
        time.sleep(0.05)


@pytest.mark.parametrize("body", [{"seconds": 0}, {"seconds": 61}, {"sql": "DROP"}, []])
def test_a_look_takes_no_more_than_a_time(
    shop_connector: ShopConnector, client_factory: ClientFactory, body: Any
) -> None:
    assert client_factory().post(f"{API}/check", json=body).status_code == 422


@pytest.fixture
def hanging_storage(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A change log whose manifests and reports are pipes into which no one writes: who reads one waits."""
    monkeypatch.setattr(connector_run_actions, "LOG_ANSWER_S", 0.2)
    monkeypatch.setattr(action_execution, "LOG_ANSWER_S", 0.2)
    monkeypatch.setattr(row_history_routes, "_ANSWER_S", 0.2)
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    folder = Path(shop_connector.definition.changelog) / "shop"
    (folder / "applied").mkdir(parents=True, exist_ok=True)
    pipes = [folder / "applied" / "delta-0.json", *(file for file in folder.rglob("*") if file.is_file())]
    assert len(pipes) > 2
    for pipe in pipes:
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    yield
    moved = [pipe.rename(folder / f"pipe {i}") for i, pipe in enumerate(pipes)]  # no one else begins to read one
    for pipe in moved:
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # those that wait have read it to its end
    wait_until(lambda: not bounded_calls._logs._calls, "no call waits")


@pytest.mark.parametrize(
    "route",
    ["actions/verify", "actions/repair", "actions/rebuild", "actions/forget-target", "row", "row/key"],
)
def test_a_storage_that_does_not_answer_takes_no_thread_of_a_request_and_no_other_connector(
    fleet: ShopConnector, client_factory: ClientFactory, hanging_storage: None, route: str
) -> None:
    body = BODIES.get(route.rpartition("/")[2], {})
    began = time.monotonic()
    assert "has not answered within 0.2 s" in post(client_factory, route, 503, **body)["detail"]
    assert time.monotonic() - began < 10
    for _ in range(3):
        post(client_factory, route, 503, **body)
    assert "already waiting for answers" in post(client_factory, route, 503, **body)["detail"]
    billing = client_factory().get("/api/v1/connectors/billing").json()
    assert billing["trouble"] is None


def test_a_target_that_does_not_answer_hides_no_history(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is a stand-in that waits for the end of the test."""
    ends, report = threading.Event(), {"target": "delta", "location": "/lake", "last_batch": 0, "table_states": {}}
    monkeypatch.setattr(row_history_routes, "_ANSWER_S", 5)
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    monkeypatch.setattr(ApplyReports, "list_reports", lambda self: [report])
    monkeypatch.setattr(row_history_lookup, "applied_at", lambda *_: None)
    monkeypatch.setattr(target_row_reader, "_TargetReader", lambda *_: ends.wait(60))
    shop_connector.order(1)
    capture(shop_connector)
    found = post(client_factory, "row", table="inventory.orders", key=["1"])
    ends.set()
    assert len(found["changes"]) == 1
    (target,) = found["targets"]
    assert (target["target"], target["state"]) == ("delta", "not looked at")
    assert "has not answered within 5 s" in target["why"]


def test_a_comparison_with_a_source_that_does_not_answer_ends_in_time(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(row_history_routes, "_ANSWER_S", 5)
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    monkeypatch.setattr(MemorySource, "open_chunk_reader", lambda *_, **__: ends.wait(60))
    shop_connector.order(1)
    capture(shop_connector)
    found = post(client_factory, "row", 503, table="inventory.orders", key=["1"], compare=True)
    ends.set()
    assert "The source of shop has not answered" in found["detail"]


def test_a_user_whose_sources_do_not_answer_takes_no_place_from_others(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real port that accepts connections and never answers, behind several connections of one user."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as tarpit:
        for i in range(5):
            connect(
                monkeypatch,
                f"tarpit{i}",
                conn_type="cdc_mariadb",
                host="127.0.0.1",
                port=tarpit.getsockname()[1],
                login="u",
                password="p",
            )
        details = [
            client_factory("ann", "OP")
            .post(f"/api/v1/wizard/connections/tarpit{i}", json={"seconds": 0.3})
            .json()["detail"]
            for i in range(5)
        ]
        assert all("has not answered within 0.3 s" in detail for detail in details[:4])
        assert "of your checks of sources are already waiting" in details[4]
        assert client_factory("dora", "OP").post(f"{API}/check", json={}).status_code == 200
    wait_until(lambda: not bounded_calls._sources._calls, "no call waits")


# -- the gap ------------------------------------------------------------------------------------------------------------


def test_the_gap_report_has_the_ways_that_the_command_has(
    shop_connector: ShopConnector, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post(client_factory, "gap") == {
        "gap": None,
        "text": "No gap: the log contains the position of shop.",
        "ways": [],
    }
    for key in range(3):
        shop_connector.order(10 + key)
    shop_connector.database.purge_log()
    found = post(client_factory, "gap")
    assert found["text"].startswith("Lost: all changes committed after ")
    assert found["gap"]["comparable"] is True
    assert [way["repair"] for way in found["ways"] if way["loses"]] == ["skip"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run("gap", "shop")
    printed = capsys.readouterr().out
    assert found["text"] in printed
    assert [way["command"] in printed for way in found["ways"]] == [True] * len(WAYS_OUT)
    for way in found["ways"]:
        run(*way["command"].split()[2:])  # each is a command that exists; without --confirm it changes nothing
        assert way["effect"] in capsys.readouterr().out
    assert post(client_factory, "gap") == found


# -- charts -------------------------------------------------------------------------------------------------------------


def test_charts_have_what_was_measured_and_what_has_happened(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    shop_connector.order(7)
    shop_connector.database.add_column("inventory.orders", "extra", "int32")
    capture(shop_connector)
    for span in ("hour", "day", "week"):
        found = client_factory().get(f"{API}/charts", params={"span": span}).json()
        (points,) = [one["points"] for one in found["series"] if one["producer"] == "capture"]
        assert sum(point["events"] for point in points) >= 1, span
        assert points[-1]["lag_s"] is not None
        assert points[-1]["cpu"] > 0
        assert found["since"] <= points[-1]["at"] < found["until"]
        kinds = [mark["kind"] for mark in found["marks"]]
        assert {"run", "snapshot", "schema change"} <= set(kinds), span
        assert "error" not in kinds
        assert [mark["at"] for mark in found["marks"]] == sorted(mark["at"] for mark in found["marks"])
    assert client_factory().get(f"{API}/charts", params={"span": "year"}).status_code == 422


def test_where_nothing_was_measured_no_line_goes_on(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """Chart an hour in which something has happened at its beginning alone."""
    now = time.time()
    series = {"": MetricSeries({"streaming.MilliSecondsBehindSource": 4000}, {}, {}), "orders": MetricSeries({}, {"topic.TotalNumberOfEventsCaptured": 3000}, {})}  # fmt: skip
    for ago_s in (3000, 2700):
        shop_connector.store.metrics.add_measurements(
            MetricSamples("shop", "test", {}, datetime.fromtimestamp(now - ago_s, UTC), series, True)
        )
    found = client_factory().get(f"{API}/charts").json()
    (points,) = [one["points"] for one in found["series"] if one["producer"] == "test"]
    assert found["piece_s"] == 60
    assert [point["at"] for point in points] == list(range(points[0]["at"], found["until"] - 59, 60))
    measured = [(n, point["events_per_s"], point["lag_s"]) for n, point in enumerate(points) if point["events"]]
    assert measured == [(0, 50, 4), (5, 50, 4)]
    others = [point for point in points if not point["events"]]
    assert {(point["events_per_s"], point["lag_s"], point["p50_s"]) for point in others} == {(0, None, None)}


def test_a_span_shows_what_was_in_it_and_no_more_marks_than_fit(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    now = datetime.now(UTC)
    for hours in (200, 100, 20, 3, 0.2):
        series = {"": MetricSeries({"apply.LastRunFailed": 1}, {}, {}), NASTY[0]: MetricSeries({}, {"apply.TotalNumberOfEventsApplied": 5}, {"apply.FreshnessInSeconds": [42.0]})}  # fmt: skip
        at = now - timedelta(hours=hours)
        shop_connector.store.metrics.add_measurements(
            MetricSamples("shop", "apply delta 1", {"target": "delta"}, at, series, True)
        )
    seen = {}
    for span in ("hour", "day", "week"):
        found = client_factory().get(f"{API}/charts", params={"span": span}).json()
        (points,) = [one["points"] for one in found["series"] if one["producer"] == "apply delta 1"]
        seen[span] = (sum(point["events"] for point in points), [m["kind"] for m in found["marks"]].count("error"))
        assert all(30 < point["p50_s"] <= 60 for point in points if point["events"])
        assert all(point["cpu"] is None for point in points)
    assert seen == {"hour": (5, 1), "day": (15, 3), "week": (20, 4)}
    for _ in range(MOST + 20):
        shop_connector.store.metrics.add_measurements(
            MetricSamples("shop", "capture", {}, now, {"": MetricSeries({}, {}, {})}, True)
        )
    found = client_factory().get(f"{API}/charts", params={"span": "week"}).json()
    assert [m["kind"] for m in found["marks"]].count("run") <= MOST
