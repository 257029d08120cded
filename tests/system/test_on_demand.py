"""Snapshots on demand, signals and the connector's life from a running Airflow: by the forms in a real browser, by REST, by assets.

Screenshots go to the folder that ``CDC_SCREENSHOTS`` names, if it names one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.airflow import Airflow, Services, example
from dev.bootstrap import browser
from dev.bootstrap.report import Problem

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

EXAMPLES = ("cdc_ad_hoc_snapshot", "cdc_signal", "cdc_lifecycle", "on_inventory_orders")
ROWS = 40_000
BUSY = """
from airflow.sdk import DAG, Asset, task
from airflow_provider_cdc.dag import ConnectorDefinition, ad_hoc_snapshot_dag, lifecycle_dag, signal_dag, watched_table_asset
from airflow_provider_cdc.operators.capture import CaptureOperator

busy = ConnectorDefinition(
    name="busy", source="mariadb", changelog="{changelog}",
    properties={{
        "database.server.id": 4714, "table.include.list": "busy.(orders|lines)", "incremental.snapshot.chunk.size": 2,
        "batch.max.ms": 2000,
    }},
)
with DAG("busy_capture", schedule=None) as capture:
    CaptureOperator(task_id="capture", definition=busy, conn_id="inventory_mariadb", run_for=3600)
snapshot = ad_hoc_snapshot_dag([busy], dag_id="busy_snapshot", poll_interval=1)
signal = signal_dag([busy], dag_id="busy_signal", poll_interval=1)
lifecycle = lifecycle_dag([busy], dangerous=True, dag_id="busy_lifecycle")

lines = watched_table_asset(busy, "busy.lines", poll_interval=1)
with DAG("on_busy_lines", schedule=[lines]) as on_lines:
    @task
    def tell(**context):
        return [event.extra["payload"] for event in context["triggering_asset_events"][lines]]
    tell()
"""


class DagRuns:
    """DAG runs of a running Airflow, by its REST API."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def begin(self, dag: str, **conf: Any) -> str:
        body = {"logical_date": None, "conf": conf}

        def begin_run() -> str | None:
            status, text = self.services.request("POST", f"/api/v2/dags/{dag}/dagRuns", body)
            if status == 500 and "Database error" in text:
                return None  # Airflow's SQLite has one writer at a time, and its API server does not wait for long
            assert status < 300, (dag, status, text)
            return str(json.loads(text)["dag_run_id"])

        return str(self.services.until(begin_run, 60, f"a run of {dag} begins"))

    def of(self, dag: str) -> list[dict[str, Any]]:
        """Newest first."""
        found: list[dict[str, Any]] = self.services.json("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=-run_after")[
            "dag_runs"
        ]
        return found

    def task(self, dag: str, run: str, task: str) -> dict[str, Any]:
        return dict(self.services.json("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}"))

    def until(self, dag: str, run: str, task: str, *states: str, seconds: float = 180) -> dict[str, Any]:
        """Wait until a task is in one of some states."""
        ended = {"success", "failed", "upstream_failed", "skipped"}

        def find_task() -> dict[str, Any] | None:
            found = self.task(dag, run, task)
            assert found["state"] in states or found["state"] not in ended, (found["state"], self.log(dag, run, task))
            return found if found["state"] in states else None

        return dict(self.services.until(find_task, seconds, f"{dag}.{task} is {' or '.join(states)}"))

    def log(self, dag: str, run: str, task: str) -> str:
        """All of a task's log, with what its trigger wrote."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/1?full_content=true"
        status, text = self.services.request("GET", path)
        if status != 200:
            return text
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in json.loads(text)["content"])

    def result(self, dag: str, run: str, task: str) -> Any:
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value?deserialize=false"
        found = self.services.json("GET", path)["value"]
        return json.loads(found) if isinstance(found, str) else found


@pytest.fixture(scope="module")
def dag_runs(services: Services, airflow: Airflow, inventory: Any) -> Iterator[DagRuns]:
    """With a connector ``busy`` on a separate database, and its DAGs."""
    inventory.sql(
        "DROP DATABASE IF EXISTS busy",
        "CREATE DATABASE busy",
        "CREATE TABLE busy.orders (id INT PRIMARY KEY AUTO_INCREMENT, n INT, changed_at TIMESTAMP(3) NULL)",
        f"INSERT INTO busy.orders (n, changed_at) SELECT seq, '2024-01-01 00:00:00' + INTERVAL seq SECOND FROM seq_1_to_{ROWS}"
        .replace("seq_1", "busy.seq_1"),
        "CREATE TABLE busy.lines (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
        "CREATE TABLE busy.secrets (id INT PRIMARY KEY)",
    )  # fmt: skip
    for name in EXAMPLES:
        example(name, airflow.dags)
    (airflow.dags / "busy.py").write_text(BUSY.format(changelog=airflow.home / "cdc" / "changelog"))
    names = {"busy_capture", "busy_snapshot", "busy_signal", "busy_lifecycle", "on_busy_lines"}

    def is_parsed() -> bool:
        found = services.json("GET", "/api/v2/dags?limit=100&exclude_stale=false")["dags"]
        return names.union(EXAMPLES) <= {dag["dag_id"] for dag in found}

    services.until(is_parsed, 180, "the DAGs are parsed")
    for name in names:
        services.json("PATCH", f"/api/v2/dags/{name}", {"is_paused": False})
    yield DagRuns(services)
    inventory.sql("DROP DATABASE busy")


@pytest.fixture(scope="module")
def captured_runs(dag_runs: DagRuns, airflow: Airflow) -> DagRuns:
    """After the initial snapshot, with a capture that is alive."""
    keep_capturing(dag_runs, airflow)
    dag_runs.services.until(
        lambda: airflow.sql("SELECT 1 FROM cdc_batch WHERE connector = 'busy'"),
        240,
        "the initial snapshot is committed",
    )
    return dag_runs


def keep_capturing(runs: DagRuns, airflow: Airflow) -> None:
    """Have a run of the capture alive."""
    held = "SELECT 1 FROM cdc_lease WHERE connector = 'busy' AND owner IS NOT NULL"
    if not airflow.sql(held):
        runs.begin("busy_capture")
        runs.services.until(lambda: airflow.sql(held), 240, "the capture is alive")


def halt(runs: DagRuns, airflow: Airflow) -> None:
    """Pause the connector; its run has ended then."""
    run = runs.begin("busy_lifecycle", action="pause", reason="upgrade of the database")
    runs.until("busy_lifecycle", run, "steer", "success")
    assert airflow.sql("SELECT owner FROM cdc_lease WHERE connector = 'busy'") == [(None,)]


def resume(runs: DagRuns) -> None:
    runs.until("busy_lifecycle", runs.begin("busy_lifecycle", action="resume"), "steer", "success")


def pool(services: Services) -> dict[str, int]:
    """Airflow's own figures of its worker slots."""
    found: dict[str, int] = services.json("GET", "/api/v2/pools/default_pool")
    return found


