"""Calls of triggers in the event loop's own thread, as Python's audit hooks report them.

The process has imported nothing but them, as a triggerer that has just started.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.triggers.any_changes import AnyChangesTrigger
from airflow_provider_cdc.triggers.asset_changes import CdcChangeTrigger
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.patience import LONGEST_S

POLLS = 3
PROGRAM = """
import asyncio, contextlib, importlib, json, sys, threading

import airflow.sdk, airflow.triggers.base
from airflow_provider_cdc.triggers import polling_loop

path, arguments, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
module, _, name = path.rpartition(".")
trigger = getattr(importlib.import_module(module), name)(**arguments)
trigger.asset_state_store = None  # as in Airflow 3.3; before, the trigger would write a variable, which takes a triggerer
loop, on, seen, polled, events = threading.get_ident(), False, [], [], []
until_next = polling_loop.until_next


def blocks(event, arguments):
    if on and threading.get_ident() == loop and event in (
        "import", "open", "sqlite3.connect", "socket.connect", "socket.getaddrinfo", "time.sleep", "subprocess.Popen"
    ):
        seen.append(f"{event} {arguments[0]}")


async def story():
    global on
    enough = asyncio.Event()

    def noted(interval):
        polled.append(interval)
        if len(polled) == count:
            enough.set()
        return until_next(interval)

    async def wait():
        try:
            async with contextlib.aclosing(trigger.run()) as found:
                async for event in found:
                    events.append(str(event))
        except Exception as e:
            events.append(repr(e))
        enough.set()

    polling_loop.until_next, on = noted, True
    task = asyncio.create_task(wait())
    await enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    on = False


sys.addaudithook(blocks)
asyncio.run(story())
print(json.dumps({"seen": seen, "polls": len(polled), "events": events}))
"""


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "loop")
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    shop_connector.store.send("shop", SentSignal("x", "log", "{}"))
    yield shop_connector
    shop_connector.store.close()


@pytest.fixture
def unreachable_connector(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> ConnectorAccess:
    """A source of which no one answers, and which needs more to be imported than a memory database."""
    connect(monkeypatch, "far", conn_type="cdc_mariadb", host="127.0.0.1", port=1, login="u", password="p")
    with shop_connector.store.acquire_lease("far", "a test", wait_s=0) as lease:
        shop_connector.store.advance_offset(
            lease, shop_connector.store.load_offset("far"), Offset(position={"file": "binlog.000001", "pos": 4})
        )
    return ConnectorAccess(ConnectorDefinition("far", "mariadb", "/lake", {"database.server.id": 7}), "far")


TRIGGERS = {
    "changes available": lambda access: ChangesAvailableTrigger(access.to_document(), 0.2),
    "changes of any": lambda access: AnyChangesTrigger.from_accesses([access], 0.2),
    "changes": lambda _: CdcChangeTrigger("shop", poll_interval=0.2),
    "applied": lambda _: AppliedTrigger("shop", batch=99, poll_interval=0.2),
    "initial snapshot": lambda _: InitialSnapshotTrigger("nobody", poll_interval=0.2),
    "state of a signal": lambda _: SignalCompletedTrigger("shop", 1, poll_interval=0.2),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_nothing_is_imported_opened_or_connected_to_in_the_event_loop(
    unreachable_connector: ConnectorAccess, name: str
) -> None:
    found = run(TRIGGERS[name](unreachable_connector))
    assert found["polls"] == POLLS
    assert found["events"] == []
    assert found["seen"] == []


def run(trigger: Any) -> dict[str, Any]:
    path, arguments = trigger.serialize()
    command = [sys.executable, "-c", PROGRAM, path, json.dumps(arguments), str(POLLS)]
    done = subprocess.run(command, check=True, timeout=LONGEST_S, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
