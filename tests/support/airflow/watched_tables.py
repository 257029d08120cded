"""For tests of watched tables: a connector with two tables, its batches, and a stand-in for the state store of an asset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.support.airflow.airflow_connector import SHOP, ShopConnector, context, make_shop
from tests.support.patience import LONGEST_S

ORDERS, LINES = "shop.inventory.orders", "shop.inventory.lines"


def make_watched_shop(monkeypatch: pytest.MonkeyPatch, folder: Path) -> ShopConnector:
    """A connector that has captured its two tables once."""
    shop_connector = make_shop(monkeypatch, folder, "watched")
    shop_connector.database.create_table("inventory.lines", SHOP, key=("id",))
    capture(shop_connector)
    return shop_connector


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def change(shop_connector: ShopConnector, key: int, table: str = "orders") -> None:
    """Insert a row and capture it, as a batch."""
    with shop_connector.database.transaction() as t:
        t.insert(f"inventory.{table}", {"id": key, "note": ""})
    capture(shop_connector)


class AssetState(dict[str, Any]):
    """The state store of one asset."""

    async def aget(self, key: str) -> Any:
        return self.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self[key] = value

    def __getitem__(self, key: Any) -> Any:
        return self if not isinstance(key, str) else super().__getitem__(key)


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
