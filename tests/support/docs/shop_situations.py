"""A connector ``shop`` in which the situations of pages are brought about: a memory database, and a table of a SQLite database as its target."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, state_of
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.cli.conftest import capture
from tests.support.airflow import airflow_connector
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop

TARGET = "shop_shop_orders"
"""The table of the topic ``shop.shop.orders``."""


@dataclass
class Shop:
    """A connector whose changes are in the tables of a SQLite database."""

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
            connection.execute(f'DELETE FROM "{TARGET}" WHERE id = 7')
        connection.close()

    def find_state(self) -> ConnectorState:
        record = self.connector.store.find_connector("shop")
        assert record is not None
        return state_of(record)[0]


def make_page_shop(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Shop:
    """Make a connector that has captured three rows in three batches, and applied them."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    monkeypatch.setattr(airflow_connector, "SHOP", {"id": "int64!", "note": "string", "status": "string"})
    connector = make_shop(monkeypatch, folder, str(folder))
    connector.database.create_table("shop.orders", airflow_connector.SHOP, key=("id",))
    connector.database.create_table("shop.lines", {"id": "int64!", "region": "string!"}, key=("id", "region"))
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{folder}/warehouse.db")
    made = Shop(connector, folder)
    with connector.database.transaction() as t:
        t.insert("inventory.orders", {"id": 7})
        t.insert("shop.lines", {"id": 7, "region": "eu"})
    for key in (7, 8, 9):
        made.capture(key)
    made.apply()
    return made
