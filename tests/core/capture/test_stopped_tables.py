"""Events and values that cannot be read, on the memory source: their table is stopped alone, or read again by itself."""

from __future__ import annotations

import itertools
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.log_streaming import Streaming
from airflow_provider_cdc.core.errors import QueryRejected, UnreadableValue
from airflow_provider_cdc.core.model import connector_offset
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.snapshot.snapshotter import Snapshotter
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.state_store import StateStore
from tests.sources.suite.common import RunKilled
from tests.support.connectors import Connector, memory_connector
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.small_tables import equal, insert, operations

HALF = "half a character: \ud83d"
"""A text that cannot be written as UTF-8."""
LOG = "airflow_provider_cdc.core.capture.stopped_tables"


def write_unreadable(db: MemoryDatabase, id_: int, *, corrected: bool = True) -> None:
    """Write an event of ``shop.a`` that cannot be read, and others of both tables before it in its transaction.

    :param corrected: the table can be read afterwards
    """
    with db.transaction() as t:
        t.insert("shop.b", {"id": id_, "n": 0})
        t.insert("shop.a", {"id": id_ + 1000, "n": 0})
        t.insert("shop.a", {"id": id_, "n": 0, "note": HALF})
    if corrected:
        with db.transaction() as t:
            t.update("shop.a", {"id": id_}, {"note": "whole"})


def started(db: MemoryDatabase, folder: Path, mode: str = "warn", **properties: Any) -> Connector:
    connector = memory_connector(db, folder, event_converting_failure_handling_mode=mode, **properties)
    connector.capture()
    return connector


def offset_of(connector: Connector) -> Offset:
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    return offset


