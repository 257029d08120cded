"""The three steps that make a batch exist, and what is found of them by the next run."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import (
    BatchesRemoved,
    ChangeLogDamaged,
    CommitConflict,
    CommitStateUnknown,
    LeaseLost,
    StorageUnavailable,
)
from airflow_provider_cdc.core.model.batch_manifest import FORMAT, Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.state.state_store import StateStore

SCHEMA = TableSchema(id=TableId(namespace="shop", name="t"), columns=(Column(name="a", type="int64"),), key=("a",))


class BatchBench:
    """A state store and a change log in a folder, and batchers on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.store = StateStore(f"sqlite:///{folder}/state.db", lease_ttl_s=60)
        self.store.create_tables()
        self.changelog = ChangeLog(str(folder / "log"))
        config = TableConfig.parse({"topic.prefix": "p"})
        self.envelope = Envelope(config, Filters(config), "memory", [])

    def batcher(self, lease: Lease, writer: str = "w1", **parts: Any) -> BatchBuilder:
        store, changelog = parts.get("store", self.store), parts.get("changelog", self.changelog)
        return BatchBuilder("c", "memory", {}, store, changelog, lease, writer)

    def add(self, batcher: BatchBuilder, events: int = 1) -> None:
        for _ in range(events):
            batcher.add_events(self.envelope.encode_truncate(SCHEMA, batcher.last_seq + 1, 0, {}))

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in (self.folder / "log").rglob("*.parquet"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BatchBench]:
    bench = BatchBench(tmp_path)
    yield bench
    bench.store.close()


@pytest.fixture
def lease(bench: BatchBench) -> Iterator[Lease]:
    with bench.store.acquire_lease("c", "me", wait_s=0) as lease:
        yield lease


def _offset_at(entry: int) -> Offset:
    return Offset(position={"entry": entry})


def _without_identity(offset: Offset | None) -> Offset:
    """Without the identity of the change log."""
    assert offset is not None
    return offset.in_log("")


def _record(batcher: BatchBuilder) -> SchemaChangeRecord:
    change = TableChange(type="CREATE", id=SCHEMA.id, table=SCHEMA)
    return SchemaChangeRecord(
        seq=batcher.last_seq + 1,
        ddl="CREATE",
        database="shop",
        position={"entry": 1},
        ts_us=0,
        captured_us=0,
        changes=[change],
    )


def test_a_batch_carries_offset_numbers_and_counts(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher, 3)
    batcher.commit(_offset_at(5))
    bench.add(batcher, 2)
    batcher.commit(_offset_at(7))
    one, two = bench.changelog.read_manifests("c")
    assert (one.batch, one.first_seq, one.last_seq, one.event_count) == (1, 1, 3, 3)
    assert (two.batch, two.first_seq, two.last_seq, two.event_count) == (2, 4, 5, 2)
    assert one.offset_before is None
    assert (
        one.offset_after
        == two.offset_before
        == Offset(position={"entry": 5}, seq=3, batch=1, changelog=one.changelog_id)
    )
    assert bench.store.load_offset("c").offset == two.offset_after == batcher.committed_offset
    assert {one.writer, two.writer} == {"w1"}
    assert one.schemas == {"p.shop.t": {"1": SCHEMA}}


