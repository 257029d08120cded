"""Incremental and blocking snapshots on the memory source: what is read, what is answered, and that nothing is ever out of date.

Every test replays the change log event by event (:class:`tests.support.replay.Replay`): a row of a chunk that is not what the log
says, or that brings back a deleted row, is an error there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core import chunking, incremental
from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConnectorHalted,
    NotGranted,
    PrerequisiteError,
    QueryRefused,
    SourceBusy,
    SourceUnavailable,
    TransientError,
)
from airflow_provider_cdc.core.events import LogBlock, LogItem, SchemaChange
from airflow_provider_cdc.core.schema import TableId, TableSchema
from airflow_provider_cdc.core.schema_changes import SchemaChanges
from airflow_provider_cdc.core.seams import Wanted
from airflow_provider_cdc.core.signal_processor import SignalProcessor
from airflow_provider_cdc.core.streaming import Streaming
from airflow_provider_cdc.sources.memory.chunks import MemoryChunks
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.support.asked import answered, fate, scans, send, snapshot, told
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S, until
from tests.support.replay import Replay
from tests.support.shop import equal

FORMS = {
    "read": {},
    "insert_insert": {"signal_data_collection": "shop.signals"},
    "insert_delete": {
        "signal_data_collection": "shop.signals",
        "incremental_snapshot_watermarking_strategy": "insert_delete",
    },
}
COLUMNS = {"id": "int64!", "n": "int64", "note": "string"}


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
def form(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = FORMS[request.param]
    return found


def fill(db: MemoryDatabase, table: str, ids: range) -> None:
    with db.transaction() as t:
        for i in ids:
            t.insert(table, {"id": i, "n": i, "note": "begin"})


def partial(db: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    """A connector that has begun to stream, and has read no row."""
    options = {"table_include_list": "shop.[a-z]", "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 50}
    connector = memory_connector(db, folder, signal_poll_interval_ms=50, **options | properties)
    connector.replay.partial = True
    connector.capture()
    return connector


class Busy:
    """A writer beside the capture: updates, deletes, insertions of the same keys, and key changes."""

    def __init__(self, db: MemoryDatabase, table: str = "shop.a", keys: int = 1000, pause_s: float = 0.01) -> None:
        self._db, self._table, self._keys, self._pause_s = db, table, keys, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.changes = 0

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        r = random.Random(4)
        while not self._stop.is_set():
            with self._db.lock, self._db.transaction() as t:
                for _ in range(r.randrange(1, 6)):
                    self._change(t, r)
                    self.changes += 1
            time.sleep(self._pause_s)

    def _change(self, t: Any, r: random.Random) -> None:
        key, table = r.randrange(self._keys), self._table
        there = {row["id"] for row in self._db._rows[self._db.id(table)]}
        new = r.randrange(self._keys)
        match r.randrange(4):
            case 0 if key in there:
                t.delete(table, {"id": key})
            case 1 if key in there and new not in there:
                t.update(table, {"id": key}, {"id": new, "n": r.randrange(10**6)})
            case _ if key in there:
                t.update(table, {"id": key}, {"n": r.randrange(10**6)})
            case _:
                t.insert(table, {"id": key, "n": r.randrange(10**6), "note": "new"})


@pytest.fixture
def at_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Have something done right after the n-th chunk was read, before the stream has come to its place."""
    todo: dict[int, Callable[[], object]] = {}
    read, count = MemoryChunks.read, [0]

    def watched(self: MemoryChunks, *args: Any) -> Any:
        found = read(self, *args)
        count[0] += 1
        if (act := todo.get(count[0])) is not None:
            act()
        return found

    monkeypatch.setattr(MemoryChunks, "read", watched)
    return lambda n, act: todo.update({n: act})


# beside the stream


def test_rows_that_change_while_they_are_read_are_never_out_of_date(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=7, **form)
    for n in range(1, 150):
        at_read(n, lambda: time.sleep(0.01))  # so that the writer comes between
    number = snapshot(connector, "shop.a")
    with Busy(db) as busy:
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert busy.changes > 50
    assert connector.replay.operations["r"] > 300
    assert fate(connector, number) == ("done", "")


def test_a_change_between_reading_and_writing_a_chunk_wins(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **form)

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
    assert connector.replay.operations["r"] in ({1000 - 3} if form else {1000 - 3, 1000})


def test_a_table_that_is_captured_already_may_be_read_again(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **form)
    connector.capture()
    snapshot(connector, r"shop\.[ab]")
    with Busy(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert scans(connector) == {"shop.a": "SUCCEEDED", "shop.b": "SUCCEEDED"}


def test_values_that_the_log_does_not_have_are_taken_from_the_chunk(tmp_path: Path, at_read: Any) -> None:
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

    at_read(1, change)
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
    topics = {f.topic for m in connector.changelog.manifests("test") for f in m.files}
    schemas = {topic for m in connector.changelog.manifests("test") for topic in m.schemas}
    assert "test.shop.signals" not in topics | schemas
    written = {row["type"] for row in db.rows("shop.signals")}
    assert written == {"snapshot-window-open", "snapshot-window-close"}


def test_insert_delete_leaves_nothing_in_the_signal_table(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_delete"])
    snapshot(connector, "shop.a")
    connector.capture()
    assert db.rows("shop.signals") == []
    assert connector.replay.advance().operations["r"] == 1000


def _emptied(db: MemoryDatabase) -> None:
    db.truncate("shop.signals")


def _made_anew(db: MemoryDatabase) -> None:
    db.drop_table("shop.signals")
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))


@pytest.mark.parametrize("how", [_emptied, _made_anew])
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
    connector.capture(run_for_s=60, until=answered(connector, number))
    assert fate(connector, number) == ("done", "")
    equal(connector, db, "shop.a", "shop.b")


