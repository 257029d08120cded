"""First aid: each command on the pages for people on call is run, in the situation that its page is about.

The connector is one on a memory database, with a table of a SQLite database as its target. Errors that take a database of their own to provoke are recorded
as a run records them.
"""

from __future__ import annotations

import functools
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.error_texts import build_page_address, describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, state_of
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import format_alerts
from dev import paths
from tests.cli.conftest import capture, clean, run
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop

DOCS = paths.ROOT / "docs"
ERRORS = sorted(page for page in (DOCS / "errors").glob("*.md") if page.stem != "index")
PAGES = [DOCS / "on-call.md", *ERRORS, *sorted((DOCS / "alerts").glob("*.md"))]
COMMAND = re.compile(r"airflow cdc ([a-z][^`\n#\[]*)")
NAMES = {"forget-target", "rebuild", "setup", "state copy", "state migrate", "status"}
"""Commands that pages also name without what they need; other tests run them."""
PLACE = "/lake/{table}"


@dataclass
class Shop:
    """A connector whose changes are in the table ``orders`` of a SQLite database."""

    connector: ShopConnector
    folder: Path

    def change_log(self) -> ChangeLog:
        return ChangeLog(self.connector.definition.changelog)

    def capture(self, key: int) -> None:
        with self.connector.database.transaction() as t:
            t.insert("shop.orders", {"id": key, "note": f"note {key}"})
        capture(self.connector)

    def apply(self) -> None:
        operator = ApplyToDatabaseOperator(
            task_id="apply",
            definition=self.connector.definition,
            conn_id="warehouse",
            sink={"collection.name.format": "orders"},
        )
        operator.execute(context())

    def fail(self, error: CdcError) -> None:
        """Record the end of a run as a failed run does."""
        self.connector.store.record_run_end("shop", describe_error(error))

    def lose_position(self) -> None:
        with self.connector.database.transaction() as t:
            t.update("shop.orders", {"id": 8}, {"note": "lost"})
        self.connector.database.purge_log()
        with pytest.raises(Exception, match=r"^PositionLost: "):
            CaptureOperator(task_id="capture", definition=self.connector.definition, conn_id="shop").execute(context())

        record = self.connector.store.find_connector("shop")
        assert record is not None
        assert (record.last_error or "").startswith("PositionLost: ")

    def change_by_hand(self) -> None:
        with sqlite3.connect(self.folder / "warehouse.db") as connection:
            connection.execute("DELETE FROM orders WHERE id = 7")
        connection.close()

    def find_state(self) -> ConnectorState:
        record = self.connector.store.find_connector("shop")
        assert record is not None
        return state_of(record)[0]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shop]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    monkeypatch.setattr(airflow_connector, "SHOP", {"id": "int64!", "note": "string"})
    connector = make_shop(monkeypatch, tmp_path, str(tmp_path))
    connector.database.create_table("shop.orders", airflow_connector.SHOP, key=("id",))
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    connector.definition.properties["table.include.list"] = "shop.orders"
    made = Shop(connector, tmp_path)
    for key in (7, 8, 9):
        made.capture(key)
    made.apply()
    clean(capsys)
    yield made
    connector.store.close()


def _commands(page: Path) -> list[str]:
    """Commands of a page with their arguments, each once, in their order."""
    texts = (match[1].partition("; page: ")[0].strip() for match in COMMAND.finditer(page.read_text()))
    found = (text.replace("--conn-id …", "--conn-id shop").replace("CONNECTOR", "shop") for text in texts)
    return list(dict.fromkeys(command for command in found if command not in NAMES))


def _meet(page: Path, shop: Shop) -> None:
    """Bring the connector into the situation of a page."""
    situations: dict[str, Callable[[], None]] = {
        "PositionLost": shop.lose_position,
        "ConnectorHalted": functools.partial(run, "pause", "shop", "--reason", "upgrade"),
        "TargetError": shop.change_by_hand,
    }
    error = getattr(errors, page.stem, None)
    situation = situations.get(page.stem)
    if error is not None and page.stem != "ConnectorHalted":
        shop.fail(error("It went wrong.", remedy="as the page says"))
    if situation is not None:
        situation()


EXPECTED = {
    ("PositionLost", "gap shop"): 1,
    ("TargetError", r"verify shop --tables 'shop\.orders' --repair"): 1,
    ("on-call", "row shop.orders 7"): "NotGranted: Rows of shop cannot be shown",
}
"""Page and command → its exit status, or the error it ends with; of all others 0, and 1 of the status of a connector that has failed."""


@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=lambda page: page.stem)
def test_first_aid_of_a_page_does_what_it_says(page: Path, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for command in _commands(page):
        _meet(page, shop)
        clean(capsys)
        failed = command == "status shop" and shop.find_state() is ConnectorState.FAILED
        expected = EXPECTED.get((page.stem, command), int(failed))
        status: int | str | None = 0
        try:
            run(*shlex.split(command))
        except SystemExit as e:
            status = e.code
        if isinstance(expected, str):
            assert str(status).startswith(expected), command
        else:
            assert status == expected, (command, capsys.readouterr())


def test_no_page_of_first_aid_is_without_commands_by_mistake() -> None:
    assert sum(len(_commands(page)) for page in PAGES) > 40
    known = {page.stem for page in PAGES}
    assert {name for name, _ in EXPECTED} <= known
    assert all(command in _commands(next(p for p in PAGES if p.stem == name)) for name, command in EXPECTED)


def test_each_error_leads_from_status_and_alert_to_its_page(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for page in ERRORS:
        name = page.stem
        shop.fail(getattr(errors, name)("It went wrong.", remedy="airflow cdc gap shop"))
        with pytest.raises(SystemExit, match="1"):
            run("status", "shop")
        output = capsys.readouterr().out
        assert f"ago: {name}: It went wrong.\n" in output
        assert f"  Page:   {build_page_address(name)}\n" in output
        assert (paths.ROOT / build_page_address(name)) == page
        record = shop.connector.store.find_connector("shop")
        assert record is not None
        alert, *_ = format_alerts([record], [], now=datetime.now(UTC))
        assert f"ago: {name}: It went wrong [RunFailed]" in alert
        assert alert.endswith(build_page_address(name))


def test_a_full_disk_is_freed_by_the_command_of_its_page(shop: Shop) -> None:
    command = next(one for one in _commands(DOCS / "errors" / "StorageFull.md") if "--now" in one and "shop" in one)
    assert command in _commands(DOCS / "on-call.md")
    assert shop.change_log().list_batches("shop") == [1, 2, 3]
    run(*shlex.split(command))
    assert shop.change_log().list_batches("shop") == [3]
    shop.capture(10)
    shop.apply()
    assert shop.find_state() is ConnectorState.UNASSIGNED


def test_a_wrong_row_is_repaired_by_the_command_of_its_page(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.change_by_hand()
    with pytest.raises(SystemExit):
        run("verify", "shop", "--tables", r"shop\.orders", "--repair")
    capture(shop.connector)
    shop.apply()
    run("verify", "shop", "--tables", r"shop\.orders")


def test_rows_are_shown_where_the_configuration_names_the_connector(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    run("row", "shop.orders", "7")
    assert 'note="note 7"' in capsys.readouterr().out
