"""The commands that list connectors and offsets."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector


def test_connectors_that_never_ran_are_not_invented(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("connectors")
    assert capsys.readouterr().out == "No connector has run yet.\n"
    with pytest.raises(SystemExit, match="No connector 'shop' has run yet"):
        run("batches", "shop")


def test_connectors_and_offsets_show_how_a_connector_stands(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    clean(capsys)
    run("connectors", "-o", "json")
    (only,) = json.loads(capsys.readouterr().out)
    assert {k: only[k] for k in ("connector", "source", "position", "seq", "batch", "captured_by")} == {
        "connector": "shop", "source": "memory", "position": {"entry": 2}, "seq": 2, "batch": 1, "captured_by": None,
    }  # fmt: skip
    run("connectors")
    table = capsys.readouterr().out
    assert "shop" in table
    assert "0 s ago" in table or "1 s ago" in table
    run("offsets", "shop", "-o", "json")
    assert (
        json.loads(capsys.readouterr().out)
        == [{"connector": "shop", "position": {"entry": 2}, "seq": 2, "batch": 1, "tables_filter": ""}]
        or "tables_filter" not in only
    )
    run("offsets")
    assert "entry 2" in capsys.readouterr().out
