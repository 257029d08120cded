"""The commands ``events`` and ``batches``."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector


def records(text: str) -> list[dict[str, Any]]:
    """The records among the lines: captures of this process log to the same place. A separate process prints only records."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_batches_are_listed_newest_first(shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]) -> None:
    capture(shop_connector)
    for key in (1, 2):
        shop_connector.order(key)
        capture(shop_connector)
    clean(capsys)
    run("batches", "shop", "-o", "json", "--limit", "2")
    assert [(b["batch"], b["events"]) for b in json.loads(capsys.readouterr().out)] == [(3, 1), (2, 1)]
    run("batches", "shop")
    assert "entry 3" in capsys.readouterr().out


def test_events_are_debezium_json_with_key_and_tombstone(shop_connector: ShopConnector, capfdbinary: Any) -> None:
    capture(shop_connector)
    shop_connector.order(1, "first")
    with shop_connector.database.transaction() as t:
        t.delete("inventory.orders", {"id": 1})
    capture(shop_connector)
    run("events", "shop", "--topic", "shop.inventory.orders")
    created, deleted, tombstone = records(capfdbinary.readouterr().out.decode())
    assert created["key"] == {"id": 1}
    assert created["value"]["op"] == "c"
    assert created["value"]["after"] == {"id": 1, "note": "first"}
    assert (deleted["value"]["op"], deleted["value"]["after"]) == ("d", None)
    assert tombstone == {"topic": "shop.inventory.orders", "key": {"id": 1}, "value": None}


def test_events_begin_and_end_at_the_given_batches(shop_connector: ShopConnector, capfdbinary: Any) -> None:
    capture(shop_connector)
    for key in range(1, 5):
        shop_connector.order(key)
        capture(shop_connector)
    run("events", "shop", "--from-batch", "3", "--limit", "2")
    assert [r["key"]["id"] for r in records(capfdbinary.readouterr().out.decode())] == [2, 3]


def test_events_follow_the_log_as_it_grows(shop_connector: ShopConnector, capfdbinary: Any) -> None:
    capture(shop_connector)
    following = threading.Thread(target=lambda: run("events", "shop", "--follow", "--from-batch", "2", "--limit", "2"))
    following.start()
    for key in (1, 2):
        shop_connector.order(key)
        capture(shop_connector)
    following.join(30)
    assert not following.is_alive()
    assert [r["key"]["id"] for r in records(capfdbinary.readouterr().out.decode())] == [1, 2]


def test_events_are_found_by_the_change_log_alone(
    shop_connector: ShopConnector, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    run("events", "shop", "--changelog", shop_connector.definition.changelog, "--topic", "shop.inventory.orders")
    assert [r["value"]["op"] for r in records(capfdbinary.readouterr().out.decode())] == ["r"]
    with pytest.raises(SystemExit, match="holds no connector 'ship'"):
        run("events", "ship", "--changelog", shop_connector.definition.changelog)


def test_events_take_a_form_that_the_source_has(shop_connector: ShopConnector, capfdbinary: Any) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    run("events", "shop", "--form", "debezium", "--topic", "shop.inventory.orders")
    assert [r["key"] for r in records(capfdbinary.readouterr().out.decode())] == [{"id": 1}]
    refusal = "form 'xstream'. Valid values are: debezium"
    with pytest.raises(SystemExit, match=refusal):
        run("events", "shop", "--form", "xstream")
    with pytest.raises(SystemExit, match=refusal):
        run("events", "shop", "--form", "xstream", "--changelog", shop_connector.definition.changelog)
