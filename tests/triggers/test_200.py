"""200 sensors that wait in one triggerer, on a PostgreSQL as it is installed, while 50 sources go away and come back."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_source
from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from dev.patience import overload
from dev.servers import Postgres
from tests.support.airflow.airflow_connector import SHOP, connect
from tests.support.airflow.trigger_runs import await_first_event
from tests.support.patience import wait_until
from tests.support.servers.shut_ports import ForwardingPorts

pytestmark = pytest.mark.slow

POLL_S = 3.0
LATEST_S = 25.0
"""On a quiet machine it is a poll interval; one with more work than cores takes as many times longer. If those that are down held up the others, it were their 30 seconds, several times over."""
FALL_OUT, QUIET, SIGNALS, SNAPSHOTS = 50, 100, 25, 25


@dataclass
class Fleet:
    """200 connectors and signals to wait for.

    :ivar fall_out: triggers of connectors to MariaDB, one door each
    :ivar quiet: triggers of connectors to memory databases, with their databases
    :ivar others: triggers that ask the state tables alone
    """

    server: Postgres
    doors: ForwardingPorts
    store: StateStore
    mariadb: Any
    fall_out: list[Any] = field(default_factory=list)
    quiet: list[tuple[Any, MemoryDatabase]] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)

    def connections(self) -> int:
        """Sessions on the server, without the one that asks."""
        ((n,),) = self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'cdc'")
        return int(n)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mariadb: Any) -> Iterator[Fleet]:
    # what PostgreSQL has when no one has said anything
    with Postgres({"max_connections": None}) as server, ForwardingPorts(mariadb.host, mariadb.port, FALL_OUT) as doors:
        assert server.sql("SHOW max_connections") == [("100",)]
        server.sql("CREATE DATABASE cdc")
        store = StateStore(server.url("cdc"))
        store.create_tables()
        fleet = Fleet(server, doors, store, mariadb)
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=server.url("cdc"))
        _add_fall_out(fleet, monkeypatch, tmp_path)
        _add_quiet(fleet, monkeypatch, tmp_path)
        for number in range(SIGNALS):
            sent = store.send("signalled", SentSignal(f"s{number}", "log", "{}"))
            fleet.others.append(SignalCompletedTrigger("signalled", sent, poll_interval=POLL_S))
        for number in range(SNAPSHOTS):
            _advance(store, f"reading{number}", {"entry": 1}, reading=True)
            fleet.others.append(InitialSnapshotTrigger(f"reading{number}", poll_interval=POLL_S))
        store.database.engine.dispose()
        wait_until(lambda: not fleet.connections(), "the server has closed them in its own time", every_s=0.05)
        yield fleet
        store.close()


def _add_fall_out(made: Fleet, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for number, port in enumerate(made.doors.ports):
        conn_id, properties = f"mariadb{number}", {"database.server.id": 5000 + number}
        usual = {"host": "127.0.0.1", "login": made.mariadb.user, "password": made.mariadb.password}
        connect(
            monkeypatch, conn_id, conn_type="cdc_mariadb", port=port, extra={"database.ssl.mode": "disabled"}, **usual
        )
        definition = ConnectorDefinition(f"fall{number}", "mariadb", f"{folder}/changelog", properties)
        access = ConnectorAccess(definition, conn_id)
        if not number:
            with open_source(definition, access.resolve_properties()) as source:
                end = source.current_position().to_json()
        _advance(made.store, definition.name, end)
        made.fall_out.append(ChangesAvailableTrigger(access.to_document(), POLL_S))


def _add_quiet(made: Fleet, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for number in range(QUIET):
        database = MemoryDatabase(f"quiet-{number}")
        database.create_table("inventory.orders", SHOP, key=("id",))
        connect(monkeypatch, f"memory{number}", conn_type="cdc_memory", host=database.name)
        definition = ConnectorDefinition(f"quiet{number}", "memory", f"{folder}/changelog")
        _advance(made.store, definition.name, {"entry": len(database.log)})
        access = ConnectorAccess(definition, f"memory{number}")
        made.quiet.append((ChangesAvailableTrigger(access.to_document(), POLL_S), database))


def _advance(store: StateStore, name: str, position: dict[str, Any], *, reading: bool = False) -> None:
    pending = {"inventory.orders": PendingTable(held=True)} if reading else {}
    with store.acquire_lease(name, "a test", wait_s=0) as lease:
        store.advance_offset(
            lease, store.load_offset(name), Offset(position=position, snapshot=SnapshotState(pending=pending))
        )


def change(database: MemoryDatabase) -> None:
    with database.transaction() as t:
        t.insert("inventory.orders", {"id": 1, "note": ""})


class BlockingCalls:
    """Calls of the event loop's own thread that may block it, as Python's audit hooks report them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._thread: int | None = None
        sys.addaudithook(self._hook)

    def watch(self) -> None:
        self._thread = threading.get_ident()

    def end(self) -> None:
        self._thread = None

    def _hook(self, event: str, arguments: Any) -> None:
        if self._thread == threading.get_ident() and event in (
            "socket.connect", "socket.getaddrinfo", "sqlite3.connect", "time.sleep", "subprocess.Popen"
        ):  # fmt: skip
            self.seen.append(f"{event} {arguments}")


