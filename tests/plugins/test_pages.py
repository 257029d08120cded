"""The pages, from real state and a real change log. Who may see them: ``tests/system``."""

from __future__ import annotations

import html.parser
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.signal import SentSignal, SignalState
from airflow_provider_cdc.core.model.work import Work
from airflow_provider_cdc.core.spi.interfaces import DesiredState
from airflow_provider_cdc.core.spi.records import ConnectorRecord
from airflow_provider_cdc.hooks.connector import access_of, find_connector
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.plugins import pages
from airflow_provider_cdc.plugins.cdc_plugin import CdcPlugin
from tests.support.face import SHOP, Shop, context, make_shop


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    shop = make_shop(monkeypatch, tmp_path, "pages")
    yield shop
    shop.store.close()


def capture(shop: Shop) -> None:
    CaptureOperator(task_id="capture", definition=shop.definition, conn_id="shop").execute(context())


class Text(html.parser.HTMLParser):
    """What of a page people see, and its links; objects to tags that are not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)
        self.links += [str(v) for k, v in attrs if k == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(w for w in self.words if w)


def row(shop: Shop) -> ConnectorRecord:
    return find_connector(shop.store, "shop")


def test_without_connectors_the_page_says_so() -> None:
    assert "No connector has run yet." in Text(pages.connectors("/cdc", [])).text


def test_the_list_shows_position_batch_and_seq_and_links_to_the_details(shop: Shop) -> None:
    shop.order(1)
    capture(shop)
    seen = Text(pages.connectors("/cdc", shop.store.connectors()))
    for word in ("shop", "memory", "entry 2", "nobody now"):
        assert word in seen.text
    assert "/cdc/connectors/shop" in seen.links
    assert "/cdc/connectors/shop/batches/1" in seen.links


def test_a_connector_shows_its_batches_and_how_far_targets_are(shop: Shop) -> None:
    capture(shop)
    shop.order(1)
    capture(shop)
    reports = [
        {
            "target": "delta",
            "location": "/lake",
            "last_batch": 1,
            "failed": {"shop.t": "column <x>"},
            "lagging": {},
            "seconds": 1,
            "tables": {
                "shop.<b>": {
                    "events": 1234,
                    "rows_written": 1200,
                    "rows_deleted": None,
                    "bytes_written": 5678,
                    "files_written": 2,
                    "seconds": 0.25,
                    "ways": {"commit": 2, "merge": 1},
                    "freshness_s": 3.21,
                    "last_batch": 1,
                }
            },
        }
    ]
    seen = Text(pages.connector("/cdc", row(shop), shop.store.batches("shop"), reports, None))
    for word in ("1 batch behind", "shop.t: column <x>", "entry 2", "memory.database"):
        assert word in seen.text
    assert "Tables of the last apply to /lake (delta)" in seen.text
    assert "shop.<b> 1,234 1,200 5,678 2 0.2 s 2 commit, 1 merge 3.2 s 1" in seen.text
    assert {"/cdc/connectors/shop/batches/1", "/cdc/connectors/shop/batches/2"} <= set(seen.links)


def test_a_connector_shows_what_is_at_work_and_follows_it(shop: Shop) -> None:
    capture(shop)
    began = time.time()
    works = [
        Work(
            "Apply", "delta at <lake>", "tables", 12, 200, 0.5, 0.06, 240.0, "at work: shop.<b>", began - 30, began - 1
        )
    ]
    html = pages.connector("/cdc", row(shop), [], [], None, works=works)
    seen = Text(html)
    assert "At work" in seen.text
    assert (
        "Apply: 12 of 200 tables (6 %), 0.5 tables/s, about 4 min left; at work: shop.<b> delta at <lake> 30 s ago"
        in seen.text
    )
    assert "<progress max=1 value=0.060></progress>" in html
    assert 'http-equiv="refresh"' in html
    assert "At work" not in page(shop)


def page(shop: Shop) -> str:
    """The connector's page as the API server makes it."""
    signals, told = shop.store.signals_of("shop", 20), shop.store.notifications("shop", limit=20)
    return pages.connector("/cdc", row(shop), shop.store.batches("shop"), [], None, signals=signals, notifications=told)


def test_a_connector_shows_who_has_paused_it_and_why(shop: Shop) -> None:
    capture(shop)
    assert "unassigned" in Text(page(shop)).text
    shop.store.set_control("shop", DesiredState.PAUSED, "ann <b>", "upgrade & more")
    seen = Text(page(shop)).text
    assert "paused by ann <b>" in seen
    assert "upgrade & more" in seen
    assert "paused" in Text(pages.connectors("/cdc", shop.store.connectors())).text


