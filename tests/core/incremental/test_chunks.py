"""Chunks of incremental snapshots: the cuts through tables, and the replacement of the rows that are there.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, FORMS, BusyWriter, fill, partial
from tests.support.connectors import memory_connector
from tests.support.signals import scans, send, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_a_key_of_ones_own_and_a_surrogate_key_cut_chunks(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    db.create_table("shop.k", {"id": "int64!", "turn": "int64!", "note": "string"})
    with db.transaction() as t:
        for i in range(300):
            t.insert("shop.k", {"id": i, "turn": i % 3})
    connector = partial(db, tmp_path, message_key_columns="shop.k:id", **watermark_form)
    number = snapshot(connector, "shop.k", surrogate_key="turn")
    connector.capture()
    assert (signal_state(connector, number), len(connector.rows("shop.k"))) == (("done", ""), 300)


def test_a_surrogate_key_that_may_be_null_or_is_missing_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    nullable = snapshot(connector, "shop.a", surrogate_key="n")
    missing = snapshot(connector, "shop.a", surrogate_key="nix")
    connector.capture()
    assert "column n of shop.a is nullable" in signal_state(connector, nullable)[1]
    assert "shop.a has no column nix, the surrogate key" in signal_state(connector, missing)[1]


@pytest.fixture
def chunk_sizes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Tables that chunks are read of, and the rows that each was to have."""
    found: list[tuple[str, int]] = []
    read = MemoryChunkReader.read

    def record_and_read(self: MemoryChunkReader, rows: Any, limit: int, *more: Any) -> Any:
        found.append((rows.table.id.full_name, limit))
        return read(self, rows, limit, *more)

    monkeypatch.setattr(MemoryChunkReader, "read", record_and_read)
    return found


def test_windows_of_a_quick_table_hold_several_chunks_of_a_slow_one_only_one(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=10, **watermark_form)
    found: dict[str, list[int]] = {"shop.a": [], "shop.b": []}
    read = MemoryChunkReader.read

    def record_and_read(self: MemoryChunkReader, rows: Any, limit: int, queries: int, max_bytes: int) -> Any:
        found[str(rows.table.id)].append(queries)
        chunk = read(self, rows, limit, queries, max_bytes)
        # of table a, reading takes next to nothing beside everything else; of b, it is as good as all that takes time
        chunk.reading_s = 1e-9 if rows.table.id.name == "a" else 60.0 * queries
        return chunk

    monkeypatch.setattr(MemoryChunkReader, "read", record_and_read)
    snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    assert found["shop.a"][:5] == [1, 2, 4, 8, 16]
    assert set(found["shop.a"][5:]) == {16}
    assert found["shop.b"][0] == 16
    assert set(found["shop.b"][1:]) == {1}
    connector.replay.advance()
    equal(connector, db, "shop.a", "shop.b")
    assert connector.replay.operations["r"] == 2000


def test_at_the_end_the_progress_says_that_nothing_is_left(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    (found,) = connector.store.signals_of("test", limit=1, number=number)
    shown = {"table": "shop.b", "tables": 2, "left": 0, "rows": 1000, "chunk_rows": 50}
    assert (found.state, found.progress) == ("done", shown)


@pytest.mark.parametrize("target_ms", [0, 1000])
def test_a_request_may_say_how_many_rows_a_chunk_has(
    db: MemoryDatabase,
    tmp_path: Path,
    watermark_form: dict[str, Any],
    chunk_sizes: list[tuple[str, int]],
    target_ms: int,
) -> None:
    db.create_table("shop.k", COLUMNS, key=("id",))
    fill(db, "shop.k", range(10))
    connector = partial(db, tmp_path, incremental_snapshot_chunk_target_ms=target_ms, **watermark_form)
    other, signal_number = snapshot(connector, "shop.b"), snapshot(connector, "shop.k", chunk_size=3)
    connector.capture()
    assert {limit for table, limit in chunk_sizes if table == "shop.k"} == {3}
    assert 50 in {limit for table, limit in chunk_sizes if table == "shop.b"}
    assert (signal_state(connector, other), signal_state(connector, signal_number)) == (("done", ""), ("done", ""))
    assert (len(connector.rows("shop.k")), len(connector.rows("shop.b"))) == (10, 1000)


def test_the_chunk_size_of_a_request_outlives_a_run(
    db: MemoryDatabase, tmp_path: Path, chunk_sizes: list[tuple[str, int]], at_read: Any
) -> None:
    connector = partial(db, tmp_path)
    at_read(2, lambda: send(connector, "pause-snapshot"))
    number = snapshot(connector, "shop.a", chunk_size=3)
    connector.capture()
    found = connector.store.signals_of("test", limit=1, number=number)[0]
    assert (found.state, found.progress["chunk_rows"]) == ("running", 3)
    before = len(chunk_sizes)
    send(connector, "resume-snapshot")
    connector.capture()
    assert len(chunk_sizes) > before
    assert set(chunk_sizes) == {("shop.a", 3)}
    assert (signal_state(connector, number), len(connector.rows("shop.a"))) == (("done", ""), 1000)


def test_a_chunk_size_that_cannot_be_meant_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    none = snapshot(connector, "shop.a", chunk_size=0)
    whole = snapshot(connector, "shop.a", chunk_size=3, type="blocking")
    connector.capture()
    assert signal_state(connector, none) == ("refused", '"chunk-size" is not a whole number from 1 to 1,000,000')
    assert signal_state(connector, whole)[0] == "refused"
    assert scans(connector) == {}


def test_rows_that_are_gone_disappear_when_a_table_is_replaced(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = memory_connector(
        db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **watermark_form
    )
    connector.capture()
    db._rows[db.resolve_table_id("shop.a")] = [
        row for row in db._rows[db.resolve_table_id("shop.a")] if row["id"] % 2
    ]  # the log knows nothing of it
    connector.replay.partial = True  # of rows that are not read again yet, there may be changes
    number = snapshot(connector, "shop.b", "shop.a", replace=True)
    with BusyWriter(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert signal_state(connector, number) == ("done", "")


@pytest.mark.parametrize(
    ("watermark_form", "why"),
    [(form, why) for form in FORMS for why in ("no key", "surrogate key", "signal table")[: 3 if FORMS[form] else 2]],
    indirect=["watermark_form"],
)
def test_a_table_that_cannot_be_read_is_not_emptied_to_be_replaced(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], why: str
) -> None:
    db.create_table("shop.d", COLUMNS, key=() if why == "no key" else ("id",))
    fill(db, "shop.d", range(30))
    connector = memory_connector(
        db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **watermark_form
    )
    connector.capture()
    more: dict[str, Any] = {"replace": True}
    if why == "surrogate key":
        more["surrogate_key"] = "nope"
    if why == "signal table":
        db.drop_table("shop.signals")
    number = snapshot(connector, "shop.d", "shop.a", **more)
    connector.capture()
    equal(connector, db, "shop.d", "shop.a")
    assert signal_state(connector, number)[0] == "failed"
    assert connector.replay.operations["t"] == (1 if why == "no key" else 0), "of shop.a, which can be read"


def test_what_happens_before_a_table_is_emptied_to_be_replaced_is_read_afterwards(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(
        db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **watermark_form
    )
    connector.capture()
    connector.replay.partial = True  # of rows that are not read again yet, there may be changes
    for n in range(1, 30):
        at_read(n, lambda: time.sleep(0.02))
    number = snapshot(connector, "shop.a", "shop.b", replace=True)
    with BusyWriter(db), BusyWriter(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert signal_state(connector, number) == ("done", "")
    assert connector.replay.operations["t"] == 2