def test_without_events_only_the_offset_moves(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    batcher.commit(_offset_at(3))
    assert bench.changelog.list_batches("c") == []
    assert bench.store.load_offset("c").offset == _offset_at(3)
    version = bench.store.load_offset("c").version
    batcher.commit(_offset_at(3))
    assert bench.store.load_offset("c").version == version  # nothing moved, nothing written


def test_a_schema_change_alone_is_a_batch(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    batcher.add_change(_record(batcher), {"p.shop.t": SCHEMA})
    batcher.commit(_offset_at(1))
    (manifest,) = bench.changelog.read_manifests("c")
    assert (manifest.first_seq, manifest.last_seq, manifest.files) == (1, 1, [])
    assert [r.ddl for r in bench.store.schema_history("c")] == ["CREATE"]


def test_rolled_back_events_leave_neither_number_nor_file(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher, 2)
    batcher.set_savepoint()
    bench.add(batcher, 5)
    batcher.rollback()
    assert (batcher.last_seq, batcher.rows, dict(batcher.counts)) == (2, 2, {"p.shop.t": 2})
    bench.add(batcher)
    batcher.commit(_offset_at(1))
    (manifest,) = bench.changelog.read_manifests("c")
    assert (manifest.last_seq, manifest.event_count) == (3, 3)
    assert bench.files() == sorted(f"log/c/{f.path}" for f in manifest.files)


def test_a_batch_of_nothing_but_rolled_back_events_does_not_exist(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    batcher.set_savepoint()
    bench.add(batcher, 5)
    batcher.rollback()
    assert batcher.is_empty
    batcher.commit(_offset_at(4))
    assert bench.changelog.list_batches("c") == []
    assert bench.files() == []
    assert bench.store.load_offset("c").offset == _offset_at(4)
    bench.add(batcher)
    batcher.commit(_offset_at(5))
    assert [m.first_seq for m in bench.changelog.read_manifests("c")] == [1]


def test_a_mark_is_void_after_a_commit(bench: BatchBench, lease: Lease) -> None:
    """A rollback after a commit must not go back behind what is committed."""
    batcher = bench.batcher(lease)
    batcher.set_savepoint()
    bench.add(batcher, 2)
    batcher.commit(_offset_at(1))
    batcher.rollback()
    assert (batcher.last_seq, batcher.rows) == (2, 0)
    assert batcher.is_empty


def test_an_abandoned_batch_leaves_nothing(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher, 5)
    batcher.discard_batch()
    assert bench.files() == []
    assert batcher.last_seq == 0
    bench.add(batcher)
    batcher.commit(_offset_at(1))
    assert [(m.first_seq, m.last_seq) for m in bench.changelog.read_manifests("c")] == [(1, 1)]


class _RefusingChangeLog(ChangeLog):
    """The manifest does not arrive."""

    def commit_manifest(self, manifest: Manifest) -> str:
        raise StorageUnavailable("There is no room.")


def test_an_offset_is_recorded_for_what_is_handed_over_and_not_for_what_waits(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher, 3)
    assert bench.store.load_offset("c").offset is None
    batcher.commit(_offset_at(1))
    handed_over = Offset(position={"entry": 1}, seq=3, batch=1)
    bench.add(batcher, 2)
    assert _without_identity(bench.store.load_offset("c").offset) == handed_over
    batcher.discard_batch()
    refused = bench.batcher(lease, "w2", changelog=_RefusingChangeLog(bench.changelog.storage.url))
    bench.add(refused, 2)
    with pytest.raises(StorageUnavailable):
        refused.commit(_offset_at(2))
    assert _without_identity(bench.store.load_offset("c").offset) == handed_over
    assert bench.changelog.list_batches("c") == [1]


# what a run that died has left


class _RunKilled(BaseException):
    pass


class DyingStore(StateStore):
    """The run ends where the offset would be written."""

    def commit_batch(self, *_: Any) -> Any:
        raise _RunKilled


def _die_before_the_offset(bench: BatchBench, lease: Lease, events: int = 2) -> None:
    store = DyingStore(bench.store.database.engine.url.render_as_string(hide_password=False))
    batcher = bench.batcher(lease, "dead", store=store)
    bench.add(batcher, events)
    batcher.add_change(_record(batcher), {"p.shop.t": SCHEMA})
    with pytest.raises(_RunKilled):
        batcher.commit(_offset_at(9))
    store.close()


def test_a_complete_batch_without_an_offset_is_adopted(
    bench: BatchBench, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    _die_before_the_offset(bench, lease)
    with caplog.at_level(logging.WARNING):
        batcher = bench.batcher(lease, "w2")
    assert "Adopted batch 1 (seq 1 to 3)" in caplog.text
    assert (
        _without_identity(bench.store.load_offset("c").offset)
        == Offset(position={"entry": 9}, seq=3, batch=1)
        == _without_identity(batcher.committed_offset)
    )
    assert batcher.last_seq == 3
    assert [r.seq for r in bench.store.schema_history("c")] == [3]
    assert [b.batch for b in bench.store.list_batches("c")] == [1]
    bench.batcher(lease, "w3")  # a second time there is nothing to adopt
    assert [b.batch for b in bench.store.list_batches("c")] == [1]


def test_files_of_a_run_that_died_before_its_manifest_are_deleted_by_the_next_batch(
    bench: BatchBench, lease: Lease
) -> None:
    dead = bench.batcher(lease, "dead")
    bench.add(dead, 2)
    dead._writer.finish_files()  # type: ignore[union-attr]  # the process ends here
    assert len(bench.files()) == 1
    batcher = bench.batcher(lease, "alive")
    bench.add(batcher)
    batcher.commit(_offset_at(1))
    assert [("alive" in name) for name in bench.files()] == [True]


def test_files_that_a_run_had_no_time_to_delete_after_its_offset_are_deleted_by_the_next_run(
    bench: BatchBench, lease: Lease
) -> None:
    dead = bench.batcher(lease, "dead")
    bench.add(dead)
    dead._writer.finish_files()  # type: ignore[union-attr]
    swept = bench.changelog.delete_orphan_files
    bench.changelog.delete_orphan_files = lambda manifest: 0  # type: ignore[method-assign]  # the process ends before it
    batcher = bench.batcher(lease, "w2")
    bench.add(batcher)
    batcher.commit(_offset_at(1))
    assert len(bench.files()) == 2
    bench.changelog.delete_orphan_files = swept  # type: ignore[method-assign]
    bench.batcher(lease, "w3")
    assert [("w2" in name) for name in bench.files()] == [True]


def test_the_second_of_two_manifests_of_a_number_is_a_conflict_and_leaves_no_file(
    bench: BatchBench, lease: Lease
) -> None:
    slow, fast = bench.batcher(lease, "slow"), bench.batcher(lease, "fast")
    bench.add(slow, 2)
    bench.add(fast, 1)
    fast.commit(_offset_at(1))
    with pytest.raises(CommitConflict, match="Another run has committed batch 1"):
        slow.commit(_offset_at(2))
    assert [("fast" in name) for name in bench.files()] == [True]
    assert _without_identity(bench.store.load_offset("c").offset) == Offset(position={"entry": 1}, seq=1, batch=1)


def test_a_run_that_lost_its_lease_writes_no_manifest(bench: BatchBench, lease: Lease) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher)
    bench.store.leases.release(lease)
    with bench.store.acquire_lease("c", "other", wait_s=0):
        for commit in (lambda: batcher.commit(_offset_at(1)), lambda: bench.batcher(lease).commit(_offset_at(2))):
            with pytest.raises(LeaseLost, match="taken over by other"):
                commit()
    assert bench.changelog.list_batches("c") == []
    assert bench.store.load_offset("c").offset is None


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (2, "The state tables are at batch 2, but the change log is at a later batch"),
        (0, "The state tables do not contain the connector, but the change log is at a later batch"),
    ],
)
def test_state_from_before_the_beginning_of_the_log_writes_nothing(bench: BatchBench, batch: int, message: str) -> None:
    """The state tables are those of a backup, or gone, and the batches after it are removed: their numbers must not be given out again."""
    backup = bench.folder / "backup.db"
    for n in range(5):
        if n == batch:
            shutil.copy(bench.folder / "state.db", backup)
        with bench.store.acquire_lease("c", "run 1", wait_s=0) as lease:
            batcher = bench.batcher(lease)
            bench.add(batcher)
            batcher.commit(Offset(position={"entry": n}))
    reports = ApplyReports(bench.changelog.storage, "c")
    reports.write({**reports.register_target("delta", "/lake"), "last_batch": 5})
    assert Retention(bench.changelog, "c", RetentionLimits(ms=0)).run().keep == 5
    with bench.store.acquire_lease("c", "run 2", wait_s=0) as lease:
        assert bench.batcher(lease).committed_offset.batch == 5
    restored = StateStore(f"sqlite:///{backup}", lease_ttl_s=60)
    with (
        restored.acquire_lease("c", "run 3", wait_s=0) as lease,
        pytest.raises(BatchesRemoved, match=message) as caught,
    ):
        bench.batcher(lease, store=restored)
    assert "restore a backup of the state tables" in str(caught.value)
    assert bench.changelog.list_batches("c") == [5]
    with bench.store.acquire_lease("c", "run 4", wait_s=0) as lease:
        batcher = bench.batcher(lease)
        bench.add(batcher)
        batcher.commit(Offset(position={"entry": 6}))
    assert bench.changelog.list_batches("c") == [5, 6]


def test_a_batch_that_goes_at_this_moment_is_not_the_end_of_the_log(bench: BatchBench) -> None:
    """There is a mark already, and the state tables are at the last batch that is not deleted yet."""
    with bench.store.acquire_lease("c", "run 1", wait_s=0) as lease:
        batcher = bench.batcher(lease)
        bench.add(batcher)
        batcher.commit(Offset(position={"entry": 1}))
    bench.changelog.open_truncation_markers("c").create_marker(TruncationMarker(9, None, why="of another one"))
    with (
        bench.store.acquire_lease("c", "run 2", wait_s=0) as lease,
        pytest.raises(BatchesRemoved, match="are at batch 1"),
    ):
        bench.batcher(lease)


class _NoAnswer(ChangeLog):
    """The manifest arrives, its answer does not."""

    def commit_manifest(self, manifest: Manifest) -> str:
        super().commit_manifest(manifest)
        raise CommitStateUnknown("The connection was lost.")


def test_a_manifest_whose_answer_was_lost_keeps_its_files(bench: BatchBench, lease: Lease) -> None:
    """Check whether it was written is not known; deleting its files could make a batch that exists unreadable."""
    batcher = bench.batcher(lease, changelog=_NoAnswer(bench.changelog.storage.url))
    bench.add(batcher, 2)
    with pytest.raises(CommitStateUnknown):
        batcher.commit(_offset_at(1))
    batcher.discard_batch()
    assert len(bench.files()) == 1
    assert _without_identity(bench.batcher(lease, "w2").committed_offset) == Offset(
        position={"entry": 1}, seq=2, batch=1
    )


# change log and state tables of different connectors


def test_a_state_that_is_ahead_of_the_change_log_is_refused(bench: BatchBench, lease: Lease, tmp_path: Path) -> None:
    batcher = bench.batcher(lease)
    bench.add(batcher)
    batcher.commit(_offset_at(1))
    with pytest.raises(ChangeLogDamaged, match="do not belong together") as caught:
        bench.batcher(lease, changelog=ChangeLog(str(tmp_path / "elsewhere")))
    assert "connect the connector to its original change log" in (caught.value.remedy or "")


def test_a_change_log_that_numbers_otherwise_is_refused(bench: BatchBench, lease: Lease, tmp_path: Path) -> None:
    other = BatchBench(tmp_path / "other")
    with other.store.acquire_lease("c", "me", wait_s=0) as theirs:
        batcher = other.batcher(theirs)
        bench.add(batcher, 7)
        batcher.commit(_offset_at(1))
        bench.add(batcher)
        batcher.commit(_offset_at(2))
    other.store.close()
    mine = bench.batcher(lease)
    bench.add(mine)
    mine.commit(_offset_at(1))
    with pytest.raises(ChangeLogDamaged, match="belongs to another change log"):
        bench.batcher(lease, changelog=other.changelog)
    (bench.folder / "log/c/manifests/000000000002.json").write_bytes(
        (other.folder / "log/c/manifests/000000000002.json").read_bytes()
    )
    with pytest.raises(ChangeLogDamaged, match="belongs to another change log, but the state tables are at seq 1"):
        bench.batcher(lease)
    assert _without_identity(bench.store.load_offset("c").offset) == Offset(position={"entry": 1}, seq=1, batch=1)


def test_a_batch_of_a_newer_release_is_not_adopted(bench: BatchBench, lease: Lease) -> None:
    _die_before_the_offset(bench, lease)
    path = bench.folder / "log/c/manifests/000000000001.json"
    path.write_text(path.read_text().replace(f'"format":{FORMAT}', f'"format":{FORMAT + 1}'))
    with pytest.raises(ChangeLogDamaged, match="newer release"):
        bench.batcher(lease)


def test_a_change_log_that_is_put_in_the_place_of_ours_below_a_run_gets_nothing(
    bench: BatchBench, lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """# A4"""
    monkeypatch.setattr("airflow_provider_cdc.core.writing.batch_builder._LOOK_AGAIN_S", 0.0)
    other = BatchBench(tmp_path / "other")
    with other.store.acquire_lease("c", "me", wait_s=0) as theirs:
        batcher = other.batcher(theirs)
        other.add(batcher)
        batcher.commit(_offset_at(1))
    other.store.close()
    mine = bench.batcher(lease)
    bench.add(mine)
    mine.commit(_offset_at(1))
    bench.add(mine)
    mine.commit(_offset_at(2))
    path = "log/c/manifests/000000000002.json"
    (bench.folder / path).write_bytes((other.folder / path.replace("2.json", "1.json")).read_bytes())
    bench.add(mine)
    with pytest.raises(ChangeLogDamaged, match="belongs to another change log"):
        mine.commit(_offset_at(3))
    mine.discard_batch()
    assert bench.changelog.list_batches("c") == [1, 2]
    assert list((bench.folder / "log/c/data/000000000003").glob("*")) == []
