"""First aid: what the pages for people on call promise is so, from the status and the alert to the page, and from there to the repair."""

from __future__ import annotations

import shlex

import pytest

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.error_texts import build_page_address
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState
from airflow_provider_cdc.services.dashboards.connector_alerts import find_alerts, format_alert
from dev import paths
from tests.cli.conftest import capture, run
from tests.support.docs.page_commands import list_commands
from tests.support.docs.shop_situations import Shop

ERRORS = sorted(page for page in (paths.ROOT / "docs" / "errors").glob("*.md") if page.stem != "index")


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
        alert = format_alert(find_alerts(record)[0])
        assert f"ago: {name}: It went wrong [RunFailed]" in alert
        assert alert.endswith(build_page_address(name))


def test_a_full_disk_is_freed_by_the_command_of_its_page(shop: Shop) -> None:
    page, on_call = (
        [one.text for one in list_commands(page)] for page in ("docs/errors/StorageFull.md", "docs/on-call.md")
    )
    command = next(text for text in page if "--now" in text and "shop" in text)
    assert command in on_call
    assert shop.change_log().list_batches("shop") == [1, 2, 3]
    run(*shlex.split(command)[2:])
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
