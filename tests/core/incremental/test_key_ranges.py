"""Incremental snapshots of ranges of keys, with deletes of keys that have no row.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a delete of a row that is there, and a row that is
not what the log says, are errors there. Wrong rows are planted in the replay, as in a target that someone has changed.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import TransientError
from airflow_provider_cdc.core.incremental import chunk_reader_thread as chunking
from airflow_provider_cdc.core.incremental import chunks_per_window
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import BusyWriter, fill, pause_snapshots
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.support.signals import list_notifications, scans, send, signal_ended, signal_state, snapshot
from tests.support.workloads.small_tables import equal

Row = dict[str, Any]


def start_connector(db: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    """A connector that has read all tables and streams."""
    options = {"table_include_list": "shop.[a-z]", "incremental_snapshot_chunk_size": 50}
    connector = memory_connector(db, folder, signal_poll_interval_ms=50, **options | properties)
    connector.capture()
    connector.replay.advance()
    return connector


def key_range(first: int | None, last: int | None, *absent: int, table: str = "shop.a") -> Row:
    found: Row = {"data-collection": table, "absent": [{"id": i} for i in absent]}
    return found | ({} if first is None else {"from": {"id": first}}) | ({} if last is None else {"to": {"id": last}})


def planted_rows(*ids: int) -> list[Row]:
    return [{"id": i, "n": -7, "note": "planted"} for i in ids]


def test_only_rows_of_the_ranges_are_read_and_keys_without_a_row_are_deleted(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = start_connector(db, tmp_path, **watermark_form)
    with db.transaction() as t:
        t.delete("shop.a", {"id": 7})
    connector.capture()
    connector.replay.plant("test.shop.a", *planted_rows(5, 7, 90, 1500))
    connector.replay.lose("test.shop.a", (30,))
    number = snapshot(
        connector, "shop.a", key_ranges=[key_range(5, 90, 7, 8), key_range(1200, None, 1500), key_range(None, 1)]
    )
    before = connector.replay.operations.copy()
    connector.capture()
    equal(connector, db, "shop.a")
    read = connector.replay.operations - before
    assert read == {"r": 2 + 85 + 1, "d": 2}, "the key that has a row comes once more"
    assert signal_state(connector, number) == ("done", "")
    (data,) = [
        data for type_, data in list_notifications(connector, "Incremental Snapshot") if type_ == "TABLE_SCAN_COMPLETED"
    ]
    assert (data["status"], data["total_rows_scanned"], data["total_rows_deleted"]) == ("SUCCEEDED", "88", "2")


def test_a_table_without_ranges_is_read_whole_beside_one_with_ranges(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = start_connector(db, tmp_path, **watermark_form)
    before = connector.replay.operations.copy()
    number = snapshot(connector, "shop.a", "shop.b", key_ranges=[key_range(10, 19)])
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert connector.replay.operations - before == {"r": 1010}
    assert signal_state(connector, number) == ("done", "")


def test_ranges_beside_a_writer_of_the_same_keys(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=7, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(*range(0, 1200, 3)))
    busy = BusyWriter(db)
    for n in range(1, 200):
        at_read(n, lambda: busy.more(6))
    absent = list(range(1200))
    number = snapshot(
        connector, "shop.a", key_ranges=[key_range(None, 499, *absent[:500]), key_range(500, 1200, *absent[500:])]
    )
    with busy:
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert busy.changes > 50
    assert connector.replay.operations["d"] > 30
    assert signal_state(connector, number) == ("done", "")


@pytest.mark.parametrize(
    ("change", "wins"),
    [
        (lambda t: t.insert("shop.a", {"id": 2000, "n": 1, "note": "new"}), True),
        (lambda t: t.update("shop.a", {"id": 3}, {"id": 2000}), True),
        (lambda t: t.insert("shop.a", {"id": 2001, "n": 1, "note": "another"}), False),
    ],
    ids=["inserted", "moved", "another"],
)
def test_an_event_of_a_key_that_was_looked_up_wins(
    db: MemoryDatabase,
    tmp_path: Path,
    watermark_form: dict[str, Any],
    at_read: Any,
    change: Callable[[Any], None],
    wins: bool,
) -> None:
    connector = start_connector(db, tmp_path, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(2000))

    def run_change() -> None:
        with db.transaction() as t:
            change(t)

    at_read(1, run_change)
    snapshot(connector, "shop.a", key_ranges=[key_range(1990, 2010, 2000)])
    before = connector.replay.operations["d"]
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    if watermark_form and wins:  # with positions, the window may be over before the change comes
        assert connector.replay.operations["d"] - before == (1 if "update" in change.__code__.co_names else 0)


def test_an_emptied_table_has_no_deletes_and_no_rows(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = start_connector(db, tmp_path, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(2000))
    at_read(1, lambda: db.truncate_table("shop.a"))
    snapshot(connector, "shop.a", key_ranges=[key_range(0, 2010, 2000)])
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")


def test_a_run_that_ends_inside_a_range_is_followed_by_one_that_goes_on_there(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "KEYS", 50)
    monkeypatch.setattr(chunks_per_window, "CHUNKS", 1)
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=10, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(*range(1000, 1500), *range(0, 900, 10)))
    ranges = [key_range(None, 99), key_range(300, 1400, *range(1000, 1401)), key_range(1450, None, *range(1450, 1500))]
    number = snapshot(connector, "shop.a", key_ranges=ranges)
    read, began, ends, asked_to_end = MemoryChunkReader.read, [0], [3, 15, 40, 70], threading.Event()

    def read_slowly(self: MemoryChunkReader, *args: Any) -> Any:
        began[0] += 1
        if began[0] in ends:  # the run ends meanwhile
            assert asked_to_end.wait(LONGEST_S)
            time.sleep(0.3)
            asked_to_end.clear()
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", read_slowly)
    left: list[tuple[int, int, int]] = []

    def has_reached(end: int) -> bool:
        if began[0] >= end:
            asked_to_end.set()
        return began[0] >= end

    for end in ends:
        connector.capture(run_for_s=60, until=partial(has_reached, end))
        state = connector.store.load_offset("test").offset
        assert state is not None
        (scan,) = state.incremental.scans
        left.append((len(scan.ranges), sum(len(r.absent) for r in scan.ranges), -(scan.after or [0])[0]))
        with db.transaction() as t:
            t.update("shop.a", {"id": 350 + end}, {"n": end})
            t.insert("shop.a", {"id": 1460 + end, "n": end, "note": "late"})
    connector.capture()
    rows = {row["id"]: row for row in connector.rows("shop.a")}
    there = {row["id"]: row for row in db.copy_rows("shop.a")}
    repaired = [i for i in {*rows, *there} if i <= 99 or 300 <= i <= 1400 or i >= 1450]
    assert {i: rows.get(i) for i in repaired} == {i: there.get(i) for i in repaired}
    assert rows[110]["note"] == "planted", "between the ranges nothing is read"
    assert left == sorted(left, reverse=True)
    assert len({*left}) > 2, "the offset has only what is left"
    assert signal_state(connector, number) == ("done", "")


def test_paused_ranges_go_on_where_they_were_and_stopped_ones_end(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = start_connector(db, tmp_path, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(*range(0, 500, 5), *range(1000, 1010)))
    number = snapshot(connector, "shop.a", "shop.b", key_ranges=[
        key_range(0, 1009, *range(1000, 1010)), key_range(3, 9, table="shop.b"),
    ])  # fmt: skip
    at_read(4, lambda: pause_snapshots(connector))
    connector.capture()
    assert signal_state(connector, number)[0] == "running"
    send(connector, "stop-snapshot", {"type": "incremental", "data-collections": ["shop.b"]}, id_="enough")
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("failed", "shop.b stopped by signal enough")


def test_lost_connections_while_keys_are_looked_up_and_rows_are_read(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "KEYS", 3)
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=10, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(*range(1000, 1030), *range(0, 200, 7)))
    for name in ("read", "insert_signal_row", "delete_signal_row"):
        inner, left = getattr(MemoryChunkReader, name), [3]

        def fail_every_fifth(self: MemoryChunkReader, *args: Any, inner: Any = inner, left: list[int] = left) -> Any:
            left[0] += 1
            if left[0] % 5 == 0:
                raise TransientError("gone")
            return inner(self, *args)

        monkeypatch.setattr(MemoryChunkReader, name, fail_every_fifth)
    number = snapshot(connector, "shop.a", key_ranges=[key_range(0, 99), key_range(100, 1030, *range(1000, 1030))])
    with BusyWriter(db, pause_s=0.05):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_wide_rows_under_the_keys_that_are_looked_up(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    """Fewer keys are looked up at a time; none is taken for absent because its row did not fit."""
    with db.transaction() as t:
        for i in range(40):
            t.update("shop.a", {"id": i}, {"note": "x" * 5000})
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_max_bytes=20_000, **watermark_form)
    connector.replay.plant("test.shop.a", *planted_rows(*range(1000, 1040)))
    keys = [i for pair in zip(range(40), range(1000, 1040), strict=True) for i in pair]
    number = snapshot(connector, "shop.a", key_ranges=[key_range(0, 1040, *keys)])
    before = connector.replay.operations["d"]
    connector.capture()
    equal(connector, db, "shop.a")
    assert connector.replay.operations["d"] - before == 40
    assert signal_state(connector, number) == ("done", "")


def test_100_ranges_and_10_000_absent_keys(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=1000)
    connector.replay.plant("test.shop.a", *planted_rows(*range(1000, 11_000)))
    ranges = [
        key_range(i * 110, i * 110 + 109, *(k for k in range(i * 110, i * 110 + 109) if k >= 1000)) for i in range(100)
    ]
    absent = sum(len(r["absent"]) for r in ranges)
    rest = [k for k in range(1000, 11_000) if k % 110 == 109]
    ranges.append(key_range(0, 11_000, *rest))
    assert absent + len(rest) == 10_000
    number = snapshot(connector, "shop.a", key_ranges=ranges)
    before = connector.replay.operations["d"]
    connector.capture()
    equal(connector, db, "shop.a")
    assert connector.replay.operations["d"] - before == 10_000
    assert signal_state(connector, number) == ("done", "")


def test_empty_ranges_and_ranges_of_an_empty_table(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    db.create_table("shop.d", {"id": "int64!", "n": "int64", "note": "string"}, key=("id",))
    connector = start_connector(db, tmp_path, **watermark_form)
    ranges = [
        key_range(5000, 6000), key_range(1, 2), key_range(7000, 7000), key_range(8000, 9000, 8500),
        key_range(None, None, 3, table="shop.d"), key_range(4, None, table="shop.c") | {"to": {"id": 4}},
    ]  # fmt: skip
    number = snapshot(connector, "shop.a", "shop.c", "shop.d", key_ranges=ranges)
    before = connector.replay.operations.copy()
    connector.capture()
    equal(connector, db, "shop.a", "shop.c", "shop.d")
    assert connector.replay.operations - before == {"r": 3, "d": 2}
    assert scans(connector) == {"shop.a": "SUCCEEDED", "shop.c": "SUCCEEDED", "shop.d": "SUCCEEDED"}
    assert signal_state(connector, number) == ("done", "")


def test_overlapping_and_repeated_ranges_are_read_once(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = start_connector(db, tmp_path)
    ranges = [key_range(50, 90, 55), key_range(5, 60, 7), key_range(50, 90, 55), key_range(80, 80), key_range(200, 210)]
    snapshot(connector, "shop.a", key_ranges=ranges)
    before = connector.replay.operations.copy()
    connector.capture()
    connector.replay.advance()
    assert connector.replay.operations - before == {"r": 86 + 11 + 2}, "with the two keys that are looked up"


def test_another_key_of_the_table_ends_the_scan_and_says_so(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=5, **watermark_form)

    at_read(3, lambda: db.rename_column("shop.a", "id", "number"))
    number = snapshot(connector, "shop.a", key_ranges=[key_range(0, 400, 7)])
    connector.capture()
    connector.capture()
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "the key of shop.a was changed from id to number after its key ranges were requested" in message


@pytest.mark.sampled(3)
def test_random_repairs_beside_random_writers(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    """Every wrong row lies in a range, every row too many is listed: afterwards the change log replays to the table."""
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=17, **watermark_form)
    r = random.Random(12)
    for _ in range(4):
        with BusyWriter(db, pause_s=0.002):
            connector.capture(run_for_s=0.2)
            spoiled = r.sample(range(1100), 60)
            connector.replay.plant("test.shop.a", *planted_rows(*spoiled[:40]))
            connector.replay.lose("test.shop.a", *((i,) for i in spoiled[40:]))
            ranges = []
            for low in range(0, 1100, 100):
                cut = sorted({low, low + 99, *r.sample(range(low, low + 100), r.randrange(4))})
                for a, b in itertools.pairwise(cut):
                    given = [i for i in spoiled if a <= i <= b] + r.sample(range(a, b + 1), min(3, b + 1 - a))
                    ranges.append(key_range(a, b, *given))
            r.shuffle(ranges)
            number = snapshot(connector, "shop.a", key_ranges=ranges)
            connector.capture(run_for_s=60, until=signal_ended(connector, number))
        connector.capture()
        equal(connector, db, "shop.a")
        assert signal_state(connector, number) == ("done", "")


def test_composite_keys_and_keys_named_by_the_connector(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    db.create_table("shop.d", {"x": "string!", "y": "int32!", "n": "int64!", "note": "string"}, key=("x", "y"))
    names = ("a", "B", "b b", "é", 'z"z', "${x}")
    with db.transaction() as t:
        for k, x in enumerate(names):
            for y in range(20):
                t.insert("shop.d", {"x": x, "y": y, "n": 100 * k + y, "note": "begin"})
    for folder, properties, key in (("own", {}, ("x", "y")), ("named", {"message_key_columns": "shop.d:n"}, ("n",))):
        connector = start_connector(db, tmp_path / folder, **watermark_form | properties)
        gone = {"x": "b b", "y": 77, "n": 4711, "note": "planted"}
        connector.replay.plant("test.shop.d", gone, {"x": "é", "y": 3, "n": 303, "note": "planted"})

        def key_of(row: Row, key: tuple[str, ...] = key) -> Row:
            return {name: row[name] for name in key}

        first, last = {"x": "a", "y": 0, "n": 0}, {"x": "é", "y": 9, "n": 9999}
        there = {"x": "B", "y": 5, "n": 105}
        number = snapshot(connector, "shop.d", key_ranges=[
            {"data-collection": "shop.d", "from": key_of(first), "to": key_of(last), "absent": [key_of(gone), key_of(there)]}
        ])  # fmt: skip
        connector.capture()
        equal(connector, db, "shop.d")
        assert signal_state(connector, number) == ("done", "")


def test_keys_change_while_the_log_is_read(db: MemoryDatabase, tmp_path: Path, at_read: Any) -> None:
    """A row that moves out of its range, into it, and onto a key that is looked up."""
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=10)
    connector.replay.plant("test.shop.a", *planted_rows(1100, 1101))
    moves = iter([(5, 1100), (990, 1200), (1200, 5), (1100, 1101)])

    def move() -> None:
        old, new = next(moves)
        with db.transaction() as t:
            t.update("shop.a", {"id": old}, {"id": new})

    for n in (1, 2, 3, 4):
        at_read(n, move)
    number = snapshot(connector, "shop.a", key_ranges=[key_range(0, 100), key_range(900, 1150, 1100, 1101)])
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_row_that_is_inserted_in_a_range_behind_its_last_row_comes_from_the_log(
    db: MemoryDatabase, tmp_path: Path, at_read: Any
) -> None:
    connector = start_connector(db, tmp_path)
    at_read(1, lambda: fill(db, "shop.a", range(1000, 1020)))
    snapshot(connector, "shop.a", key_ranges=[key_range(950, 2000, 1005)])
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