def test_a_connector_shows_the_error_of_its_last_run(shop: Shop) -> None:
    capture(shop)
    shop.store.ended("shop", "the log is <gone>")
    seen = Text(page(shop)).text
    assert "failed" in seen
    assert "the log is <gone>" in seen
    with shop.store.lease("shop", "the next run", wait_s=0):
        seen = Text(page(shop)).text
        assert "running" in seen
        assert "the next run" in seen
        assert "<gone>" not in seen


def test_a_connector_shows_the_metrics_of_its_last_run(shop: Shop) -> None:
    shop.order(1)
    capture(shop)
    metrics = shop.store.connector("shop").metrics
    metrics["snapshot"]["RowsScanned"] = {"inventory.<b>": 12_345}
    shop.store.ended("shop", "the log is gone", metrics)
    seen = Text(page(shop)).text
    assert "Metrics of the last run: snapshot" in seen
    assert "RowsScanned inventory.<b>: 12,345" in seen
    assert "CapturedTables inventory.orders" in seen
    assert "SnapshotCompleted yes" in seen


def test_a_connector_shows_signals_with_their_states_and_progress(shop: Shop) -> None:
    capture(shop)
    number = shop.store.send("shop", SentSignal("a", "execute-snapshot", '{"x": "<i>"}', by="ann"))
    assert "received" in Text(page(shop)).text
    progress = {"left": 1, "table": "inventory.orders", "rows": 5000, "after": [250], "upto": [1000]}
    shop.store.set_signal_state("shop", number, SignalState.RUNNING, progress=progress)
    html = page(shop)
    assert "<progress max=1 value=0.250>" in html
    assert 'http-equiv="refresh"' in html  # the page follows what moves
    for word in (
        "execute-snapshot",
        '{"x": "<i>"}',
        "running",
        "1 table left, now inventory.orders, 5,000 rows",
        "ann",
    ):
        assert word in Text(html).text
    shop.store.set_signal_state("shop", number, SignalState.FAILED, "stopped by <b>ann</b>")
    html = page(shop)
    assert "stopped by <b>ann</b>" in Text(html).text
    assert "refresh" not in html


def test_a_connector_shows_its_newest_notifications(shop: Shop) -> None:
    capture(shop)
    seen = Text(page(shop))
    assert "Initial Snapshot COMPLETED data_collections: inventory.orders" in seen.text


def test_a_change_log_that_cannot_be_read_does_not_hide_the_state(shop: Shop) -> None:
    capture(shop)
    seen = Text(pages.connector("/cdc", row(shop), shop.store.batches("shop"), [], "no route to <storage>"))
    assert "no route to <storage>" in seen.text
    assert "entry 1" in seen.text


def test_a_batch_shows_its_manifest(shop: Shop) -> None:
    capture(shop)
    shop.order(1)
    capture(shop)
    access = access_of(row(shop))
    assert access is not None
    second, first = shop.store.batches("shop")
    manifest = access.changelog().manifest("shop", 2)
    seen = Text(pages.batch("/cdc", second, first, manifest, None, last=2))
    for word in ("Batch 2 of shop", "shop.inventory.orders", "entry 1", "entry 2", "c 1", ".parquet", "2 to 2"):
        assert word in seen.text
    assert "/cdc/connectors/shop/batches/1" in seen.links
    assert "/cdc/connectors/shop/batches/3" not in seen.links


def test_names_from_the_database_cannot_put_tags_into_a_page(shop: Shop) -> None:
    shop.database.create_table("inventory.<script>alert(1)</script>", SHOP, key=("id",))
    capture(shop)
    access = access_of(row(shop))
    assert access is not None
    (only,) = shop.store.batches("shop")
    page = Text(pages.batch("/cdc/<b>", only, None, access.changelog().manifest("shop", 1), None, last=1))
    assert "script" not in page.tags
    assert "b" not in page.tags


def test_the_plugin_loads_its_pages_only_when_they_are_asked_for() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from airflow_provider_cdc.plugins.cdc_plugin import CdcPlugin; plugin = CdcPlugin();"
        "plugin.external_views; print('airflow_provider_cdc.plugins.app' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
    assert CdcPlugin().fastapi_apps[0]["url_prefix"] == "/cdc"
