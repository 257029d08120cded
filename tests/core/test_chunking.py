"""The thread that reads chunks: how far it goes ahead of a stream that stands still."""

from __future__ import annotations

import time

import pytest

from airflow_provider_cdc.core import chunking
from airflow_provider_cdc.core.chunking import AHEAD, ChunkThread
from airflow_provider_cdc.core.config import ConnectorConfig
from airflow_provider_cdc.core.position import Scan
from airflow_provider_cdc.sources.memory.chunks import MemoryChunks
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.position import MemoryPosition


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", {"id": "int64!", "text": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(2000):
            t.insert("shop.a", {"id": i, "text": "x" * 100})
    return db


def windows_ahead(db: MemoryDatabase, expected: int) -> int:
    """How many windows are read when none of them is ever done."""
    config = ConnectorConfig.parse({"topic.prefix": "t", "incremental.snapshot.chunk.size": 5})
    thread = ChunkThread(config, lambda: MemoryChunks(db, None), lambda schema, scan: schema.key, written=False)

    def ready() -> int:
        return sum(window.chunk is not None for window in [*thread.windows])

    try:
        thread.read(db.id("shop.a"), Scan(table="shop.a", request=1))
        thread.arrive(MemoryPosition(0))
        until = time.monotonic() + 20
        while ready() < expected and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.3)
        return ready()
    finally:
        thread.close()


def test_some_windows_are_read_ahead(db: MemoryDatabase) -> None:
    assert windows_ahead(db, AHEAD) == AHEAD


@pytest.mark.parametrize(
    ("bound", "value", "windows"), [("ROWS", 10, 2), ("ROWS", 11, 3), ("BYTES", 800, 2), ("BYTES", 2000, 4)]
)
def test_fewer_windows_are_read_ahead_when_they_hold_much(
    db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, windows: int
) -> None:
    monkeypatch.setattr(chunking, f"AHEAD_{bound}", value)
    assert windows_ahead(db, windows) == windows
