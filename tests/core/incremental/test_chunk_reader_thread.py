"""The thread that reads chunks: how far it goes ahead of a stream that stands still."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.incremental import chunk_reader_thread as chunking
from airflow_provider_cdc.core.incremental import chunks_per_window as sharing
from airflow_provider_cdc.core.incremental.chunk_reader_thread import AHEAD, ChunkReaderThread
from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows, StructureChanged
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.position import MemoryPosition
from tests.support.patience import wait_until

CONFIG = TableConfig.parse({"topic.prefix": "t", "incremental.snapshot.chunk.size": 5})


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", {"id": "int64!", "text": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(2000):
            t.insert("shop.a", {"id": i, "text": "x" * 100})
    return db


def windows_ahead(db: MemoryDatabase, expected: int, config: TableConfig = CONFIG) -> int:
    """Count the windows that are read while none of them is ever done; each has one chunk, on a busy machine too."""
    thread = ChunkReaderThread(
        config, lambda: MemoryChunkReader(db, None), lambda schema, scan: schema.key, written=False
    )

    def count_ready_windows() -> int:
        return sum(window.chunk is not None for window in [*thread.windows])

    with patch.object(sharing, "CHUNKS", 1), closing(thread):
        thread.read(db.resolve_table_id("shop.a"), TableScan(table="shop.a", request=1))
        thread.advance_position(MemoryPosition(0))
        wait_until(lambda: count_ready_windows() >= expected, f"{expected} windows are read")
        time.sleep(0.3)
        return count_ready_windows()


def test_reports_of_the_stream_do_not_shorten_the_wait_for_another_try(
    db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []

    def raise_locked(self: MemoryChunkReader, *args: Any) -> Any:
        began.append(time.monotonic())
        raise SourceBusy("locked")

    monkeypatch.setattr(MemoryChunkReader, "read", raise_locked)
    thread = ChunkReaderThread(
        CONFIG, lambda: MemoryChunkReader(db, None), lambda schema, scan: schema.key, written=False
    )
    try:
        thread.read(db.resolve_table_id("shop.a"), TableScan(table="shop.a", request=1))
        while len(began) < 3:
            thread.advance_position(MemoryPosition(0))
            time.sleep(0.001)
    finally:
        thread.close()
    assert began[1] - began[0] >= 0.1
    assert began[2] - began[1] >= 0.2


def test_what_the_database_does_not_show_is_asked_for_less_and_less_often_and_not_for_ever(
    db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may lack transactions that the one before had."""
    monkeypatch.setattr(chunking, "_CATCH_UP_S", 1.0)
    reads, read = [0], MemoryChunkReader.read

    def count_and_read(self: MemoryChunkReader, *args: Any) -> Any:
        reads[0] += 1
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", count_and_read)
    thread = ChunkReaderThread(
        CONFIG, lambda: MemoryChunkReader(db, None), lambda schema, scan: schema.key, written=False
    )
    try:
        thread.read(db.resolve_table_id("shop.a"), TableScan(table="shop.a", request=1))
        ahead = MemoryPosition(len(db.log) + 3)
        while not (windows := thread.advance_position(ahead)) or windows[0].chunk is None:
            time.sleep(0.001)
    finally:
        thread.close()
    (window,) = windows
    assert window.final
    assert window.problem is not None
    assert f"the changes after entry {len(db.log)}, up to {ahead}" in window.problem.text
    assert reads[0] <= 12


def test_a_table_with_another_key_is_read_from_its_first_row_though_the_connection_is_lost_meanwhile(
    db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, last, reads, lost = MemoryChunkReader.read, MemoryChunkReader.read_last_key, [0], [0]

    def changes(self: MemoryChunkReader, *args: Any) -> Any:
        reads[0] += 1
        if reads[0] == 3:
            raise StructureChanged
        return read(self, *args)

    def fail_third_read(self: MemoryChunkReader, *args: Any) -> Any:
        if reads[0] == 3 and not lost[0]:
            lost[0] += 1
            raise SourceUnavailable("gone")
        return last(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", changes)
    monkeypatch.setattr(MemoryChunkReader, "read_last_key", fail_third_read)

    def order(schema: TableSchema, scan: TableScan) -> tuple[str, ...]:
        return ("id",) if reads[0] < 3 else ("text", "id")

    thread = ChunkReaderThread(CONFIG, lambda: MemoryChunkReader(db, None), order, written=False)
    try:
        thread.read(db.resolve_table_id("shop.a"), TableScan(table="shop.a", request=1))
        windows = wait_until(
            lambda: w if len(w := thread.advance_position(MemoryPosition(0))) >= 4 else None, "four windows are read"
        )
        assert windows is not None
    finally:
        thread.close()
    assert lost[0] == 1
    assert [w.problem for w in windows[:3]] == [None] * 3
    assert [w.first_key for w in windows[:3]] == [[0], [5], ["x" * 100, 0]]


def test_some_windows_are_read_ahead(db: MemoryDatabase) -> None:
    assert windows_ahead(db, AHEAD) == AHEAD


@pytest.mark.parametrize(("rows", "windows"), [(10, 2), (11, 3)])
def test_fewer_windows_are_read_ahead_when_they_hold_many_rows(
    db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch, rows: int, windows: int
) -> None:
    monkeypatch.setattr(chunking, "AHEAD_ROWS", rows)
    assert windows_ahead(db, windows) == windows


@pytest.mark.parametrize(("max_bytes", "windows"), [(1024, 6), (2048, 11)])
def test_what_waits_in_windows_is_bounded_by_its_bytes(db: MemoryDatabase, max_bytes: int, windows: int) -> None:
    """Each window has about 570 bytes; four times the bytes that a chunk may have are in memory together at most."""
    assert 572 * windows <= 4 * max_bytes
    properties = {"incremental.snapshot.chunk.size": 5, "incremental.snapshot.chunk.max.bytes": max_bytes}
    config = TableConfig.parse({"topic.prefix": "t", **properties})
    assert windows_ahead(db, windows, config) == windows


def test_a_window_as_large_as_all_may_be_waits_alone(db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single row may be larger than a chunk may."""
    monkeypatch.setattr(ChunkRows, "memory_bytes", 1 << 30)
    assert windows_ahead(db, 1) == 1


def test_a_limit_of_rows_spreads_the_chunks(db: MemoryDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    began, read = list[float](), MemoryChunkReader.read

    def note_and_read(self: MemoryChunkReader, *args: Any) -> Any:
        began.append(time.monotonic())
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", note_and_read)
    config = TableConfig.parse(
        {"topic.prefix": "t", "incremental.snapshot.chunk.size": 5, "snapshot.max.rows.per.second": 50}
    )
    windows_ahead(db, 5, config)
    assert began[4] - began[0] >= 0.39, "four pauses of 0.1 s each"
