"""Actions on pages in a real Chromium: each dialog, and runs of Airflow that buttons have begun, followed to their ends.

The connector captures a real MariaDB, and a DAG applies its changes to a relational database.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Airflow, Services
from tests.system.pages import findings, lose_log, press_action, set_theme, show, wait_until_settled

DAGS = """
from datetime import timedelta

from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag, lifecycle_dag, tables_dag

acted = ConnectorDefinition(
    name="acted", source="mariadb", changelog="{changelog}",
    properties={{"database.server.id": 4795, "table.include.list": "acted.orders", "poll.interval.ms": 10}},
)
flow = cdc_dag(acted, conn_id="inventory_mariadb", database="acted_warehouse", schedule=None, group={{"wait": False}})
tables = tables_dag([acted], dangerous=True, dag_id="acted_tables", wait=timedelta(minutes=1))
lifecycle = lifecycle_dag([acted], dangerous=True, dag_id="acted_lifecycle")
"""
NAMES = ("cdc_acted", "acted_tables", "acted_lifecycle")
DIALOG = "[data-testid=action]"
RUN_MS = 240_000
"""How long a run may take that waits for others on a busy machine."""


@dataclass
class AppliedConnector:
    """A connector ``acted`` whose changes a DAG applies to a database in a file."""

    store: StateStore
    source: Any
    warehouse: Path

    def rows(self) -> list[tuple[int, str]]:
        with sqlite3.connect(self.warehouse, timeout=30) as connection:
            return connection.execute("SELECT id, note FROM acted_acted_orders ORDER BY id").fetchall()

    def tamper(self, statement: str) -> None:
        with sqlite3.connect(self.warehouse, timeout=30) as connection:
            connection.execute(statement)


@pytest.fixture(scope="module")
def applied_connector(inventory: Any, airflow: Airflow, services: Services) -> Iterator[AppliedConnector]:
    warehouse = airflow.home / "warehouse.db"
    connection = {"connection_id": "acted_warehouse", "conn_type": "sqlite", "host": str(warehouse)}
    services.json("POST", "/api/v2/connections", connection)
    inventory.sql(
        "DROP DATABASE IF EXISTS acted", "CREATE DATABASE acted", "CREATE TABLE acted.orders (id INT PRIMARY KEY, note VARCHAR(50))",
        "INSERT INTO acted.orders VALUES (1, 'first'), (2, 'second')",
    )  # fmt: skip
    (airflow.dags / "acted.py").write_text(DAGS.format(changelog=airflow.home / "cdc" / "acted"))

    def is_parsed() -> bool:
        found = services.json("GET", "/api/v2/dags?limit=100&exclude_stale=false")["dags"]
        return set(NAMES) <= {dag["dag_id"] for dag in found}

    services.until(is_parsed, 180, "the DAGs are parsed")
    for name in NAMES:
        services.json("PATCH", f"/api/v2/dags/{name}", {"is_paused": False})
    run = services.json("POST", "/api/v2/dags/cdc_acted/dagRuns", {"logical_date": None})["dag_run_id"]

    def is_captured() -> bool:
        state = services.json("GET", f"/api/v2/dags/cdc_acted/dagRuns/{run}")["state"]
        assert state != "failed"
        return bool(state == "success")

    services.until(is_captured, 180, "the first run has captured and applied")
    found = AppliedConnector(StateStore(f"sqlite:///{airflow.home}/airflow.db"), inventory, warehouse)
    assert found.rows() == [(1, "first"), (2, "second")]
    yield found
    found.store.close()
    inventory.sql("DROP DATABASE acted")


def in_dialog(page: Any, axe: str) -> list[str]:
    return findings(page, axe, within=DIALOG)


def open_dialog(page: Any, button: str, *, scope: Any = None) -> Any:
    """Open a dialog."""
    if scope is None:
        press_action(page, button)
    else:
        scope.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_test_id("action")
    dialog.get_by_role("button", name="Show the plan").wait_for()
    return dialog


def close_dialog(page: Any, dialog: Any) -> None:
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def run_action(page: Any, dialog: Any, button: str, *, named: bool, fate: str, shot: Path | None = None) -> Any:
    """From the plan to the end of the run; what the dialog shows of it.

    :param shot: where the plan is photographed
    """
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("The plan:").wait_for()
    begin = dialog.get_by_role("button", name=button, exact=True)
    if named:
        assert begin.is_disabled()
        dialog.get_by_label("To confirm").fill("acted")
    if shot is not None:
        page.screenshot(path=shot)
    begin.click()
    run = dialog.get_by_test_id("run")
    run.get_by_text(fate, exact=True).wait_for(timeout=RUN_MS)
    return run


@contextmanager
def looked_at(page: Any, services: Services) -> Iterator[None]:
    """In the dark, too."""
    set_theme(page, services, "dark")
    yield
    set_theme(page, services, "light")


FORMS: dict[str, tuple[str, dict[str, str], str, bool]] = {
    "Pause": ("", {}, "No run is active; new runs are skipped.", False),
    "Stop": ("", {}, "shows the connector as stopped", False),
    "Run now": ("", {}, "A run of cdc_acted executes this action.", False),
    "Snapshot tables": ("", {"Tables, or": "acted.orders", "Snapshot type": "blocking"}, "as a whole; changes wait until it is complete", True),
    "Stop snapshots": ("", {"Tables, or": ""}, "no snapshot is stopped", True),
    "Verify tables": ("", {"Tables, or": "acted.ord.*", "Target": "0"}, "compares them value by value", False),
    "Verify and repair": ("", {"Tables, or": ""}, "All tables that can be verified.", True),
    "Rebuild tables": ("", {"Tables, or": "acted.orders"}, "is rebuilt from the change log: acted.orders", True),
    "Forget database acted_warehouse": ("", {}, "The next maintenance may remove later batches", True),
    "Restore an earlier offset": ("offsets", {"Offset to": "1"}, "A run of acted_lifecycle executes this action.", True),
    "Set the offset": ("offsets", {}, "The connector is already at this position.", True),
    "Reset the offset": ("offsets", {}, "snapshot of every captured table again", True),
}  # fmt: skip
"""Button → the tab where it is, what is filled in, what the plan says, and whether it wants the connector's name."""


