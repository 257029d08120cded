"""Incremental snapshots beside a stream that changes what is read: nothing is ever out of date, and windows close.

Every test replays the change log event by event (:class:`tests.support.change_log.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import (
    QueryRejected,
)
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import FORMS, BusyWriter, fill, partial
from tests.support.connectors import memory_connector
from tests.support.signals import scans, signal_ended, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_rows_that_change_while_they_are_read_are_never_out_of_date(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=7, **watermark_form)
    busy = BusyWriter(db)
    for n in range(1, 150):
        at_read(n, lambda: busy.more(6))
    number = snapshot(connector, "shop.a")
    with busy:
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert busy.changes > 50
    assert connector.replay.operations["r"] > 300
    assert signal_state(connector, number) == ("done", "")


def test_a_change_between_reading_and_writing_a_chunk_wins(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **watermark_form)

    def change() -> None:
        with db.transaction() as t:
            t.update("shop.a", {"id": 3}, {"n": 33})
            t.delete("shop.a", {"id": 4})
            t.update("shop.a", {"id": 5}, {"id": 5000})
            t.insert("shop.a", {"id": 6000, "n": 1})

    at_read(1, change)
    snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    # 3, 4 and 5 were superseded; with positions, the window may be over before the change comes
    assert connector.replay.operations["r"] in ({1000 - 3} if watermark_form else {1000 - 3, 1000})


def test_a_table_that_is_captured_already_may_be_read_again(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = memory_connector(
        db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **watermark_form
    )
    connector.capture()
    snapshot(connector, r"shop\.[ab]")
    with BusyWriter(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert scans(connector) == {"shop.a": "SUCCEEDED", "shop.b": "SUCCEEDED"}
    before, again = connector.replay.operations["r"], snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert (connector.replay.operations["r"], signal_state(connector, again)) == (before + 1000, ("done", ""))


@pytest.mark.parametrize("within", [False, True], ids=["after the window", "within the window"])
def test_values_that_the_log_does_not_have_are_taken_from_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    db = MemoryDatabase("core-incremental-sparse")
    db.create_table("shop.a", {"id": "int64!", "n": "int64", "large": "string"}, key=("id",), sparse=("large",))
    with db.transaction() as t:
        for i in range(10):
            t.insert("shop.a", {"id": i, "n": i, "large": f"text {i}"})
    connector = partial(db, tmp_path)

    def change() -> None:
        with db.transaction() as t:
            t.update("shop.a", {"id": 3}, {"n": 33})
            t.update("shop.a", {"id": 4}, {"large": "other", "n": 44})
            t.update("shop.a", {"id": 5}, {"id": 50})

    read = MemoryChunkReader.read

    def changed_meanwhile(self: MemoryChunkReader, *args: Any) -> Any:
        found = read(self, *args)
        if found.rows and not changed:
            changed.append(True)
            change()
            return replace(found, high=self.end_of_log()) if within else found
        return found

    changed: list[bool] = []
    monkeypatch.setattr(MemoryChunkReader, "read", changed_meanwhile)
    snapshot(connector, "shop.a")
    connector.capture()
    rows = {row["id"]: row for row in connector.rows("shop.a")}
    assert rows[3] == {"id": 3, "n": 33, "large": "text 3"}  # the event did not have the text
    assert rows[4] == {"id": 4, "n": 44, "large": "other"}
    assert 5 not in rows


def test_the_signal_table_is_not_part_of_what_is_captured(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, table_include_list=r"shop\..*", **FORMS["insert_insert"])
    snapshot(connector, "shop.a")
    connector.capture()
    topics = {f.topic for m in connector.changelog.read_manifests("test") for f in m.files}
    schemas = {topic for m in connector.changelog.read_manifests("test") for topic in m.schemas}
    assert "test.shop.signals" not in topics | schemas
    written = {row["type"] for row in db.copy_rows("shop.signals")}
    assert written == {"snapshot-window-open", "snapshot-window-close"}


def test_insert_delete_leaves_nothing_in_the_signal_table(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_delete"])
    snapshot(connector, "shop.a")
    connector.capture()
    assert db.copy_rows("shop.signals") == []
    assert connector.replay.advance().operations["r"] == 1000
    default = partial(db, tmp_path / "default", signal_data_collection="shop.signals")
    snapshot(default, "shop.a")
    default.capture()
    windows = Counter(row["type"] for row in db.copy_rows("shop.signals"))
    assert windows["snapshot-window-open"] == windows["snapshot-window-close"] > 0, "by default each has both its rows"
    assert default.replay.advance().operations["r"] == 1000


def _empty_signals(db: MemoryDatabase) -> None:
    db.truncate_table("shop.signals")


def _made_anew(db: MemoryDatabase) -> None:
    db.drop_table("shop.signals")
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))


@pytest.mark.parametrize("how", [_empty_signals, _made_anew])
@pytest.mark.parametrize("name", ["insert_insert", "insert_delete"])
def test_a_signal_table_that_is_emptied_while_a_window_is_open_does_not_keep_it_open(
    db: MemoryDatabase, tmp_path: Path, at_read: Any, name: str, how: Callable[[MemoryDatabase], None]
) -> None:
    connector = partial(db, tmp_path, **FORMS[name])

    def change() -> None:
        how(db)
        with db.transaction() as t:
            t.update("shop.a", {"id": 70}, {"n": -70})

    at_read(2, change)
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture(run_for_s=60, until=signal_ended(connector, number))
    assert signal_state(connector, number) == ("done", "")
    equal(connector, db, "shop.a", "shop.b")


def test_watermarks_that_do_not_come_back_in_the_log_are_reported_and_no_row_is_taken_for_new(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    monkeypatch.setattr(MemoryChunkReader, "insert_signal_row", lambda *_: None)
    number = snapshot(connector, "shop.a", "shop.b")
    fill(db, "shop.c", range(5000, 5003))
    assert connector.capture(run_for_s=60, until=signal_ended(connector, number)).events == 3
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "the log does not contain the rows written to the signal table shop.signals" in message
    assert scans(connector) == {"shop.a": "SKIPPED", "shop.b": "SKIPPED"}
    assert connector.rows("shop.a") == connector.rows("shop.b") == []
    monkeypatch.undo()
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert signal_state(connector, number) == ("done", "")


def test_a_window_that_cannot_be_closed_fails_its_table_and_harms_no_other(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=2000, **FORMS["insert_delete"])

    def deny_delete(self: MemoryChunkReader, id_: str) -> None:
        raise QueryRejected("DELETE command denied", remedy="GRANT DELETE")

    monkeypatch.setattr(MemoryChunkReader, "delete_signal_row", deny_delete)
    number = snapshot(connector, "shop.a", "shop.b")
    fill(db, "shop.c", range(5000, 5003))
    assert connector.capture(run_for_s=60, until=signal_ended(connector, number)).events == 3
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "shop.a: DELETE command denied GRANT DELETE; shop.b: DELETE command denied" in message
    assert scans(connector) == {"shop.a": "SQL_EXCEPTION", "shop.b": "SQL_EXCEPTION"}
