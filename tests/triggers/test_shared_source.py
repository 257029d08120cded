"""Sources, for all triggers of a triggerer: one question for all connectors that capture one, and no one's mistake is that of another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, source_key
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.sources import SOURCES, config_class
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.triggers import shared_source as module
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from airflow_provider_cdc.triggers.shared_source import shared_source
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.trigger_runs import await_first_event
from tests.support.counted import CallCounter
from tests.support.patience import LONGEST_S


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "source")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


# -- what connectors have in common ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SOURCES)
def test_connectors_share_a_source_whatever_they_capture_of_it_and_never_one_with_other_settings(kind: str) -> None:
    """Each property of each source: those of every source, those that say what is captured, those that each connector has for itself; and all the rest,
    also of a kind that no one knows."""
    config = config_class(kind)
    every = {str(field.alias) for field in TableConfig.model_fields.values()}
    shared = every | config.list_capture_properties().keys() | config.FORM.stand_ins.keys()
    plain = source_key(ConnectorDefinition("a", kind, "/lake"))
    for name in (*(str(field.alias) for field in config.model_fields.values()), "driver.of.a.later.release"):
        one = source_key(ConnectorDefinition("b", kind, "/elsewhere", {name: "x"}))
        other = source_key(ConnectorDefinition("c", kind, "/lake", {name: "y"}))
        assert (one == other == plain) == (name in shared), name


def test_another_connection_or_another_kind_is_another_source() -> None:
    definition = ConnectorDefinition("a", "mariadb", "/lake")
    keys = {
        ConnectorAccess(definition, "one").source_key(),
        ConnectorAccess(definition, "two").source_key(),
        ConnectorAccess(ConnectorDefinition("a", "mysql", "/lake"), "one").source_key(),
        ConnectorAccess(ConnectorDefinition("b", "mysql", "/lake"), "one").source_key(),
    }
    assert len(keys) == 3


# -- who has a mistake, has it alone --------------------------------------------------------------------------------------


BROKEN = {
    "an unknown property": {"topic.prefx": "t"},
    "a wrong value": {"poll.interval.ms": "soon"},
    "lists that exclude each other": {"table.include.list": "a", "table.exclude.list": "b"},
    "a secret": {"signal.consumer.sasl.password": "sesame"},
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("bad_first", [True, False])
def test_a_definition_that_cannot_be_used_is_reported_and_its_neighbours_of_the_same_source_wait_on(
    shop_connector: ShopConnector, broken: str, *, bad_first: bool
) -> None:
    definition = ConnectorDefinition("bad", "memory", shop_connector.definition.changelog, BROKEN[broken])
    good = ChangesAvailableTrigger(ConnectorAccess(shop_connector.definition, "shop").to_document(), 0.1)
    bad = ChangesAvailableTrigger(ConnectorAccess(definition, "shop").to_document(), 0.1)

    async def run_story() -> None:
        order = [bad, good] if bad_first else [good, bad]
        tasks = {trigger: asyncio.create_task(await_first_event(trigger, within=LONGEST_S)) for trigger in order}
        assert "error" in await tasks[bad]
        assert not tasks[good].done()
        shop_connector.order(2)
        assert await tasks[good] == {"reason": "the log has advanced to entry 3"}

    asyncio.run(run_story())


# -- connections that change -------------------------------------------------------------------------------------------


def test_a_connection_that_is_changed_is_noticed_though_the_source_before_still_answers(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH_S", 0.0)
    other = MemoryDatabase("source-other")
    access = ConnectorAccess(shop_connector.definition, "shop")

    async def end() -> str:
        async with shared_source(access) as source:
            return str(await source.read_log_end(access, await source.resolve_properties(access), 0.0))

    async def run_story() -> None:
        async with shared_source(access):  # it stays the same one
            before = await end()
            assert before == "entry 2"
            monkeypatch.delenv("AIRFLOW_CONN_SHOP")
            await asyncio.sleep(0)
            assert await end() == before, "what works is not given up"
            connect(monkeypatch, "shop", conn_type="cdc_memory", host=other.name)
            while await end() == before:
                await asyncio.sleep(0)
            assert await end() == "entry 0"

    asyncio.run(asyncio.wait_for(run_story(), LONGEST_S))


def test_after_an_error_the_connection_is_looked_up_again(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, requests = CallCounter(monkeypatch, ConnectorAccess, "resolve_properties"), list[int]()
    access, answer = ConnectorAccess(shop_connector.definition, "shop"), MemorySource.current_position

    def fail_first(self: MemorySource) -> Any:
        requests.append(1)
        if len(requests) == 1:
            raise SourceUnavailable("not now")
        return answer(self)

    monkeypatch.setattr(MemorySource, "current_position", fail_first)

    async def run_story() -> None:
        async with shared_source(access) as source:

            async def end() -> str:
                return str(await source.read_log_end(access, await source.resolve_properties(access)))

            failed = await asyncio.gather(*(end() for _ in range(10)), return_exceptions=True)
            assert {str(one).partition("\n")[0] for one in failed} == {"not now"}
            assert (looked.calls, len(requests)) == (1, 1)
            while True:  # an error is shared for a moment, as an answer is
                try:
                    assert await end() == "entry 2"
                    break
                except SourceUnavailable:
                    await asyncio.sleep(0.05)
            assert looked.calls > 1
            assert len(requests) == 2

    asyncio.run(asyncio.wait_for(run_story(), LONGEST_S))
