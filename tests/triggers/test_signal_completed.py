"""The fate of a signal, as the trigger sees it in real state tables."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import cdc_command
from tests.support.airflow.trigger_runs import await_first_event, deserialize_trigger
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "state")
    yield shop_connector
    shop_connector.store.close()


def send(shop_connector: ShopConnector, type_: str = "log", data: str = '{"message": "here"}') -> int:
    return shop_connector.store.send("shop", SentSignal("a", type_, data))


def trigger(number: int) -> SignalCompletedTrigger:
    made: SignalCompletedTrigger = deserialize_trigger(SignalCompletedTrigger("shop", number, poll_interval=0.05))
    return made


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def test_it_fires_when_a_run_has_carried_the_signal_out(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    number = send(shop_connector)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger(number)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await asyncio.to_thread(capture, shop_connector)
        event = await waiting
        assert (event["number"], event["type"], event["state"]) == (number, "log", "done")

    asyncio.run(run_story())


def test_one_that_is_taken_over_by_another_triggerer_sees_what_came_meanwhile(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    number = send(shop_connector)

    async def run_story() -> None:
        abandoned = asyncio.create_task(await_first_event(trigger(number)))
        await asyncio.sleep(0.2)
        abandoned.cancel()
        await asyncio.to_thread(capture, shop_connector)  # while no one waits
        assert (await await_first_event(trigger(number)))["state"] == "done"

    asyncio.run(run_story())


def test_a_refused_signal_says_what_was_wrong(shop_connector: ShopConnector) -> None:
    capture(shop_connector)
    number = send(shop_connector, "execute-snapshot", '{"data-collections": ["inventory.nothing"]}')
    capture(shop_connector)
    event = asyncio.run(await_first_event(trigger(number)))
    assert event["state"] == "refused"
    assert "inventory.nothing" in event["message"]


def test_the_log_says_why_nothing_moves_and_how_the_snapshot_comes_on(
    shop_connector: ShopConnector, capfd: pytest.CaptureFixture[str]
) -> None:
    capture(shop_connector)
    number = send(shop_connector)
    ask = trigger(number).poll_once
    assert "no capture run is active" in ask(shop_connector.store).text
    shop_connector.store.set_control("shop", DesiredState.PAUSED, "ann", "upgrade")
    assert "paused by ann" in ask(shop_connector.store).text
    assert "upgrade" in ask(shop_connector.store).text
    progress = {"left": 2, "table": "inventory.orders", "rows": 120000, "rows_per_s": 81000}
    shop_connector.store.set_signal_state("shop", number, SignalState.RUNNING, progress=progress)
    text = ask(shop_connector.store).text
    assert text == f"2 tables left, now inventory.orders, 120,000 rows, 81,000 rows/s (signal {number} (log) of shop)"

    said = ""

    def logged_states() -> list[tuple[str, str]]:
        nonlocal said
        said += "".join(capfd.readouterr())
        return re.findall(rf"now inventory.(\w+)|Signal {number} \(log\) of shop is (done)", said)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger(number)))
        while not logged_states():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # ten looks at the same, logged once
        shop_connector.store.set_signal_state(
            "shop", number, SignalState.RUNNING, progress={**progress, "left": 1, "table": "inventory.lines"}
        )
        while len(logged_states()) < 2:
            await asyncio.sleep(0.02)
        shop_connector.store.set_signal_state("shop", number, SignalState.DONE)
        await waiting

    asyncio.run(asyncio.wait_for(run_story(), LONGEST_S))
    assert logged_states() == [("orders", ""), ("lines", ""), ("", "done")]


def test_a_number_that_no_one_sent_ends_the_waiting(shop_connector: ShopConnector) -> None:
    assert "has no signal 77" in asyncio.run(await_first_event(trigger(77)))["error"]


def test_state_tables_that_cannot_be_asked_are_asked_until_they_can(
    shop_connector: ShopConnector, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    number = send(shop_connector)
    shop_connector.store.set_signal_state("shop", number, SignalState.DONE)
    (tmp_path / "state.db").rename(tmp_path / "away.db")
    (tmp_path / "state.db").mkdir()  # a database that cannot be opened

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger(number)))
        reported = ""
        while "cannot be polled (2 failures in a row)" not in reported:
            await asyncio.sleep(0.05)
            assert not waiting.done()
            reported += "".join(capfd.readouterr())
        (tmp_path / "state.db").rmdir()
        (tmp_path / "away.db").rename(tmp_path / "state.db")
        assert (await waiting)["state"] == "done"

    asyncio.run(run_story())


def test_a_connection_that_is_missing_ends_the_waiting(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="")
    assert cdc_command("setup") in asyncio.run(await_first_event(trigger(1)))["error"]


def test_arguments_hold_ids_of_connections_only(shop_connector: ShopConnector) -> None:
    arguments = SignalCompletedTrigger("shop", 7, poll_interval=3).serialize()[1]
    assert arguments == {"connector": "shop", "number": 7, "state_conn_id": "cdc_state_default", "poll_interval": 3}
