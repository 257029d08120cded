"""The task that compares a relational database with the source, on a real change log and a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.verify_database import VerifyDatabaseOperator
from airflow_provider_cdc.services.dashboards.connector_page import tables_of
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    monkeypatch.setattr(
        airflow_connector, "SHOP", {"id": "int64!", "note": "string"}
    )  # what may be NULL cannot be looked up
    shop_connector = make_shop(monkeypatch, tmp_path, str(tmp_path))
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    for key in range(3):
        shop_connector.order(key, f"note {key}")
    capture(shop_connector)
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def apply(shop_connector: ShopConnector) -> None:
    ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse").execute(
        context()
    )


def verify(shop_connector: ShopConnector, **more: Any) -> dict[str, Any]:
    more.setdefault("wait", timedelta(0))
    task = VerifyDatabaseOperator(
        task_id="verify", definition=shop_connector.definition, source_conn_id="shop", conn_id="warehouse", **more
    )
    return task.execute(context())


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "warehouse.db") as connection:
        connection.execute(statement)
    connection.close()


def test_equal_tables_are_reported_with_their_rows_and_nothing_is_left(
    shop_connector: ShopConnector, tmp_path: Path
) -> None:
    apply(shop_connector)
    done = verify(shop_connector, keys=f"{tmp_path}/keys")
    assert done.pop("seconds") >= 0
    assert done == {
        "connector": "shop", "target": "database", "position": {"entry": 4}, "tables": {"shop.inventory.orders": 3}, "not_compared": {},
    }  # fmt: skip
    assert not list((tmp_path / "changelog" / ".verify").iterdir())
    assert not (tmp_path / "keys").exists()


def comparisons(shop_connector: ShopConnector) -> list[tuple[str, bool, int, int, int]]:
    """Return the last comparison as the page of tables shows it."""
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    (table,) = tables_of(shop_connector.store, record)
    assert [one.target for one in table.targets] in ([], ["database"])
    return [(one.target, one.equal, one.missing, one.surplus, one.different) for one in table.comparisons]


def test_tables_that_differ_fail_the_task_for_good_and_are_repaired(
    shop_connector: ShopConnector, tmp_path: Path
) -> None:
    apply(shop_connector)
    assert comparisons(shop_connector) == []
    change(tmp_path, "UPDATE shop_inventory_orders SET note = 'else' WHERE id = 1")
    change(tmp_path, "INSERT INTO shop_inventory_orders (id, note) VALUES (77, 'extra')")
    with pytest.raises(AirflowFailException, match=r"(?s)0 rows missing, 1 surplus, 1 different.*--repair"):
        verify(shop_connector)
    assert comparisons(shop_connector) == [("database", False, 0, 1, 1)]
    assert [
        name for name in shop_connector.store.metrics.load_rollups("shop") if name.startswith("verify")
    ] == []  # it is in no chart
    with pytest.raises(AirflowFailException, match=r"signal 1 was sent: a snapshot reads 2 keys again"):
        verify(shop_connector, repair=True)
    capture(shop_connector)
    apply(shop_connector)
    assert verify(shop_connector)["tables"] == {"shop.inventory.orders": 3}
    assert comparisons(shop_connector) == [("database", True, 0, 0, 0)]


def test_a_table_that_could_not_be_compared_has_the_task_tried_again(shop_connector: ShopConnector) -> None:
    with pytest.raises(AirflowException, match="nothing was applied yet") as caught:
        verify(shop_connector)
    assert not isinstance(caught.value, AirflowFailException)
    assert comparisons(shop_connector) == []


def test_a_folder_of_keys_that_is_not_empty_fails_for_good(shop_connector: ShopConnector, tmp_path: Path) -> None:
    apply(shop_connector)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "others").write_text("")
    with pytest.raises(AirflowFailException, match=r"The folder .*keys is not empty"):
        verify(shop_connector, keys=f"{tmp_path}/keys")


def test_a_sink_whose_rows_are_events_is_said(shop_connector: ShopConnector) -> None:
    apply(shop_connector)
    with pytest.raises(AirflowFailException, match=r"insert\.mode=insert: its rows are events"):
        verify(shop_connector, sink={"insert.mode": "insert"})
