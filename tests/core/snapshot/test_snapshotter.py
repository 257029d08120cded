"""Reading whole tables: groups, parallel readers, interruption at every block, and what the log adds meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.memory import source as memory
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S

TABLES = ("shop.a", "shop.b", "shop.c")


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    """Three tables of 10, 20 and 30 rows."""
    db = MemoryDatabase(request.node.nodeid)
    for size, table in zip((10, 20, 30), TABLES, strict=True):
        db.create_table(table, {"id": "int64!", "n": "int64"}, key=("id",))
        with db.transaction() as t:
            for i in range(size):
                t.insert(table, {"id": i, "n": 0})
    return db


def _equal(connector: Connector, db: MemoryDatabase) -> None:
    for table in map(str, db.read_consistent_view()[1]):
        assert connector.rows(table) == sorted(db.copy_rows(table), key=repr), table


def _hook(monkeypatch: pytest.MonkeyPatch, on_block: Callable[[int, SnapshotChunk], None]) -> None:
    """Call ``on_block`` with the number of each block that a reader hands over, in the reader's thread."""
    read, counter, lock = memory._MemorySnapshot.read, iter(range(1, 10**6)), threading.Lock()

    def read_hooked(self: Any, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        for block in read(self, chunk):
            with lock:
                number = next(counter)
            on_block(number, chunk)
            yield block

    monkeypatch.setattr(memory._MemorySnapshot, "read", read_hooked)


@pytest.mark.parametrize("readers", [1, 2, 7])
def test_every_row_is_read_once_whatever_the_number_of_readers(
    db: MemoryDatabase, tmp_path: Path, readers: int
) -> None:
    connector = memory_connector(db, tmp_path, snapshot_max_threads=readers, memory_block_rows=1)
    result = connector.capture()
    assert result.topics == {"test.shop.a": 10, "test.shop.b": 20, "test.shop.c": 30}
    _equal(connector, db)
    assert connector.replay.operations == {"r": 60}


def test_readers_really_read_at_the_same_time(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three readers meet at a barrier in their first block; with fewer threads it would never open."""
    barrier, first = threading.Barrier(3, timeout=LONGEST_S), threading.local()

    def meet_at_barrier(_number: int, _chunk: SnapshotChunk) -> None:
        if not getattr(first, "passed", False):
            first.passed = True
            barrier.wait()

    _hook(monkeypatch, meet_at_barrier)
    connector = memory_connector(db, tmp_path, snapshot_max_threads=3, memory_block_rows=1)
    assert connector.capture().events == 60
    _equal(connector, db)


def test_small_tables_share_a_batch_and_large_ones_have_their_own(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, batch_max_rows=30)
    connector.capture()
    files = [sorted({f.topic for f in m.files}) for m in connector.changelog.read_manifests("test")]
    assert files == [["test.shop.a", "test.shop.b"], ["test.shop.c"]]


def test_an_empty_table_is_known_after_the_snapshot(db: MemoryDatabase, tmp_path: Path) -> None:
    db.create_table("shop.empty", {"id": "int64!"}, key=("id",))
    connector = memory_connector(db, tmp_path)
    connector.capture()
    with db.transaction() as t:
        t.insert("shop.empty", {"id": 1})
    connector.capture()
    _equal(connector, db)
    assert connector.replay.operations == {"r": 60, "c": 1}


class _RunKilled(BaseException):
    pass


@pytest.mark.parametrize("readers", [1, 3])
def test_a_snapshot_interrupted_at_any_block_goes_on_with_the_tables_that_are_missing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    """Between the interruption and the next run rows of all tables change; the log closes the gap."""
    options: dict[str, Any] = {"snapshot_max_threads": readers, "memory_block_rows": 3, "batch_max_rows": 1}
    blocks = 0
    for n in range(1, 99):
        connector = memory_connector(db, tmp_path / str(n), **options)

        def die_at_block(number: int, _chunk: SnapshotChunk, n: int = n) -> None:
            nonlocal blocks
            blocks = number
            if number == n:
                raise _RunKilled

        with monkeypatch.context() as patch:
            _hook(patch, die_at_block)
            try:
                connector.capture()
            except _RunKilled:
                pass
            else:
                break
        done = {f.topic for m in connector.changelog.read_manifests("test") for f in m.files}
        with db.transaction() as t:
            for table in TABLES:
                t.update(table, {"id": 0}, {"n": n})
                t.insert(table, {"id": 1000 + n, "n": n})
                t.delete(table, {"id": 1000 + n - 1})
        connector.capture()
        _equal(connector, db)
        read = Counter(f.topic for m in connector.changelog.read_manifests("test") for f in m.files if "r" in f.counts)
        assert all(read[topic] == 1 for topic in done), "a table that was read is not read again"
        _no_other_files(connector)
    assert blocks > 15


def _no_other_files(connector: Connector) -> None:
    named = {f.path for m in connector.changelog.read_manifests("test") for f in m.files}
    folder = connector.folder / "changelog" / "test"
    assert {str(p.relative_to(folder)) for p in folder.rglob("*.parquet")} == named


def test_rows_that_change_during_the_snapshot_come_from_the_log(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(number: int, _chunk: SnapshotChunk) -> None:
        with db.transaction() as t:
            t.update("shop.c", {"id": number}, {"n": number})
            t.delete("shop.a", {"id": number})
            t.insert("shop.b", {"id": 100 + number})

    with monkeypatch.context() as patch:
        _hook(patch, write)
        connector = memory_connector(db, tmp_path, memory_block_rows=4, snapshot_max_threads=2)
        connector.capture()
    _equal(connector, db)
    assert connector.replay.operations["r"] == 60


def test_a_table_dropped_before_it_could_be_read_is_left_out(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_at_table(number: int, chunk: SnapshotChunk) -> None:
        if str(chunk.table) == "shop.b":
            raise _RunKilled

    connector = memory_connector(db, tmp_path, batch_max_rows=1)
    with monkeypatch.context() as patch:
        _hook(patch, die_at_table)
        with pytest.raises(_RunKilled):
            connector.capture()
    db.drop_table("shop.b")
    connector.capture()
    _equal(connector, db)
    assert "test.shop.b" not in connector.replay.tables
    db.create_table("shop.b", {"id": "int64!", "other": "string"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.b", {"id": 1, "other": "x"})
    connector.capture()
    _equal(connector, db)


def test_an_error_of_one_reader_ends_the_others_and_is_reported_as_it_is(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int, _chunk: SnapshotChunk) -> None:
        if number == 5:
            raise OSError("the cable is cut")

    _hook(monkeypatch, fail)
    connector = memory_connector(db, tmp_path, memory_block_rows=1, snapshot_max_threads=4)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="the cable is cut"):
        connector.capture()
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("cdc-")]
    assert connector.changelog.list_batches("test") == []
    _no_other_files(connector)


def test_only_listed_tables_are_read_and_all_are_captured(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_include_collection_list="shop.a")
    assert connector.capture().topics == {"test.shop.a": 10}
    with db.transaction() as t:
        t.insert("shop.b", {"id": 77})
    assert connector.capture().topics == {"test.shop.b": 1}


def test_source_blocks_of_read_rows_say_snapshot(db: MemoryDatabase, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    connector = memory_connector(db, tmp_path)
    connector.capture()
    (manifest,) = connector.changelog.read_manifests("test")
    for file in manifest.files:
        with connector.changelog.open_file("test", file) as f:
            rows = pq.read_table(f).to_pylist()
        *others, last = (r["source"]["snapshot"] for r in rows)
        assert set(others) <= {"first", "first_in_data_collection", "true"}
        assert last in ("last_in_data_collection", "last")
    assert all(record.snapshot for record in manifest.schema_changes)


def test_a_limit_of_rows_slows_the_readers_down_and_does_not_keep_the_run_from_its_end(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    limited = {"snapshot_max_rows_per_second": 60, "memory_block_rows": 5, "snapshot_max_threads": 3}
    connector = memory_connector(db, tmp_path / "slow", **limited)
    began = time.monotonic()
    connector.capture()
    assert 0.9 < time.monotonic() - began < LONGEST_S  # 60 rows, all but the last block of which are paid for
    _equal(connector, db)
    stopped = memory_connector(db, tmp_path / "stopped", **{**limited, "snapshot_max_rows_per_second": 1})
    began = time.monotonic()
    stopped.capture(until=lambda: time.monotonic() - began > 0.3)
    assert time.monotonic() - began < 5  # and not a minute