def test_the_example_forms_are_parsed_without_an_error(dag_runs: DagRuns) -> None:
    errors = dag_runs.services.json("GET", "/api/v2/importErrors")["import_errors"]
    assert errors == []
    for dag in ("cdc_ad_hoc_snapshot", "cdc_signal", "cdc_lifecycle"):
        params = dag_runs.services.json("GET", f"/api/v2/dags/{dag}/details")["params"]
        assert params["connector"]["schema"]["enum"] == ["inventory", "inventory_oracle"]


# the form in a browser


@pytest.fixture(scope="module")
def screenshot_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("CDC_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def page(captured_runs: DagRuns) -> Iterator[Any]:
    """A page of Chromium, logged in as ``admin``."""
    from playwright.sync_api import sync_playwright

    try:
        binary = browser.ensure()
    except Problem as problem:
        if os.environ.get("CDC_REQUIRE_SERVERS"):
            raise
        pytest.skip(f"Chromium cannot be had here: {problem}")
    services = captured_runs.services
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=binary, args=list(browser.ARGUMENTS))
        context = chromium.new_context(
            viewport={"width": 1500, "height": 1100}, locale="en-GB", timezone_id="Europe/Berlin"
        )
        page = context.new_page()
        page.set_default_timeout(90_000)
        page.goto(f"{services.url}/", wait_until="domcontentloaded")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", services.password)
        page.click("button[type=submit]")
        page.wait_for_url(f"{services.url}/", wait_until="commit")
        yield page
        chromium.close()


