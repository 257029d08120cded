"""Takes the pictures of pages that the documentation shows, at the end of the demonstration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.airflow import Services
from dev.bootstrap import browser
from dev.bootstrap.report import Step
from dev.demonstration.kit import Kit

_PAGE_MS = 60_000
_LISTED = "inventory"
"""The connection that the wizard shows."""


def take_pictures(services: Services, kit: Kit, folder: Path, step: Step) -> None:
    """Take the pictures of one connector: its charts, check and the plan of a snapshot, and the wizard.

    :param folder: gets a PNG file of each
    """
    with _open_pages(services, folder, step) as page:
        connector = f"{services.url}/plugin/cdc/connectors/{kit.connector}"
        for name, take in (("charts", _charts), ("check", _check), ("action-plan", _action_plan)):
            step.progress(name)
            page.goto(f"{connector}/{'charts' if name == 'action-plan' else name}", wait_until="domcontentloaded")
            take(page)
            page.screenshot(path=folder / f"{name}.png")
        step.progress("wizard")
        # pages list connections of the metadata database; that of the demonstration is in the environment
        services.json("POST", "/api/v2/connections", {"connection_id": _LISTED, **_with_text(kit.connection())})
        page.goto(f"{services.url}/plugin/cdc/new", wait_until="domcontentloaded")
        _wizard(page)
        page.screenshot(path=folder / "wizard.png", full_page=True)


def take_failure_pictures(services: Services, connectors: Mapping[str, str], folder: Path, step: Step) -> None:
    """Take the pictures of the overview and of connectors that have failed.

    :param connectors: name of a failure → connector
    :param folder: gets a PNG file of each
    """
    with _open_pages(services, folder, step) as page:
        page.goto(f"{services.url}/plugin/cdc/", wait_until="domcontentloaded")
        page.get_by_role("table", name="Connectors").locator("tbody tr").first.wait_for()
        page.screenshot(path=folder / "on-call-overview.png")
        for failure, connector in connectors.items():
            step.progress(failure)
            page.goto(f"{services.url}/plugin/cdc/connectors/{connector}", wait_until="domcontentloaded")
            page.get_by_test_id("last-error").wait_for()
            page.get_by_role("img", name="Events per second").wait_for()
            page.screenshot(path=folder / f"on-call-{failure}.png")


@contextmanager
def _open_pages(services: Services, folder: Path, step: Step) -> Iterator[Any]:
    """Open Airflow's UI in a browser, with ``admin`` logged in."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.ensure(step), args=list(browser.ARGUMENTS))
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
        page = context.new_page()
        page.set_default_timeout(_PAGE_MS)
        page.goto(f"{services.url}/", wait_until="domcontentloaded")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", services.password)
        page.click("button[type=submit]")
        page.wait_for_url(f"{services.url}/", wait_until="commit")
        yield page
        chromium.close()


def _with_text(connection: dict[str, Any]) -> dict[str, Any]:
    return {**connection, "extra": json.dumps(connection.get("extra") or {})}


def _charts(page: Any) -> None:
    page.get_by_role("img", name="Events per second").wait_for()
    page.get_by_role("table", name="Marked events").get_by_text("schema change", exact=True).first.wait_for()


def _check(page: Any) -> None:
    page.get_by_role("button", name="Check now").click()
    page.get_by_test_id("findings").wait_for()


def _action_plan(page: Any) -> None:
    page.get_by_role("button", name="Snapshot tables", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tables, or").fill("inventory.orders")
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("The plan:").wait_for()


def _wizard(page: Any) -> None:
    page.get_by_label("Connection", exact=True).select_option(_LISTED)
    page.get_by_role("button", name="Check, and list the tables").click()
    page.get_by_test_id("findings").wait_for()
    for table in ("inventory.customers", "inventory.orders"):
        page.get_by_role("group", name="Tables").get_by_text(table, exact=True).click()
    page.get_by_label("Name of the connector").fill("shop")
    page.get_by_label("Change log").fill("s3://lake/changelog")
    page.get_by_label("Target").select_option("none")
    page.get_by_role("button", name="Write the definition").click()
    page.get_by_test_id("definition").wait_for()
