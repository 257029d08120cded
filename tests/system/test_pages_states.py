"""The page of a connector in each of the states that people meet: what is the matter is the first thing that it says.

No run makes these states: they are rows of the state tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.state.models import Base
from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Airflow, Services
from tests.support.airflow.connector_states import ConnectorStates
from tests.system.pages import findings, show, sticks_out, turn_theme, wait_until_settled

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

HEADLINES = {
    "new": "The snapshot is running: 2 of 3 tables left.",
    "healthy": "All steps are running.",
    "behind": "The capture is 25 min behind its source, and the lag grows by ",
    "ended-on-purpose": "Idle: the last run ended without an error",
    "source-away": "It stops at the source: the last run could not read it.",
    "position-gone": "It stops at the source: the log no longer has the position.",
    "target-away": "It stops at the target delta at s3://lake/target-away/{table}: the apply failed",
    "row-refused": "It stops at the target database sales_dwh: 1 table failed.",
    "storage-full": "It stops at the change log: the last run could not write it.",
    "lease-held": "A run holds the lease and stands still, no commit for 3 h",
    "quarantined": "The capture leaves out 1 table: inventory.orders.",
    "snapshot-stuck": "The snapshot stands still: no commit for 2 h",
    "schema-refused": "It stops at the capture: the last run failed",
    "log-end-near": "Its source removes the log at its position in 2",
}
"""Connector → the beginning of its headline."""
BROKEN = {
    "position-gone": "Source", "source-away": "Source", "target-away": "Apply", "row-refused": "Apply", "storage-full": "Capture",
    "quarantined": "Capture", "schema-refused": "Capture",
}  # fmt: skip
"""Connector → the first step of the picture that says *stops here*."""

SAID = {
    "target-away": "TargetUnavailable: The bucket lake does not answer",
    "schema-refused": "with SchemaConflict.",
}
"""Connector → the cause that its page says beside the headline's beginning."""


BOXES = {
    "behind": ["25 min behind its source.", "Safe: Everything, as long as the source keeps its log.", "Check: airflow cdc status behind"],
    "log-end-near": ["1 h behind its source.", "Its source removes the log at its position in "],
    "quarantined": ["Nothing of inventory.orders is captured until it is read again: "],
    "row-refused": ["The apply to database sales_dwh could not update 1 table.", "Table inventory.orders: value too long"],
    "schema-refused": ["The last run failed ", "SchemaConflict: The statement changes rows", "Where: ", "Safe: ", "Repair: "],
    "target-away": ["The apply to delta at s3://lake/target-away/{table} failed ", "TargetUnavailable: ", "Where: s3://lake", "Safe: ", "Repair: ", "Task: cdc_target-away.apply, run scheduled__2026-11-30T01:00:00+00:00, try 3."],
}  # fmt: skip
"""Connector → what the boxes of its problems have."""


@pytest.fixture(scope="module", autouse=True)
def states(airflow: Airflow, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = StateStore(f"sqlite:///{airflow.home}/airflow.db")
    ConnectorStates(store, tmp_path_factory.mktemp("states"), store.database.engine).create_all()
    yield
    with store.database.engine.begin() as c:  # other tests share the state tables
        for table in Base.metadata.sorted_tables:
            c.execute(sa.delete(table).where(table.c.connector.in_(HEADLINES)))
    store.close()


def test_a_failure_leads_to_the_log_of_its_task(page: Any, services: Services) -> None:
    for name, task, number in (("source-away", "capture", 1), ("target-away", "apply", 3)):
        show(page, services, f"/connectors/{name}")
        link = page.get_by_role("link", name="Log of the task")
        link.wait_for()
        path = f"/dags/cdc_{name}/runs/scheduled__2026-11-30T01%3A00%3A00%2B00%3A00/tasks/{task}?try_number={number}"
        assert link.get_attribute("href") == path


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(HEADLINES))
def test_the_first_words_and_the_picture_say_where_it_stops(
    page: Any, services: Services, axe_script: str, screenshot_folder: Path, name: str
) -> None:
    show(page, services, f"/connectors/{name}")
    page.get_by_test_id("headline").get_by_text(HEADLINES[name]).wait_for()
    if name in SAID:
        page.get_by_text(SAID[name]).first.wait_for()
    boxes = "\n".join(page.get_by_role("group", name="Problem").all_inner_texts())
    assert [part for part in BOXES.get(name, ()) if part not in boxes] == [], boxes
    way = page.get_by_role("region", name="From the source to the targets")
    stops = way.get_by_role("img", name="stops here").locator("xpath=..").all_inner_texts()
    assert [text.split("\n")[0].capitalize() for text in stops][:1] == ([BROKEN[name]] if name in BROKEN else [])
    for theme in ("dark", "light"):
        turn_theme(page, theme)
        for width in (800, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            wait_until_settled(page)
            assert sticks_out(page) == [], (theme, width)
            page.screenshot(path=screenshot_folder / f"state-{name}-{width}-{theme}.png")
        assert findings(page, axe_script) == [], theme
    assert page.errors == []


def test_the_overview_has_the_broken_ones_first_and_its_button_within_the_window(
    page: Any, services: Services, axe_script: str
) -> None:
    show(page, services)
    rows = page.get_by_role("table", name="Connectors").locator("tbody tr")
    rows.first.wait_for()
    attention = [n for n, text in enumerate(rows.all_inner_texts()) if "needs attention" in text]
    assert attention == list(range(len(attention)))
    assert "needs attention" not in rows.filter(has_text="ended-on-purpose").inner_text()
    for width in (800, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.get_by_role("link", name="New connector").bounding_box()
        assert box["x"] + box["width"] < width - 8
    for card in ("Connectors", "Largest lag", "Worst freshness, p95", "Rate"):
        page.get_by_role("group", name=card).wait_for()
    assert findings(page, axe_script) == []


def test_a_moment_has_its_date_in_utc_and_a_position_all_its_fields(page: Any, services: Services) -> None:
    show(page, services, "/connectors/healthy")
    way = page.get_by_role("region", name="From the source to the targets")
    way.get_by_text("file binlog.000431, pos 90412", exact=True).wait_for()
    assert "gtids" not in way.inner_text()
    way.get_by_role("button", name="4 more: fields of the position").click()
    way.get_by_text("gtids 0-1-48211").wait_for()
    titles = [one.get_attribute("title") for one in page.locator("[data-testid=cdc] time").all()]
    assert titles
    assert all("UTC" in title for title in titles)
