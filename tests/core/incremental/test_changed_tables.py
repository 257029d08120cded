"""Incremental snapshots of tables whose structure or key changes while they are read.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.schema_change_handler import SchemaChangeHandler
from airflow_provider_cdc.core.incremental import incremental_coordinator as incremental
from airflow_provider_cdc.core.model.log_items import SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, BusyWriter, fill, partial, pause_snapshots
from tests.support.change_log.replay import Replay
from tests.support.connectors import memory_connector
from tests.support.patience import LONGEST_S, wait_until
from tests.support.signals import scans, send, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_a_table_truncated_in_the_middle_stays_empty_but_for_what_comes_later(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)

    def replace_rows() -> None:
        db.truncate_table("shop.a")
        fill(db, "shop.a", range(500, 520))

    at_read(2, replace_rows)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert len(connector.rows("shop.a")) == 20
    assert signal_state(connector, number) == ("done", "")


def test_a_column_added_in_the_middle_is_read_with_the_rows_after_it(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    at_read(3, lambda: db.add_column("shop.a", "late", "int32", 7))
    number = snapshot(connector, "shop.a")
    with BusyWriter(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_column_dropped_and_one_renamed_in_the_middle(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    at_read(2, lambda: db.drop_column("shop.a", "note"))
    at_read(5, lambda: db.rename_column("shop.a", "n", "number"))
    snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")


def test_a_table_that_a_statement_changes_beyond_the_log_is_read_whole_in_between(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(
        db,
        tmp_path,
        table_include_list="shop.[a-z]",
        signal_poll_interval_ms=50,
        incremental_snapshot_chunk_size=50,
        **watermark_form,
    )
    connector.capture()
    at_read(3, lambda: db.change_column("shop.a", "n", "string", str))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert signal_state(connector, number) == ("done", "")


@pytest.fixture
def change_schema_and_wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Make a schema change, and wait until the stream has taken it."""
    taken, take = threading.Event(), SchemaChangeHandler.apply_change

    def apply_and_set(self: SchemaChangeHandler, item: SchemaChange) -> None:
        take(self, item)
        taken.set()

    def make(change: Callable[[], object]) -> None:
        taken.clear()
        change()
        assert taken.wait(LONGEST_S)

    monkeypatch.setattr(SchemaChangeHandler, "apply_change", apply_and_set)
    return make


def test_rows_from_before_a_column_was_replaced_by_one_that_looks_alike_are_read_again(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any, change_schema_and_wait: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)

    def change_structure() -> None:
        change_schema_and_wait(lambda: db.drop_column("shop.a", "note"))
        change_schema_and_wait(lambda: db.add_column("shop.a", "note", "string", "new"))

    at_read(2, change_structure)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert {row["note"] for row in connector.rows("shop.a")} == {"new"}
    assert signal_state(connector, number) == ("done", "")