def test_watermarks_that_do_not_come_back_in_the_log_are_told_and_no_row_is_taken_for_new(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    monkeypatch.setattr(MemoryChunks, "write", lambda *_: None)
    number = snapshot(connector, "shop.a", "shop.b")
    fill(db, "shop.c", range(5000, 5003))
    assert connector.capture(run_for_s=60, until=answered(connector, number)).events == 3
    state, message = fate(connector, number)
    assert state == "failed"
    assert "what is written to the signal table shop.signals does not come back in the log" in message
    assert scans(connector) == {"shop.a": "SKIPPED", "shop.b": "SKIPPED"}
    assert connector.rows("shop.a") == connector.rows("shop.b") == []
    monkeypatch.undo()
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


def test_a_window_that_cannot_be_closed_fails_its_table_and_harms_no_other(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=2000, **FORMS["insert_delete"])

    def denied(self: MemoryChunks, id_: str) -> None:
        raise QueryRefused("DELETE command denied", remedy="GRANT DELETE")

    monkeypatch.setattr(MemoryChunks, "remove", denied)
    number = snapshot(connector, "shop.a", "shop.b")
    fill(db, "shop.c", range(5000, 5003))
    assert connector.capture(run_for_s=60, until=answered(connector, number)).events == 3
    state, message = fate(connector, number)
    assert state == "failed"
    assert "shop.a: DELETE command denied GRANT DELETE; shop.b: DELETE command denied" in message
    assert scans(connector) == {"shop.a": "SQL_EXCEPTION", "shop.b": "SQL_EXCEPTION"}


# going on after an end


def test_a_run_that_ends_early_is_followed_by_one_that_goes_on_behind_the_last_row(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **form)
    number = snapshot(connector, "shop.a", "shop.b")
    read, began = MemoryChunks.read, []

    def slow(self: MemoryChunks, *args: Any) -> Any:
        began.append(time.monotonic())
        if len(began) == 4:  # the run ends meanwhile
            time.sleep(4)
        return read(self, *args)

    monkeypatch.setattr(MemoryChunks, "read", slow)
    connector.capture(run_for_s=60, until=lambda: len(began) == 4 and time.monotonic() > began[3] + 2)
    state = connector.store.load("test").offset
    assert state is not None
    first = state.incremental.scans[0]
    assert first.after is not None
    assert fate(connector, number)[0] == "running"
    connector.capture()
    connector.replay.advance()
    equal(connector, db, "shop.a", "shop.b")
    assert connector.replay.operations["r"] == 2000  # none twice
    assert fate(connector, number) == ("done", "")


def test_a_lost_connection_is_made_again(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], monkeypatch: Any
) -> None:
    connector = partial(db, tmp_path, **form)
    for name in ("read", "write", "remove"):
        inner, left = getattr(MemoryChunks, name), [3]

        def flaky(self: MemoryChunks, *args: Any, inner: Any = inner, left: list[int] = left) -> Any:
            left[0] += 1
            if left[0] % 5 == 0:
                raise TransientError("gone")
            return inner(self, *args)

        monkeypatch.setattr(MemoryChunks, name, flaky)
    number = snapshot(connector, "shop.a")
    with Busy(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


def test_a_table_that_somebody_has_locked_is_waited_for_while_the_stream_goes_on(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chunking, "_LONGEST_S", 0.01)
    connector = partial(db, tmp_path)
    read, tries = MemoryChunks.read, []

    def locked(self: MemoryChunks, *args: Any) -> Any:
        tries.append(args)
        if len(tries) < 20:
            raise SourceBusy("Lock wait timeout exceeded")
        return read(self, *args)

    monkeypatch.setattr(MemoryChunks, "read", locked)
    number = snapshot(connector, "shop.a")
    fill(db, "shop.b", range(5000, 5003))
    connector.capture()
    assert fate(connector, number) == ("done", "")
    equal(connector, db, "shop.a")
    assert len(connector.rows("shop.b")) == 3
    assert "A chunk of shop.a could not be read, trying again: Lock wait timeout exceeded" in caplog.text


def test_a_database_that_is_gone_for_good_ends_the_run_with_its_error(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "_LONGEST_S", 0.01)
    connector = partial(db, tmp_path)

    def gone(self: MemoryChunks, *args: Any) -> Any:
        raise SourceUnavailable("nobody answers")

    monkeypatch.setattr(MemoryChunks, "read", gone)
    number = snapshot(connector, "shop.a")
    with pytest.raises(SourceUnavailable, match="nobody answers"):
        connector.capture()
    assert fate(connector, number)[0] == "running"


def test_a_chunk_that_fails_after_it_was_cancelled_harms_nothing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path)
    read, first = MemoryChunks.read, [True]

    def fails_late(self: MemoryChunks, *args: Any) -> Any:
        if first[0]:
            first[0] = False
            send(connector, "pause-snapshot")
            time.sleep(0.5)  # until it is taken
            raise ValueError("nobody wants to know any more")
        return read(self, *args)

    monkeypatch.setattr(MemoryChunks, "read", fails_late)
    number = snapshot(connector, "shop.a")
    connector.capture(run_for_s=1.5)
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


def test_a_transaction_of_more_rows_than_are_held_is_waited_for_and_not_for_ever(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "HELD", 100)
    connector = partial(db, tmp_path, memory_block_rows=40, **form)

    def change() -> None:
        with db.transaction() as t:
            for i in range(900):
                t.update("shop.a", {"id": i}, {"n": -i})

    at_read(3, change)
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture(run_for_s=60, until=answered(connector, number))
    assert fate(connector, number) == ("done", "")
    equal(connector, db, "shop.a", "shop.b")


# requests


