"""The state tables, for all triggers of a triggerer: one connection, one query for all, and no one's trouble is that of another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import StateUnavailable
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.spi.desired_state import DesiredState
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.models import OffsetRow
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers import shared_state as module
from airflow_provider_cdc.triggers.asset_changes import CdcChangeTrigger
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from airflow_provider_cdc.triggers.initial_snapshot import InitialSnapshotTrigger
from airflow_provider_cdc.triggers.polling_loop import until_next
from airflow_provider_cdc.triggers.shared_state import SharedState, shared_state
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.trigger_runs import await_first_event, report, waiting
from tests.support.counted import CallCounter
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "shared")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def copy_connectors(shop_connector: ShopConnector, count: int) -> list[ConnectorDefinition]:
    """Connectors that stand where the shop's stands."""
    found = []
    for number in range(count):
        properties = {**shop_connector.definition.properties, "topic.prefix": f"t{number}"}
        definition = ConnectorDefinition(f"c{number}", "memory", shop_connector.definition.changelog, properties)
        with shop_connector.store.acquire_lease(definition.name, "a test", wait_s=0) as lease:
            offset = shop_connector.store.load_offset("shop").offset
            assert offset is not None
            shop_connector.store.advance_offset(lease, shop_connector.store.load_offset(definition.name), offset)
        found.append(definition)
    return found


async def control(state: SharedState) -> str:
    return await state.query_connector("shop", lambda _, store: store.load_control("shop").desired_state)


