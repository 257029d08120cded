"""The pages in a real Chromium, when something changes while someone looks: others act, connectors go, answers are late, more is there than is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Airflow, Services
from tests.system.pages import press_action, show

NAME = "meanwhile"
PLACE = f"/connectors/{NAME}"
API = "/cdc/api/v1"


@pytest.fixture(scope="module", autouse=True)
def store(airflow: Airflow, services: Services) -> Iterator[StateStore]:
    """With a connector of two tables, whose DAG Airflow does not know, and ``tagged``, whose DAG is one of the examples."""
    url = f"sqlite:///{airflow.home}/airflow.db"
    store, database = StateStore(url), MemoryDatabase(NAME)
    services.json("POST", "/api/v2/connections", {"connection_id": NAME, "conn_type": "cdc_memory", "host": NAME})
    for table in ("orders", "lines"):
        database.create_table(f"inventory.{table}", {"id": "int64"}, key=("id",))
    definition = ConnectorDefinition(
        NAME, "memory", f"{airflow.home}/cdc/meanwhile", {"memory.database": NAME, "poll.interval.ms": 10}
    )
    with open_capture(definition, url, connections={"source": NAME, "state": "cdc_state_default"}) as run:
        run.run()
    dag = "inventory_maintain_tables"
    store.register_connector(ConnectorRegistration("tagged", "memory", f"{airflow.home}/cdc/none", connections={"source": "none", "dag": dag}))  # fmt: skip
    services.until(
        lambda: any(one["dag_id"] == dag for one in services.json("GET", "/api/v2/dags?limit=100")["dags"]),
        180,
        "the examples are parsed",
    )
    yield store
    store.close()


@pytest.fixture(autouse=True)
def as_it_was(page: Any, store: StateStore) -> Iterator[None]:
    page.errors.clear()
    yield
    page.unroute_all(behavior="ignoreErrors")
    store.set_control(NAME, DesiredState.RUNNING, "test")
    assert page.errors == []


def wait_for_button(page: Any, button: str) -> None:
    """Wait until the page behind a dialog has a button: dialogs hide it from who cannot see."""
    page.locator("[data-testid=cdc] button").filter(has_text=re.compile(f"^{button}$")).wait_for(state="attached")


def hold_requests(page: Any, route: str) -> list[Any]:
    """Requests that are not answered."""
    found: list[Any] = []
    page.route(route, lambda one: found.append(one))  # Playwright marks what it is given
    return found


def one_is_held(page: Any, found: list[Any], number: int = 1) -> Any:
    while len(found) < number:
        page.wait_for_timeout(50)
    return found[number - 1]


def open_dialog(page: Any, button: str) -> Any:
    press_action(page, button)
    dialog = page.get_by_test_id("action")
    dialog.get_by_role("button", name="Show the plan").wait_for()
    return dialog


# -- actions ------------------------------------------------------------------------------------------------------------


def test_what_others_do_meanwhile_takes_no_dialog_away_and_makes_its_plan_old(
    page: Any, services: Services, store: StateStore
) -> None:
    show(page, services, PLACE)
    dialog = open_dialog(page, "Pause")
    dialog.get_by_label("Reason").fill("upgrade")
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("The plan:").wait_for()
    store.set_control(NAME, DesiredState.STOPPED, "bob")
    wait_for_button(page, "Resume")  # there is no button for a pause any more
    dialog.get_by_role("button", name="Pause", exact=True).click()
    dialog.get_by_text("have changed since the plan was made").wait_for()
    assert store.load_control(NAME).by == "bob"
    dialog.get_by_role("button", name="Back", exact=True).click()
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("The plan:").wait_for()
    dialog.get_by_role("button", name="Pause", exact=True).click()
    dialog.get_by_text("Done.").wait_for()
    assert (store.load_control(NAME).desired_state, store.load_control(NAME).reason) == ("paused", "upgrade")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.wait_for_function("document.activeElement.tagName === 'H1'")  # its button is gone
    dialog = open_dialog(page, "Snapshot tables")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.wait_for_function("document.activeElement.textContent === 'Snapshot tables'")


def test_what_is_done_is_what_the_plan_was_about_whatever_is_typed_meanwhile(
    page: Any, services: Services, store: StateStore
) -> None:
    show(page, services, PLACE)
    dialog = open_dialog(page, "Snapshot tables")
    field = dialog.get_by_label("Tables, or")
    field.fill("inventory.orders")
    requests = hold_requests(page, "**/actions/snapshot?**")
    dialog.get_by_role("button", name="Show the plan").click()
    request = one_is_held(page, requests)
    field.fill("inventory.lines")
    request.continue_()
    page.unroute_all(behavior="ignoreErrors")
    dialog.get_by_text("1 table is snapshotted again, in chunks beside the stream: inventory.orders.").wait_for()
    dialog.get_by_label("To confirm").fill(NAME)
    requests = hold_requests(page, "**/actions/snapshot?**")
    dialog.get_by_role("button", name="Snapshot tables").click()
    request = one_is_held(page, requests)
    page.keyboard.press("Escape")  # what becomes of it would be seen by no one
    assert dialog.get_by_role("button", name="Cancel").is_disabled()
    request.continue_()
    page.unroute_all(behavior="ignoreErrors")
    dialog.get_by_text("Done: signal").wait_for()
    (signal,) = store.signals_of(NAME)
    assert json.loads(signal.data or "")["data-collections"] == ["inventory.orders"]
    page.keyboard.press("Escape")


def test_what_does_not_fit_is_reported_in_words(page: Any, services: Services) -> None:
    show(page, services, PLACE)
    dialog = open_dialog(page, "Stop")
    dialog.get_by_label("Reason").fill("x" * 2001)
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_text("reason: String should have at most 2000 characters", exact=True).wait_for()


# -- what is shown ------------------------------------------------------------------------------------------------------


def test_a_connector_that_is_gone_or_may_not_be_seen_any_more_is_not_shown_any_longer(
    page: Any, services: Services
) -> None:
    show(page, services, PLACE)
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    gone = {"detail": "No connector has run yet.", "error": None}
    page.route(f"**{API}{PLACE}", lambda route: route.fulfill(status=404, json=gone))
    page.get_by_text("No connector has run yet.").wait_for()
    page.get_by_role("button", name="Pause", exact=True).wait_for(state="detached")
    assert page.get_by_role("tab").count() == 0


def test_an_answer_to_an_earlier_question_is_not_waited_for(page: Any, services: Services) -> None:
    """A tab that is seen again asks at once; what was asked before would be answered with what was then."""
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    requests = hold_requests(page, f"**{API}/connectors")
    show(page, services)
    first = one_is_held(page, requests)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    second = one_is_held(page, requests, 2)
    while first.request.url not in failed:
        page.wait_for_timeout(50)
    second.continue_()
    page.unroute_all(behavior="ignoreErrors")
    page.get_by_role("link", name=NAME, exact=True).wait_for()


def test_links_lead_there_and_back_and_a_tab_that_there_is_not_is_the_first_one(page: Any, services: Services) -> None:
    show(page, services)
    page.get_by_role("link", name=NAME, exact=True).click()
    page.get_by_role("tab", name="Batches", exact=True).click()
    page.wait_for_url(f"**{PLACE}/batches")
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("heading", name="Batch 1").wait_for()
    page.get_by_role("table", name="Files").or_(page.get_by_text("The batch has no events")).wait_for()
    page.get_by_role("link", name=NAME, exact=True).click()
    page.get_by_role("tab", name="Batches", exact=True, selected=True).wait_for()
    show(page, services, f"{PLACE}/nothing-of-the-kind")
    page.get_by_role("tab", name="Charts", exact=True, selected=True).wait_for()


def test_the_overview_is_filtered_by_a_tag_also_when_no_connector_has_it_any_more(
    page: Any, services: Services
) -> None:
    def row(name: str) -> Any:
        return rows.filter(has=page.get_by_role("link", name=name, exact=True))

    show(page, services)
    rows = page.get_by_role("table", name="Connectors").locator("tbody tr")
    row("tagged").wait_for()
    row(NAME).wait_for()
    page.get_by_label("Tag", exact=True).select_option("cdc")
    page.wait_for_url("**?tag=cdc")
    row(NAME).wait_for(state="detached")
    assert all("cdc" in text.partition("Tags:")[2] for text in rows.all_inner_texts())
    assert row("tagged").count() == 1
    show(page, services, "?tag=nightly&state=failed&source=none")
    page.get_by_text("No connector matches.").wait_for()
    shown = {
        name: page.get_by_label(name, exact=True).evaluate("e => e.selectedOptions[0].text")
        for name in ("Tag", "Source")
    }
    assert shown == {"Tag": "nightly (none)", "Source": "none (none)"}
    assert page.get_by_label("State", exact=True).input_value() == "failed"
    for name in ("Tag", "State", "Source"):
        page.get_by_label(name, exact=True).select_option("")
    row(NAME).wait_for()


def test_older_entries_and_further_tables_are_there_for_who_wants_them(
    page: Any, services: Services, store: StateStore
) -> None:
    for n in range(60):
        store.send("tagged", SentSignal(f"s{n}", "log", "{}"))
    show(page, services, "/connectors/tagged/signals")
    rows = page.get_by_role("table", name="Signals").locator("tbody tr")
    page.get_by_text("The newest 50 are shown.").wait_for()
    assert rows.count() == 50
    page.get_by_role("button", name="Show older entries").click()
    page.get_by_text("The newest 50 are shown.").wait_for(state="detached")
    assert rows.count() == 60
    one = services.json("GET", f"{API}{PLACE}/tables")["tables"][0]
    tables = [one | {"table": f"inventory.t{n:03}"} for n in range(350)]
    page.route(f"**{API}/**/tables", lambda route: route.fulfill(json={"tables": tables}))
    show(page, services, f"{PLACE}/tables")
    page.get_by_text("And 50 more: search for them.").wait_for()
    page.get_by_label("Search tables").fill("T349")
    page.get_by_text("And 50 more").wait_for(state="detached")
    assert page.get_by_role("table", name="Tables").locator("tbody tr").count() == 1


def test_sizes_and_long_numbers_are_shown_as_they_are(page: Any, services: Services) -> None:
    (one,) = services.json("GET", f"{API}{PLACE}/batches?limit=1")
    answer = json.dumps([one | {"bytes": 999_950, "position": {"scn": 2**63 - 1, "text": '"9007199254740993,'}}])
    page.route("**/batches?**", lambda route: route.fulfill(body=answer, content_type="application/json"))
    show(page, services, f"{PLACE}/batches")
    row = page.get_by_role("table", name="Batches").locator("tbody tr").first
    row.wait_for()
    assert "1.00 MB" in row.inner_text()
    assert 'scn 9223372036854775807, text "9007199254740993,' in row.inner_text()


def test_a_computer_whose_clock_is_wrong_reports_no_other_time(page: Any, services: Services) -> None:
    """The server's clock is said to be two hours behind: everything has happened in two hours, if the moments are its own."""

    def two_hours_behind(route: Any) -> None:
        answer = route.fetch()
        then = datetime.now(UTC) - timedelta(hours=2)
        route.fulfill(response=answer, headers=answer.headers | {"date": format_datetime(then, usegmt=True)})

    page.route(f"**{API}/**", two_hours_behind)
    show(page, services, f"{PLACE}/batches")
    row = page.get_by_role("table", name="Batches").locator("tbody tr").first
    row.get_by_text(re.compile(r"^in (\d+ min|2 h 0 min)$")).wait_for()


def test_what_the_wizard_has_written_says_when_something_else_was_chosen_since(page: Any, services: Services) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(page, services, "/new")
    page.get_by_label("Id of the connection").fill("shop")
    page.get_by_label("Name of the connector").fill("shop")
    page.get_by_role("button", name="Write the definition").click()
    shown = page.get_by_test_id("definition")
    shown.get_by_role("button", name="Copy: the definition").click()
    shown.get_by_role("button", name="Copied: the definition").wait_for()
    shown.get_by_role("button", name="YAML").click()
    shown.get_by_role("button", name="Copy: the definition").wait_for()  # of this form, nothing was copied yet
    assert page.get_by_test_id("stale").count() == 0
    page.get_by_label("Name of the connector").fill("shop2")
    page.get_by_test_id("stale").wait_for()
    page.get_by_role("button", name="Write the definition").click()
    page.get_by_test_id("stale").wait_for(state="detached")
    assert "shop2" in shown.locator("pre").inner_text()
