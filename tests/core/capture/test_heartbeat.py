"""Heartbeats: the offset moves on where there is nothing to capture, and a statement keeps a quiet log moving."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.heartbeat import Heartbeats
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.patience import LONGEST_S


class _Source:
    def __init__(self, done: list[str]) -> None:
        self.execute_statement = done.append


def _beats(at: list[float], **properties: Any) -> list[str]:
    """The offsets that were made durable and the statements that were run, in their order, when it was asked for at some moments."""
    done, moments = list[str](), iter(at)
    config = TableConfig.parse({"topic.prefix": "p", **properties})
    commit: Callable[[], None] = lambda: done.append("offset")  # noqa: E731
    heartbeats = Heartbeats(config, _Source(done), commit, lambda: next(moments))  # type: ignore[arg-type]
    for _ in at:
        heartbeats.beat_if_due()
    return done


def test_a_heartbeat_is_due_at_once_and_then_by_the_interval() -> None:
    query = {"heartbeat.interval.ms": 1000, "heartbeat.action.query": "q"}
    assert _beats([5.0, 5.5, 5.9, 6.1, 6.9, 7.2], **query) == ["offset", "q"] * 3, "the statement after the heartbeat"
    assert _beats([5.0, 5.5, 6.1], **{"heartbeat.interval.ms": 1000}) == ["offset"] * 2
    assert _beats([5.0, 60.0, 3600.0]) == []


@pytest.fixture
def quiet_database() -> MemoryDatabase:
    """A captured table, and one of heartbeats which is not."""
    database = MemoryDatabase("quiet")
    for table in ("captured", "beats"):
        database.create_table(f"shop.{table}", {"id": "int64!"}, key=("id",))
    return database


def _insert(database: MemoryDatabase, table: str, number: int) -> None:
    with database.transaction() as t:
        t.insert(f"shop.{table}", {"id": number})


def _connector(database: MemoryDatabase, folder: Path, **properties: Any) -> Any:
    return memory_connector(database, folder, table_include_list="shop.captured", batch_max_ms=600_000, **properties)


@pytest.mark.parametrize("interval_ms", [50, 600_000, 0])
def test_the_offset_of_a_quiet_table_moves_on(quiet_database: MemoryDatabase, tmp_path: Path, interval_ms: int) -> None:
    """By the interval, while the run continues. At its end every run makes its offset durable, with heartbeats or without."""
    connector = _connector(quiet_database, tmp_path, heartbeat_interval_ms=interval_ms)
    connector.capture()
    before, moments = connector.store.load_offset("test").offset, []
    _insert(quiet_database, "beats", 0)
    advance = type(connector.store).advance_offset

    def record_moment(*told: Any) -> Any:
        moments.append(time.monotonic())
        _insert(quiet_database, "beats", len(moments))  # so that the position can move on
        return advance(*told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connector.store), "advance_offset", record_moment)
        began = time.monotonic()
        if interval_ms == 50:
            connector.capture(run_for_s=LONGEST_S, until=lambda: len(moments) >= 3 and time.monotonic() > began + 1)
        else:
            connector.capture(run_for_s=1.0)
        took = time.monotonic() - began
    if interval_ms == 50:
        assert 3 <= len(moments) <= 20 * took + 2
    else:
        assert len(moments) == 1
    after = connector.store.load_offset("test").offset
    assert after.position != before.position
    assert after.batch == before.batch


def test_the_statement_is_run_in_every_run_and_what_it_writes_is_captured(
    quiet_database: MemoryDatabase, tmp_path: Path
) -> None:
    quiet_database.on_execute = lambda statement: _insert(quiet_database, "captured", len(quiet_database.executed))
    connector = _connector(
        quiet_database, tmp_path, heartbeat_interval_ms=600_000, heartbeat_action_query="insert into captured"
    )
    assert connector.capture().events == 1
    assert connector.capture().events == 1
    assert quiet_database.executed == ["insert into captured"] * 2
    assert connector.rows("shop.captured") == [{"id": 1}, {"id": 2}]


def test_no_heartbeat_comes_before_the_snapshot(quiet_database: MemoryDatabase, tmp_path: Path) -> None:
    _insert(quiet_database, "captured", 1)
    connector = _connector(quiet_database, tmp_path, heartbeat_interval_ms=600_000, heartbeat_action_query="q")
    offsets = []
    quiet_database.on_execute = lambda statement: offsets.append(connector.store.load_offset("test").offset)
    connector.capture()
    assert [offset.snapshot.pending for offset in offsets] == [{}]
    assert offsets[0].position is not None


def test_without_an_interval_the_statement_is_never_run(quiet_database: MemoryDatabase, tmp_path: Path) -> None:
    _connector(quiet_database, tmp_path, heartbeat_action_query="q").capture()
    assert quiet_database.executed == []


def test_a_negative_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms"):
        TableConfig.parse({"topic.prefix": "p", "heartbeat.interval.ms": -1})