CHANGES: dict[str, Callable[[MemoryDatabase], None]] = {
    "another-table": lambda db: db.rename_tables(("shop.a", "shop.a_old"), ("shop.a_new", "shop.a")),
    "other-values": lambda db: db.change_column("shop.a", "n", "string", "no {}".format),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_begins_again_when_rows_have_become_others_and_nothing_else_reads_them(
    db: MemoryDatabase,
    tmp_path: Path,
    watermark_form: dict[str, Any],
    at_read: Any,
    change_schema_and_wait: Any,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i in range(1000):
            t.insert("shop.a_new", {"id": i, "n": -i, "note": "new"})
    connector = partial(db, tmp_path, **watermark_form)
    # rows that the log does not tell of become others, which only here is no fault
    monkeypatch.setattr(Replay, "_chunk_row", lambda *_: None)
    at_read(5, lambda: change_schema_and_wait(lambda: CHANGES[change](db)))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert (signal_state(connector, number), scans(connector)["shop.a"]) == (("done", ""), "SUCCEEDED")
    assert "The incremental snapshot of shop.a starts again at the first row" in caplog.text


def test_a_paused_snapshot_of_a_table_that_was_swapped_begins_again(
    db: MemoryDatabase, tmp_path: Path, at_read: Any
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",), rows=[{"id": i, "n": -i, "note": "new"} for i in range(1000)])
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a")
    at_read(5, lambda: pause_snapshots(connector))
    connector.capture()
    assert 0 < len(connector.rows("shop.a")) < 1000
    CHANGES["another-table"](db)
    connector.replay.gap()  # the rows of the one table are not those of the other, of which the log does not tell
    connector.capture()
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_table_that_was_swapped_for_a_smaller_one_is_not_at_its_end_before_the_stream_is_there(
    db: MemoryDatabase, tmp_path: Path, at_read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",), rows=[{"id": i, "n": -i, "note": "new"} for i in range(20)])
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a")
    at_read(5, lambda: pause_snapshots(connector))
    connector.capture()
    with db.transaction() as t:
        for i in range(20, 1000):
            t.delete("shop.a", {"id": i})
    CHANGES["another-table"](db)
    connector.replay.gap()  # the rows of the one table are not those of the other, of which the log does not tell
    events = incremental.IncrementalCoordinator.record_events

    def read_late(self: incremental.IncrementalCoordinator, block: Any) -> None:
        """The chunk is there before the events."""
        wait_until(
            lambda: (thread := self._thread) is None or any(w.chunk is not None for w in thread.windows),
            "a chunk is read",
            every_s=0.002,
        )
        events(self, block)

    monkeypatch.setattr(incremental.IncrementalCoordinator, "record_events", read_late)
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


@pytest.mark.parametrize(
    ("columns", "key"),
    [({"id": "int64!", "n": "int64"}, ("id",)), ({"id": "string!", "n": "int64!"}, ("id", "n"))],
    ids=["type", "columns"],
)
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "behind"])
def test_a_chunk_with_another_key_than_earlier_events_is_written(
    db: MemoryDatabase,
    tmp_path: Path,
    watermark_form: dict[str, Any],
    columns: dict[str, str],
    key: tuple[str, ...],
    ahead: bool,
    change_schema_and_wait: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """:param ahead: the chunk is read before the stream has come to the events"""
    db.create_table("shop.k", {"id": "string!", "n": "int64"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.k", {"id": "k1", "n": 1})
    connector = partial(db, tmp_path, snapshot_mode="initial", **watermark_form)
    look, done = MemoryChunkReader.read_table_schema, threading.Event()

    def wait_and_describe(self: MemoryChunkReader, table: TableId) -> TableSchema | None:
        """The window is registered, and the table is looked at when it is another one already."""
        if not done.is_set():
            done.set()
            with db.transaction() as t:
                t.update("shop.k", {"id": "k1"}, {"n": 2})
            for change in (lambda: db.drop_table("shop.k"), lambda: db.create_table("shop.k", columns, key=key)):
                change() if ahead else change_schema_and_wait(change)
            with db.transaction() as t:
                for i in range(120):
                    t.insert("shop.k", {"id": i if columns["id"] == "int64!" else f"k{i}", "n": i})
        return look(self, table)

    monkeypatch.setattr(MemoryChunkReader, "read_table_schema", wait_and_describe)
    number = snapshot(connector, "shop.k")
    connector.capture()
    equal(connector, db, "shop.k")
    assert (signal_state(connector, number), len(connector.rows("shop.k"))) == (("done", ""), 120)


def test_a_chunk_is_read_again_if_an_event_in_between_has_another_key(
    db: MemoryDatabase, tmp_path: Path, at_read: Any, change_schema_and_wait: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # structures come in other ways than by statements in the log too, as by a signal
    monkeypatch.setattr(incremental.IncrementalCoordinator, "record_schema_changes", lambda *_: None)
    connector = partial(db, tmp_path, schema_change_rewrite_mode="ignore")

    def change_structure() -> None:
        change_schema_and_wait(lambda: db.change_column("shop.a", "id", "string", str))
        with db.transaction() as t:
            t.update("shop.a", {"id": "5"}, {"n": -1})
        change_schema_and_wait(lambda: db.change_column("shop.a", "id", "int64", int))

    at_read(1, change_structure)
    number = snapshot(connector, "shop.a")
    connector.capture()
    rows = [row for row in connector.rows("shop.a") if isinstance(row["id"], int)]
    assert sorted(rows, key=repr) == sorted(db.copy_rows("shop.a"), key=repr)
    assert signal_state(connector, number) == ("done", "")


def test_a_table_dropped_in_the_middle_is_given_up_by_name(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    at_read(2, lambda: db.drop_table("shop.a"))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    assert scans(connector) == {"shop.a": "UNKNOWN_SCHEMA", "shop.b": "SUCCEEDED"}
    state, message = signal_state(connector, number)
    assert (state, "the table shop.a no longer exists" in message) == ("failed", True)


def test_a_table_without_a_key_is_refused_by_name(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    db.create_table("shop.k", COLUMNS)
    connector = partial(db, tmp_path, **watermark_form)
    number = snapshot(connector, "shop.k", "shop.b")
    connector.capture()
    assert scans(connector) == {"shop.k": "NO_PRIMARY_KEY", "shop.b": "SUCCEEDED"}
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "message.key.columns=shop.k:<columns>" in message


def test_ranges_of_a_table_whose_rows_become_others_fail_since_those_that_were_read_may_be_outdated(
    db: MemoryDatabase, tmp_path: Path, at_read: Any
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",), rows=[{"id": i, "n": -i, "note": "new"} for i in range(1000)])
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=5)
    ranges = [{"data-collection": "shop.a", "from": {"id": low}, "to": {"id": low + 20}} for low in range(0, 900, 50)]
    number = snapshot(connector, "shop.a", "shop.b", key_ranges=ranges)
    at_read(9, lambda: pause_snapshots(connector))
    connector.capture()
    CHANGES["another-table"](db)
    connector.replay.gap()  # the rows of the one table are not those of the other, of which the log does not tell
    connector.capture()
    send(connector, "resume-snapshot")
    connector.capture()
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "shop.a: rows may be outdated, whether they are already read or not, because of: " in message
    equal(connector, db, "shop.b")