def test_pause_keeps_the_place_and_resume_goes_on(db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]) -> None:
    connector = partial(db, tmp_path, **form)
    asked = snapshot(connector, "shop.a", "shop.b")
    paused = send(connector, "pause-snapshot")
    connector.capture()  # comes to its end: what is paused is not waited for
    assert fate(connector, paused)[0] == "done"
    assert connector.replay.advance().operations["r"] == 0
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert fate(connector, asked) == ("done", "")
    assert [type_ for type_, _ in told(connector, "Incremental Snapshot")] == [
        "STARTED", "PAUSED", "RESUMED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip


def test_one_table_of_three_is_stopped(db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]) -> None:
    connector = partial(db, tmp_path, **form)
    asked = snapshot(connector, "shop.a", "shop.b", "shop.c")
    stopped = send(connector, "stop-snapshot", {"type": "INCREMENTAL", "data-collections": ["shop.b"]}, id_="enough")
    connector.capture()
    equal(connector, db, "shop.a", "shop.c")
    assert connector.rows("shop.b") == []
    assert fate(connector, stopped) == ("done", "stopped shop.b")
    assert fate(connector, asked) == ("failed", "shop.b stopped by signal enough")


def test_a_whole_snapshot_is_stopped(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    asked = snapshot(connector, "shop.a", "shop.b")
    send(connector, "stop-snapshot", {"type": "incremental"}, id_="enough")
    connector.capture()
    assert fate(connector, asked) == ("failed", "shop.a, shop.b stopped by signal enough")
    assert ("ABORTED", {"connector_name": "test", "data_collections": "shop.a, shop.b"}) in told(connector)
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
    assert fate(connector, number) == ("done", "")


def test_two_requests_are_carried_out_one_after_the_other(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **form)
    first = snapshot(connector, "shop.a", id_="one")
    second = snapshot(connector, "shop.b", "shop.a", id_="two")
    with Busy(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert (fate(connector, first), fate(connector, second)) == (("done", ""), ("done", ""))


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


def test_a_filter_that_matches_nothing_reads_nothing(db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]) -> None:
    connector = partial(db, tmp_path, **form)
    number = snapshot(connector, "shop.a", additional_condition="n < 0")
    connector.capture()
    assert connector.rows("shop.a") == []
    assert (scans(connector), fate(connector, number)) == ({"shop.a": "EMPTY"}, ("done", ""))


def test_a_filter_that_is_bad_sql_fails_its_table_and_no_other(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    connector = partial(db, tmp_path, **form)
    conditions = [{"data-collection": "shop.a", "filter": "n <> <>"}]
    number = snapshot(connector, "shop.a", "shop.b", additional_conditions=conditions)
    connector.capture()
    state, message = fate(connector, number)
    assert state == "failed"
    assert "shop.a: The database does not understand the condition: n <> <>" in message
    assert scans(connector) == {"shop.a": "SQL_EXCEPTION", "shop.b": "SUCCEEDED"}
    equal(connector, db, "shop.b")
    fill(db, "shop.c", range(2000, 2003))
    assert connector.capture().events == 3  # capture is unharmed


@pytest.mark.parametrize(("rows", "status"), [(0, "EMPTY"), (1, "SUCCEEDED"), (50, "SUCCEEDED"), (51, "SUCCEEDED")])
def test_tables_of_few_rows(tmp_path: Path, form: dict[str, Any], rows: int, status: str) -> None:
    db = MemoryDatabase(f"core-few-{rows}-{len(form)}")
    db.create_table("shop.a", COLUMNS, key=("id",))
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))
    fill(db, "shop.a", range(rows))
    connector = partial(db, tmp_path, **form)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert (scans(connector), fate(connector, number)) == ({"shop.a": status}, ("done", ""))


def test_a_table_truncated_in_the_middle_stays_empty_but_for_what_comes_later(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **form)

    def empty() -> None:
        db.truncate("shop.a")
        fill(db, "shop.a", range(500, 520))

    at_read(2, empty)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert len(connector.rows("shop.a")) == 20
    assert fate(connector, number) == ("done", "")


