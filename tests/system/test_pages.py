"""The pages in a real Chromium, within a running Airflow: what the person on call sees and can do, light and dark, narrow, by keyboard alone."""

from __future__ import annotations

import gzip
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from dev import paths
from dev.airflow import Airflow, Services
from dev.bootstrap import ui
from tests.support.patience import LONGEST_S
from tests.system.conftest import SHOWN
from tests.system.pages import findings, set_theme, show, wait_until_settled

NASTY = '<img src=x onerror="window.hacked=1">\u202eevil'
LONG = "a very long reason " * 600
ERROR = "The log no longer holds the position.\n  Where:  binlog.000003:4\n  Safe:   all batches before it.\n  Repair: airflow cdc gap broken"
TABS = (
    "Charts",
    "Tables",
    "Snapshots and signals",
    "Schema",
    "Batches",
    "Offsets",
    "Check",
    "Configuration",
    "Events",
    "Row history",
)


@pytest.fixture(scope="module", autouse=True)
def connectors(airflow: Airflow, services: Services) -> StateStore:
    """Create connectors: a healthy one, a broken one, and one with a name and a reason of the worst kind.

    Nothing but this process captures them.
    """
    store = StateStore(f"sqlite:///{airflow.home}/airflow.db")
    body = {"connection_id": SHOWN, "conn_type": "cdc_memory", "host": SHOWN}
    services.json("POST", "/api/v2/connections", body)
    database = MemoryDatabase(SHOWN)
    database.create_table("inventory.orders", {"id": "int64", "note": "string"}, key=("id",))
    definition = ConnectorDefinition(
        SHOWN, "memory", f"{airflow.home}/cdc/{SHOWN}", {"memory.database": SHOWN, "poll.interval.ms": 10}
    )
    for notes in (("first",), (NASTY, "third")):
        for note in notes:
            with database.transaction() as t:
                t.insert("inventory.orders", {"id": len(note), "note": note})
        with open_capture(
            definition,
            f"sqlite:///{airflow.home}/airflow.db",
            connections={"source": SHOWN, "state": "cdc_state_default"},
        ) as run:
            run.run()
    database.add_column("inventory.orders", "extra", "int32")
    with open_capture(
        definition, f"sqlite:///{airflow.home}/airflow.db", connections={"source": SHOWN, "state": "cdc_state_default"}
    ) as run:
        run.run()
    fresh = MetricSeries(
        counters={"apply.TotalNumberOfEventsApplied": 3}, observed={"apply.FreshnessInSeconds": [1.5, 42.0]}
    )
    series = {"": MetricSeries(), f"{SHOWN}.inventory.orders": fresh}
    store.metrics.add_measurements(
        MetricSamples(SHOWN, "apply delta 1", {"target": "delta", "place": "1"}, datetime.now(UTC), series, True)
    )
    for name in ("broken", NASTY):
        store.register_connector(
            ConnectorRegistration(name, "memory", f"{airflow.home}/cdc/none", connections={"source": SHOWN})
        )
    store.record_run_end("broken", ERROR)
    store.set_control(NASTY, DesiredState.PAUSED, NASTY, LONG)
    return store


def painted_color(page: Any, style: str) -> list[int]:
    """Red, green and blue of a style of the first cell, however the theme writes it."""
    return list(
        page.evaluate(
            """style => {
                const cell = document.querySelector('[data-testid=cdc] tbody td');
                const paint = document.createElement('canvas').getContext('2d');
                paint.fillStyle = getComputedStyle(cell)[style];
                paint.fillRect(0, 0, 1, 1);
                return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
            }""",
            style,
        )
    )


def test_the_overview_shows_the_broken_one_first_with_its_repair(
    page: Any, services: Services, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services)
    rows = page.get_by_role("table", name="Connectors").locator("tbody tr")
    rows.first.wait_for()
    assert "broken" in rows.first.inner_text()
    assert "airflow cdc gap broken" in rows.first.inner_text()
    box = page.get_by_text("airflow cdc gap broken").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < 1280  # no one has to scroll to it
    well = rows.filter(has_text=SHOWN).first
    assert "worst" in well.inner_text()
    assert NASTY.replace("\u202e", "\\u202e") in page.get_by_role("table", name="Connectors").inner_text()
    assert page.locator("[data-testid=cdc] img").count() == 0
    assert page.evaluate("window.hacked") is None
    page.screenshot(path=screenshot_folder / "overview-light.png")
    assert findings(page, axe_script) == []
    page.get_by_label("Search").press_sequentially("no longer holds", delay=30)  # the focus stays
    page.wait_for_function(  # an Airflow that others use, too, may have more of them
        "(rows => rows.length > 0 && rows.every(row => row.innerText.includes('no longer holds')))([...document.querySelectorAll('[data-testid=cdc] tbody tr')])"
    )
    assert page.get_by_label("Search").input_value() == "no longer holds"
    assert "text=" in page.url  # a filter can be handed on as a link
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("paused")
    page.wait_for_function(
        "(rows => rows.length > 0 && rows.every(row => row.innerText.toLowerCase().includes('paused')))([...document.querySelectorAll('[data-testid=cdc] tbody tr')])"
    )
    assert page.errors == []


