"""The way of someone who sees the pages for the first time: from the overview to the table, the cause and the repair, of four failures that are real."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.errors import CdcError, PositionLost, SourceUnavailable, StorageFull, UnreadableValue
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from dev import paths
from dev.airflow import Airflow, Services
from dev.demonstration.real_failures import RealFailures
from tests.system.conftest import PASSWORD, PLAIN
from tests.system.pages import findings, lose_log, show


class BrokenConnector(NamedTuple):
    """A connector that has failed.

    :param cause: what its page says, in part
    :param where: the table or the place that its page names
    :param repair: what its page says to do, in part
    """

    cause: str
    where: str
    repair: str


EXPECTED = {
    "position-lost": BrokenConnector("", "", "airflow cdc gap position-lost"),
    "ddl-refused": BrokenConnector("Rows of oncall.orders were written with an unknown table definition", "", "airflow cdc snapshot ddl-refused oncall.orders --type blocking --replace"),
    "disk-full": BrokenConnector("No space is left where the change log is written", "disk-full", "airflow cdc maintain disk-full --only retention --now"),
    "source-down": BrokenConnector("The database does not answer", "127.0.0.1:1", "check that the server is up"),
}  # fmt: skip


@contextmanager
def small_disk(room: int) -> Iterator[None]:
    """No file of this process may grow beyond a size: it fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def broken_store(inventory: Any, airflow: Airflow, services: Services) -> Iterator[StateStore]:
    url = f"sqlite:///{airflow.home}/airflow.db"
    store = StateStore(url)
    login = {"database.hostname": inventory.host, "database.port": inventory.port, "database.user": "reader", "database.password": PASSWORD, **PLAIN}  # fmt: skip

    def capture(name: str, number: int, secrets: dict[str, Any], fails: type[CdcError] | None = None) -> None:
        properties: dict[str, Any] = {"poll.interval.ms": 10}
        kind = "memory" if "memory.database" in secrets else "mariadb"
        if kind == "mariadb":
            properties |= {"database.server.id": 4790 + number, "table.include.list": r"oncall\..*"}
        definition = ConnectorDefinition(name, kind, f"{airflow.home}/cdc/{name}", properties)
        connections = {"source": "inventory_mariadb", "state": "cdc_state_default"}
        with open_capture(definition, url, secrets=secrets, connections=connections) as run:
            if fails is None:
                run.run()
                return
            with pytest.raises(fails):
                run.run()

    inventory.sql(
        "DROP DATABASE IF EXISTS oncall", "CREATE DATABASE oncall", "CREATE TABLE oncall.orders (id INT PRIMARY KEY, note TEXT)",
        "INSERT INTO oncall.orders VALUES (1, 'a')",
    )  # fmt: skip
    for number, name in enumerate(("position-lost", "ddl-refused", "source-down")):
        capture(name, number, login)
    lose_log(store, "position-lost")
    capture("position-lost", 0, login, PositionLost)
    inventory.sql(  # a new column, and a log that names none
        "SET GLOBAL binlog_row_metadata = NO_LOG", "ALTER TABLE oncall.orders ADD COLUMN more INT", "INSERT INTO oncall.orders VALUES (2, 'b', 3)",
        "SET GLOBAL binlog_row_metadata = FULL",
    )  # fmt: skip
    capture("ddl-refused", 1, login, UnreadableValue)
    capture("source-down", 2, login | {"database.hostname": "127.0.0.1", "database.port": 1}, SourceUnavailable)
    files = MemoryDatabase("oncall")
    files.create_table("shop.files", {"id": "int64", "content": "binary"}, key=("id",))
    with files.transaction() as t:
        for key in range(4):
            t.insert("shop.files", {"id": key, "content": os.urandom(16_000_000)})
    with small_disk(Path(f"{airflow.home}/airflow.db").stat().st_size + 16_000_000):
        capture("disk-full", 3, {"memory.database": "oncall"}, StorageFull)
    yield store
    store.close()
    inventory.sql("DROP DATABASE oncall")


def test_the_overview_has_all_of_them_at_the_top_with_what_to_do(
    page: Any, services: Services, broken_store: StateStore, axe_script: str
) -> None:
    show(page, services)
    rows = page.get_by_role("table", name="Connectors").locator("tbody tr")
    rows.first.wait_for()
    texts = rows.all_inner_texts()
    troubled = [n for n, text in enumerate(texts) if "needs attention" in text.lower()]
    assert troubled == list(range(len(troubled)))  # they come first
    for name, expected in EXPECTED.items():
        (row,) = [texts[n] for n in troubled if texts[n].startswith(name)]
        assert expected.repair in row
    (refused,) = [texts[n] for n in troubled if texts[n].startswith("ddl-refused")]
    assert refused.count("Rows of oncall.orders were written with an unknown table definition") == 1
    assert findings(page, axe_script) == []


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_from_there_it_is_one_click_to_the_table_the_cause_and_the_repair(
    page: Any, services: Services, broken_store: StateStore, axe_script: str, name: str
) -> None:
    expected = EXPECTED[name]
    show(page, services)
    page.get_by_role("link", name=name, exact=True).click()
    error = page.get_by_test_id("last-error")
    error.wait_for()
    text = error.inner_text()
    assert expected.cause in text
    assert expected.where in text
    assert expected.repair in text
    assert "Safe:" in text  # what was not lost is the first thing that someone wants to know
    assert findings(page, axe_script) == []
    if name == "position-lost":
        page.get_by_role("tab", name="Offsets", exact=True).click()
        report = page.get_by_test_id("gap")
        report.get_by_text("Lost: all changes committed after").wait_for()
        assert "--repair snapshot" in report.inner_text()


def test_the_page_for_anyone_who_is_on_call_shows_pictures_of_these_failures() -> None:
    text = (paths.ROOT / "docs" / "on-call.md").read_text()
    assert RealFailures.NAMES.keys() == EXPECTED.keys()
    for name in ("overview", *EXPECTED):
        assert f"(pictures/on-call-{name}.png)" in text
