"""The database of the tests of incremental snapshots, the forms of watermarks, and what happens while a chunk is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, FORMS, fill


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    """Three tables with 1000 rows each, and a signal table."""
    db = MemoryDatabase(request.node.nodeid)
    for name in ("a", "b", "c"):
        db.create_table(f"shop.{name}", COLUMNS, key=("id",))
        fill(db, f"shop.{name}", range(1000))
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))
    return db


@pytest.fixture(params=FORMS)
def watermark_form(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = FORMS[request.param]
    return found


@pytest.fixture
def at_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Have something done right after the n-th chunk was read, before the stream has come to its place."""
    todo: dict[int, Callable[[], object]] = {}
    read, count = MemoryChunkReader.read, [0]

    def read_and_act(self: MemoryChunkReader, *args: Any) -> Any:
        found = read(self, *args)
        count[0] += 1
        if (act := todo.get(count[0])) is not None:
            act()
        return found

    monkeypatch.setattr(MemoryChunkReader, "read", read_and_act)
    return lambda n, act: todo.update({n: act})
