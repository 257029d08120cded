"""Capture runs on the memory source: what they say, what they need, how their batches close, and how they end."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.capture.connector_capture import Capture
from airflow_provider_cdc.core.errors import ConfigError, LeaseHeld, LeaseLost, PrerequisiteError
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource, _MemorySnapshot
from airflow_provider_cdc.state.models import LeaseRow
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.support.workloads.small_tables import equal, insert, operations

# the result


def test_the_result_says_what_was_made_durable(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    first = connector.capture()
    assert first.topics == {"test.shop.a": 2, "test.shop.b": 2}
    assert (first.connector, first.events, first.batches, first.position) == ("test", 4, [1], "entry 4")
    assert first.seq == 6  # two structures and four rows
    insert(db, "shop.a", 3)
    second = connector.capture()
    assert (second.events, second.batches, second.seq, second.position) == (1, [2], 7, "entry 5")
    assert second.seconds >= 0


def test_a_run_with_nothing_to_do_says_where_it_stands(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    before = connector.capture()
    after = connector.capture()
    assert (after.events, after.topics, after.batches) == (0, {}, [])
    assert (after.position, after.seq) == (before.position, before.seq)


def test_changes_that_are_not_captured_move_the_offset(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a")
    connector.capture()
    insert(db, "shop.b", 8, 9)
    result = connector.capture()
    assert (result.position, result.events, result.batches) == ("entry 5", 0, [])
    db.purge_log()  # the log before the offset is not needed any more
    assert connector.capture().position == "entry 5"


# prerequisites


def test_a_fatal_finding_ends_the_run_before_it_reads(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [Finding("The log is off.", "SET log = on"), Finding("It is slow.", "be patient", fatal=False)]
    monkeypatch.setattr(MemorySource, "check_prerequisites", lambda self: findings)
    connector = memory_connector(db, tmp_path)
    with pytest.raises(PrerequisiteError) as caught:
        connector.capture()
    assert "The log is off.\n    SET log = on" in str(caught.value)
    assert "It is slow" not in str(caught.value)
    assert connector.store.load_offset("test").version == 0


def test_a_finding_that_is_not_fatal_is_a_warning(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        MemorySource, "check_prerequisites", lambda self: [Finding("It is slow.", "be patient", fatal=False)]
    )
    with caplog.at_level(logging.WARNING):
        assert memory_connector(db, tmp_path).capture().events == 4
    assert "It is slow. Advice: be patient" in caplog.text


# batches


def test_batches_close_by_rows_at_transaction_boundaries(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, batch_max_rows=3)
    connector.capture()
    for i in range(10, 20):
        insert(db, "shop.a", i, i + 100)
    result = connector.capture()
    sizes = [m.event_count for m in connector.changelog.read_manifests("test") if m.batch in result.batches]
    assert sizes == [4] * 5
    equal(connector, db)


def test_a_batch_closes_by_bytes(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, batch_max_bytes=1_048_576)
    connector.capture()
    for i in range(10, 16):
        with db.transaction() as t:
            t.insert("shop.a", {"id": i, "note": "x" * 600_000})
    result = connector.capture()
    assert len(result.batches) == 3
    equal(connector, db)


def test_a_transaction_larger_than_block_and_batch_is_one_batch(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, memory_block_rows=2, batch_max_rows=3)
    connector.capture()
    insert(db, "shop.a", *range(10, 40))
    assert operations(connector, result := connector.capture()) == {"a": {"c": 30}}
    assert len(result.batches) == 1
    equal(connector, db)


@pytest.mark.parametrize("block_rows", [1, 2, 5, 100])
def test_what_a_transaction_has_taken_back_is_not_captured(db: MemoryDatabase, tmp_path: Path, block_rows: int) -> None:
    connector = memory_connector(db, tmp_path, memory_block_rows=block_rows, provide_transaction_metadata=True)
    connector.capture()
    insert(db, "shop.a", 3)
    with db.transaction() as t:
        for i in range(100, 107):
            t.log_void("shop.a", {"id": i})
        t.insert("shop.b", {"id": 3})
        t.insert("shop.a", {"id": 100})
    result = connector.capture()
    assert result.topics == {"test.shop.a": 2, "test.shop.b": 1}
    equal(connector, db)


# how a run ends


def _capture(connector: Connector) -> Any:
    return open_capture(connector.definition(), connector.state_url, lease_ttl_s=5, lease_wait_s=0)


def test_without_a_time_a_run_ends_at_the_end_of_the_log_as_it_was(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)
    items = MemorySource._items

    def write_between_reads(self: Any, *args: Any) -> Any:
        insert(db, "shop.b", len(db.log))  # the source writes as fast as it is read
        yield from items(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(MemorySource, "_items", write_between_reads)
        assert connector.capture().events == 1
    connector.capture()
    equal(connector, db)


def test_with_a_time_a_run_goes_on_at_the_end_of_the_log(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, batch_max_ms=100)
    connector.capture()
    ended = threading.Event()

    def seq() -> int:
        offset = connector.store.load_offset("test").offset
        assert offset is not None
        return offset.seq

    def write_in_two_steps() -> None:
        insert(db, "shop.a", 3)
        while seq() < 7:
            if ended.wait(0.01):
                return
        insert(db, "shop.a", 4)

    writer = threading.Thread(target=write_in_two_steps)
    writer.start()
    began = time.monotonic()
    # a second and a half at least, however long a busy machine takes to begin with it
    result = connector.capture(run_for_s=LONGEST_S, until=lambda: seq() >= 8 and time.monotonic() > began + 2)
    ended.set()
    writer.join()
    assert result.events == 2
    assert len(result.batches) == 2
    assert result.seconds >= 1.5
    equal(connector, db)


@pytest.mark.parametrize("poll_ms", [10, 15_000], ids=["events keep coming", "in the middle of quiet"])
def test_an_event_waits_no_longer_for_its_batch_than_it_may(db: MemoryDatabase, tmp_path: Path, poll_ms: int) -> None:
    """On a quiet log the source would say nothing for a quarter of a minute; on a busy one there is always something more."""
    connector = memory_connector(db, tmp_path, batch_max_ms=300, poll_interval_ms=poll_ms)
    connector.capture()
    insert(db, "shop.a", 3)
    began, ended = time.monotonic(), threading.Event()

    def write_orders() -> None:
        for key in range(100, 100_000):
            if poll_ms > 10 or ended.wait(0.02):
                return
            insert(db, "shop.b", key)

    writer = threading.Thread(target=write_orders)
    writer.start()
    waited: list[float] = []

    def is_committed() -> bool:
        if connector.store.load_offset("test").offset.seq < 7:  # type: ignore[union-attr]
            return False
        waited.append(time.monotonic() - began)
        return True

    try:
        connector.capture(run_for_s=20, until=is_committed)
    finally:
        ended.set()
        writer.join()
    assert waited
    assert waited[0] < 10
    connector.capture()
    equal(connector, db)


def test_where_only_others_write_the_offset_alone_is_not_made_durable_all_the_time(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, batch_max_ms=100, table_include_list=r"shop\.a")
    connector.capture()
    before = len(connector.store.offset_history("test"))
    versions = connector.store.load_offset("test").version
    ended = threading.Event()

    def write_others() -> None:
        for key in range(100, 100_000):
            if ended.wait(0.02):
                return
            insert(db, "shop.b", key)

    writer = threading.Thread(target=write_others)
    writer.start()
    try:
        connector.capture(run_for_s=2)
    finally:
        ended.set()
        writer.join()
    assert connector.store.load_offset("test").version - versions <= 2
    assert len(connector.store.offset_history("test")) - before <= 2


def test_a_stopped_run_ends_at_a_transaction_boundary_and_the_next_goes_on(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, memory_block_rows=1)
    connector.capture()
    for i in range(10, 16):
        insert(db, "shop.a", i, i + 100, i + 200)
    with _capture(connector) as capture:
        rows = MemorySource._rows

        def stop_inside(self: Any, entry: Any, at: int, *args: Any, **more: Any) -> Any:
            for n, block in enumerate(rows(self, entry, at, *args, **more)):
                if (at, n) == (6, 1):
                    capture.stop()
                yield block

        monkeypatch.setattr(MemorySource, "_rows", stop_inside)
        result = capture.run()
    assert (result.events, result.position) == (9, "entry 7")
    assert connector.capture().events == 9
    equal(connector, db)


@pytest.mark.parametrize("table", ["a", "b"])
def test_a_run_that_is_stopped_within_a_snapshot_keeps_the_tables_that_are_complete(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    connector = memory_connector(db, tmp_path, memory_block_rows=1, batch_max_rows=1, snapshot_max_threads=1)
    with _capture(connector) as capture:
        read = _MemorySnapshot.read

        def stop_inside(self: Any, chunk: Any) -> Any:
            if chunk.table.name == table:
                capture.stop()
            yield from read(self, chunk)

        monkeypatch.setattr(_MemorySnapshot, "read", stop_inside)
        result = capture.run()
    monkeypatch.undo()
    assert result.events == {"a": 0, "b": 2}[table]
    assert connector.capture().events == 4 - result.events
    assert connector.replay.advance().operations == {"r": 4}
    equal(connector, db)


def test_another_thread_stops_a_waiting_run(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    with _capture(connector) as capture:

        def stop() -> None:
            while not connector.changelog.list_batches("test"):
                time.sleep(0.05)
            capture.stop()

        stopper = threading.Thread(target=stop, daemon=True)
        stopper.start()
        result = capture.run(run_for_s=60)
        stopper.join()
    assert result.events == 4
    assert result.seconds < 30


def test_a_second_run_is_refused_while_the_first_is_alive(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    before = connector.store.find_connector("test")
    held = pytest.raises(LeaseHeld, match="is being captured by worker-1:42")
    with connector.store.acquire_lease("test", "worker-1:42", wait_s=0), _capture(connector) as capture, held as caught:
        capture.run()
    assert caught.value.safe == "This run read and wrote nothing."
    assert "airflow cdc status test" in str(caught.value.remedy)
    after = connector.store.find_connector("test")
    # nothing is wrong with the connector: the run that is alive says how it ends
    assert (after.run_ended_at, after.last_error, after.metrics) == (before.run_ended_at, None, before.metrics)
    assert after.ended_well


def test_a_run_that_was_taken_over_says_nothing_of_the_connector(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that took over is alive, or has ended, and has said how."""
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)

    def taken_over(self: Any, lease: Any) -> None:
        with connector.store.database.open_transaction() as c:
            c.execute(sa.update(LeaseRow).values(epoch=LeaseRow.epoch + 1, owner="worker-2:43"))
        store_confirm(self, lease)

    store_confirm = type(connector.store).confirm_lease
    before = connector.store.find_connector("test")
    monkeypatch.setattr(type(connector.store), "confirm_lease", taken_over)
    with pytest.raises(LeaseLost, match="was taken over by worker-2:43"):
        connector.capture()
    after = connector.store.find_connector("test")
    assert (after.run_ended_at, after.last_error, after.metrics) == (before.run_ended_at, None, before.metrics)