def test_letters_that_come_faster_than_the_page_is_drawn_are_all_there(page: Any, services: Services) -> None:
    """A machine of a twentieth of this one's speed: the address of the page comes on long after the letter. A link and the way back change the filter, too."""
    show(page, services)
    field, rows = page.get_by_label("Search"), page.get_by_role("table", name="Connectors").locator("tbody tr")
    rows.first.wait_for()
    slowed = page.context.new_cdp_session(page)
    slowed.send("Emulation.setCPUThrottlingRate", {"rate": 20})
    try:
        field.press_sequentially("no longer holds", delay=15)
        page.get_by_label("State").select_option("paused")
        page.wait_for_url("**?text=no+longer+holds&state=paused")
    finally:
        slowed.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    assert field.input_value() == "no longer holds"
    page.get_by_label("State").select_option("")
    page.wait_for_url("**?text=no+longer+holds")
    rows.first.get_by_role("link").first.click()
    page.get_by_role("tab").first.wait_for()
    page.go_back()
    rows.first.wait_for()
    assert field.input_value() == "no longer holds"
    assert "broken" in rows.first.inner_text()
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="CDC connectors").click()
    page.get_by_role("link", name=SHOWN, exact=True).first.wait_for()
    assert field.input_value() == ""
    page.go_back()
    page.get_by_role("link", name=SHOWN, exact=True).first.wait_for(state="detached")
    assert field.input_value() == "no longer holds"
    assert page.errors == []


def test_it_is_as_dark_as_airflow_and_fits_a_narrow_window(
    page: Any, services: Services, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services)
    set_theme(page, services, "dark")
    page.get_by_role("table", name="Connectors").wait_for()
    page.screenshot(path=screenshot_folder / "overview-dark.png")
    assert min(painted_color(page, "color")) > 128
    assert findings(page, axe_script) == []
    set_theme(page, services, "light")
    page.get_by_role("table", name="Connectors").wait_for()
    assert max(painted_color(page, "color")) < 128
    page.set_viewport_size({"width": 800, "height": 900})
    page.get_by_role("table", name="Connectors").wait_for()
    page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=screenshot_folder / "overview-800.png")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_connector_is_seen_from_all_sides(
    page: Any, services: Services, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services, f"/connectors/{SHOWN}")
    shown = {
        "Charts": "no error.", "Tables": "inventory.orders", "Snapshots and signals": "No signal was sent.", "Schema": "+ extra int32",
        "Batches": "no target", "Offsets": "batch 1", "Check": "changes nothing at the source", "Configuration": "not shown", "Events": "COMPLETED", "Row history": "Each look-up is recorded",
    }  # fmt: skip
    assert set(shown) == set(TABS)
    for title, text in shown.items():
        page.get_by_role("tab", name=title, exact=True).click()
        page.get_by_role("tabpanel").get_by_text(text).first.wait_for()
        page.screenshot(path=screenshot_folder / f"connector-{title.lower().replace(' ', '-')}.png")
        assert findings(page, axe_script) == [], title
    page.get_by_role("tab", name="Batches", exact=True).click()
    page.get_by_role("link", name="2", exact=True).click()
    page.get_by_role("table", name="Files").wait_for()
    assert page.url.endswith(f"/connectors/{SHOWN}/batches/2")
    assert findings(page, axe_script) == []
    assert page.errors == []


def test_the_story_of_a_row_shows_before_and_after(
    page: Any, services: Services, screenshot_folder: Path, axe_script: str
) -> None:
    show(page, services, f"/connectors/{SHOWN}/row")
    page.get_by_label("Table", exact=True).fill("inventory.orders")
    page.get_by_label("id (int64)").fill(str(len(NASTY)))
    page.get_by_role("button", name="Look up").click()
    story = page.get_by_test_id("story")
    story.wait_for()
    assert "create" in story.inner_text().lower()
    assert "onerror" in story.inner_text()
    assert page.evaluate("window.hacked") is None
    page.screenshot(path=screenshot_folder / "row.png")
    assert findings(page, axe_script) == []
    story.get_by_role("button", name="Show the row at this time").last.click()
    story.get_by_text(", as of 2").wait_for()
    assert page.get_by_label("As of").input_value().startswith("2")
    assert story.get_by_text("schema change").count() == 0  # that came later
    page.get_by_label("As of").fill("2020-01-01T00:00")
    page.get_by_text("Compare with the source").click()
    page.get_by_role("button", name="Look up").click()
    page.get_by_test_id("failure").wait_for()  # the source is in memory, and not in that of the API server
    show(page, services, f"/connectors/{SHOWN}/events")
    page.get_by_text("VIEWED").first.wait_for()


