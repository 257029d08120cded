"""Reads of whole tables, by ``snapshot.mode`` and its neighbours, on the memory source."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.sources.memory import source as memory
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.workloads.small_tables import KEYED, equal, insert, operations


class _RunKilled(BaseException):
    pass


def _while_reading(monkeypatch: pytest.MonkeyPatch, what: Any) -> None:
    """Do something when a snapshot reads its first chunk, once."""
    read, done = memory._MemorySnapshot.read, []

    def read_hooked(self: Any, chunk: Any) -> Any:
        if not done:
            done.append(1)
            what()
        yield from read(self, chunk)

    monkeypatch.setattr(memory._MemorySnapshot, "read", read_hooked)


def test_always_reads_and_then_streams_in_every_run(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="always", snapshot_max_threads=1)
    for n in (10, 20):
        with monkeypatch.context() as patch:
            _while_reading(patch, lambda n=n: insert(db, "shop.a", n))
            done = operations(connector, connector.capture())
        assert (done["a"]["c"], done["a"]["r"], done["b"]["r"]) == (1, 2 if n == 10 else 3, 2)
        equal(connector, db)


def test_initial_reads_until_the_snapshot_is_complete_and_never_again(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path)

    def die_at_once() -> None:
        raise _RunKilled

    with monkeypatch.context() as patch:
        _while_reading(patch, die_at_once)
        with pytest.raises(_RunKilled):
            connector.capture()
    assert operations(connector, connector.capture()) == {"a": {"r": 2}, "b": {"r": 2}}
    assert connector.capture().events == 0
    insert(db, "shop.a", 3)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_recovery_builds_a_lost_history_again(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)
    engine = sa.create_engine(connector.state_url)
    with engine.begin() as connection:
        (table,) = [t for t in sa.inspect(engine).get_table_names() if t.endswith("schema_history")]
        connection.execute(sa.text(f"DELETE FROM {table}"))
    engine.dispose()
    assert list(connector.store.schema_history("test")) == []
    assert operations(connector, connector.capture({"snapshot.mode": "recovery"})) == {"a": {"c": 1}}
    records = list(connector.store.schema_history("test"))
    assert [(c.type, str(c.id)) for r in records for c in r.changes] == [("CREATE", "shop.a"), ("CREATE", "shop.b")]
    assert all(r.snapshot for r in records)


def test_a_snapshot_waits_for_the_configured_delay(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    connector = memory_connector(db, tmp_path, snapshot_delay_ms=700)
    began = time.monotonic()
    assert connector.capture().events == 4
    assert time.monotonic() - began >= 0.7
    assert 0.7 in slept
    slept.clear()
    connector.capture()  # no snapshot: nothing to wait for
    assert 0.7 not in slept
    assert TableConfig.parse({"topic.prefix": "p"}).snapshot_delay_ms == 0


@pytest.mark.parametrize("mode", ["initial", "always", "initial_only", "when_needed"])
def test_the_snapshot_list_chooses_by_whole_names_among_the_captured_tables(
    db: MemoryDatabase, tmp_path: Path, mode: str
) -> None:
    db.create_table("shop.aa", KEYED, key=("id",))
    insert(db, "shop.aa", 1)
    everything = memory_connector(db, tmp_path / "all", snapshot_mode=mode)
    assert everything.capture().topics == {"test.shop.a": 2, "test.shop.b": 2, "test.shop.aa": 1}
    options = {"table_include_list": "shop.a,shop.aa", "snapshot_include_collection_list": r"shop\.(a|b)"}
    some = memory_connector(db, tmp_path / "some", snapshot_mode=mode, **options)
    assert some.capture().topics == {"test.shop.a": 2}
