"""What tests of the pages share: where they are shown, what axe-core finds in them, and how they are photographed."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.state.store import StateStore
from dev.airflow import Services


def show(page: Any, services: Services, path: str = "") -> Any:
    page.goto(f"{services.url}/plugin/cdc{path}", wait_until="domcontentloaded")
    found = page.get_by_test_id("cdc")
    found.wait_for()
    return found


PAGE = "[data-testid=cdc]"


def settled(page: Any, within: str = PAGE) -> None:
    """Wait until our part of the page awaits no answer, and nothing of it moves any more.

    :param within: a selector
    """
    page.wait_for_function(
        """within => {
            const root = document.querySelector(within);
            const moves = root.getAnimations({subtree: true}).some(one => one.playState === 'running');
            return !moves && !root.querySelector('[role=status], .chakra-spinner');
        }""",
        arg=within,
    )


def findings(page: Any, axe: str, *, loading: bool = False, within: str = PAGE) -> list[str]:
    """What axe-core finds in our part of the page that is serious.

    :param loading: look while answers are awaited
    :param within: a selector; dialogs are beside the page
    """
    if not loading:
        settled(page, within)
    if not page.evaluate("typeof window.axe !== 'undefined'"):
        page.evaluate(axe)
    found = page.evaluate("async within => (await axe.run(within)).violations", within)
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]  # fmt: skip


def themed(page: Any, services: Services, theme: str) -> None:
    """Airflow keeps the theme where its own switch does."""
    page.evaluate(f"localStorage.setItem('theme', '{theme}')")
    page.reload(wait_until="domcontentloaded")
    page.get_by_test_id("cdc").wait_for()
    page.locator(f"html.{theme}").wait_for(state="attached")


def lose(store: StateStore, name: str) -> None:
    """Let a connector stand in a file of the log that is not there any more."""
    with store.lease(name, "a test", wait_s=0) as lease:
        stored = store.load(name)
        assert stored.offset is not None
        assert stored.offset.position is not None
        position = {k: v for k, v in stored.offset.position.items() if k != "gtids"}
        name_, _, number = position["file"].rpartition(".")
        position["file"] = f"{name_}.{0:0{len(number)}d}"
        store.replace_offset(lease, stored, stored.offset.moved(position), "a test")