def test_a_connector_is_paused_by_keyboard_alone(
    page: Any, services: Services, connectors: StateStore, screenshot_folder: Path
) -> None:
    show(page, services, f"/connectors/{SHOWN}")
    button = page.get_by_role("button", name="Pause", exact=True)
    button.wait_for()
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Pause":
            break
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").wait_for()
    page.wait_for_function("document.querySelector('[role=dialog]').contains(document.activeElement)")
    while page.evaluate("document.activeElement.tagName") != "INPUT":
        page.keyboard.press("Tab")
    page.keyboard.type("upgrade of the database")
    for name in ("Show the plan", "Pause"):
        dialog.get_by_role("button", name=name, exact=True).wait_for()
        while page.evaluate("document.activeElement.textContent") != name:
            page.keyboard.press("Tab")
        page.screenshot(path=screenshot_folder / f"pause-{name.split()[0].lower()}.png")
        assert connectors.load_control(SHOWN).desired_state == "running"
        page.keyboard.press("Enter")
    dialog.get_by_text("Done").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("upgrade of the database").first.wait_for()
    control = connectors.load_control(SHOWN)
    assert (control.desired_state, control.by, control.reason) == ("paused", "admin", "upgrade of the database")
    show(page, services, f"/connectors/{SHOWN}/events")
    page.get_by_text("REQUESTED").first.wait_for()
    connectors.set_control(SHOWN, DesiredState.RUNNING, "test")


def test_what_can_repeat_something_wants_the_connectors_name(
    page: Any, services: Services, connectors: StateStore, axe_script: str
) -> None:
    show(page, services, f"/connectors/{SHOWN}")
    page.get_by_role("button", name="Snapshot tables").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tables, or").fill("inventory.oders")
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("did you mean inventory.orders?").wait_for()
    dialog.get_by_label("Tables, or").fill("inventory.orders")
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("1 table is snapshotted again").wait_for()
    go = dialog.get_by_role("button", name="Snapshot tables")
    assert go.is_disabled()
    dialog.get_by_label("To confirm").fill(SHOWN)
    go.click()
    dialog.get_by_text("Done: signal").wait_for()
    (signal,) = connectors.signals_of(SHOWN)
    assert (signal.type, signal.sent_by) == ("execute-snapshot", "admin")
    page.keyboard.press("Escape")


def test_an_api_that_breaks_is_reported_and_what_was_seen_stays(page: Any, services: Services) -> None:
    show(page, services)
    table = page.get_by_role("table", name="Connectors")
    table.wait_for()
    page.route(
        "**/cdc/api/**",
        lambda route: route.fulfill(
            status=503,
            body=json.dumps(
                {"detail": "x", "error": {"message": "The state is away.", "repair": "airflow db migrate"}}
            ),
        ),
    )
    page.get_by_text("The state is away.").wait_for()
    assert table.is_visible()
    page.unroute("**/cdc/api/**")
    page.get_by_text("The state is away.").wait_for(state="detached")


def test_nothing_is_asked_while_the_tab_is_hidden(page: Any, services: Services) -> None:
    show(page, services, f"/connectors/{SHOWN}/signals")
    page.get_by_role("tabpanel").wait_for()
    wait_until_settled(page)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(2000)
    before = len([url for url in page.asked if "/cdc/api/" in url])
    page.wait_for_timeout(7000)  # it asks every three seconds
    assert len([url for url in page.asked if "/cdc/api/" in url]) == before
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    began = time.monotonic()
    while len([url for url in page.asked if "/cdc/api/" in url]) == before:
        page.wait_for_timeout(200)
        assert time.monotonic() - began < LONGEST_S


def test_no_request_leaves_the_machine_and_the_first_load_is_small(
    page: Any, services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [url for url in page.asked if not url.startswith((services.url, "data:", "blob:"))] == []
    compressed = sum(
        len(gzip.compress(file.read_bytes())) for file in ui.BUILT.glob("*.*") if file.suffix in (".js", ".css")
    )
    with capsys.disabled():
        print(f"\nFirst load of the pages, beside Airflow's own: {compressed / 1000:.0f} kB compressed")
    assert 10_000 < compressed < 400_000
    assert paths.ROOT in ui.BUILT.parents