def test_every_dialog_says_what_it_will_do_before(
    page: Any, services: Services, applied_connector: AppliedConnector, screenshot_folder: Path, axe_script: str
) -> None:
    def open_dialog(title: str, theme: str) -> None:
        tab, given, plan, named = FORMS[title]
        if not page.url.endswith(f"/connectors/acted/{tab}".rstrip("/")):
            show(page, services, f"/connectors/acted/{tab}".rstrip("/"))
        press_action(page, title)
        dialog = page.get_by_test_id("action")
        for label, value in given.items():
            field = dialog.get_by_label(label)
            if field.evaluate("e => e.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        dialog.get_by_label("Reason").fill("a look")
        file = f"dialog-{title.lower().replace(' ', '-')}-{theme}"
        wait_until_settled(page, DIALOG)
        page.screenshot(path=screenshot_folder / f"{file}-form.png")
        assert in_dialog(page, axe_script) == [], title
        dialog.get_by_role("button", name="Show the plan").click()
        dialog.get_by_text(plan).first.wait_for()
        assert dialog.get_by_label("To confirm").count() == named, title
        assert dialog.get_by_role("button", name=title, exact=True).is_disabled() is named
        page.screenshot(path=screenshot_folder / f"{file}-plan.png")
        assert in_dialog(page, axe_script) == [], title
        dialog.get_by_role("button", name="Back", exact=True).click()
        assert dialog.get_by_label("Reason").input_value() == "a look"  # nothing has to be written twice
        close_dialog(page, dialog)

    before = (
        applied_connector.store.load_offset("acted"),
        applied_connector.store.load_control("acted"),
        applied_connector.store.signals_of("acted"),
    )
    for title in FORMS:
        open_dialog(title, "light")
    with looked_at(page, services):
        for title in ("Snapshot tables", "Restore an earlier offset", "Set the offset", "Rebuild tables"):
            open_dialog(title, "dark")
    page.set_viewport_size({"width": 800, "height": 600})
    open_dialog("Set the offset", "narrow")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert (
        applied_connector.store.load_offset("acted"),
        applied_connector.store.load_control("acted"),
        applied_connector.store.signals_of("acted"),
    ) == before
    assert page.errors == []


def test_what_someone_may_not_do_is_not_offered(
    page: Any, services: Services, applied_connector: AppliedConnector
) -> None:
    def only(rights: list[str]) -> list[str]:
        def answer_route(route: Any) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, json=answer.json() | {"rights": rights})

        page.route("**/cdc/api/v1/connectors/acted", answer_route)
        show(page, services, "/connectors/acted/offsets")
        page.get_by_role("table", name="Offsets").wait_for()
        wait_until_settled(page)
        found = page.get_by_test_id("cdc").get_by_role("button").all_inner_texts()
        if (menu := page.get_by_role("button", name="More actions", exact=True)).count():
            menu.click()
            page.get_by_test_id("more-actions").wait_for()
            found += page.get_by_role("menuitem").all_inner_texts()
            page.keyboard.press("Escape")
        found = [one for one in found if not one.endswith(" more")]  # of a position
        page.unroute_all(behavior="wait")
        return found

    assert only(["read"]) == []
    operates = only(["read", "operate"])
    assert {"Pause", "Run now", "Snapshot tables", "Verify and repair", "Check the log"} <= set(operates)
    assert [one for one in operates if "offset" in one or "Rebuild" in one or "Forget" in one] == []


