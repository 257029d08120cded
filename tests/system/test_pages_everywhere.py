"""Every page and tab that the UI has, each with an API that is slow, one that is broken, and one whose every text is as bad as can be: light, dark, narrow, by keyboard.

The places come from the sources of the UI: one that is new is tried as well, or fails here until it is said how it is reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from dev.airflow import Services
from dev.bootstrap import ui
from tests.system.answers import END, RouteAnswers
from tests.system.pages import findings, not_reached, show, sticks_out, too_long, turn_theme, wait_until_settled

NAME = '<img src=x onerror="window.hacked=1">\'\u202eevil' + "x" * 200
CONNECTOR = f"/connectors/{quote(NAME, safe='')}"
API = "**/cdc/api/**"
TABS = dict(re.findall(r'^  (\w+): "(.+)",$', (ui.SOURCES / "src" / "places.ts").read_text(), re.MULTILINE))
"""Place in the address → title."""


def places() -> list[str]:
    """Below the page's own address."""
    known = {
        "": [""],
        "new": ["/new"],
        "connectors/:connector/batches/:batch": [f"{CONNECTOR}/batches/2"],
        "connectors/:connector/:tab?": [f"{CONNECTOR}/{tab}" for tab in TABS],
    }
    routes = re.findall(r'<Route (?:index|path="([^"]*)")', (ui.SOURCES / "src" / "App.tsx").read_text())
    return [place for route in routes for place in known[route]]


def press_buttons(*names: str) -> Callable[[Any], None]:
    def press(page: Any) -> None:
        for name in names:
            page.get_by_role("button", name=name, exact=True).click()
            wait_until_settled(page)

    return press


def row(page: Any) -> None:
    page.get_by_label("Table", exact=True).fill("inventory.orders")
    page.get_by_label("Key: values").fill("1")
    page.get_by_role("button", name="Look up").click()
    page.get_by_test_id("story").wait_for()


def wizard(page: Any) -> None:
    page.get_by_label("Connection", exact=True).select_option(index=1)
    press_buttons("Check, and list the tables")(page)
    page.get_by_label("Name of the connector").fill("made")
    press_buttons("Write the definition")(page)
    page.get_by_test_id("definition").wait_for()


FURTHER = {
    "charts": press_buttons("As tables"), "check": press_buttons("Check now"), "offsets": press_buttons("Check the log"), "row": row, "new": wizard,
}  # fmt: skip
"""What a place shows only when someone asks for it."""
ASKS_NOTHING = {"check"}
"""Beside what all tabs of a connector ask: about itself, and what was asked for."""


def shown_by(place: str) -> str:
    return place.rpartition("/")[2]


class HeldRequests(list[Any]):
    """Requests that were not answered, except that about the connector itself."""

    broken = False

    def route(self, route: Any) -> None:
        if unquote(route.request.url).endswith(f"/connectors/{NAME}"):
            route.fulfill(json=RouteAnswers().to("GET", route.request.url))
        elif self.broken:
            route.fulfill(status=503, json=RouteAnswers().problem)
        else:
            self.append(route)

    def fail(self) -> None:
        """All of them fail, and those that come later, too."""
        self.broken = True
        for route in self:
            self.route(route)


@pytest.fixture
def held_requests(page: Any) -> Iterator[HeldRequests]:
    requests = HeldRequests()
    page.route(API, requests.route)
    yield requests
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", places())
def test_an_api_that_is_slow_and_then_broken_is_reported(
    page: Any, services: Services, axe_script: str, held_requests: HeldRequests, place: str
) -> None:
    show(page, services, place)
    if shown_by(place) in ASKS_NOTHING:
        page.get_by_role("tabpanel").wait_for()
        assert [one.request.url for one in held_requests if not one.request.url.endswith("/actions")] == []
        return
    if shown_by(place) == "row":  # its form is there at once
        page.get_by_role("button", name="Look up").wait_for()
    else:
        page.get_by_role("status").get_by_text("Loading").first.wait_for()
    for theme in ("dark", "light"):
        turn_theme(page, theme)
        assert findings(page, axe_script, loading=True) == [], theme
    while not held_requests:
        page.wait_for_timeout(50)
    held_requests.fail()
    page.get_by_test_id("failure").first.wait_for()
    for theme in ("dark", "light"):
        turn_theme(page, theme)
        assert findings(page, axe_script) == [], theme
    assert too_long(page) == []
    assert sticks_out(page) == []
    assert page.locator("[data-testid=cdc] img").count() == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", [*places(), "first use"])
def test_names_and_values_of_the_worst_kind_are_text_and_break_nothing(
    page: Any, services: Services, axe_script: str, screenshot_folder: Path, place: str
) -> None:
    def answer(route: Any) -> None:
        found = RouteAnswers().to(route.request.method, route.request.url)
        route.fulfill(json=found | {"total": 0} if place == "first use" and "total" in found else found)

    page.errors.clear()
    page.route(API, answer)
    show(page, services, "" if place == "first use" else place)
    wait_until_settled(page)
    FURTHER.get(shown_by(place), lambda page: None)(page)
    wait_until_settled(page)
    page.screenshot(path=screenshot_folder / f"worst-{shown_by(place)}.png")
    assert not_reached(page) == []
    for theme, width in (("light", 1280), ("dark", 800)):
        turn_theme(page, theme)
        page.set_viewport_size({"width": width, "height": 900})
        assert findings(page, axe_script) == [], theme
        assert sticks_out(page) == [], width
    assert too_long(page) == []
    more = page.locator("[data-testid=cdc] button[aria-expanded=false]").filter(has_text="Show all")
    if more.count():
        more.first.click()
        page.locator("[data-testid=cdc] bdi").filter(has_text=END).first.wait_for()
        assert sticks_out(page) == []
    else:
        assert page.locator("[data-testid=cdc] pre").count() > 0
    assert page.locator("[data-testid=cdc] img").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.errors == []
    turn_theme(page, "light")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.unroute_all(behavior="ignoreErrors")


def test_the_tabs_are_gone_through_by_keyboard(page: Any, services: Services) -> None:
    page.route(API, lambda route: route.fulfill(json=RouteAnswers().to(route.request.method, route.request.url)))
    show(page, services, f"{CONNECTOR}/{next(iter(TABS))}")
    page.get_by_role("tab", selected=True).focus()
    seen = []
    for place, title in TABS.items():
        page.get_by_role("tab", name=title, exact=True, selected=True).wait_for()
        page.wait_for_url(f"**/{place}")
        seen.append(title)
        page.keyboard.press("ArrowRight")
    assert [
        text.partition("\n")[0].strip() for text in page.get_by_role("tab").all_inner_texts()
    ] == seen  # some have a count
    page.unroute_all(behavior="ignoreErrors")
