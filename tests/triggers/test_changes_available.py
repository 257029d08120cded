"""The trigger: when it fires, what it survives, and what it never knows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, make_shop
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "trigger")
    yield shop_connector
    shop_connector.store.close()


def trigger(definition: ConnectorDefinition) -> ChangesAvailableTrigger:
    """Return a trigger as the triggerer makes it: from its serialized form."""
    changes_available_trigger = ChangesAvailableTrigger(
        ConnectorAccess(definition, "shop").to_document(), poll_interval=0.05
    )
    path, arguments = changes_available_trigger.serialize()
    assert path == "airflow_provider_cdc.triggers.changes_available.ChangesAvailableTrigger"
    return ChangesAvailableTrigger(**json.loads(json.dumps(arguments)))


async def await_first_event(trigger: ChangesAvailableTrigger, *, within: float = LONGEST_S) -> Any:
    """The first event."""
    events = trigger.run()
    return (await asyncio.wait_for(anext(events), within)).payload  # type: ignore[arg-type]


def capture(shop_connector: ShopConnector) -> None:
    from airflow_provider_cdc.operators.capture import CaptureOperator
    from tests.support.airflow.airflow_connector import context

    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def test_it_fires_at_once_where_nothing_was_captured_yet(shop_connector: ShopConnector) -> None:
    assert asyncio.run(await_first_event(trigger(shop_connector.definition))) == {"reason": "nothing is captured yet"}


def test_it_waits_while_there_is_nothing_and_fires_when_there_is(shop_connector: ShopConnector) -> None:
    capture(shop_connector)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger(shop_connector.definition)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        shop_connector.order(1)
        assert await waiting == {"reason": "the log has advanced to entry 2"}

    asyncio.run(run_story())


def test_one_that_is_taken_over_by_another_triggerer_goes_on_where_the_state_stands(
    shop_connector: ShopConnector,
) -> None:
    capture(shop_connector)

    async def run_story() -> None:
        abandoned = asyncio.create_task(await_first_event(trigger(shop_connector.definition)))
        await asyncio.sleep(0.3)
        abandoned.cancel()
        shop_connector.order(1)  # while no one waits
        assert await await_first_event(trigger(shop_connector.definition)) == {
            "reason": "the log has advanced to entry 2"
        }

    asyncio.run(run_story())


def test_it_fires_when_the_properties_were_changed(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    changed = ConnectorDefinition("shop", "memory", shop_connector.definition.changelog, {"table.include.list": "x"})
    assert asyncio.run(await_first_event(trigger(changed))) == {"reason": "the connector's properties were changed"}


def test_the_event_loop_is_free_while_the_source_is_asked(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    requested, go_on, ask = threading.Event(), threading.Event(), MemorySource.current_position

    def block_loop(self: MemorySource) -> Any:
        requested.set()
        assert go_on.wait(LONGEST_S), "the event loop stands still"
        return ask(self)

    monkeypatch.setattr(MemorySource, "current_position", block_loop)

    async def run_story() -> None:
        waiting, beats = asyncio.create_task(await_first_event(trigger(shop_connector.definition))), 0
        while beats < 30:
            await asyncio.sleep(0.01)
            beats += requested.is_set()
        shop_connector.order(1)
        go_on.set()
        assert await waiting == {"reason": "the log has advanced to entry 2"}

    asyncio.run(run_story())


def test_serialized_arguments_hold_no_secret(monkeypatch: pytest.MonkeyPatch, mariadb: Any, tmp_path: Path) -> None:
    connect(monkeypatch, "shop", conn_type="cdc_mariadb", host=mariadb.host, password="hunter2hunter2", login="cdc")
    definition = ConnectorDefinition("shop", "mariadb", "/lake", {"database.server.id": 4711})
    made = trigger(definition)
    assert "hunter2" not in repr(made)
    assert "hunter2" not in json.dumps(made.serialize())


def test_what_a_person_must_mend_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch, mariadb: Any, tmp_path: Path
) -> None:
    definition = mariadb_connector(monkeypatch, mariadb, tmp_path, password="wrong")
    event = asyncio.run(await_first_event(trigger(definition)))
    assert "Access denied" in event["error"]


def test_a_source_that_does_not_answer_is_asked_until_it_does(
    monkeypatch: pytest.MonkeyPatch, mariadb_factory: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with mariadb_factory() as server:
        definition = mariadb_connector(monkeypatch, server, tmp_path, password=server.password)
        server.stop()

        async def run_story() -> Any:
            waiting = asyncio.create_task(await_first_event(trigger(definition)))
            reported = ""
            while "cannot be polled (2 failures in a row)" not in reported:
                await asyncio.sleep(0.05)
                assert not waiting.done()
                reported += "".join(capfd.readouterr())
            await asyncio.to_thread(server.start)
            server.sql("CREATE DATABASE d")
            return await waiting

        assert "the log has advanced to binlog." in asyncio.run(run_story())["reason"]


def mariadb_connector(
    monkeypatch: pytest.MonkeyPatch, server: Any, folder: Path, *, password: str
) -> ConnectorDefinition:
    """A connector that has an offset."""
    from airflow_provider_cdc.core.model.connector_offset import Offset

    url = f"sqlite:///{folder}/state.db"
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=url)
    usual = {"host": server.host, "port": server.port, "login": server.user}
    connect(monkeypatch, "shop", conn_type="cdc_mariadb", password=password, **usual)
    store = StateStore(url)
    store.create_tables()
    with store.acquire_lease("shop", "a test", wait_s=0) as lease:
        end = {"file": "binlog.000001", "pos": 4, "server": "id-1000"}
        store.advance_offset(lease, store.load_offset("shop"), Offset(position=end))
    store.close()
    return ConnectorDefinition("shop", "mariadb", str(folder / "changelog"), {"database.server.id": 4711})
