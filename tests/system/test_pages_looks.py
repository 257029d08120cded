"""Looks closer, in a real Chromium within a running Airflow: the check, the gap report, charts, a row at its source, and the wizard, against a real MariaDB."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Airflow, Services
from tests.system.conftest import LOOKED, PASSWORD, PLAIN
from tests.system.pages import findings, fits_width, lose_log, set_theme, show

NASTY = '<img src=x onerror="window.hacked=1">\u202eevil'
"""Name of a table."""
LONG = 2**53 + 1
"""A key that is no number of a browser: it would take it for 2**53."""
POOR = '<b onclick="hack()">poor'
"""An account that may not read the log; what mends that has its name."""


@dataclass
class PageStates:
    """Connectors on the inventory: ``looked`` is well, ``lost`` has a position that the log does not have, ``poor`` may not read the log."""

    store: StateStore
    secrets: dict[str, Any]


@pytest.fixture(scope="module")
def page_states(inventory: Any, airflow: Airflow, services: Services) -> Iterator[PageStates]:
    url = f"sqlite:///{airflow.home}/airflow.db"
    inventory.sql(
        "DROP DATABASE IF EXISTS nasty",
        "CREATE DATABASE nasty",
        f"CREATE TABLE nasty.`{NASTY}` (id INT PRIMARY KEY)",
        "CREATE TABLE nasty.`keyless` (line TEXT)",
        "CREATE TABLE nasty.compared (id BIGINT PRIMARY KEY, note VARCHAR(50), price DECIMAL(10,2))",
        f"INSERT INTO nasty.compared VALUES ({LONG}, 'first', 1.50), (1, 'other', 2)",
        f"CREATE OR REPLACE USER '{POOR}'@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT ON *.* TO '{POOR}'@'%'",
    )
    connection = {"conn_type": "cdc_mariadb", "host": inventory.host, "port": inventory.port, "password": PASSWORD, "extra": json.dumps(PLAIN)}  # fmt: skip
    for id_, login in (("poor", POOR), ("listed", "reader")):
        services.json("POST", "/api/v2/connections", connection | {"connection_id": id_, "login": login})
    secrets = {"database.hostname": inventory.host, "database.port": inventory.port, "database.user": "reader", "database.password": PASSWORD, **PLAIN}  # fmt: skip
    found = PageStates(StateStore(url), secrets)
    had_an_hour(found.store)
    for number, name in enumerate(("looked", "lost", "poor")):
        definition = definition_of(airflow, name, number)
        connections = {"source": "poor" if name == "poor" else "inventory_mariadb", "state": "cdc_state_default"}
        with open_capture(definition, url, secrets=secrets, connections=connections) as run:
            run.run()
    inventory.sql("ALTER TABLE nasty.`keyless` ADD COLUMN more INT", "INSERT INTO nasty.`keyless` VALUES ('a', 1)")
    with open_capture(
        definition_of(airflow, "looked", 0), url, secrets=secrets, connections={"source": "inventory_mariadb", "state": "cdc_state_default"}
    ) as run:  # fmt: skip
        run.run()
    lose_log(found.store, "lost")
    with pytest.raises(PositionLost), open_capture(
        definition_of(airflow, "lost", 1), url, secrets=secrets, connections={"source": "inventory_mariadb", "state": "cdc_state_default"}
    ) as run:  # fmt: skip
        run.run()
    yield found
    found.store.close()
    inventory.sql("DROP DATABASE nasty", f"DROP USER '{POOR}'@'%'")


def had_an_hour(store: StateStore) -> None:
    """Add the measurements of an hour of work of ``looked``."""
    for minutes in range(65, 5, -5):
        at, busy = datetime.now(UTC) - timedelta(minutes=minutes), 1 + minutes % 25
        whole = MetricSeries(
            {"streaming.MilliSecondsBehindSource": 400.0 * busy}, {"run.TotalProcessorTimeInSeconds": 2.0 * busy}
        )
        fresh = [0.4 * busy, 0.7 * busy]
        captured = MetricSeries(
            {}, {"topic.TotalNumberOfEventsCaptured": 30_000 * busy}, {"topic.CaptureFreshnessInSeconds": fresh}
        )
        store.metrics.add_measurements(
            MetricSamples("looked", "capture", {}, at, {"": whole, "looked.nasty.keyless": captured}, True)
        )
        applied = MetricSeries(
            {}, {"apply.TotalNumberOfEventsApplied": 29_000 * busy}, {"apply.FreshnessInSeconds": [8.0 * busy]}
        )
        series = {"": MetricSeries({"apply.LastRunDurationInSeconds": 9.0}), "looked.nasty.keyless": applied}
        store.metrics.add_measurements(
            MetricSamples("looked", "apply delta", {"target": "delta", "place": "1"}, at, series, True)
        )


def definition_of(airflow: Airflow, name: str, number: int) -> ConnectorDefinition:
    properties = {"database.server.id": 4780 + number, "table.include.list": r"nasty\..*", "poll.interval.ms": 10}
    return ConnectorDefinition(name, "mariadb", f"{airflow.home}/cdc/{name}", properties)


def by_keyboard(page: Any, name: str) -> None:
    """Go to a button by the tabulator, and press it."""
    page.get_by_role("button", name=name, exact=True).first.wait_for()
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == name:
            page.keyboard.press("Enter")
            return
    pytest.fail(f"{name} cannot be reached by keyboard")


def test_the_check_says_what_is_missing_with_the_statement_that_mends_it(
    page: Any, services: Services, page_states: PageStates, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services, "/connectors/looked/check")
    by_keyboard(page, "Check now")
    page.get_by_test_id("findings").get_by_text("Ready for capture.", exact=True).wait_for()
    show(page, services, "/connectors/poor/check")
    assert page.get_by_test_id("findings").count() == 0  # nothing is asked unless someone wants it
    page.get_by_role("button", name="Check now").click()
    found = page.get_by_test_id("findings")
    found.get_by_text("Not ready for capture.").wait_for()
    statements = [one for one in found.locator("pre").all_inner_texts() if POOR in one]
    assert any(one.startswith("GRANT ") for one in statements), found.inner_text()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    number = found.locator("pre").all_inner_texts().index(statements[0])
    found.get_by_role("button", name="Copy").nth(number).click()
    found.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == statements[0]
    page.screenshot(path=screenshot_folder / "check.png")
    assert findings(page, axe_script) == []
    assert fits_width(page)
    assert page.evaluate("window.hacked") is None


def test_a_lost_position_is_shown_with_the_ways_out(
    page: Any, services: Services, page_states: PageStates, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services, "/connectors/lost/offsets")
    found = page.get_by_test_id("gap")  # its last run has failed for that: no one has to ask
    found.get_by_text("Lost: all changes committed after").wait_for()
    commands = found.locator("pre").all_inner_texts()
    assert commands == [f"airflow cdc gap lost --repair {way}" for way in ("snapshot", "incremental", "skip")]
    assert found.get_by_text("loses changes").count() == 1
    page.screenshot(path=screenshot_folder / "gap.png")
    assert findings(page, axe_script) == []
    assert fits_width(page)
    show(page, services, "/connectors/looked/offsets")
    page.get_by_role("table", name="Offsets").wait_for()
    assert page.get_by_test_id("gap").count() == 0
    by_keyboard(page, "Check the log")
    page.get_by_text("No gap: the log contains").wait_for()


def test_a_row_is_compared_with_its_source(
    page: Any,
    services: Services,
    page_states: PageStates,
    inventory: Any,
    airflow: Airflow,
    screenshot_folder: Path,
    axe_script: str,
) -> None:
    assert LOOKED == "looked"
    show(page, services, "/connectors/looked/row")
    page.get_by_label("Table", exact=True).fill("nasty.compared")
    page.get_by_label("id (int64)").fill(str(LONG))
    page.get_by_text("Compare with the source").click()
    story, row = page.get_by_test_id("story"), page.get_by_role("table", name="The row")

    def compare_row(what: str) -> list[list[str]]:
        page.get_by_role("button", name="Look up", exact=True).click()
        story.get_by_text(re.compile(f"^{what} to the newest change")).wait_for()
        return [line.split("\t") for line in row.inner_text().splitlines()]

    id_, note, price = [str(LONG)] * 2, ["first"] * 2, ["1.50"] * 2
    assert compare_row("equal") == [
        ["Column", "Change log", "Source"],
        ["id", *id_],
        ["note", *note],
        ["price", *price],
    ]
    inventory.sql(f"UPDATE nasty.compared SET note = 'second' WHERE id = {LONG}")
    found = compare_row("not equal")
    assert found[0] == ["Column", "Change log", "Source", "Differs"]
    assert found[2] == ["note", "first", "second", "differs"]
    assert [line[-1].strip() for line in (found[1], found[3])] == ["", ""]
    page.screenshot(path=screenshot_folder / "row-compared.png")
    assert findings(page, axe_script) == []
    url, connections = f"sqlite:///{airflow.home}/airflow.db", {"source": "inventory_mariadb", "state": "cdc_state_default"}  # fmt: skip
    with open_capture(
        definition_of(airflow, "looked", 0), url, secrets=page_states.secrets, connections=connections
    ) as run:
        run.run()
    assert compare_row("equal")[2] == ["note", "second", "second"]
    assert [line for line in story.get_by_text("2 changes").all_inner_texts() if "were searched" in line] != []
    inventory.sql(f"DELETE FROM nasty.compared WHERE id = {LONG}")
    page.get_by_role("button", name="Look up", exact=True).click()
    story.get_by_text("the row does not exist, not equal to the newest change").wait_for()
    looks = [
        one for one in page_states.store.list_notifications("looked", limit=200) if one.notification.type == "VIEWED"
    ]
    assert len(looks) == 4
    assert page.errors == []


def test_charts_show_an_hour_a_day_and_a_week_and_what_has_happened(
    page: Any, services: Services, page_states: PageStates, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services, "/connectors/looked/charts")
    for span in ("One day", "One week", "One hour"):
        by_keyboard(page, span)
        page.locator(f"button[aria-pressed=true]:has-text('{span}')").wait_for()
        page.get_by_role("img", name="Events per second").wait_for()
        table = page.get_by_role("table", name="Marked events")
        table.get_by_text("schema change", exact=True).first.wait_for()
        assert "ADD COLUMN more" in table.inner_text()
    page.screenshot(path=screenshot_folder / "charts.png")
    assert findings(page, axe_script) == []
    assert fits_width(page)
    drawn = "document.querySelector('[data-testid=cdc] canvas').getContext('2d').getImageData(60, 20, 200, 120).data.some(v => v > 0)"
    page.wait_for_function(drawn)
    page.get_by_role("button", name="As tables").click()
    rows = page.get_by_role("table", name="Measured by capture").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() >= 1
    assert findings(page, axe_script) == []
    set_theme(page, services, "dark")
    page.get_by_role("img", name="Events per second").wait_for()
    page.screenshot(path=screenshot_folder / "charts-dark.png")
    assert findings(page, axe_script) == []
    set_theme(page, services, "light")
    assert page.errors == []


def test_the_wizard_goes_from_a_connection_to_a_definition_that_captures(
    page: Any,
    services: Services,
    page_states: PageStates,
    airflow: Airflow,
    screenshot_folder: Path,
    axe_script: str,
    tmp_path: Path,
) -> None:
    show(page, services)
    page.get_by_role("link", name="New connector").click()
    page.get_by_label("Connection", exact=True).select_option("listed")
    by_keyboard(page, "Check, and list the tables")
    page.get_by_test_id("findings").wait_for()
    page.get_by_label("Search tables").fill("nasty.")
    group = page.get_by_role("group", name="Tables")
    group.get_by_text("no key").wait_for()
    assert NASTY.replace("\u202e", "\\u202e") in group.inner_text()
    group.get_by_text("onerror").click()
    page.get_by_text("1 of ").wait_for()
    page.get_by_label("Name of the connector").fill("made")
    page.get_by_label("Change log").fill(str(tmp_path / "log"))
    page.get_by_label("Target").select_option("none")
    by_keyboard(page, "Write the definition")
    shown = page.get_by_test_id("definition")
    shown.wait_for()
    assert findings(page, axe_script) == []
    assert fits_width(page)
    page.screenshot(path=screenshot_folder / "wizard.png", full_page=True)
    file = tmp_path / "made.py"
    file.write_text(shown.locator("pre").inner_text(), encoding="utf-8")
    shown.get_by_role("button", name="YAML").click()
    assert 'source: "mariadb"' in shown.locator("pre").inner_text()
    connector = runpy.run_path(str(file))["connector"]
    url = f"sqlite:///{tmp_path}/state.db"
    store = StateStore(url)
    store.create_tables()
    with open_capture(connector, url, secrets=page_states.secrets) as run:
        run.run()
    changed = [str(one.id) for change in store.schema_history("made") for one in change.changes]
    store.close()
    assert changed == [f"nasty.{NASTY}"]
    assert page.errors == []
    assert page.evaluate("window.hacked") is None


def test_with_no_connector_the_page_says_how_to_get_one(
    page: Any, services: Services, page_states: PageStates, screenshot_folder: Path, axe_script: str
) -> None:
    nothing = {"connectors": [], "states": {}, "sources": [], "total": 0, "at": "2026-01-01T00:00:00Z"}
    page.route("**/cdc/api/v1/connectors", lambda route: route.fulfill(json=nothing))
    show(page, services)
    first = page.get_by_test_id("first-use")
    first.locator("pre").wait_for()
    for kind in ("db2", "debezium", "mariadb", "mongodb", "mysql", "oracle"):
        first.get_by_role("button", name=kind, exact=True).click()
        first.get_by_text(f"source='{kind}'").wait_for()
        assert f"cdc_{kind}" in first.inner_text()
    page.screenshot(path=screenshot_folder / "first-use.png")
    assert findings(page, axe_script) == []
    assert fits_width(page)
    page.unroute("**/cdc/api/v1/connectors")


@pytest.mark.parametrize("tab", ["charts", "check", "offsets", "new"])
def test_a_slow_and_a_broken_api_is_reported_on_each_of_them(
    page: Any, services: Services, page_states: PageStates, axe_script: str, tab: str
) -> None:
    requested = {"charts": "charts**", "check": "check", "offsets": "gap", "new": "wizard"}[tab]
    problem = {"detail": "x", "error": {"message": f"{NASTY} is away.", "repair": "airflow db migrate"}}
    held, broken = list[Any](), False

    def answer(route: Any) -> None:
        if broken:
            route.fulfill(status=503, body=json.dumps(problem))
        else:
            held.append(route)

    page.route(f"**/cdc/api/v1/**/{requested}" if tab != "new" else f"**/cdc/api/v1/{requested}", answer)
    show(page, services, "/new" if tab == "new" else f"/connectors/looked/{tab}")
    button = {"check": "Check now", "offsets": "Check the log"}.get(tab)
    if button is None:
        page.get_by_role("status").get_by_text("Loading").first.wait_for()
    else:
        page.get_by_role("button", name=button).click()
        page.get_by_text("Querying the source").first.wait_for()
    while not held:
        page.wait_for_timeout(50)
    assert findings(page, axe_script, loading=True) == []
    broken = True
    for route in held:
        answer(route)
    page.get_by_test_id("failure").get_by_text("is away.").wait_for()
    assert page.locator("[data-testid=cdc] img").count() == 0
    assert findings(page, axe_script) == []
    page.unroute_all(behavior="ignoreErrors")