def test_40_connectors_that_wait_ask_the_state_by_one_query_and_nothing_else(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggers = [
        ChangesAvailableTrigger(ConnectorAccess(one, "shop").to_document(), 1.0)
        for one in copy_connectors(shop_connector, 40)
    ]
    polled, ended = (
        CallCounter(monkeypatch, StateStore, "load_records"),
        CallCounter(monkeypatch, MemorySource, "current_position"),
    )
    others = [
        CallCounter(monkeypatch, StateStore, name)
        for name in ("find_connector", "list_connectors", "load_control", "list_signals", "load_offset", "list_batches")
    ]
    asyncio.run(waiting(triggers, until=lambda: polled.about >= 4 * 40))
    # their first polls may come one after the other, the others come together: by twos at worst, on a busy machine
    assert polled.calls <= 40 + polled.about / 40 * 2
    assert 0 < ended.calls <= polled.calls + 1
    assert [other.calls for other in others] == [0] * 6


def test_all_kinds_of_triggers_share_the_query(shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    number = shop_connector.store.send("shop", SentSignal("x", "log", "{}"))
    report(shop_connector, 0)
    triggers = [
        AppliedTrigger("shop", batch=99, poll_interval=1.0),
        CdcChangeTrigger("shop", poll_interval=1.0),
        SignalCompletedTrigger("shop", number, poll_interval=1.0),
        *(InitialSnapshotTrigger(f"other{n}", poll_interval=1.0) for n in range(7)),
    ]
    triggers[
        1
    ].asset_state_store = None  # as in Airflow 3.3; before, it would write a variable, which takes a triggerer
    polled, connector = (
        CallCounter(monkeypatch, StateStore, "load_records"),
        CallCounter(monkeypatch, StateStore, "find_connector"),
    )
    asyncio.run(waiting(triggers, until=lambda: polled.about >= 5 * 8))
    assert polled.calls <= polled.about / 8 * 2 + 2
    assert connector.calls == 0


def test_polls_of_one_interval_come_together() -> None:
    async def run_story() -> None:
        now = asyncio.get_running_loop().time()
        for interval in (0.5, 5.0, 60.0):
            rest = until_next(interval)
            assert 0 < rest <= interval
            turns = (now + rest) / interval
            assert abs(turns - round(turns)) < 0.1 / interval

    asyncio.run(run_story())


def test_an_unreadable_record_is_reported_and_other_triggers_get_their_answers(
    shop_connector: ShopConnector,
) -> None:
    """Write an offset as a later release may have written it."""
    copy_connectors(shop_connector, 2)
    with shop_connector.store.database.engine.begin() as c:
        c.execute(sa.update(OffsetRow).where(OffsetRow.connector == "c1").values(offset={"seq": "of a later release"}))

    async def run_story() -> None:
        async with shared_state("cdc_state_default") as state:
            found = await asyncio.gather(
                *(
                    state.query_connector(name, lambda record, _: record and record.last_seq)
                    for name in ("shop", "c0", "c1", "nobody")
                ),
                return_exceptions=True,
            )
        assert found[:2] == [2, 2]
        assert "of a later release" in str(found[2])
        assert found[3] is None

    asyncio.run(run_story())


def test_a_question_that_fails_fails_for_its_own_only(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        async with shared_state("cdc_state_default") as state:
            wrong = state.query_connector("shop", lambda *_: 1 / 0)
            found = await asyncio.gather(wrong, control(state), return_exceptions=True)
        assert isinstance(found[0], ZeroDivisionError)
        assert found[1] == "running"

    asyncio.run(run_story())


def test_one_that_was_paused_before_it_ever_ran_is_not_captured(shop_connector: ShopConnector) -> None:
    shop_connector.store.set_control("new", DesiredState.PAUSED, "ann")
    definition = ConnectorDefinition(
        "new", "memory", shop_connector.definition.changelog, shop_connector.definition.properties
    )
    trigger = ChangesAvailableTrigger(ConnectorAccess(definition, "shop").to_document(), 0.05)

    async def run_story() -> None:
        found = asyncio.create_task(await_first_event(trigger, within=LONGEST_S))
        async with shared_state("cdc_state_default") as state:
            for _ in range(3):
                await control(state)
        assert not found.done()
        shop_connector.store.set_control("new", DesiredState.RUNNING, "ann")
        assert await found == {"reason": "nothing is captured yet"}

    asyncio.run(run_story())


def test_of_two_that_wait_for_what_is_captured_by_now_each_has_a_now_of_its_own(shop_connector: ShopConnector) -> None:
    """They have the same arguments when they begin."""

    async def begin_waiting(trigger: AppliedTrigger) -> asyncio.Task[Any]:
        task = asyncio.create_task(await_first_event(trigger, within=LONGEST_S))
        while trigger.batch is None:
            await asyncio.sleep(0.02)
        return task

    async def run_story() -> None:
        report(shop_connector, 0)
        early = await begin_waiting(AppliedTrigger("shop", poll_interval=0.1))
        shop_connector.order(2)
        await asyncio.to_thread(
            lambda: CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(
                context()
            )
        )
        late = await begin_waiting(AppliedTrigger("shop", poll_interval=0.1))
        report(shop_connector, 1)
        assert (await early)["batch"] == 1
        assert not late.done()
        report(shop_connector, 2)
        assert (await late)["batch"] == 2

    asyncio.run(run_story())


def test_a_trigger_that_waits_for_a_signal_gets_that_one(shop_connector: ShopConnector) -> None:
    one, other = (shop_connector.store.send("shop", SentSignal(name, "log", "{}")) for name in "xy")

    async def run_story() -> None:
        tasks = [
            asyncio.create_task(
                await_first_event(SignalCompletedTrigger("shop", n, poll_interval=0.1), within=LONGEST_S)
            )
            for n in (one, other)
        ]
        await asyncio.to_thread(shop_connector.store.set_signal_state, "shop", other, SignalState.DONE)
        assert (await tasks[1])["number"] == other
        assert not tasks[0].done()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run_story())


# -- opening, closing, connections that change --------------------------------------------------------------------------


def test_it_is_opened_once_and_closed_when_the_last_one_leaves(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = CallCounter(monkeypatch, CdcStateHook, "get_conn"), CallCounter(monkeypatch, StateStore, "close")

    async def use_state(answered: asyncio.Event, leave: asyncio.Event) -> None:
        async with shared_state("cdc_state_default") as state:
            await control(state)
            answered.set()
            await leave.wait()

    async def run_story() -> None:
        answered, leave = [asyncio.Event() for _ in range(10)], [asyncio.Event() for _ in range(10)]
        tasks = [asyncio.create_task(use_state(*both)) for both in zip(answered, leave, strict=True)]
        await asyncio.gather(*(event.wait() for event in answered))
        for event in leave[:-1]:
            event.set()
        await asyncio.gather(*tasks[:-1])
        assert (opened.calls, closed.calls) == (1, 0)
        leave[-1].set()
        await tasks[-1]
        assert (opened.calls, closed.calls) == (1, 1)

    asyncio.run(run_story())


def test_it_is_not_closed_while_a_question_of_one_that_has_left_is_being_asked(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, go_on = threading.Event(), threading.Event()
    closed, found = CallCounter(monkeypatch, StateStore, "close"), list[Any]()

    def answer_slowly(_: Any, store: StateStore) -> None:
        asking.set()
        assert go_on.wait(LONGEST_S)
        found.append((closed.calls, store.load_control("shop").desired_state))

    async def ask_state(question: Any) -> None:
        async with shared_state("cdc_state_default") as state:
            await state.query_connector("shop", question)

    async def run_story() -> None:
        task = asyncio.create_task(ask_state(answer_slowly))
        await asyncio.to_thread(asking.wait, LONGEST_S)
        task.cancel()
        while module._of_loop[
            asyncio.get_running_loop()
        ]:  # since Python 3.12, wait_for begins before the task has left
            await asyncio.sleep(0)
        # a later caller has its own one
        await asyncio.wait_for(ask_state(lambda _, store: store.load_control("shop")), LONGEST_S)
        before = closed.calls
        go_on.set()
        await asyncio.gather(task, return_exceptions=True)
        assert before == 1, "that of the second one"
        assert closed.calls == 2
        assert found == [(1, "running")]

    try:
        asyncio.run(run_story())
    finally:
        go_on.set()


def test_a_question_of_one_that_has_left_before_it_was_asked_opens_nothing(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = CallCounter(monkeypatch, CdcStateHook, "get_conn")

    async def ask_state() -> None:
        async with shared_state("cdc_state_default") as state:
            polls.append(state)
            await control(state)

    async def run_story() -> None:
        task = asyncio.create_task(ask_state())
        while not (polls and polls[0]._polling):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await polls[0]._polling
        assert opened.calls == 0

    polls: list[Any] = []
    asyncio.run(run_story())


def test_a_connection_that_is_changed_is_noticed_though_the_database_before_still_answers(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "REFRESH_S", 0.0)
    url = f"sqlite:///{tmp_path}/other.db"
    other = StateStore(url)
    other.create_tables()
    other.set_control("shop", DesiredState.PAUSED, "ann")
    other.close()
    opened, closed = CallCounter(monkeypatch, CdcStateHook, "get_conn"), CallCounter(monkeypatch, StateStore, "close")

    async def run_story() -> None:
        async with shared_state("cdc_state_default") as state:
            assert [await control(state) for _ in range(3)] == ["running"] * 3
            assert opened.calls == 1
            monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
            assert await control(state) == "running", "what works is not given up"
            connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=url)
            assert await control(state) == "paused"
            assert (opened.calls, closed.calls) == (2, 1)

    asyncio.run(run_story())


def test_one_that_is_lost_is_opened_again_once_for_all_that_ask(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server, which ends all sessions of the database and takes no new ones."""
    opened, closed = CallCounter(monkeypatch, CdcStateHook, "get_conn"), CallCounter(monkeypatch, StateStore, "close")

    async def run_story(name: str) -> None:
        async with shared_state("cdc_state_default") as state:
            assert await control(state) == "running"
            await asyncio.to_thread(
                postgres.sql,
                f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false',
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
            )
            for rounds in (1, 2):
                failed = await asyncio.gather(*(control(state) for _ in range(40)), return_exceptions=True)
                assert {type(one) for one in failed} == {StateUnavailable}
                assert opened.calls == rounds
            await asyncio.to_thread(postgres.sql, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            assert set(await asyncio.gather(*(control(state) for _ in range(40)))) == {"running"}
            assert opened.calls == 3
        assert closed.calls == 3

    with postgres.database("state") as name:
        store = StateStore(postgres.url(name))
        store.create_tables()
        store.close()
        connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=postgres.url(name))
        closed.calls = 0
        asyncio.run(run_story(name))


def test_a_storage_that_hangs_keeps_no_question_to_the_state_from_its_answer(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, reading = threading.Event(), threading.Event()

    def hang(*_: Any) -> Any:
        reading.set()
        assert go_on.wait(LONGEST_S)
        return []

    monkeypatch.setattr("airflow_provider_cdc.services.text.status_texts.list_applied_targets", hang)

    async def run_story() -> None:
        tasks = [
            asyncio.create_task(await_first_event(AppliedTrigger("shop", batch=1, poll_interval=0.1), within=LONGEST_S))
            for _ in range(40)
        ]
        await asyncio.to_thread(reading.wait, LONGEST_S)
        async with shared_state("cdc_state_default") as state:
            for _ in range(3):
                await asyncio.wait_for(control(state), LONGEST_S)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        asyncio.run(run_story())
    finally:
        go_on.set()