def test_a_column_added_in_the_middle_is_read_with_the_rows_after_it(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **form)
    at_read(3, lambda: db.add_column("shop.a", "late", "int32", 7))
    number = snapshot(connector, "shop.a")
    with Busy(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


def test_a_column_dropped_and_one_renamed_in_the_middle(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **form)
    at_read(2, lambda: db.drop_column("shop.a", "note"))
    at_read(5, lambda: db.rename_column("shop.a", "n", "number"))
    snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")


def test_a_table_that_a_statement_changes_beyond_the_log_is_read_whole_in_between(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(
        db,
        tmp_path,
        table_include_list="shop.[a-z]",
        signal_poll_interval_ms=50,
        incremental_snapshot_chunk_size=50,
        **form,
    )
    connector.capture()
    at_read(3, lambda: db.change_column("shop.a", "n", "string", str))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert fate(connector, number) == ("done", "")


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Make a schema change, and wait until the stream has taken it."""
    taken, take = threading.Event(), SchemaChanges.take

    def watched(self: SchemaChanges, item: SchemaChange) -> None:
        take(self, item)
        taken.set()

    def make(change: Callable[[], object]) -> None:
        taken.clear()
        change()
        assert taken.wait(LONGEST_S)

    monkeypatch.setattr(SchemaChanges, "take", watched)
    return make


def test_rows_from_before_a_column_was_replaced_by_one_that_looks_alike_are_read_again(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any, passed: Any
) -> None:
    connector = partial(db, tmp_path, **form)

    def act() -> None:
        passed(lambda: db.drop_column("shop.a", "note"))
        passed(lambda: db.add_column("shop.a", "note", "string", "new"))

    at_read(2, act)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db, "shop.a")
    assert {row["note"] for row in connector.rows("shop.a")} == {"new"}
    assert fate(connector, number) == ("done", "")


CHANGES: dict[str, Callable[[MemoryDatabase], None]] = {
    "another-table": lambda db: db.rename_tables(("shop.a", "shop.a_old"), ("shop.a_new", "shop.a")),
    "other-values": lambda db: db.change_column("shop.a", "n", "string", "no {}".format),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_begins_anew_when_rows_have_become_others_and_nothing_else_reads_them(
    db: MemoryDatabase,
    tmp_path: Path,
    form: dict[str, Any],
    at_read: Any,
    passed: Any,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i in range(1000):
            t.insert("shop.a_new", {"id": i, "n": -i, "note": "new"})
    connector = partial(db, tmp_path, **form)
    # rows that the log does not tell of become others, which only here is no fault
    monkeypatch.setattr(Replay, "_chunk_row", lambda *_: None)
    at_read(5, lambda: passed(lambda: CHANGES[change](db)))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert (fate(connector, number), scans(connector)["shop.a"]) == (("done", ""), "SUCCEEDED")
    assert "The incremental snapshot of shop.a begins anew with the first row" in caplog.text


def paused(connector: Connector) -> None:
    """Pause incremental snapshots, and wait until they are."""
    number = send(connector, "pause-snapshot")
    until(lambda: fate(connector, number)[0] == "done", "incremental snapshots are paused")


def test_a_paused_snapshot_of_a_table_that_was_swapped_begins_anew(
    db: MemoryDatabase, tmp_path: Path, at_read: Any
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",), rows=[{"id": i, "n": -i, "note": "new"} for i in range(1000)])
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a")
    at_read(5, lambda: paused(connector))
    connector.capture()
    assert 0 < len(connector.rows("shop.a")) < 1000
    CHANGES["another-table"](db)
    connector.replay.gap()  # the rows of the one table are not those of the other, of which the log does not tell
    connector.capture()
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


def test_a_table_that_was_swapped_for_a_smaller_one_is_not_at_its_end_before_the_stream_is_there(
    db: MemoryDatabase, tmp_path: Path, at_read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_table("shop.a_new", COLUMNS, key=("id",), rows=[{"id": i, "n": -i, "note": "new"} for i in range(20)])
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a")
    at_read(5, lambda: paused(connector))
    connector.capture()
    with db.transaction() as t:
        for i in range(20, 1000):
            t.delete("shop.a", {"id": i})
    CHANGES["another-table"](db)
    connector.replay.gap()  # the rows of the one table are not those of the other, of which the log does not tell
    events = incremental.Incremental.events

    def late(self: incremental.Incremental, block: Any) -> None:
        """The chunk is there before the events."""
        until(
            lambda: (thread := self._thread) is None or any(w.chunk is not None for w in thread.windows),
            "a chunk is read",
            every_s=0.002,
        )
        events(self, block)

    monkeypatch.setattr(incremental.Incremental, "events", late)
    send(connector, "resume-snapshot")
    connector.capture()
    equal(connector, db, "shop.a")
    assert fate(connector, number) == ("done", "")


@pytest.mark.parametrize(
    ("columns", "key"),
    [({"id": "int64!", "n": "int64"}, ("id",)), ({"id": "string!", "n": "int64!"}, ("id", "n"))],
    ids=["type", "columns"],
)
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "behind"])
def test_a_chunk_read_by_another_key_than_events_before_it_were_told_by_is_written(
    db: MemoryDatabase,
    tmp_path: Path,
    form: dict[str, Any],
    columns: dict[str, str],
    key: tuple[str, ...],
    ahead: bool,
    passed: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """:param ahead: the chunk is read before the stream has come to the events"""
    db.create_table("shop.k", {"id": "string!", "n": "int64"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.k", {"id": "k1", "n": 1})
    connector = partial(db, tmp_path, snapshot_mode="initial", **form)
    look, done = MemoryChunks.table, threading.Event()

    def watched(self: MemoryChunks, table: TableId) -> TableSchema | None:
        """The window is registered, and the table is looked at when it is another one already."""
        if not done.is_set():
            done.set()
            with db.transaction() as t:
                t.update("shop.k", {"id": "k1"}, {"n": 2})
            for change in (lambda: db.drop_table("shop.k"), lambda: db.create_table("shop.k", columns, key=key)):
                change() if ahead else passed(change)
            with db.transaction() as t:
                for i in range(120):
                    t.insert("shop.k", {"id": i if columns["id"] == "int64!" else f"k{i}", "n": i})
        return look(self, table)

    monkeypatch.setattr(MemoryChunks, "table", watched)
    number = snapshot(connector, "shop.k")
    connector.capture()
    equal(connector, db, "shop.k")
    assert (fate(connector, number), len(connector.rows("shop.k"))) == (("done", ""), 120)


def test_a_chunk_is_read_again_when_an_event_was_told_by_another_key_for_a_while(
    db: MemoryDatabase, tmp_path: Path, at_read: Any, passed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # structures come in other ways than by statements in the log too, as by a signal
    monkeypatch.setattr(incremental.Incremental, "changed", lambda *_: None)
    connector = partial(db, tmp_path, schema_change_rewrite_mode="ignore")

    def act() -> None:
        passed(lambda: db.change_column("shop.a", "id", "string", str))
        with db.transaction() as t:
            t.update("shop.a", {"id": "5"}, {"n": -1})
        passed(lambda: db.change_column("shop.a", "id", "int64", int))

    at_read(1, act)
    number = snapshot(connector, "shop.a")
    connector.capture()
    rows = [row for row in connector.rows("shop.a") if isinstance(row["id"], int)]
    assert sorted(rows, key=repr) == sorted(db.rows("shop.a"), key=repr)
    assert fate(connector, number) == ("done", "")


def test_a_table_dropped_in_the_middle_is_given_up_by_name(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = partial(db, tmp_path, **form)
    at_read(2, lambda: db.drop_table("shop.a"))
    number = snapshot(connector, "shop.a", "shop.b")
    connector.capture()
    assert scans(connector) == {"shop.a": "UNKNOWN_SCHEMA", "shop.b": "SUCCEEDED"}
    state, message = fate(connector, number)
    assert (state, "there is no table shop.a any more" in message) == ("failed", True)


def test_a_table_without_a_key_is_refused_by_name(db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]) -> None:
    db.create_table("shop.k", COLUMNS)
    connector = partial(db, tmp_path, **form)
    number = snapshot(connector, "shop.k", "shop.b")
    connector.capture()
    assert scans(connector) == {"shop.k": "NO_PRIMARY_KEY", "shop.b": "SUCCEEDED"}
    state, message = fate(connector, number)
    assert state == "failed"
    assert "message.key.columns=shop.k:<columns>" in message


def test_a_key_of_ones_own_and_a_surrogate_key_cut_chunks(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    db.create_table("shop.k", {"id": "int64!", "turn": "int64!", "note": "string"})
    with db.transaction() as t:
        for i in range(300):
            t.insert("shop.k", {"id": i, "turn": i % 3})
    connector = partial(db, tmp_path, message_key_columns="shop.k:id", **form)
    number = snapshot(connector, "shop.k", surrogate_key="turn")
    connector.capture()
    assert (fate(connector, number), len(connector.rows("shop.k"))) == (("done", ""), 300)


def test_a_surrogate_key_that_may_be_null_or_is_missing_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    nullable = snapshot(connector, "shop.a", surrogate_key="n")
    missing = snapshot(connector, "shop.a", surrogate_key="nix")
    connector.capture()
    assert "column n of shop.a may be NULL" in fate(connector, nullable)[1]
    assert "shop.a has no column nix, the surrogate key" in fate(connector, missing)[1]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Tables that chunks are read of, and the rows that each was to have."""
    found: list[tuple[str, int]] = []
    read = MemoryChunks.read

    def watched(self: MemoryChunks, rows: Any, limit: int, *more: Any) -> Any:
        found.append((rows.table.id.full_name, limit))
        return read(self, rows, limit, *more)

    monkeypatch.setattr(MemoryChunks, "read", watched)
    return found


def test_windows_of_a_quick_table_hold_several_chunks_of_a_slow_one_only_one(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, incremental_snapshot_chunk_size=10, **form)
    found: dict[str, list[int]] = {"shop.a": [], "shop.b": []}
    read = MemoryChunks.read

    def watched(self: MemoryChunks, rows: Any, limit: int, queries: int, max_bytes: int) -> Any:
        found[str(rows.table.id)].append(queries)
        chunk = read(self, rows, limit, queries, max_bytes)
        # of table a, reading takes next to nothing beside everything else; of b, it is as good as all that takes time
        chunk.reading_s = 1e-9 if rows.table.id.name == "a" else 60.0 * queries
        return chunk

    monkeypatch.setattr(MemoryChunks, "read", watched)
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
    assert (found.fate, found.progress) == ("done", shown)


@pytest.mark.parametrize("target_ms", [0, 1000])
def test_a_request_may_say_how_many_rows_a_chunk_has(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], sizes: list[tuple[str, int]], target_ms: int
) -> None:
    db.create_table("shop.k", COLUMNS, key=("id",))
    fill(db, "shop.k", range(10))
    connector = partial(db, tmp_path, incremental_snapshot_chunk_target_ms=target_ms, **form)
    other, asked = snapshot(connector, "shop.b"), snapshot(connector, "shop.k", chunk_size=3)
    connector.capture()
    assert {limit for table, limit in sizes if table == "shop.k"} == {3}
    assert 50 in {limit for table, limit in sizes if table == "shop.b"}
    assert (fate(connector, other), fate(connector, asked)) == (("done", ""), ("done", ""))
    assert (len(connector.rows("shop.k")), len(connector.rows("shop.b"))) == (10, 1000)


def test_the_chunk_size_of_a_request_outlives_a_run(
    db: MemoryDatabase, tmp_path: Path, sizes: list[tuple[str, int]], at_read: Any
) -> None:
    connector = partial(db, tmp_path)
    at_read(2, lambda: send(connector, "pause-snapshot"))
    number = snapshot(connector, "shop.a", chunk_size=3)
    connector.capture()
    found = connector.store.signals_of("test", limit=1, number=number)[0]
    assert (found.fate, found.progress["chunk_rows"]) == ("running", 3)
    before = len(sizes)
    send(connector, "resume-snapshot")
    connector.capture()
    assert len(sizes) > before
    assert set(sizes) == {("shop.a", 3)}
    assert (fate(connector, number), len(connector.rows("shop.a"))) == (("done", ""), 1000)


def test_a_chunk_size_that_cannot_be_meant_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    none = snapshot(connector, "shop.a", chunk_size=0)
    whole = snapshot(connector, "shop.a", chunk_size=3, type="blocking")
    connector.capture()
    assert fate(connector, none) == ("refused", '"chunk-size" is not a whole number from 1 to 1,000,000')
    assert fate(connector, whole)[0] == "refused"
    assert scans(connector) == {}


def test_rows_that_are_gone_disappear_when_a_table_is_replaced(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **form)
    connector.capture()
    db._rows[db.id("shop.a")] = [
        row for row in db._rows[db.id("shop.a")] if row["id"] % 2
    ]  # the log knows nothing of it
    connector.replay.partial = True  # of rows that are not read again yet, there may be changes
    number = snapshot(connector, "shop.b", "shop.a", replace=True)
    with Busy(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert fate(connector, number) == ("done", "")


@pytest.mark.parametrize(
    ("form", "why"),
    [(form, why) for form in FORMS for why in ("no key", "surrogate key", "signal table")[: 3 if FORMS[form] else 2]],
    indirect=["form"],
)
def test_a_table_that_cannot_be_read_is_not_emptied_to_be_replaced(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], why: str
) -> None:
    db.create_table("shop.d", COLUMNS, key=() if why == "no key" else ("id",))
    fill(db, "shop.d", range(30))
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **form)
    connector.capture()
    more: dict[str, Any] = {"replace": True}
    if why == "surrogate key":
        more["surrogate_key"] = "nope"
    if why == "signal table":
        db.drop_table("shop.signals")
    number = snapshot(connector, "shop.d", "shop.a", **more)
    connector.capture()
    equal(connector, db, "shop.d", "shop.a")
    assert fate(connector, number)[0] == "failed"
    assert connector.replay.operations["t"] == (1 if why == "no key" else 0), "of shop.a, which can be read"


