"""Incremental snapshots whose run, connection or table is away for a while: they continue behind the last row.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import (
    SourceBusy,
    SourceUnavailable,
    TransientError,
)
from airflow_provider_cdc.core.incremental import chunk_reader_thread as chunking
from airflow_provider_cdc.core.incremental import incremental_coordinator as incremental
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import BusyWriter, fill, partial, pause_snapshots
from tests.support.patience import LONGEST_S
from tests.support.signals import send, signal_ended, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_a_run_that_ends_early_is_followed_by_one_that_goes_on_behind_the_last_row(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    number = snapshot(connector, "shop.a", "shop.b")
    read, began = MemoryChunkReader.read, []

    def read_slowly(self: MemoryChunkReader, *args: Any) -> Any:
        began.append(time.monotonic())
        if len(began) == 4:  # the run ends meanwhile
            time.sleep(4)
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", read_slowly)
    connector.capture(run_for_s=60, until=lambda: len(began) == 4 and time.monotonic() > began[3] + 2)
    state = connector.store.load_offset("test").offset
    assert state is not None
    first = state.incremental.scans[0]
    assert first.after is not None
    assert signal_state(connector, number)[0] == "running"
    connector.capture()
    connector.replay.advance()
    equal(connector, db, "shop.a", "shop.b")
    assert connector.replay.operations["r"] == 2000  # none twice
    assert signal_state(connector, number) == ("done", "")


def test_a_lost_connection_is_made_again(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)
    for name in ("read", "insert_signal_row", "delete_signal_row"):
        inner, left = getattr(MemoryChunkReader, name), [3]

        def fail_every_fifth(self: MemoryChunkReader, *args: Any, inner: Any = inner, left: list[int] = left) -> Any:
            left[0] += 1
            if left[0] % 5 == 0:
                raise TransientError("gone")
            return inner(self, *args)

        monkeypatch.setattr(MemoryChunkReader, name, fail_every_fifth)
    number = snapshot(connector, "shop.a")
    with BusyWriter(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_table_that_someone_has_locked_is_waited_for_while_the_stream_goes_on(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chunking, "_LONGEST_S", 0.01)
    connector = partial(db, tmp_path)
    read, tries = MemoryChunkReader.read, []

    def raise_locked(self: MemoryChunkReader, *args: Any) -> Any:
        tries.append(args)
        if len(tries) < 20:
            raise SourceBusy("Lock wait timeout exceeded")
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", raise_locked)
    number = snapshot(connector, "shop.a")
    fill(db, "shop.b", range(5000, 5003))
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    equal(connector, db, "shop.a")
    assert len(connector.rows("shop.b")) == 3
    assert "A chunk of shop.a could not be read and is retried: Lock wait timeout exceeded" in caplog.text


def test_a_database_that_is_gone_for_good_ends_the_run_with_its_error(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "_LONGEST_S", 0.01)
    connector = partial(db, tmp_path)

    def raise_unavailable(self: MemoryChunkReader, *args: Any) -> Any:
        raise SourceUnavailable("nobody answers")

    monkeypatch.setattr(MemoryChunkReader, "read", raise_unavailable)
    number = snapshot(connector, "shop.a")
    with pytest.raises(SourceUnavailable, match="nobody answers"):
        connector.capture()
    assert signal_state(connector, number)[0] == "running"


def test_a_chunk_that_fails_after_it_was_cancelled_harms_nothing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path)
    read, failed = MemoryChunkReader.read, threading.Event()

    def fails_late(self: MemoryChunkReader, *args: Any) -> Any:
        if not failed.is_set():
            pause_snapshots(connector)
            failed.set()
            raise ValueError("nobody wants to know any more")
        return read(self, *args)

    monkeypatch.setattr(MemoryChunkReader, "read", fails_late)
    number = snapshot(connector, "shop.a")
    connector.capture(run_for_s=LONGEST_S, until=failed.is_set)
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_transaction_of_more_rows_than_are_held_is_waited_for_and_not_for_ever(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "HELD", 100)
    connector = partial(db, tmp_path, memory_block_rows=40, **watermark_form)

    def change() -> None:
        with db.transaction() as t:
            for i in range(900):
                t.update("shop.a", {"id": i}, {"n": -i})

    at_read(3, change)
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture(run_for_s=60, until=signal_ended(connector, number))
    assert signal_state(connector, number) == ("done", "")
    equal(connector, db, "shop.a", "shop.b")