def test_a_comparison_that_finds_something_is_followed_to_its_repair(
    page: Any, services: Services, applied_connector: AppliedConnector, screenshot_folder: Path, axe_script: str
) -> None:
    applied_connector.tamper("UPDATE acted_acted_orders SET note = 'wrong' WHERE id = 2")
    show(page, services, "/connectors/acted")
    dialog = open_dialog(page, "Verify tables")
    dialog.get_by_label("Reason").fill("somebody says that a row is wrong")
    run = run_action(page, dialog, "Verify tables", named=False, fate="failed")
    run.get_by_text("1 different").wait_for()
    assert "acted.acted.orders" in run.inner_text()
    page.screenshot(path=screenshot_folder / "action-compared.png")
    assert in_dialog(page, axe_script) == []
    run.get_by_role("link").click()  # to Airflow's own page of the run
    page.wait_for_url(re.compile(r"/dags/acted_tables/runs/cdc_verify"), wait_until="commit")
    page.get_by_text("work", exact=True).first.wait_for()
    show(page, services, "/connectors/acted")
    page.get_by_test_id("last-asked").get_by_text("1 different").wait_for()
    page.screenshot(path=screenshot_folder / "action-last.png")
    assert findings(page, axe_script) == []

    dialog = open_dialog(page, "Verify and repair")
    run = run_action(page, dialog, "Verify and repair", named=True, fate="failed")  # it did differ
    run.get_by_text(re.compile(r"signal \d+ was sent")).wait_for()  # others have sent some, too
    close_dialog(page, dialog)
    dialog = open_dialog(page, "Run now")
    run_action(page, dialog, "Run now", named=False, fate="done")
    close_dialog(page, dialog)
    assert applied_connector.rows() == [(1, "first"), (2, "second")]
    dialog = open_dialog(page, "Verify tables")
    run = run_action(page, dialog, "Verify tables", named=False, fate="done")
    run.get_by_text("Equal to the source: acted.acted.orders (2 rows).").wait_for()
    close_dialog(page, dialog)
    show(page, services, "/connectors/acted/tables")
    page.get_by_role("table", name="Tables").get_by_text("database acted_warehouse: equal").wait_for()
    show(page, services, "/connectors/acted/events")
    table = page.get_by_role("table", name="Requested on these pages")
    table.get_by_text("somebody says that a row is wrong").wait_for()
    rows = table.locator("tbody tr").all_inner_texts()
    assert [("failed" in row.lower(), "done" in row.lower(), "admin" in row) for row in rows[:4]] == [
        (False, True, True), (False, True, True), (True, False, True), (True, False, True)
    ]  # fmt: skip
    page.screenshot(path=screenshot_folder / "action-list.png")
    assert findings(page, axe_script) == []
    assert page.errors == []


