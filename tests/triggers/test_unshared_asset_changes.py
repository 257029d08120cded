"""Watching tables where each trigger polls alone, as in Airflow 3.1 and 3.2; Airflow's triggerer is not there, and its database is a dict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Variable
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.airflow_compat import VariableStore, find_cursor_store
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.asset_changes import CURSOR, CdcChangeTrigger
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.airflow.trigger_runs import deserialize_trigger
from tests.support.airflow.watched_tables import LINES, ORDERS, AssetState, change, make_watched_shop, wait_until
from tests.support.counted import CallCounter


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_watched_shop(monkeypatch, tmp_path)
    yield shop_connector
    shop_connector.store.close()


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A stand-in for Airflow's variables, which only a triggerer can write. It keeps texts, as the database does."""
    stored: dict[str, str] = {}

    def set_variable(key: str, value: Any, description: str | None = None) -> None:
        assert len(key) <= 250
        assert isinstance(value, str)
        stored[key] = value

    monkeypatch.setattr(Variable, "get", staticmethod(lambda key, default=None: stored.get(key, default)))
    monkeypatch.setattr(Variable, "set", staticmethod(set_variable))
    return stored


class Watch:
    """A trigger that runs alone, until :meth:`stop`."""

    def __init__(self, store: Any, topics: list[str]) -> None:
        self.trigger = deserialize_trigger(CdcChangeTrigger("shop", topics, poll_interval=0.05))
        self.trigger.asset_state_store = store
        self.fired: list[Any] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        events: AsyncIterator[Any] = self.trigger.run()
        async with aclosing(events) as fired:  # type: ignore[type-var]
            async for event in fired:
                self.fired.append(event.payload)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_each_trigger_that_polls_alone_reports_its_own_table(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_story() -> None:
        kept = AssetState(), AssetState()
        orders, lines = Watch(kept[0], [ORDERS]), Watch(kept[1], [LINES])
        await wait_until(lambda: all(CURSOR in store for store in kept))
        await asyncio.to_thread(change, shop_connector, 1)
        await wait_until(lambda: orders.fired)
        assert [payload["topics"] for payload in orders.fired] == [{ORDERS: 1}]
        assert lines.fired == []
        await orders.stop()
        await lines.stop()

    asyncio.run(run_story())


def test_changes_while_no_triggerer_was_alive_are_reported_by_a_trigger_that_polls_alone(
    shop_connector: ShopConnector,
) -> None:
    async def run_story() -> None:
        kept = AssetState()
        watch = Watch(kept, [ORDERS])
        await wait_until(lambda: CURSOR in kept)
        await watch.stop()
        for key in (1, 2, 3):
            await asyncio.to_thread(change, shop_connector, key)
        watch = Watch(kept, [ORDERS])
        await wait_until(lambda: watch.fired)
        assert watch.fired[0]["events"] == 3
        last = watch.fired[0]["batches"][1]
        await wait_until(lambda: kept[CURSOR] == last)  # stored with the poll after the event
        await watch.stop()
        watch, polled = Watch(kept, [ORDERS]), CallCounter(monkeypatch, StateStore, "load_records")
        await wait_until(lambda: polled.calls > 2)
        assert watch.fired == []
        await watch.stop()

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(run_story())


def test_where_assets_have_no_state_store_the_cursor_is_a_variable(
    shop_connector: ShopConnector, variables: dict[str, str]
) -> None:
    name = "shop.inventory.orders/captured" + "x" * 300  # names of assets may be longer than those of variables

    async def run_story() -> None:
        store = VariableStore(name)
        watch = Watch(store, [ORDERS])
        await wait_until(lambda: variables)
        (key,) = variables
        assert key.startswith(f"{CURSOR}.shop.inventory.orders/captured")
        await watch.stop()
        await asyncio.to_thread(change, shop_connector, 1)
        watch = Watch(VariableStore(name), [ORDERS])
        await wait_until(lambda: watch.fired)
        await wait_until(lambda: variables[key] == str(watch.fired[0]["batches"][1]))
        await watch.stop()

    asyncio.run(run_story())


def test_a_trigger_without_a_state_store_of_assets_gets_variables() -> None:
    class OldTrigger:
        """A trigger as in Airflow 3.1 and 3.2: it has no attribute for a state store."""

    store = find_cursor_store(OldTrigger(), "a", "a")  # type: ignore[arg-type]
    assert isinstance(store, VariableStore)


def test_triggers_of_equal_arguments_have_one_hash_whatever_the_order_of_topics() -> None:
    one = CdcChangeTrigger("shop", ["b", "a"], asset="x").serialize()
    other = CdcChangeTrigger("shop", ["a", "b"], asset="x").serialize()
    assert BaseEventTrigger.hash(*one) == BaseEventTrigger.hash(*other)
    assert CdcChangeTrigger("shop", ["a"]).shared_stream_key() == CdcChangeTrigger("shop", ["b"]).shared_stream_key()


def test_an_interval_that_airflow_would_not_wait_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="up to 120 seconds"):
        CdcChangeTrigger("shop", poll_interval=600)