async def time_until(condition: Callable[[], bool], within_s: float) -> float:
    """Wait until something is true; returns how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s * overload()
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def test_200_sensors_share_one_connection_and_fire_in_time_while_50_sources_are_down_and_come_back(
    fleet: Fleet,
) -> None:
    blocking, most = BlockingCalls(), 0

    async def run_story() -> None:
        nonlocal most
        triggers = [*fleet.fall_out, *(trigger for trigger, _ in fleet.quiet), *fleet.others]
        assert len(triggers) == 200
        blocking.watch()
        tasks = [asyncio.create_task(await_first_event(trigger, within=3600)) for trigger in triggers]
        down, quiet = tasks[:FALL_OUT], tasks[FALL_OUT : FALL_OUT + QUIET]

        async def count() -> None:
            nonlocal most
            while True:
                most = max(most, await asyncio.to_thread(fleet.connections))
                await asyncio.sleep(0.1)

        counting = asyncio.create_task(count())
        try:
            await time_until(lambda: all(fleet.doors.opened), 120)
            await asyncio.to_thread(fleet.doors.shut, range(0, FALL_OUT, 2), "silent")
            await asyncio.to_thread(fleet.doors.shut, range(1, FALL_OUT, 2), "refused")
            waits = []
            for number, (_, database) in enumerate(fleet.quiet[:20]):
                await asyncio.sleep(POLL_S / 5 if number else 0)  # the first changes while no one knows yet who is down
                changed = quiet[number]
                change(database)
                waits.append(await time_until(changed.done, LATEST_S))
                assert "the log has advanced" in changed.result()["reason"]
            print(f"while 50 were down: p50 {sorted(waits)[10]:.1f} s, longest {max(waits):.1f} s of {POLL_S:g} s")
            assert not any(task.done() for task in (*down, *quiet[20:], *tasks[FALL_OUT + QUIET :]))
            threads = sum(thread.name.startswith("cdc ") for thread in threading.enumerate())
            assert threads <= 16 + FALL_OUT + 1, "one for each that hangs, and one for the state tables"
            await asyncio.to_thread(fleet.doors.open, range(FALL_OUT))
            await asyncio.to_thread(fleet.mariadb.sql, "CREATE OR REPLACE DATABASE back_again")
            took = await time_until(lambda: all(task.done() for task in down), 8 * POLL_S + 120)
            print(f"all 50 are back after {took:.1f} s")
            assert all("the log has advanced to" in task.result()["reason"] for task in down)
        finally:
            counting.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, counting, return_exceptions=True)
            blocking.end()

    asyncio.run(run_story())
    fleet.mariadb.sql("DROP DATABASE back_again")
    # one that was closed may still be known to the server when the next one is there
    assert most <= 2, "all share one connection to the state"
    wait_until(
        lambda: not fleet.connections(), "all are closed with the last trigger, which the server sees in its own time"
    )
    assert blocking.seen == []
