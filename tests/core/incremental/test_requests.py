"""Requests to incremental snapshots: pause, stop, filters, and limits to the rows read.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.incremental.chunk_reader_thread import ChunkReaderThread
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, BusyWriter, fill, partial, pause_snapshots
from tests.support.patience import LONGEST_S
from tests.support.signals import list_notifications, scans, send, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_pause_keeps_the_place_and_resume_goes_on(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    signal_number = snapshot(connector, "shop.a", "shop.b")
    pause = send(connector, "pause-snapshot")
    connector.capture()  # comes to its end: what is paused is not waited for
    assert signal_state(connector, pause)[0] == "done"
    assert connector.replay.advance().operations["r"] == 0
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert signal_state(connector, signal_number) == ("done", "")
    assert [type_ for type_, _ in list_notifications(connector, "Incremental Snapshot")] == [
        "STARTED", "PAUSED", "RESUMED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip


def test_a_table_that_is_paused_while_a_chunk_is_read_goes_on_with_that_chunk(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is read into the log twice, and none is left out."""
    connector = partial(db, tmp_path, **watermark_form)
    written = threading.Event()
    done = ChunkReaderThread.release_window

    def first_chunk_written(self: ChunkReaderThread, window: Any) -> None:
        done(self, window)
        written.set()

    def pause() -> None:
        assert written.wait(LONGEST_S)  # chunks are read ahead: all five may wait to be written
        pause_snapshots(connector)

    monkeypatch.setattr(ChunkReaderThread, "release_window", first_chunk_written)
    at_read(5, pause)
    signal_number = snapshot(connector, "shop.a")
    connector.capture()
    before = connector.replay.advance().operations["r"]
    assert 0 < before < 1000
    connector.capture()
    assert connector.replay.advance().operations["r"] == before, "a run after it reads nothing"
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert connector.replay.advance().operations["r"] == 1000
    assert signal_state(connector, signal_number) == ("done", "")


def test_one_table_of_three_is_stopped(db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    signal_number = snapshot(connector, "shop.a", "shop.b", "shop.c")
    stopped = send(connector, "stop-snapshot", {"type": "INCREMENTAL", "data-collections": ["shop.b"]}, id_="enough")
    connector.capture()
    equal(connector, db, "shop.a", "shop.c")
    assert connector.rows("shop.b") == []
    assert signal_state(connector, stopped) == ("done", "stopped shop.b")
    assert signal_state(connector, signal_number) == ("failed", "shop.b stopped by signal enough")


def test_a_whole_snapshot_is_stopped(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    signal_number = snapshot(connector, "shop.a", "shop.b")
    send(connector, "stop-snapshot", {"type": "incremental"}, id_="enough")
    connector.capture()
    assert signal_state(connector, signal_number) == ("failed", "shop.a, shop.b stopped by signal enough")
    assert ("ABORTED", {"connector_name": "test", "data_collections": "shop.a, shop.b"}) in list_notifications(
        connector
    )
    assert connector.replay.advance().operations["r"] == 0


def test_what_is_stopped_while_it_is_paused_is_not_paused_any_more(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    snapshot(connector, "shop.a", "shop.b")
    send(connector, "pause-snapshot")
    send(connector, "stop-snapshot", {"type": "incremental", "data-collections": ["shop.a"]})
    assert connector.capture().metrics["incremental-snapshot"]["SnapshotPaused"] is True
    send(connector, "stop-snapshot", {"type": "incremental"})
    number = snapshot(connector, "shop.c")
    assert connector.capture().metrics["incremental-snapshot"]["SnapshotPaused"] is False
    assert signal_state(connector, number) == ("done", "")


def test_two_requests_are_carried_out_one_after_the_other(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    first = snapshot(connector, "shop.a", id_="one")
    second = snapshot(connector, "shop.b", "shop.a", id_="two")
    with BusyWriter(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert (signal_state(connector, first), signal_state(connector, second)) == (("done", ""), ("done", ""))


def test_a_filter_reads_the_rows_that_fulfil_it(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    conditions = [{"data-collection": "shop.a", "filter": "n < 10"}]
    snapshot(connector, "shop.a", "shop.b", additional_conditions=conditions)
    connector.capture()
    assert [row["id"] for row in connector.rows("shop.a")] == list(range(10))
    equal(connector, db, "shop.b")


def test_a_filter_for_all_tables_is_a_single_text(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    snapshot(connector, "shop.a", "shop.b", additional_condition="n < 10")
    connector.capture()
    assert len(connector.rows("shop.a")) == len(connector.rows("shop.b")) == 10


def test_a_filter_that_matches_nothing_reads_nothing(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    number = snapshot(connector, "shop.a", additional_condition="n < 0")
    connector.capture()
    assert connector.rows("shop.a") == []
    assert (scans(connector), signal_state(connector, number)) == ({"shop.a": "EMPTY"}, ("done", ""))


def test_a_filter_that_is_bad_sql_fails_its_table_and_no_other(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    conditions = [{"data-collection": "shop.a", "filter": "n <> <>"}]
    number = snapshot(connector, "shop.a", "shop.b", additional_conditions=conditions)
    connector.capture()
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "shop.a: The database cannot parse the condition: n <> <>" in message
    assert scans(connector) == {"shop.a": "SQL_EXCEPTION", "shop.b": "SUCCEEDED"}
    equal(connector, db, "shop.b")
    fill(db, "shop.c", range(2000, 2003))
    assert connector.capture().events == 3  # capture is unharmed


@pytest.mark.parametrize(("rows", "status"), [(0, "EMPTY"), (1, "SUCCEEDED"), (50, "SUCCEEDED"), (51, "SUCCEEDED")])
def test_tables_of_few_rows(tmp_path: Path, watermark_form: dict[str, Any], rows: int, status: str) -> None:
    db = MemoryDatabase(f"core-few-{rows}-{len(watermark_form)}")
    db.create_table("shop.a", COLUMNS, key=("id",))
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))
    fill(db, "shop.a", range(rows))
    connector = partial(db, tmp_path, **watermark_form)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert (scans(connector), signal_state(connector, number)) == ({"shop.a": status}, ("done", ""))
