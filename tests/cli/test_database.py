"""Commands about tables of a relational database: they come to it by what its last apply has recorded."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.hooks.target_database import describe_database
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from tests.cli.conftest import capture, clean, run
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException

SINK = {"collection.name.format": "my_${source.table}"}


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    monkeypatch.setattr(
        airflow_connector, "SHOP", {"id": "int64!", "note": "string"}
    )  # what may be NULL cannot be looked up
    shop_connector = make_shop(monkeypatch, tmp_path, str(tmp_path))
    yield shop_connector
    shop_connector.store.close()


@pytest.fixture
def applied_shop_connector(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> ShopConnector:
    """A shop whose orders are in the table ``my_orders``."""
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    shop_connector.order(1, "first")
    shop_connector.order(2, "second")
    capture(shop_connector)
    apply(shop_connector)
    clean(capsys)
    return shop_connector


def apply(shop_connector: ShopConnector) -> None:
    ApplyToDatabaseOperator(
        task_id="apply", definition=shop_connector.definition, conn_id="warehouse", sink=SINK
    ).execute(context())


def change(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / "warehouse.db")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def rows(folder: Path) -> list[tuple[int, str]]:
    connection = sqlite3.connect(folder / "warehouse.db")
    found = sorted(connection.execute("SELECT id, note FROM my_orders").fetchall())
    connection.close()
    return found


def test_verify_compares_and_repairs(
    applied_shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("verify", "shop", "--timeout", "0")
    assert "yes" in capsys.readouterr().out
    change(tmp_path, "DELETE FROM my_orders WHERE id = 1", "INSERT INTO my_orders VALUES (9, 'extra')")
    with pytest.raises(SystemExit) as ended:
        run("verify", "shop", "--timeout", "0", "--repair", "-o", "json")
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    (table,) = found["tables"]
    assert (table["location"], table["missing"], table["surplus"]) == ("my_orders", 1, 1)
    assert found["repairs"] == [
        "shop.inventory.orders: signal 1 was sent: a snapshot reads 2 keys again, in 2 ranges; the next apply repairs the table"
    ]
    capture(applied_shop_connector)
    apply(applied_shop_connector)
    assert rows(tmp_path) == [(1, "first"), (2, "second")]


def test_without_a_record_the_connection_is_asked_for(
    applied_shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = ApplyReports(ChangeLog(applied_shop_connector.definition.changelog).storage, "shop")
    (report,) = reports.list_reports()
    assert describe_database("warehouse", {**SINK, "connection.password": "top-secret"}) == {
        "database": report["database"]
    }
    del report["database"]
    reports.write(report)
    with pytest.raises(SystemExit) as ended:
        run("verify", "shop")
    assert ended.value.code == 2
    assert "give it with --database" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:  # the table is called otherwise without its properties
        run("verify", "shop", "--database", "warehouse", "--timeout", "0")
    assert ended.value.code == 1
    assert "the table does not exist" in capsys.readouterr().out


def test_status_says_what_stays_behind_and_why(
    applied_shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(tmp_path, "CREATE UNIQUE INDEX one ON my_orders (note)")
    applied_shop_connector.order(3, "first")
    capture(applied_shop_connector)
    with pytest.raises(AirflowException):
        apply(applied_shop_connector)
    clean(capsys)
    run("status", "shop")
    output = capsys.readouterr().out
    assert f"Target database at sqlite:///{tmp_path}/warehouse.db/cdc_applied: applied up to batch 2" in output
    assert "shop.inventory.orders failed, and stays at batch 1: TargetError: my_orders rejects a row" in output


def test_maintenance_has_nothing_to_do_for_a_database(
    applied_shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    run("maintain", "shop", "--only", "tables")
    assert capsys.readouterr().out == "Nothing to do: a database maintains its tables itself.\n"
    run("maintain", "shop")  # the change log is
    assert "Batches" in capsys.readouterr().out


def test_a_database_that_there_is_no_more_holds_nothing_back(
    applied_shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"sqlite:///{tmp_path}/warehouse.db/cdc_applied"
    run("targets", "shop")
    assert place in _join_cells(capsys.readouterr().out)
    run("forget-target", "shop", "--target", "database", "--location", place, "--confirm", "shop")
    capsys.readouterr()
    run("targets", "shop")
    assert place not in _join_cells(capsys.readouterr().out)


def _join_cells(table: str) -> str:
    """The cells of a table's second column, one after the other: long ones are wrapped."""
    return "".join(line.split("|")[1].strip() for line in table.splitlines() if line.count("|") > 1)


def test_metrics_show_freshness_and_events_of_a_database(
    applied_shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("metrics", "shop")
    output = capsys.readouterr().out
    for name in (
        "apply.TotalNumberOfEventsApplied",
        "apply.FreshnessInSeconds",
        "apply.LastBatch",
        "apply.FailedTables",
    ):
        assert name in output, name
    run("metrics", "shop", "--openmetrics")
    assert 'target="database"' in capsys.readouterr().out


def test_rebuild_builds_a_table_that_is_lost(
    applied_shop_connector: ShopConnector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(tmp_path, "DROP TABLE my_orders")
    run("rebuild", "shop", "inventory.orders")
    assert capsys.readouterr().out.startswith("shop.inventory.orders: rebuilt as of batch 1 at my_orders, ")
    assert rows(tmp_path) == [(1, "first"), (2, "second")]
    with pytest.raises(SystemExit, match="are rebuilt in place"):
        run("rebuild", "shop", "inventory.orders", "--to", "/else")
    with pytest.raises(SystemExit, match=r"contains no table inventory\.none"):
        run("rebuild", "shop", "inventory.none")