def kill_before_read(connector: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run once, and die when an event is set aside and its table is not read again yet."""
    with monkeypatch.context() as patch:
        patch.setattr(Snapshotter, "run", lambda *_, **__: (_ for _ in ()).throw(RunKilled))
        with pytest.raises(RunKilled):
            connector.capture()


def notes(connector: Connector) -> list[dict[str, str]]:
    found = connector.store.list_notifications(connector.name, limit=1000)
    return [n.notification.additional_data for n in found if n.notification.aggregate_type == "Event"]


@pytest.mark.parametrize(
    ("mode", "level"), [("warn", logging.WARNING), ("skip", logging.DEBUG), ("ignore", logging.DEBUG)]
)
def test_an_event_is_set_aside_and_its_table_is_read_again_by_itself(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str, level: int
) -> None:
    connector = started(db, tmp_path, mode)
    write_unreadable(db, 3)
    insert(db, "shop.b", 4)
    with caplog.at_level(logging.DEBUG, LOG):
        assert operations(connector, connector.capture()) == {"a": {"t": 1, "r": 4}, "b": {"c": 2}}
    equal(connector, db)
    (record,) = [r for r in caplog.records if r.name == LOG]
    assert (record.levelno, "shop.a" in record.getMessage()) == (level, True)
    offset = offset_of(connector)
    assert (offset.stopped, offset.snapshot.pending) == ({}, {})
    (event,) = offset.set_aside["shop.a"]
    assert (event.error, "half a character" in event.text) == ("UnreadableValue", True)
    (note,) = notes(connector)
    assert (note["table"], note["error"], note["position"]) == ("shop.a", "UnreadableValue", event.position)
    insert(db, "shop.a", 5)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_the_default_stops_the_table_alone_until_it_is_read(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    write_unreadable(db, 3)
    for _ in range(2):
        with pytest.raises(UnreadableValue, match="1 table is stopped"):
            connector.capture()
        equal(connector, db, "shop.b")
    assert notes(connector) == []
    snapshot(connector, "shop.a", type="blocking")
    connector.capture()
    equal(connector, db)


def test_further_events_of_a_marked_table_are_part_of_the_same_read(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = started(db, tmp_path)
    for id_ in (3, 5, 7):
        write_unreadable(db, id_)
    assert operations(connector, connector.capture())["a"] == {"t": 1, "r": 8}
    equal(connector, db)
    assert len(notes(connector)) == len(offset_of(connector).set_aside["shop.a"]) == 1


def test_a_value_that_the_table_still_has_stops_it_after_one_read(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = started(db, tmp_path)
    write_unreadable(db, 3, corrected=False)
    reads: list[object] = []
    run = Snapshotter.run
    monkeypatch.setattr(Snapshotter, "run", lambda self, **options: (reads.append(self), run(self, **options)))
    for id_ in (10, 11, 12):
        insert(db, "shop.b", id_)
        with pytest.raises(UnreadableValue, match=r"shop\.a: UnreadableValue: .*half a character"):
            connector.capture()
        equal(connector, db, "shop.b")
    assert len(reads) == 1
    with db.transaction() as t:
        t.update("shop.a", {"id": 3}, {"note": "whole"})
    snapshot(connector, "shop.a", type="blocking")
    connector.capture()
    equal(connector, db)


def die_at_write(patch: pytest.MonkeyPatch, at: int, *, behind: bool) -> None:
    """Have the next run die at its n-th write of the offset.

    :param behind: after it; otherwise before it, when the manifest may be there
    """
    left = itertools.count(1)
    for name in ("commit_batch", "advance_offset"):
        write = getattr(StateStore, name)

        def die(self: StateStore, *args: Any, write: Any = write, **options: Any) -> Any:
            n = next(left)
            if n == at and not behind:
                raise RunKilled
            result = write(self, *args, **options)
            if n == at:
                raise RunKilled
            return result

        patch.setattr(StateStore, name, die)


@pytest.mark.parametrize("behind", [False, True])
def test_a_run_that_dies_at_any_commit_loses_and_repeats_nothing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """The event is set aside, and the table marked, by one commit."""
    started(db, tmp_path / "before", batch_max_rows=1).store.close()
    write_unreadable(db, 3)
    insert(db, "shop.b", 4)
    insert(db, "shop.a", 5)
    for n in range(1, 99):
        shutil.copytree(tmp_path / "before", folder := tmp_path / str(n))
        connector = memory_connector(db, folder, event_converting_failure_handling_mode="warn", batch_max_rows=1)
        with monkeypatch.context() as patch:
            die_at_write(patch, n, behind=behind)
            try:
                connector.capture()
                break
            except RunKilled:
                pass
        offset = offset_of(connector)
        assert len(notes(connector)) == len(offset.set_aside.get("shop.a", ()))
        connector.capture()
        equal(connector, db)
        assert (len(notes(connector)), connector.replay.operations["t"]) == (1, 1)
        connector.store.close()
    assert n > 3
    equal(connector, db)


def test_a_read_that_was_interrupted_is_continued_by_the_next_run(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = started(db, tmp_path)
    write_unreadable(db, 3)
    kill_before_read(connector, monkeypatch)
    assert offset_of(connector).snapshot.repaired_tables == {"shop.a"}
    insert(db, "shop.b", 4)
    insert(db, "shop.a", 4)
    # not even a mode that reads no rows makes the next run forget the table
    assert operations(connector, connector.capture({"snapshot.mode": "no_data"}))["a"] == {"t": 1, "r": 5}
    equal(connector, db)


def test_a_marked_table_that_is_not_captured_any_more_is_forgotten(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = started(db, tmp_path)
    write_unreadable(db, 3)
    kill_before_read(connector, monkeypatch)
    connector.capture({"table.exclude.list": "shop.a"})
    equal(connector, db, "shop.b")
    assert offset_of(connector).snapshot.pending == {}


def test_a_table_that_was_dropped_before_it_is_read_again_is_left_out(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = started(db, tmp_path)
    write_unreadable(db, 3)
    kill_before_read(connector, monkeypatch)
    db.drop_table("shop.a")
    insert(db, "shop.b", 4)
    connector.capture()
    equal(connector, db)
    assert offset_of(connector).snapshot.pending == {}


def test_a_fourth_event_within_a_day_stops_the_table(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = started(db, tmp_path)
    for id_ in (3, 4, 5):
        write_unreadable(db, id_)
        connector.capture()
        equal(connector, db)
    write_unreadable(db, 6)
    with pytest.raises(UnreadableValue, match="1 table is stopped"):
        connector.capture()
    assert len(offset_of(connector).set_aside["shop.a"]) == 3
    snapshot(connector, "shop.a", type="blocking")
    connector.capture()
    monkeypatch.setattr(connector_offset, "SET_ASIDE_MS", -60_000)  # a day later
    write_unreadable(db, 7)
    connector.capture()
    equal(connector, db)
    assert len(notes(connector)) == 4


@pytest.mark.parametrize(
    "properties",
    [{"snapshot_mode": "no_data"}, {"snapshot_include_collection_list": "shop.b"}],
    ids=lambda p: next(iter(p)),
)
def test_a_table_that_no_snapshot_reads_is_stopped(
    db: MemoryDatabase, tmp_path: Path, properties: dict[str, Any]
) -> None:
    connector = started(db, tmp_path, **properties)
    write_unreadable(db, 3)
    with pytest.raises(UnreadableValue, match="1 table is stopped"):
        connector.capture()
    assert offset_of(connector).set_aside == {}


def test_a_read_that_the_database_refuses_stops_the_table_and_no_other(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise QueryRejected("SELECT command denied", remedy="grant it")

    connector = started(db, tmp_path)
    write_unreadable(db, 3)
    insert(db, "shop.b", 4)
    with monkeypatch.context() as patch:
        patch.setattr(MemorySource, "open_snapshot", refuse)
        with pytest.raises(UnreadableValue, match=r"shop\.a: QueryRejected: SELECT command denied"):
            connector.capture()
    equal(connector, db, "shop.b")
    assert offset_of(connector).snapshot.pending == {}


def test_a_requested_read_of_the_table_takes_the_events_that_were_set_aside(db: MemoryDatabase, tmp_path: Path) -> None:
    """The log is read up to the request's position while its view is open."""
    connector = started(db, tmp_path)
    write_unreadable(db, 3)
    number = snapshot(connector, "shop.a", type="blocking")
    assert operations(connector, connector.capture())["a"] == {"t": 1, "r": 4}
    equal(connector, db)
    assert signal_state(connector, number)[0] == "done"


def test_an_incremental_snapshot_of_the_table_ends_since_the_table_is_read_whole(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = started(db, tmp_path, incremental_snapshot_chunk_size=1, signal_poll_interval_ms=50)
    write_unreadable(db, 3)
    number = snapshot(connector, "shop.a")
    connector.capture()
    equal(connector, db)
    state, text = signal_state(connector, number)
    assert (state, "read as a whole" in text) == ("failed", True)


def test_an_error_that_names_no_table_ends_the_run(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise UnreadableValue("Some table has it.", remedy="none")

    connector = started(db, tmp_path)
    insert(db, "shop.b", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Streaming, "_phase", fail)
        with pytest.raises(UnreadableValue, match="Some table has it"):
            connector.capture()
    assert notes(connector) == []
    connector.capture()
    equal(connector, db)