def test_what_happens_before_a_table_is_emptied_to_be_replaced_is_read_afterwards(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **form)
    connector.capture()
    connector.replay.partial = True  # of rows that are not read again yet, there may be changes
    for n in range(1, 30):
        at_read(n, lambda: time.sleep(0.02))
    number = snapshot(connector, "shop.a", "shop.b", replace=True)
    with Busy(db), Busy(db, "shop.b"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert fate(connector, number) == ("done", "")
    assert connector.replay.operations["t"] == 2


# answers


@pytest.mark.parametrize(
    ("type_", "data", "said"),
    [
        ("execute-snapshot", {"data-collections": ["shop.orders"]}, "no captured table is called shop.orders"),
        ("execute-snapshot", {"data-collections": ["shop.aa"]}, "did you mean shop.a?"),
        ("execute-snapshot", {"data-collections": ["shop.signals2"]}, "captured are shop.a, shop.b, shop.c"),
        ("execute-snapshot", "{not json", "its data is not JSON"),
        ("execute-snapshot", {"data-collections": ["shop.a"], "type": "sideways"}, "valid values are"),
        ("execute-snapshot", "x" * ((1 << 20) + 1), "1,048,577 characters"),
        ("stop-snapshot", {"data-collections": ["shop.a"]}, "missing"),
        ("exekute-snapshot", {}, "did you mean execute-snapshot?"),
        ("log", {}, "message"),
    ],
)
def test_a_signal_that_cannot_be_carried_out_is_answered_and_harms_nothing(
    db: MemoryDatabase, tmp_path: Path, type_: str, data: Any, said: str
) -> None:
    connector = partial(db, tmp_path)
    number = send(connector, type_, data, id_="wrong")
    fill(db, "shop.a", range(5000, 5003))
    assert connector.capture().events == 3
    state, message = fate(connector, number)
    assert state == "refused"
    assert said in message
    ((kind, told_data),) = told(connector, "Signal")
    assert kind == "REFUSED"
    assert "wrong" in told_data["message"]


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("execute-snapshot", {"data-collections": ["shop.a", "([a-z0-9_]+.?)+!"]}),
        ("execute-snapshot", {"data-collections": ["shop.b"], "additional-conditions": [
            {"data-collection": "([a-z0-9_]+.?)+!", "filter": "id < 5"}]}),
        ("execute-snapshot", {"data-collections": [f".*_.*_.*_.*!{i}" for i in range(2000)]}),
        ("stop-snapshot", {"data-collections": ["([a-z0-9_]+.?)+!"], "type": "incremental"}),
    ],
)  # fmt: skip
def test_a_pattern_that_would_hold_the_run_up_is_refused(
    db: MemoryDatabase, tmp_path: Path, type_: str, data: dict[str, Any]
) -> None:
    """Nothing can end the matching of one, and no other thread would get its turn; the next run would meet it again."""
    db.create_table("shop.a_table_of_customers_and_their_addresses_of_last_year", COLUMNS, key=("id",))
    connector = partial(db, tmp_path, table_include_list="shop.*")
    snapshot(connector, "shop.a", "shop.a_.*")
    send(connector, "pause-snapshot")
    number = send(connector, type_, data, id_="wrong")
    send(connector, "resume-snapshot")
    connector.capture()
    state, message = fate(connector, number)
    assert (state, "may take longer than a run can wait" in message) == ("refused", True)
    assert "in place of ([a-z0-9_]+.?)*" in message
    equal(connector, db, "shop.a")