def test_a_person_fills_in_the_form_and_watches_the_snapshot(
    captured_runs: DagRuns, airflow: Airflow, page: Any, screenshot_folder: Path
) -> None:
    services = captured_runs.services
    before = events(airflow, "busy.busy.orders")
    page.goto(f"{services.url}/dags/busy_snapshot", wait_until="domcontentloaded")
    page.get_by_role("button", name="Trigger").first.click()
    page.locator("#element_connector").wait_for()
    form = page.get_by_role("dialog")
    page.locator("#element_tables input").first.fill("ord")
    page.get_by_role("option", name="busy.orders").click()
    page.screenshot(path=screenshot_folder / "form-1-tables.png")
    form.get_by_text("Which rows").click()
    page.locator("#element_changed_since_column").fill("changed_at")
    form.get_by_text("Select date and time").click()
    page.get_by_placeholder("YYYY/MM/DD").fill("2024/01/01")
    page.get_by_placeholder("HH:mm").fill("01:00")  # in Berlin, which is midnight in UTC: before every row
    page.keyboard.press("Tab")
    page.screenshot(path=screenshot_folder / "form-2-rows.png")
    page.keyboard.press("Escape")
    form.get_by_text("How to read").click()
    page.get_by_text("Empty the tables first").wait_for()
    page.wait_for_timeout(700)  # the sections move
    page.screenshot(path=screenshot_folder / "form-3-how.png")
    form.get_by_role("button", name="Trigger").click()
    run = str(services.until(lambda: captured_runs.of("busy_snapshot"), 60, "the run has begun")[0]["dag_run_id"])
    conf = captured_runs.of("busy_snapshot")[0]["conf"]
    assert (conf["connector"], conf["tables"], conf["type"]) == ("busy", ["busy.orders"], "incremental")
    assert conf["changed_since"].startswith("2024-01-01T00:00")
    captured_runs.until("busy_snapshot", run, "wait", "deferred", "success", seconds=240)
    page.goto(f"{services.url}/dags/busy_snapshot/runs/{run}/tasks/wait", wait_until="domcontentloaded")
    page.get_by_text("now busy.orders").first.wait_for()  # the progress, in the log of the sensor
    page.screenshot(path=screenshot_folder / "run-progress.png")
    page.goto(f"{services.url}/plugin/cdc/connectors/busy/signals", wait_until="domcontentloaded")
    page.get_by_role("table", name="Signals").get_by_text("table busy.orders").first.wait_for()  # how far it is
    page.screenshot(path=screenshot_folder / "connector.png")
    captured_runs.until("busy_snapshot", run, "wait", "success", seconds=300)
    page.goto(f"{services.url}/dags/busy_snapshot", wait_until="domcontentloaded")
    page.get_by_text("wait", exact=True).first.wait_for()
    page.wait_for_timeout(3000)
    page.screenshot(path=screenshot_folder / "grid-done.png")
    log = captured_runs.log("busy_snapshot", run, "wait")
    assert "rows/s" in log
    assert "is done" in log
    assert events(airflow, "busy.busy.orders") - before >= ROWS  # every row was captured once more


def test_a_table_that_is_not_captured_is_refused_by_name(captured_runs: DagRuns) -> None:
    run = captured_runs.begin("busy_snapshot", connector="busy", more_tables=["busy.secrets"])
    captured_runs.until("busy_snapshot", run, "check", "failed")
    assert captured_runs.until("busy_snapshot", run, "send", "upstream_failed")
    log = captured_runs.log("busy_snapshot", run, "check")
    assert "no captured table matches 'busy.secrets'" in log
    assert "busy.orders" in log


def test_a_filter_that_the_database_refuses_fails_the_waiting_task_with_its_words(captured_runs: DagRuns) -> None:
    filters = {"busy.orders": "no_such_column = 1"}
    run = captured_runs.begin("busy_snapshot", connector="busy", tables=["busy.orders"], filters=filters)
    captured_runs.until("busy_snapshot", run, "wait", "failed", seconds=240)
    assert "no_such_column" in captured_runs.log("busy_snapshot", run, "wait")


# waiting without a worker


def test_the_sensor_holds_no_worker_slot_and_survives_the_death_of_its_triggerer(
    captured_runs: DagRuns, airflow: Airflow, inventory: Any
) -> None:
    services = captured_runs.services
    halt(captured_runs, airflow)
    before = pool(services)["deferred_slots"]
    run = captured_runs.begin("busy_snapshot", connector="busy", tables=["busy.lines"])
    captured_runs.until("busy_snapshot", run, "wait", "deferred")
    figures = pool(services)
    assert (figures["running_slots"], figures["queued_slots"], figures["occupied_slots"]) == (0, 0, 0)
    assert (figures["deferred_slots"], figures["open_slots"]) == (before + 1, figures["slots"])
    services.until(
        lambda: "upgrade of the database" in captured_runs.log("busy_snapshot", run, "wait"),
        90,
        "the log says what it waits for",
    )
    services.kill("triggerer")
    resume(captured_runs)
    keep_capturing(captured_runs, airflow)
    done = "SELECT state FROM cdc_signal WHERE connector = 'busy' ORDER BY id DESC LIMIT 1"
    services.until(lambda: airflow.sql(done) == [("done",)], 240, "the signal is carried out while nobody waits")
    assert captured_runs.task("busy_snapshot", run, "wait")["state"] == "deferred"
    services.start("triggerer")
    captured_runs.until("busy_snapshot", run, "wait", "success", seconds=300)
    assert captured_runs.result("busy_snapshot", run, "wait")["state"] == "done"


