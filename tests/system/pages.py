"""Helpers of the tests of pages: to show them, to check them with axe-core, and to photograph them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Services


def show(page: Any, services: Services, path: str = "") -> Any:
    page.goto(f"{services.url}/plugin/cdc{path}", wait_until="domcontentloaded")
    found = page.get_by_test_id("cdc")
    found.wait_for()
    return found


def press_action(page: Any, title: str) -> None:
    """Press the button of an action, or choose it in the menu of those that people use seldom."""
    button = page.get_by_test_id("cdc").get_by_role("button", name=title, exact=True)
    menu = page.get_by_role("button", name="More actions", exact=True)
    button.or_(menu).first.wait_for()
    if button.count():
        button.click()
    else:
        menu.click()
        page.get_by_role("menuitem", name=title, exact=True).click()


PAGE = "[data-testid=cdc]"


LOOKED_AT = """async within => {
    const awaits = '[role=status], .chakra-spinner', root = document.querySelector(within);
    let waits = root.querySelector(awaits) !== null;
    const watched = new MutationObserver(() => { waits = waits || root.querySelector(awaits) !== null; });
    watched.observe(root, {subtree: true, childList: true, attributes: true, attributeFilter: ['role', 'class']});
    const {violations} = await axe.run(within);
    watched.disconnect();
    return {violations, waits: waits || !root.isConnected || root.querySelector(awaits) !== null};
}"""
"""What axe-core finds, and whether an answer was awaited meanwhile, or another page has come."""


def wait_until_settled(page: Any, within: str = PAGE) -> None:
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
    """Return the serious findings of axe-core in our part of the page.

    :param loading: look while answers are awaited
    :param within: a selector; dialogs are beside the page
    """
    if not loading:
        wait_until_settled(page, within)
    if not page.evaluate("typeof window.axe !== 'undefined'"):
        page.evaluate(axe)
    while (found := page.evaluate(LOOKED_AT, within))["waits"] and not loading:
        wait_until_settled(
            page, within
        )  # it has asked for something since, and axe has met what stands there until the answer comes
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"] if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]  # fmt: skip


def set_theme(page: Any, services: Services, theme: str) -> None:
    """Airflow keeps the theme where its own switch does."""
    page.evaluate(f"localStorage.setItem('theme', '{theme}')")
    page.reload(wait_until="domcontentloaded")
    page.get_by_test_id("cdc").wait_for()
    page.locator(f"html.{theme}").wait_for(state="attached")


def turn_theme(page: Any, theme: str) -> None:
    """The theme of a page that stays as it is: Airflow follows when its switch is used in another tab. Colours are there at once."""
    page.add_style_tag(content="*, *::before, *::after { transition: none !important }")
    page.evaluate(
        """theme => {
            localStorage.setItem('theme', theme);
            window.dispatchEvent(new StorageEvent('storage', {key: 'theme', newValue: theme, storageArea: localStorage}));
        }""",
        theme,
    )
    page.locator(f"html.{theme}").wait_for(state="attached")


def fits_width(page: Any, width: int = 800) -> bool:
    """Check whether the page is no wider than a narrow window, as soon as it is drawn again."""
    page.set_viewport_size({"width": width, "height": 900})
    found = _in_a_moment(page, lambda: page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
    page.set_viewport_size({"width": 1280, "height": 900})
    return found


def _in_a_moment(page: Any, true: Callable[[], Any]) -> bool:
    """Charts are drawn again a moment after the window has got another width."""
    for _ in range(150):
        if true():
            return True
        page.wait_for_timeout(100)
    return False


def sticks_out(page: Any) -> list[str]:
    """Return the elements that stay wider than our part of the page or the window, and do not scroll by themselves."""
    return [] if _in_a_moment(page, lambda: not _sticks_out(page)) else _sticks_out(page)


def _sticks_out(page: Any) -> list[str]:
    return list(
        page.evaluate(
            """() => {
                const root = document.querySelector('[data-testid=cdc]');
                const edge = Math.min(root.getBoundingClientRect().right, window.innerWidth) + 1;
                const scrolls = one => one !== root && (['auto', 'scroll'].includes(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
                const wide = one => !one.matches('option') && one.getClientRects().length > 0 && one.getBoundingClientRect().right > edge && !scrolls(one.parentElement);
                const found = [...root.querySelectorAll('*')].filter(wide).map(one => one.outerHTML.slice(0, 200));
                return document.documentElement.scrollWidth > window.innerWidth ? ['the whole page', ...found.slice(0, 5)] : found.slice(0, 5);
            }"""
        )
    )


def too_long(page: Any, most: int = 2500) -> list[str]:
    """Texts that are shown at a length that no one reads; what is there to be copied has a box that scrolls."""
    return list(
        page.evaluate(
            """most => {
                const walker = document.createTreeWalker(document.querySelector('[data-testid=cdc]'), NodeFilter.SHOW_TEXT);
                const found = [];
                while (walker.nextNode()) {
                    const node = walker.currentNode;
                    if (node.data.length > most && !node.parentElement.closest('pre, textarea')) {
                        found.push(node.parentElement.outerHTML.slice(0, 200));
                    }
                }
                return found;
            }""",
            most,
        )
    )


def not_reached(page: Any) -> list[str]:
    """Return the elements that can be used with a mouse and are not reached by the tabulator."""
    expected = page.evaluate(
        """() => {
            const root = document.querySelector('[data-testid=cdc]');
            const usable = one => !one.disabled && one.getClientRects().length > 0 && !(one.matches('[role=tab]') && one.ariaSelected !== 'true') && !(one.type === 'radio' && !one.checked);
            const all = [...root.querySelectorAll('a[href], button, input, select, textarea')].filter(usable);
            all.forEach((one, n) => one.setAttribute('data-nth', n));
            root.tabIndex = -1;
            root.focus();
            return all.map(one => one.outerHTML.slice(0, 160));
        }"""
    )
    reached: set[int] = set()
    for _ in range(len(expected) + 40):  # regions that scroll are reached, too
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.getAttribute('data-nth')")
        if at is not None:
            reached.add(int(at))
        if len(reached) == len(expected):
            break
    return [what for n, what in enumerate(expected) if n not in reached]


def lose_log(store: StateStore, name: str) -> None:
    """Let a connector stand in a file of the log that is not there any more."""
    with store.acquire_lease(name, "a test", wait_s=0) as lease:
        stored = store.load_offset(name)
        assert stored.offset is not None
        assert stored.offset.position is not None
        position = {k: v for k, v in stored.offset.position.items() if k != "gtids"}
        name_, _, number = position["file"].rpartition(".")
        position["file"] = f"{name_}.{0:0{len(number)}d}"
        store.replace_offset(lease, stored, stored.offset.move_position(position), "a test")