def test_of_many_names_that_there_are_not_some_are_told(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, *(f"shop.nix{i}" for i in range(500)))
    connector.capture()
    state, message = fate(connector, number)
    assert (state, "shop.nix19" in message, "nor are 480 more of the names" in message) == ("refused", True, True)
    assert "shop.nix20" not in message


def test_an_empty_list_of_tables_is_no_action(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector)
    connector.capture()
    assert fate(connector, number) == ("done", "it names no table: nothing to do")


def test_a_table_that_is_unknown_among_others_fails_the_request_but_not_the_others(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", "shop.nix")
    connector.capture()
    equal(connector, db, "shop.a")
    state, message = fate(connector, number)
    assert (state, "shop.nix" in message) == ("failed", True)


def test_a_log_signal_tells_the_position(db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connector = partial(db, tmp_path)
    number = send(connector, "log", {"message": "now at {}"})
    with caplog.at_level("INFO"):
        connector.capture()
    assert "now at entry 7" in caplog.text
    assert fate(connector, number) == ("done", "now at entry 7")


def test_a_signal_row_is_taken_from_the_log_once(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert(
            "shop.signals", {"id": "row-1", "type": "execute-snapshot", "data": '{"data-collections": ["shop.a"]}'}
        )
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.channel, signal.fate) == ("row-1", "source", "done")
    assert connector.replay.operations["r"] == 1000


def test_a_signal_row_is_not_lost_when_a_run_is_killed_behind_it(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset may be behind the row before the run looks at its signals the next time."""
    connector = partial(db, tmp_path, batch_max_rows=1, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert("shop.b", {"id": 5000, "n": 1, "note": "fills the batch"})
        t.insert("shop.signals", {"id": "row-1", "type": "log", "data": '{"message": "taken"}'})
    with monkeypatch.context() as m:
        m.setattr(SignalProcessor, "process_if_due", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            connector.capture()
    assert len(connector.rows("shop.b")) == 1
    connector.capture()
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.fate, signal.message) == ("row-1", "done", "taken")


def test_signal_rows_are_not_kept_while_their_transaction_is_open(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still be rolled back."""
    connector = partial(db, tmp_path, memory_block_rows=1, **FORMS["insert_insert"])
    with db.transaction() as t:
        for i in range(3):
            t.log_void("shop.signals", {"id": f"void-{i}", "type": "log", "data": '{"message": "never"}'})
        t.insert("shop.signals", {"id": "row-1", "type": "log", "data": '{"message": "taken"}'})
    take, opened = Streaming._take, []

    def committed(self: Streaming, item: LogItem) -> None:
        take(self, item)
        if isinstance(item, LogBlock):
            opened.append(item.open)
            self._committer.commit()

    monkeypatch.setattr(Streaming, "_take", committed)
    connector.capture()
    assert True in opened
    assert [s.id for s in connector.store.signals_of("test", limit=10)] == ["row-1"]


@pytest.mark.parametrize("same", ["moment", "row"])
def test_signal_rows_at_one_place_of_two_logs_are_two_signals(db: MemoryDatabase, tmp_path: Path, same: str) -> None:
    """A server that resets its log numbers files, places and transactions from the beginning again."""
    connector = partial(db, tmp_path, snapshot_mode="when_needed", **FORMS["insert_insert"])
    moments = iter(range(10**15, 10**15 + 10**6))
    db.clock = (lambda: 10**15) if same == "moment" else (lambda: next(moments))
    for i in range(2):
        db.log.clear()
        connector.capture()
        data = f'{{"message": "{0 if same == "row" else i}"}}'
        with db.transaction() as t:
            t.insert("shop.signals", {"id": "again", "type": "log", "data": data})
        connector.capture()
    assert [s.fate for s in connector.store.signals_of("test", limit=10)] == ["done", "done"]


def test_a_channel_that_is_not_enabled_is_refused(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path, signal_enabled_channels="source")
    number = snapshot(connector, "shop.a")
    connector.capture()
    assert fate(connector, number) == ("refused", "the channel airflow is not among signal.enabled.channels")


def test_the_position_is_set_by_a_signal(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    fill(db, "shop.a", range(5000, 5003))  # skipped
    fill(db, "shop.b", range(5000, 5003))
    number = send(connector, "set-memory-position", {"entry": 8})
    connector.capture()
    assert connector.rows("shop.a") == []
    assert len(connector.rows("shop.b")) == 3
    assert fate(connector, number) == ("done", "goes on from entry 8 instead of entry 7 (skip)")
    wrong = send(connector, "set-memory-position", {"entry": 800})
    connector.capture()
    assert fate(connector, wrong)[0] == "refused"


# whole tables at run time


def test_a_blocking_snapshot_reads_whole_tables_and_goes_on(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", "shop.b", type="blocking")
    with Busy(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert fate(connector, number) == ("done", "read shop.a, shop.b")
    kinds = [type_ for type_, _ in told(connector, "Blocking Snapshot")]
    assert kinds == ["STARTED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_a_table_is_read_whole_for_one_signal_at_a_time(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    first = snapshot(connector, "shop.a", type="blocking")
    second = snapshot(connector, "shop.a", "shop.b", type="blocking")
    connector.capture()
    assert fate(connector, first) == ("done", "read shop.a")
    assert fate(connector, second) == ("refused", f"tables wait to be read whole already: shop.a (signal {first})")


def test_a_blocking_snapshot_with_a_select_leaves_other_rows_as_they_are(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    db._rows[db.id("shop.a")] = [{**row, "note": "changed"} for row in db._rows[db.id("shop.a")]]  # unlogged
    snapshot(
        connector, "shop.a", type="blocking", additional_conditions=[{"data-collection": "shop.a", "filter": "id < 5"}]
    )
    connector.capture()
    topics = [f.counts for m in connector.changelog.manifests("test") for f in m.files if f.topic == "test.shop.a"]
    assert topics[-1] == {"r": 5}


def test_a_blocking_snapshot_that_fails_leaves_no_gap(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(
        connector,
        "shop.a",
        type="blocking",
        additional_conditions=[{"data-collection": "shop.a", "filter": "id is bad"}],
    )
    fill(db, "shop.b", range(5000, 5003))
    connector.capture()
    state, message = fate(connector, number)
    assert (state, "id is bad" in message) == ("failed", True)
    assert len(connector.rows("shop.b")) == 3
    fill(db, "shop.b", range(6000, 6003))
    connector.capture()
    assert len(connector.rows("shop.b")) == 6


@pytest.mark.parametrize("kind", [AccessDenied, NotGranted, QueryRefused])
def test_a_blocking_snapshot_that_the_account_may_not_make_ends_no_run(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[CdcError]
) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", type="blocking")

    def denied(*_: Any, **__: Any) -> Any:
        raise kind("SELECT command denied for table shop.a", remedy="GRANT SELECT")

    monkeypatch.setattr(MemorySource, "snapshot", denied)
    for i in (5000, 6000):
        fill(db, "shop.b", range(i, i + 3))
        assert connector.capture().events == 3
    state, message = fate(connector, number)
    assert (state, "denied for table shop.a" in message, "GRANT SELECT" in message) == ("failed", True, True)


def test_what_the_account_may_not_read_ends_the_run_where_nobody_has_asked_for_it(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]")

    def denied(*_: Any, **__: Any) -> Any:
        raise AccessDenied("SELECT command denied for table shop.a", remedy="GRANT SELECT")

    monkeypatch.setattr(MemorySource, "snapshot", denied)
    with pytest.raises(AccessDenied):
        connector.capture()


def test_a_commit_that_fails_while_a_signal_is_taken_ends_the_run_and_loses_nothing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert("shop.b", {"id": 5000, "n": 1, "note": "in the batch"})
        data = '{"data-collections": ["shop.a"], "type": "blocking"}'
        t.insert("shop.signals", {"id": "row-1", "type": "execute-snapshot", "data": data})
    commit, left = ChangeLog.commit, [1]

    def fails(self: ChangeLog, manifest: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise OSError("the storage does not answer")
        return commit(self, manifest)

    monkeypatch.setattr(ChangeLog, "commit", fails)
    with pytest.raises(OSError, match="does not answer"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert [row["id"] for row in connector.rows("shop.b")] == [5000]
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.fate) == ("row-1", "done")


def test_a_blocking_snapshot_cancels_chunks_that_are_older_than_it(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(
        db,
        tmp_path,
        table_include_list="shop.[a-z]",
        signal_poll_interval_ms=50,
        incremental_snapshot_chunk_size=50,
        **form,
    )
    connector.capture()
    at_read(3, lambda: snapshot(connector, "shop.a", type="blocking", id_="whole"))
    snapshot(connector, "shop.a")
    with Busy(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")


# the connector's life


def test_a_paused_connector_ends_within_seconds_and_starts_no_more(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    timer = threading.Timer(0.3, lambda: connector.store.set_control("test", Wanted.PAUSED, "ann", "maintenance"))
    timer.start()
    began = time.monotonic()
    connector.capture(run_for_s=120)
    assert time.monotonic() - began < 60
    with pytest.raises(ConnectorHalted, match=r"paused since .*, by ann: maintenance"):
        connector.capture()
    connector.store.set_control("test", Wanted.RUNNING, "ann", "")
    fill(db, "shop.b", range(5000, 5003))
    assert connector.capture().events == 3


def test_a_lost_position_is_repaired_beside_the_stream(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, Any]
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **form)
    connector.capture()
    connector.replay.partial = True
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
        t.update("shop.b", {"id": 2}, {"n": -2})
    db.purge()
    fill(db, "shop.c", range(5000, 5003))
    connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.channel, signal.fate) == ("repair", "done")
    assert connector.store.load("test").offset.incremental.scans == []  # type: ignore[union-attr]


def test_a_lost_position_is_not_repaired_in_part(db: MemoryDatabase, tmp_path: Path) -> None:
    """A table that cannot be read in chunks would keep its gap in a run that says that all is well."""
    db.create_table("shop.d", COLUMNS)
    fill(db, "shop.d", range(3))
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    before = connector.store.load("test").offset
    fill(db, "shop.d", range(3, 6))
    db.purge()
    fill(db, "shop.d", range(6, 9))
    with pytest.raises(PrerequisiteError, match=r"cannot be read in chunks: shop\.d\."):
        connector.capture({"position.lost.mode": "incremental"})
    assert connector.store.load("test").offset == before
    connector.capture({"position.lost.mode": "snapshot"})
    equal(connector, db, "shop.a", "shop.d")


@pytest.mark.parametrize("changed", ["in the gap", "behind it", "on both sides"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_lost_position_is_repaired_where_tables_were_changed(
    db: MemoryDatabase, tmp_path: Path, changed: str, busy: bool
) -> None:
    """Nobody knows under which structure the rows in between were written: the table is read whole, the others are not. Rows that
    cannot be told by the structure of now are left out, and the batch says so."""
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.b", {"id": 1})
    if changed != "behind it":
        db.add_column("shop.b", "early", "int64", 7)
    db.purge()
    if busy:
        fill(db, "shop.b", range(5000, 5003))
    if changed != "in the gap":
        db.add_column("shop.b", "late", "int64", 8)
    if busy:
        fill(db, "shop.b", range(6000, 6003))
    connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    signals = connector.store.signals_of("test", limit=10)
    assert [(s.channel, s.fate) for s in signals] == [("repair", "done")] * 2
    assert scans(connector).keys() == {"shop.a", "shop.c"}
    assert [data["scanned_collection"] for _, data in told(connector, "Blocking Snapshot")[1:2]] == ["shop.b"]
    left = [record for manifest in connector.changelog.manifests("test") for record in manifest.left_out]
    undecoded = [("shop.b", {"entry": 9}, {"entry": 10}, 3)] if busy and changed == "on both sides" else []
    assert [(record.table, record.start, record.end, record.events) for record in left] == undecoded


def test_a_lost_position_is_repaired_though_incremental_snapshots_are_paused(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    snapshot(connector, "shop.a")
    send(connector, "pause-snapshot")
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
    db.purge()
    result = connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert {s.fate for s in connector.store.signals_of("test", limit=10)} == {"done"}
    assert "RESUMED" in [type_ for type_, _ in told(connector, "Incremental Snapshot")]
    assert "were paused; they go on" in caplog.text
    assert result.metrics["incremental-snapshot"]["SnapshotPaused"] is False