def test_runs_that_meet_a_batch_of_another_one_begin_again(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, whose lease had been lost, has its manifest written just before ours."""
    connector = memory_connector(db, tmp_path)
    connector.capture()
    connector.store.close()
    shutil.copytree(tmp_path / "changelog", tmp_path / "twin/changelog")
    shutil.copy(tmp_path / "state.db", tmp_path / "twin/state.db")
    connector, twin = memory_connector(db, tmp_path), memory_connector(db, tmp_path / "twin")
    insert(db, "shop.a", 3)
    assert twin.capture().batches == [2]
    theirs = twin.folder / "changelog/test"
    ours = tmp_path / "changelog/test"
    store_confirm = type(connector.store).confirm_lease

    def in_between(self: Any, lease: Any) -> None:
        store_confirm(self, lease)
        (manifest,) = twin.changelog.read_manifests("test", after=1)
        path = ours / "manifests/000000000002.json"
        if not path.exists():
            for file in manifest.files:
                (ours / file.path).write_bytes((theirs / file.path).read_bytes())
            path.write_bytes((theirs / "manifests/000000000002.json").read_bytes())

    monkeypatch.setattr(type(connector.store), "confirm_lease", in_between)
    result = connector.capture()
    assert result.events == 0  # the other run's batch has it all
    equal(connector, db)
    named = {f.path for m in connector.changelog.read_manifests("test") for f in m.files}
    assert {str(p.relative_to(ours)) for p in ours.rglob("*.parquet")} == named


def test_secrets_are_in_no_manifest_and_no_state(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    (manifest,) = connector.changelog.read_manifests("test")
    assert manifest.config == {
        "memory.database": db.name, "poll.interval.ms": 10, "topic.prefix": "test",
    }  # fmt: skip


def test_capture_is_what_open_capture_gives(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    with _capture(connector) as capture:
        assert isinstance(capture, Capture)
        assert capture.run().events == 4
        assert capture.run().events == 0


@pytest.mark.parametrize(("name", "value"), [("topic.prefix", "other"), ("topic.delimiter", "_")])
def test_a_connector_keeps_the_names_of_its_topics(db: MemoryDatabase, tmp_path: Path, name: str, value: str) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 9)
    before = connector.store.load_offset("test")
    with pytest.raises(ConfigError, match="give the connector a new name") as caught:
        connector.capture({name: value})
    assert f"{name} was" in str(caught.value)
    assert connector.store.load_offset("test") == before
    assert connector.capture().events == 1
    equal(connector, db)
    insert(db, "shop.a", 10)
    assert connector.capture({"skipped.operations": "c"}).events == 0, "what may change counts from the next run on"
    for wrong in ("a b", "größe"):
        with pytest.raises(ConfigError, match=r"topic\.prefix"):
            memory_connector(db, tmp_path / wrong, topic_prefix=wrong).capture()
