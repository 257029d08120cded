"""Watching tables: Airflow's own manager of shared streams, real state tables, and a stand-in for the asset's state store and for the
supervisor that says what is kept in Airflow's database."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.asset_changes import CURSOR, CdcChangeTrigger
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.airflow.trigger_runs import deserialize_trigger
from tests.support.airflow.watched_tables import LINES, ORDERS, AssetState, change, make_watched_shop, wait_until
from tests.support.counted import CallCounter

pytest.importorskip("airflow.triggers.shared_stream", reason="Airflow 3.1 and 3.2 have no shared streams")


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_watched_shop(monkeypatch, tmp_path)
    yield shop_connector
    shop_connector.store.close()


class SlowAssetState(AssetState):
    """A state store that does not answer."""

    async def aget(self, key: str) -> Any:
        await asyncio.sleep(3600)


def shared_stream_manager(ack_timeout: int) -> Any:
    from airflow.triggers.shared_stream import SharedStreamManager

    return SharedStreamManager(ack_timeout=ack_timeout)


class Triggerer:
    """Runs triggers as Airflow's does: they share a stream, and what they fire is kept when :meth:`keep` says so.

    :ivar looked: trigger → how many polls it is done with
    """

    def __init__(self) -> None:
        self.manager = shared_stream_manager(60)
        self.fired: list[tuple[int, Any]] = []
        self.unkept: list[int] = []
        self.stall_s = 0.0
        self.looked: Counter[int] = Counter()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, number: int, kept: AssetState, topics: list[str] | None = None) -> None:
        trigger = deserialize_trigger(CdcChangeTrigger("shop", topics or [], asset="a", poll_interval=0.05))
        trigger.asset_state_store = kept
        self._tasks[number] = asyncio.create_task(self._run(number, trigger))

    async def _run(self, number: int, trigger: BaseEventTrigger) -> None:
        key = trigger.shared_stream_key()
        assert key is not None
        stream = self.manager.subscribe(trigger_id=number, trigger=trigger, key=key)

        async def count_polls() -> AsyncIterator[Any]:
            async for poll in stream:
                yield poll
                self.looked[number] += 1

        try:
            async for event in trigger.filter_shared_stream(count_polls()):
                seq = self.manager.bind_pending_event(trigger_id=number, key=key)
                assert seq is not None
                self.fired.append((number, event.payload))
                self.unkept.append(seq)
                await asyncio.sleep(self.stall_s)
        finally:
            await self.manager.unsubscribe(number, key)

    def keep(self) -> None:
        """Everything that was fired is in the database now."""
        self.manager.confirm_persisted(self.unkept)
        self.unkept.clear()

    async def leave(self, number: int) -> None:
        """End a trigger: its DAG is gone."""
        task = self._tasks.pop(number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def die(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.manager.stop_all()

    async def until(self, events: int) -> list[tuple[int, Any]]:
        await wait_until(lambda: len(self.fired) >= events)
        return self.fired

    async def looks(self, *numbers: int, times: int = 1) -> None:
        """Until each of these triggers is done with so many more polls: from the first one on it listens."""
        expected = {number: self.looked[number] + times for number in numbers}
        await wait_until(lambda: all(self.looked[number] >= least for number, least in expected.items()))


@contextlib.asynccontextmanager
async def triggerer() -> AsyncIterator[Triggerer]:
    triggerer = Triggerer()
    try:
        yield triggerer
    finally:
        await triggerer.die()


def test_a_table_reports_its_own_changes_only(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        async with triggerer() as t:
            t.start(1, AssetState(), [ORDERS])
            t.start(2, AssetState(), [LINES])
            t.start(3, AssetState())
            await t.looks(1, 2, 3, times=3)
            assert t.fired == []  # what was captured before is not reported
            await asyncio.to_thread(change, shop_connector, 1)
            fired = dict(await t.until(2))
            assert set(fired) == {1, 3}
            last = shop_connector.store.list_batches("shop")[0]
            assert fired[1] == {
                "connector": "shop",
                "topics": {ORDERS: 1},
                "events": 1,
                "batches": [last.batch, last.batch],
                "last_seq": last.last_seq,
                "position": last.position,
            }
            await asyncio.to_thread(change, shop_connector, 1, "lines")
            assert [n for n, _ in (await t.until(4))[2:]] in ([2, 3], [3, 2])

    asyncio.run(run_story())


def test_all_tables_of_a_connector_share_one_poll(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled, batches = (
        CallCounter(monkeypatch, StateStore, "load_records"),
        CallCounter(monkeypatch, StateStore, "list_batches"),
    )

    async def run_story() -> None:
        async with triggerer() as t:
            for number in range(40):
                t.start(number, AssetState(), [ORDERS])
            await t.looks(*range(40), times=5)
            # each of them is done with all of these, but for one that is being asked and one that is being passed on; 40 of each would have been 200
            assert polled.about <= max(t.looked.values()) + 2

    asyncio.run(run_story())
    assert batches.calls <= 2, "only where the offset has moved"


def test_what_was_captured_while_no_triggerer_was_alive_is_reported(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        kept = AssetState()
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            await t.looks(1)
        for key in (1, 2, 3):
            await asyncio.to_thread(change, shop_connector, key)
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            ((_, payload),) = await t.until(1)
            assert payload["events"] == 3

    asyncio.run(run_story())


def test_an_event_that_was_not_kept_when_the_triggerer_died_is_reported_again(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        kept = AssetState()
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            await t.looks(1)
            began = kept[CURSOR]
            await asyncio.to_thread(change, shop_connector, 1)
            (reported,) = await t.until(1)
            await t.looks(1, times=4)  # the stream continues, and Airflow has not kept the event
            assert kept[CURSOR] == began
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            assert await t.until(1) == [reported]
            t.keep()
            await wait_until(lambda: kept[CURSOR] != began)
            assert kept[CURSOR] == reported[1]["batches"][1]
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            await t.looks(1, times=4)
            assert t.fired == []

    asyncio.run(run_story())


def test_one_table_that_is_not_kept_does_not_hold_up_what_is_kept_of_others(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        async with triggerer() as t:
            t.start(1, AssetState(), [ORDERS])
            await t.looks(1)
            await asyncio.to_thread(change, shop_connector, 1)
            await t.until(1)  # never kept
            late = AssetState()
            t.start(2, late, [LINES])
            await t.looks(2)
            await asyncio.to_thread(change, shop_connector, 1, "lines")
            assert (await t.until(2))[1][0] == 2  # reported, in spite of the other

    asyncio.run(run_story())


def test_a_watcher_that_leaves_does_not_disturb_the_others(shop_connector: ShopConnector) -> None:
    async def run_story() -> None:
        async with triggerer() as t:
            kept = AssetState()
            t.start(1, kept, [ORDERS])
            t.start(2, AssetState(), [LINES])
            await t.looks(1, 2)
            t.start(3, SlowAssetState(), [LINES])
            await t.looks(1, times=4)  # they wait in the queue of the third, which will never see them
            await t.leave(3)
            await t.looks(1, times=4)
            await asyncio.to_thread(change, shop_connector, 1)
            ((number, payload),) = await t.until(1)
            assert number == 1
            t.keep()
            await wait_until(lambda: kept[CURSOR] == payload["batches"][1])

    asyncio.run(run_story())


def test_an_abandoned_trigger_gets_its_event_again_beside_others(shop_connector: ShopConnector) -> None:
    """Airflow gives up on a trigger whose event it could not store."""

    async def run_story() -> None:
        kept = AssetState()
        async with triggerer() as t:
            t.manager, t.stall_s = shared_stream_manager(2), 3600
            t.start(1, kept, [ORDERS])
            t.start(2, AssetState(), [LINES])
            await t.looks(1, 2)
            began = kept[CURSOR]
            await asyncio.to_thread(change, shop_connector, 1)
            (reported,) = await t.until(1)  # never kept
            await asyncio.sleep(3)
            await t.looks(2)
            assert kept[CURSOR] == began
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            assert await t.until(1) == [reported]

    asyncio.run(run_story())


def test_a_connector_that_was_deleted_and_began_again_is_reported_from_its_first_batch(
    shop_connector: ShopConnector, tmp_path: Path
) -> None:
    async def run_story() -> None:
        kept = AssetState({CURSOR: 500})
        async with triggerer() as t:
            t.start(1, kept, [ORDERS])
            await asyncio.to_thread(change, shop_connector, 1)
            assert (await t.until(1))[0][1]["topics"] == {ORDERS: 1}

    asyncio.run(run_story())