def test_the_offset_is_edited_and_brought_back(
    page: Any, services: Services, applied_connector: AppliedConnector, screenshot_folder: Path, axe_script: str
) -> None:
    first = applied_connector.store.load_offset("acted")
    assert first.offset is not None
    assert first.offset.position is not None
    applied_connector.source.sql("INSERT INTO acted.orders VALUES (3, 'third')")
    show(page, services, "/connectors/acted/offsets")
    dialog = open_dialog(page, "Set the offset")
    field = dialog.get_by_label("Position in the source's log")
    assert json.loads(field.input_value()) == first.offset.position
    for text, message in (
        ("{", "The position is not valid JSON"),
        ('{"file": "<img>", "pos": 4}', "The position does not exist"),
        ('{"file": "nothing.000001", "pos": 4}', "the server has no file nothing.000001"),
    ):
        field.fill(text)
        dialog.get_by_role("button", name="Show the plan").click()
        dialog.get_by_text(message).first.wait_for()
        if dialog.get_by_role("button", name="Back", exact=True).count():
            page.screenshot(path=screenshot_folder / "dialog-obstacle.png")
            assert in_dialog(page, axe_script) == []
            dialog.get_by_role("button", name="Back", exact=True).click()
    end = applied_connector.source.sql("SHOW MASTER STATUS")[0]
    gtids = applied_connector.source.sql("SELECT @@GLOBAL.gtid_binlog_pos")[0][0]
    field.fill(json.dumps(first.offset.position | {"file": end[0], "pos": int(end[1]), "gtids": gtids}))
    dialog.get_by_label("Reason").fill("the third is not wanted")
    run = run_action(page, dialog, "Set the offset", named=True, fate="done")
    run.get_by_text("The offset was moved from").wait_for()
    assert dialog.get_by_text(re.compile("SKIPPED:")).count() == 1
    close_dialog(page, dialog)
    page.get_by_role("table", name="Offsets").get_by_text("the third is not wanted").wait_for()

    dialog = open_dialog(page, "Restore an earlier offset")
    dialog.get_by_label("Offset to restore").select_option(str(first.version))
    run_action(
        page, dialog, "Restore an earlier offset", named=True, fate="done", shot=screenshot_folder / "action-plan.png"
    )
    assert dialog.get_by_text(re.compile("REPEATED:")).count() == 1
    close_dialog(page, dialog)
    found = applied_connector.store.load_offset("acted").offset
    assert found is not None
    assert found.position == first.offset.position
    assert page.errors == []


@pytest.mark.parametrize("repair", ["incremental"])
def test_a_gap_is_repaired_from_its_report(
    page: Any,
    services: Services,
    applied_connector: AppliedConnector,
    screenshot_folder: Path,
    axe_script: str,
    repair: str,
) -> None:
    lose_log(applied_connector.store, "acted")
    show(page, services, "/connectors/acted/offsets")
    page.get_by_role("button", name="Check the log").click()
    report = page.get_by_test_id("gap")
    report.get_by_text("Lost: all changes committed after").wait_for()
    page.screenshot(path=screenshot_folder / "gap-ways.png", full_page=True)
    assert findings(page, axe_script) == []
    dialog = open_dialog(page, "Repair the gap by skip", scope=report)
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("LOST FOR GOOD").wait_for()
    page.screenshot(path=screenshot_folder / "dialog-repair-the-gap-plan.png")
    close_dialog(page, dialog)
    dialog = open_dialog(page, f"Repair the gap by {repair}", scope=report)
    dialog.get_by_label("Reason").fill("the log was purged")
    run = run_action(page, dialog, f"Repair the gap by {repair}", named=True, fate="done")
    run.get_by_text(f"Repaired by {repair}.").wait_for()
    page.screenshot(path=screenshot_folder / "action-repaired.png")
    assert in_dialog(page, axe_script) == []
    close_dialog(page, dialog)
    page.get_by_role("button", name="Check the log").click()
    page.get_by_text("No gap: the log contains").wait_for()
    assert "the log was purged" in applied_connector.store.offset_history("acted", 1)[0].reason
    assert page.errors == []
