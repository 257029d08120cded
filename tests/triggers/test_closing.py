"""Nothing is closed in the event loop: a connection that is lost may take its time, and all other triggers would stand still."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.asset_changes import CdcChangeTrigger
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.trigger_runs import await_first_event
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "closing")
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    shop_connector.store.send("shop", SentSignal("x", "log", "{}"))
    yield shop_connector
    shop_connector.store.close()


TRIGGERS = {
    "changes available": lambda shop: ChangesAvailableTrigger(
        ConnectorAccess(shop.definition, "shop").to_document(), 0.05
    ),
    "changes": lambda shop: CdcChangeTrigger("shop", poll_interval=0.05),
    "applied": lambda shop: AppliedTrigger("shop", batch=99, poll_interval=0.05),
    "initial snapshot": lambda shop: InitialSnapshotTrigger("shop", poll_interval=0.05),
    "state of a signal": lambda shop: SignalCompletedTrigger("shop", 1, poll_interval=0.05),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_that_ends_closes_its_connections_in_a_thread(
    shop_connector: ShopConnector, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, threads, requested = threading.get_ident(), list[int](), threading.Event()
    for kind in (MemorySource, StateStore):
        close = kind.close

        def record_thread(self: Any, close: Any = close) -> None:
            threads.append(threading.get_ident())
            close(self)

        monkeypatch.setattr(kind, "close", record_thread)
    records = StateStore.load_records

    def load_records(self: StateStore, names: Any) -> Any:
        requested.set()
        return records(self, names)

    monkeypatch.setattr(StateStore, "load_records", load_records)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(TRIGGERS[name](shop_connector), within=LONGEST_S))
        await asyncio.to_thread(requested.wait, LONGEST_S)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

    asyncio.run(run_story())
    assert requested.is_set()
    assert threads
    assert loop not in threads