# assets


def test_a_dag_starts_when_its_table_changes_also_after_the_death_of_the_triggerer(
    captured_runs: DagRuns, airflow: Airflow, inventory: Any
) -> None:
    services = captured_runs.services
    keep_capturing(captured_runs, airflow)
    if "asset_state_store" in airflow.tables():
        cursor = "SELECT s.value FROM asset_state_store s JOIN asset a ON a.id = s.asset_id WHERE a.uri LIKE '%busy.lines/captured'"
    else:  # Airflow 3.1, 3.2
        cursor = "SELECT val FROM variable WHERE key LIKE 'cdc_batch.%busy.lines/captured%'"
    services.until(lambda: airflow.sql(cursor), 180, "the table is watched")
    reported = len(payloads(captured_runs))
    inventory.sql("INSERT INTO busy.lines (n) VALUES (1), (2), (3)")
    services.until(
        lambda: sum(p["events"] for p in payloads(captured_runs)[reported:]) >= 3, 240, "a run was told of three rows"
    )
    (payload, *_) = payloads(captured_runs)[reported:]
    assert payload["topics"] == {"busy.busy.lines": 3}
    before = total(captured_runs)
    services.kill("triggerer")
    inventory.sql("INSERT INTO busy.lines (n) VALUES (4), (5)")
    services.until(lambda: events(airflow, "busy.busy.lines") >= 5, 120, "they are captured while nobody watches")
    services.start("triggerer")
    services.until(lambda: total(captured_runs) >= before + 2, 300, "a run was told of them")


def payloads(runs: DagRuns) -> list[dict[str, Any]]:
    """The parameters of the runs of the DAG, oldest first."""
    found = []
    for run in reversed(runs.of("on_busy_lines")):
        if run["state"] == "success":
            found += runs.result("on_busy_lines", run["dag_run_id"], "tell")
    return found


def total(runs: DagRuns) -> int:
    return sum(payload["events"] for payload in payloads(runs))


# the connector's life


def test_a_paused_connector_skips_its_runs_and_says_who_paused_it(captured_runs: DagRuns, airflow: Airflow) -> None:
    keep_capturing(captured_runs, airflow)
    halt(captured_runs, airflow)
    run = captured_runs.begin("busy_capture")
    captured_runs.until("busy_capture", run, "capture", "skipped")
    log = captured_runs.log("busy_capture", run, "capture")
    assert "upgrade of the database" in log
    assert "admin" in log
    line = captured_runs.services.json("GET", "/cdc/api/v1/connectors/busy")["line"]
    assert line["state"] == "paused"
    assert "upgrade of the database" in line["phase"]
    resume(captured_runs)
    keep_capturing(captured_runs, airflow)


def test_a_signal_is_sent_by_its_form(captured_runs: DagRuns, airflow: Airflow) -> None:
    keep_capturing(captured_runs, airflow)
    run = captured_runs.begin("busy_signal", connector="busy", type="log", data={"message": "we were here at {}"})
    captured_runs.until("busy_signal", run, "wait", "success")
    assert "we were here at binlog" in captured_runs.result("busy_signal", run, "wait")["message"]
    run = captured_runs.begin("busy_signal", connector="busy", type="dance")
    captured_runs.until("busy_signal", run, "wait", "failed")
    assert "is not a signal type" in captured_runs.log("busy_signal", run, "wait")


def test_the_offset_is_not_changed_unless_that_is_confirmed(captured_runs: DagRuns, airflow: Airflow) -> None:
    halt(captured_runs, airflow)
    offset = "SELECT offset FROM cdc_offset WHERE connector = 'busy'"
    before = airflow.sql(offset)
    run = captured_runs.begin("busy_lifecycle", action="offset-reset")
    captured_runs.until("busy_lifecycle", run, "steer", "success")
    assert captured_runs.result("busy_lifecycle", run, "steer")["effect"] == "snapshot"
    run = captured_runs.begin("busy_lifecycle", action="offset-reset", plan_only=False, confirm="bussy")
    captured_runs.until("busy_lifecycle", run, "steer", "failed")
    assert airflow.sql(offset) == before
    run = captured_runs.begin("busy_lifecycle", action="offset-reset", plan_only=False, confirm="busy")
    captured_runs.until("busy_lifecycle", run, "steer", "success")
    assert "position" not in json.loads(airflow.sql(offset)[0][0])


def events(airflow: Airflow, topic: str) -> int:
    """Events of a topic that were captured so far."""
    return sum(json.loads(topics).get(topic, 0) for (topics,) in airflow.sql("SELECT topics FROM cdc_batch"))
