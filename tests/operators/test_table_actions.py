"""The task that works on tables of a connector that is only named: the same as the tasks that have all arguments, on a real change log and a real database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.rebuild_tables import RebuildTablesOperator
from airflow_provider_cdc.operators.table_actions import WorkOnTablesOperator, build_rebuild_task, build_verify_task
from airflow_provider_cdc.operators.verify_tables import VerifyTablesOperator
from airflow_provider_cdc.services.connectors.connector_targets import known_access
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    monkeypatch.setattr(airflow_connector, "SHOP", {"id": "int64!", "note": "string"})
    shop_connector = make_shop(monkeypatch, tmp_path, str(tmp_path))
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    for key in range(3):
        shop_connector.order(key, f"note {key}")
    captured_and_applied(shop_connector)
    yield shop_connector
    shop_connector.store.close()


def captured_and_applied(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse").execute(
        context()
    )


def run_work(what: str, *tables: str, confirm: str | None = None) -> Any:
    task = WorkOnTablesOperator(
        task_id="work", connector="shop", work=what, tables=json.dumps(tables) if tables else "", confirm=confirm, wait=timedelta(0)
    )  # fmt: skip
    return task.execute(context())


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "warehouse.db") as connection:
        connection.execute(statement)
    connection.close()


def test_tables_are_compared_repaired_and_built_again(shop_connector: ShopConnector, tmp_path: Path) -> None:
    assert run_work("verify")["tables"] == {"shop.inventory.orders": 3}
    change(tmp_path, "UPDATE shop_inventory_orders SET note = 'else' WHERE id = 1")
    with pytest.raises(AirflowFailException, match="1 different"):
        run_work("verify", r"inventory\.orders")
    with pytest.raises(AirflowFailException, match="signal 1 was sent"):
        run_work("repair", confirm="shop")
    captured_and_applied(shop_connector)
    assert run_work("verify")["tables"] == {"shop.inventory.orders": 3}
    change(tmp_path, "DELETE FROM shop_inventory_orders")
    assert run_work("rebuild", "inventory.orders", confirm="shop")["tables"].keys() == {"shop.inventory.orders"}
    assert run_work("verify")["tables"] == {"shop.inventory.orders": 3}
    equal = "Equal to the source: shop.inventory.orders (3 rows)."
    assert [(what, type_, text.partition("\n")[0]) for what, type_, text in outcomes(shop_connector)] == [
        ("verify", "COMPLETED", equal), ("verify", "FAILED", "1 tables of shop are not equal to the source:"),
        ("repair", "FAILED", "1 tables of shop were not equal to the source:"), ("verify", "COMPLETED", equal),
        ("rebuild", "COMPLETED", "Rebuilt: shop.inventory.orders."), ("verify", "COMPLETED", equal),
    ]  # fmt: skip


def outcomes(shop_connector: ShopConnector) -> list[tuple[str, str, str]]:
    """The entries about the runs that pages show."""
    found = [one.notification for one in shop_connector.store.list_notifications("shop", about="Action")]
    assert {(one.additional_data["dag"], one.additional_data["run"]) for one in found} == {("d", "r")}
    return [(one.additional_data["action"], one.type, one.additional_data["outcome"]) for one in found]


def test_a_run_about_a_connector_that_there_is_not_leaves_no_record(shop_connector: ShopConnector) -> None:
    task = WorkOnTablesOperator(task_id="work", connector="shopp", work="verify")
    with pytest.raises(AirflowException, match="shopp"):
        task.execute(context())
    assert shop_connector.store.list_notifications("shopp") == []


@pytest.mark.parametrize("what", ["repair", "rebuild"])
def test_what_changes_tables_wants_the_connectors_name(shop_connector: ShopConnector, what: str) -> None:
    for confirm in (None, "", "shopp"):
        with pytest.raises(AirflowFailException, match="is not confirmed"):
            run_work(what, "inventory.orders", confirm=confirm)
    with pytest.raises(AirflowFailException, match="give one of verify, repair, rebuild"):
        run_work("drop", confirm="shop")
    assert shop_connector.store.signals_of("shop") == []


def test_tables_of_a_lakehouse_are_given_to_spark_as_the_user_says(shop_connector: ShopConnector) -> None:
    access = known_access(shop_connector.store, "shop")
    spark = {"conn_id": "spark_big", "conf": {"spark.ui.enabled": "false"}}
    job = build_verify_task(access, "iceberg", "lake.{table}", spark, tables=["x"], repair=True)
    assert isinstance(job, VerifyTablesOperator)
    assert (job.target, job.location, job.conf, job.repair, job.source_conn_id) == (
        "iceberg",
        "lake.{table}",
        spark["conf"],
        True,
        "shop",
    )
    again = build_rebuild_task(access, "delta", "/lake/{table}", ["x"], spark)
    assert isinstance(again, RebuildTablesOperator)
    assert (again.location, again.tables) == ("/lake/{table}", ["x"])
