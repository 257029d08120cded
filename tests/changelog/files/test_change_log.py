"""Manifests: how a batch comes to exist, is found, and is found damaged."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog, batch_name
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import (
    BatchesRemoved,
    ChangeLogDamaged,
    CommitConflict,
    CommitStateUnknown,
    StorageUnavailable,
)
from airflow_provider_cdc.core.model.batch_manifest import FORMAT, Manifest
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from dev.servers import S3
from tests.support.change_log.manifests import manifest
from tests.support.connectors import memory_connector
from tests.support.counted import CallCounter
from tests.support.patience import LONGEST_S
from tests.support.servers.s3_proxy import other_store


@pytest.fixture
def changelog(storage_address: tuple[str, dict[str, Any]]) -> ChangeLog:
    return ChangeLog(*storage_address)


def _path(changelog: ChangeLog, batch: int) -> str:
    return changelog.storage.join_path("c", "manifests", f"{batch_name(batch)}.json")


def test_a_manifest_is_read_as_it_was_written(changelog: ChangeLog) -> None:
    m = manifest(7, first=2**40, offset_before=Offset(seq=2**40 - 1, batch=6), config={"table.include.list": ["a"]})
    assert changelog.find_manifest("c", 7) is None
    path = changelog.commit_manifest(m)
    assert path == changelog.format_manifest_path(m) == _path(changelog, 7)
    assert changelog.find_manifest("c", 7) == m
    assert changelog.list_connectors() == ["c"]


def test_a_manifest_is_short_and_says_its_form(changelog: ChangeLog) -> None:
    changelog.commit_manifest(manifest(1, changes=0))
    data = changelog.storage.read(_path(changelog, 1)) or b""
    assert orjson.loads(data)["format"] == FORMAT
    assert len(data) < 900


def test_names_of_batches_sort_as_numbers(changelog: ChangeLog) -> None:
    numbers = [10, 2, 999_999, 1, 1_000_000]
    for n in numbers:
        changelog.commit_manifest(manifest(n))
    assert changelog.list_batches("c") == sorted(numbers)
    assert changelog.list_batches("nobody") == []


def test_manifests_come_in_order_from_where_they_are_asked_for(changelog: ChangeLog) -> None:
    for n in (1, 2, 3, 4):
        changelog.commit_manifest(manifest(n))
    assert [m.batch for m in changelog.read_manifests("c")] == [1, 2, 3, 4]
    assert [m.batch for m in changelog.read_manifests("c", after=2)] == [3, 4]
    assert [m.batch for m in changelog.read_manifests("c", after=1, until=3)] == [2, 3]
    assert list(changelog.read_manifests("c", after=4)) == []


# one commit per number


def test_a_batch_of_another_run_is_a_conflict(changelog: ChangeLog) -> None:
    changelog.commit_manifest(manifest(1, writer="first"))
    with pytest.raises(CommitConflict, match="Another run has committed batch 1") as caught:
        changelog.commit_manifest(manifest(1, writer="second", events=9))
    assert caught.value.where == _path(changelog, 1)
    assert changelog.find_manifest("c", 1) == manifest(1, writer="first")


def test_ones_own_manifest_sent_twice_is_a_success(changelog: ChangeLog) -> None:
    """A client repeats a request whose answer was lost, and the answer is that the name is taken."""
    m = manifest(1, writer="me")
    assert changelog.commit_manifest(m) == changelog.commit_manifest(m)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_that_the_store_does_not_confirm_may_be_there_or_not(s3: S3, cut: str) -> None:
    """The connection is lost on the way to the store, or on the way back."""
    with other_store(s3, "honours") as proxy:
        url = f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log"
        changelog = ChangeLog(url, proxy.storage_options)
        proxy.cut = lambda method, path: cut if method == "PUT" and "/manifests/" in path else None
        with pytest.raises(CommitStateUnknown, match="It is not known whether batch 1 is committed") as caught:
            changelog.commit_manifest(manifest(1))
    assert caught.value.where == changelog.format_manifest_path(manifest(1))
    assert "The offset was not moved" in (caught.value.safe or "")
    assert "run the capture again" in (caught.value.remedy or "")
    assert ChangeLog(url, s3.storage_options).list_batches("c") == ([] if cut == "before" else [1])


def test_a_commit_that_the_store_refuses_is_known_to_have_failed(s3: S3) -> None:
    with pytest.raises(StorageUnavailable):
        ChangeLog("s3://no-such-bucket-here/log", s3.storage_options).commit_manifest(manifest(1))


def test_of_several_runs_that_commit_a_number_one_wins(storage_address: tuple[str, dict[str, Any]]) -> None:
    for n in (1, 2, 3):
        barrier, won, lost = threading.Barrier(4), [], []

        def commit(writer: str, n: int = n, barrier: Any = barrier, won: Any = won, lost: Any = lost) -> None:
            changelog = ChangeLog(*storage_address)
            barrier.wait(LONGEST_S)
            try:
                changelog.commit_manifest(manifest(n, writer=writer))
                won.append(writer)
            except CommitConflict:
                lost.append(writer)

        threads = [threading.Thread(target=commit, args=(f"w{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 3)
        there = ChangeLog(*storage_address).find_manifest("c", n)
        assert there is not None
        assert there.writer == won[0]


# garbage


def test_sweeping_leaves_what_the_manifest_names_and_other_batches(changelog: ChangeLog) -> None:
    m, storage = manifest(3), changelog.storage
    folder = storage.join_path("c", "data", batch_name(3))
    for name in ("f.parquet", "dead-1.parquet", "dead-2.parquet"):
        storage.create(f"{folder}/{name}", b"x")
    other = storage.join_path("c", "data", batch_name(4), "f.parquet")
    storage.create(other, b"x")
    assert changelog.delete_orphan_files(m) == 2
    assert storage.list(folder) == ["f.parquet"]
    assert changelog.delete_orphan_files(m) == 0
    assert storage.read(other) == b"x"


# damage


def test_a_missing_manifest_in_between_is_damage(changelog: ChangeLog) -> None:
    for n in (1, 2, 4):
        changelog.commit_manifest(manifest(n))
    found = changelog.read_manifests("c")
    assert [next(found).batch, next(found).batch] == [1, 2]
    with pytest.raises(
        ChangeLogDamaged, match="manifest of batch 3 of connector c is missing, although batch 4 exists"
    ):
        next(found)
    assert [m.batch for m in changelog.read_manifests("c", until=2)] == [1, 2]


def test_missing_first_manifests_are_said_to_be_removed(changelog: ChangeLog) -> None:
    changelog.commit_manifest(manifest(2))
    with pytest.raises(
        BatchesRemoved, match=r"Batch 1 of connector c was removed .*The change log now begins with batch 2"
    ):
        list(changelog.read_manifests("c"))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"format": 1, "batch": "x"}', b"\xff"])
def test_a_manifest_that_cannot_be_read_is_damage(changelog: ChangeLog, data: bytes) -> None:
    changelog.storage.create(_path(changelog, 1), data)
    with pytest.raises(ChangeLogDamaged, match="cannot be read") as caught:
        changelog.find_manifest("c", 1)
    assert caught.value.where == _path(changelog, 1)
    assert caught.value.remedy


def test_a_cut_manifest_is_damage_at_every_length(tmp_path: Path) -> None:
    changelog = ChangeLog(str(tmp_path))
    data = orjson.dumps(manifest(1).to_document())
    for n in range(len(data)):
        changelog.storage.replace(_path(changelog, 1), data[:n])
        with pytest.raises(ChangeLogDamaged):
            changelog.find_manifest("c", 1)


def test_a_field_of_an_unknown_release_is_not_passed_over(changelog: ChangeLog) -> None:
    changelog.storage.create(_path(changelog, 1), orjson.dumps(manifest(1).to_document() | {"colour": "red"}))
    with pytest.raises(ChangeLogDamaged, match="colour"):
        changelog.find_manifest("c", 1)


def test_a_newer_form_asks_for_an_upgrade(changelog: ChangeLog) -> None:
    document = manifest(1).to_document() | {"format": FORMAT + 1, "news": 1}
    changelog.storage.create(_path(changelog, 1), orjson.dumps(document))
    with pytest.raises(ChangeLogDamaged, match=f"has format {FORMAT + 1}") as caught:
        changelog.find_manifest("c", 1)
    assert "upgrade" in (caught.value.remedy or "")


def _with_file(storage: Storage, data: bytes | None) -> Manifest:
    m = manifest(1)
    if data is not None:
        storage.create(storage.join_path("c", m.files[0].path), data)
    return m


def test_a_data_file_is_opened_when_it_has_its_size(changelog: ChangeLog) -> None:
    m = _with_file(changelog.storage, bytes(range(100)))
    with changelog.open_file("c", m.files[0]) as f:
        assert f.read() == bytes(range(100))
    assert changelog.file_uri("c", m.files[0]) == changelog.storage.build_uri("c", m.files[0].path)


@pytest.mark.parametrize(
    ("data", "what"), [(None, "is missing"), (b"x" * 99, "99 bytes instead of 100"), (b"x" * 101, "101 bytes")]
)
def test_a_data_file_that_is_missing_or_of_another_size_is_damage(
    changelog: ChangeLog, data: bytes | None, what: str
) -> None:
    m = _with_file(changelog.storage, data)
    with pytest.raises(ChangeLogDamaged, match=what) as caught:
        changelog.open_file("c", m.files[0])
    assert (caught.value.where or "").endswith(m.files[0].path)


def test_deleting_a_connector_leaves_nothing_of_it_and_everything_of_the_others(changelog: ChangeLog) -> None:
    for name in ("c", "d"):
        for path in (("manifests", "1.json"), ("data", "1", "f.parquet"), ("applied", "x.json")):
            changelog.storage.replace(changelog.storage.join_path(name, *path), b"x")
    changelog.delete("c")
    changelog.delete("c")
    changelog.delete("never")
    assert changelog.list_connectors() == ["d"]
    for path in (("manifests", "1.json"), ("data", "1", "f.parquet"), ("applied", "x.json")):
        assert changelog.storage.read(changelog.storage.join_path("c", *path)) is None
        assert changelog.storage.read(changelog.storage.join_path("d", *path)) == b"x"


def test_a_check_reports_when_the_newest_event_of_a_file_was_committed_at_the_source(tmp_path: Path) -> None:
    db = MemoryDatabase(str(tmp_path))
    db.create_table("s.a", {"id": "int64!"}, key=("id",))
    connector = memory_connector(db, tmp_path)
    for n in range(3):
        with db.transaction() as t:
            t.insert("s.a", {"id": n})
        connector.capture()
    changelog = connector.changelog
    for written in changelog.read_manifests("test"):
        (file,) = written.files
        with changelog.open_file("test", file) as opened:
            times = [source["ts_ms"] for source in pq.ParquetFile(opened).read()["source"].to_pylist()]
        assert changelog.check_file("test", file) == max(times)


def test_manifests_are_read_several_at_once_and_few_past_the_last_one(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    changelog = ChangeLog(s3.bucket(f"b{uuid4().hex}"), s3.storage_options)
    for number in range(1, 41):
        changelog.commit_manifest(manifest(number))
    read, lock = Storage.read, threading.Lock()
    paths, now, most = list[str](), 0, 0

    def note(storage: Storage, path: str) -> bytes | None:
        nonlocal now, most
        with lock:
            paths.append(path)
            now += 1
            most = max(most, now)
        try:
            return read(storage, path)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(Storage, "read", note)
    assert [m.batch for m in changelog.read_manifests("c")] == list(range(1, 41))
    assert 4 <= most <= 16
    assert len(set(paths)) == len(paths) <= 40 + 16
    paths.clear()
    assert [m.batch for m in changelog.read_manifests("c", after=39)] == [40]
    assert len(paths) == 2
    paths.clear()
    assert list(changelog.read_manifests("c", after=40)) == []
    assert len(paths) == 1


def test_a_small_file_of_an_object_store_is_one_request(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!"}, key=("id",))
    with source.transaction() as t:
        t.insert("s.t", {"id": 1})
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()
    bucket = s3.bucket(f"b{uuid4().hex}")
    stored = ChangeLog(bucket, s3.storage_options)
    (found,) = connector.changelog.read_manifests("test")
    (file,) = found.files
    with connector.changelog.open_file("test", file) as opened:
        content = opened.read()
    s3.connect().put_object(Bucket=bucket.removeprefix("s3://"), Key=f"test/{file.path}", Body=content)
    opened_inputs, reads = (CallCounter(monkeypatch, Storage, name) for name in ("open_input", "read"))
    with stored.open_file("test", file) as opened:
        assert pq.read_table(opened).num_rows == 1
    assert stored.check_file("test", file, crc=True) == connector.changelog.check_file("test", file)
    assert (opened_inputs.calls, reads.calls) == (1, 2)  # the one is of the local file
    with pytest.raises(ChangeLogDamaged, match=f"has {len(content)} bytes instead of"):
        stored.open_file("test", file.model_copy(update={"bytes": file.bytes + 1}))
    with pytest.raises(ChangeLogDamaged, match="is missing"):
        stored.open_file("test", file.model_copy(update={"path": f"{file.path}x"}))
