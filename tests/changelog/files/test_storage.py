"""Files: created once, whole or not at all, and on disk when said to be."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.storage import DurableFile, Storage, storage_error
from airflow_provider_cdc.core.errors import ConfigError, StorageFull, StorageUnavailable
from tests.support.patience import LONGEST_S

ROOT = Path(__file__).resolve().parents[2]


def test_a_created_file_is_there_as_it_was_given(storage: Storage) -> None:
    path = storage.join_path("c", "manifests", "1.json")
    assert storage.read(path) is None
    storage.create(path, b"one")
    assert storage.read(path) == b"one"
    assert storage.list(storage.join_path("c", "manifests")) == ["1.json"]


def test_a_file_is_created_once(storage: Storage) -> None:
    path = storage.join_path("c", "1.json")
    storage.create(path, b"one")
    with pytest.raises(FileExistsError):
        storage.create(path, b"two")
    assert storage.read(path) == b"one"
    assert storage.list(storage.join_path("c")) == ["1.json"]


def test_of_many_threads_that_create_a_file_one_wins(storage_address: tuple[str, dict[str, Any]]) -> None:
    storages = [Storage(*storage_address) for _ in range(6)]
    for n in range(5):
        path, barrier, won = storages[0].join_path("c", f"{n}.json"), threading.Barrier(6), []

        def create(i: int, path: str = path, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait(LONGEST_S)
            try:
                storages[i].create(path, bytes([i]) * 100_000)
            except FileExistsError:
                return
            won.append(i)

        threads = [threading.Thread(target=create, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storages[0].read(path) == bytes(won) * 100_000


def test_a_file_in_the_making_lies_in_the_scratch_folder_and_may_be_cleared_away_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that takes the name clears up behind those who were slower: the answer to them is that the name is taken."""
    storage = Storage(str(tmp_path))
    path, scratch, link = storage.join_path("m", "1.json"), storage.join_path("data", "1"), os.link

    def link_slowly(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        assert storage.list(scratch) == [source.rpartition("/")[2]]
        storage.create(target, b"fast", scratch=scratch)
        storage.delete(source)
        link(source, target)

    monkeypatch.setattr(os, "link", link_slowly)
    with pytest.raises(FileExistsError):
        storage.create(path, b"slow", scratch=scratch)
    assert storage.read(path) == b"fast"
    assert storage.list(scratch) == []
    assert storage.list(storage.join_path("m")) == ["1.json"]


RACE = """
import sys
from airflow_provider_cdc.changelog.files.storage import Storage
storage = Storage(sys.argv[1])
won = []
sys.stdin.readline()
for n in range(200):
    try:
        storage.create(storage.join_path("c", f"{n:03d}.json"), sys.argv[2].encode() * 1000)
        won.append(n)
    except FileExistsError:
        pass
print(",".join(map(str, won)))
"""


def test_of_two_processes_that_create_a_file_one_wins(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), who], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for who in "ab"
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    won = [{int(n) for n in racer.communicate(timeout=LONGEST_S)[0].strip().split(",") if n} for racer in racers]
    assert won[0] | won[1] == set(range(200))
    assert not won[0] & won[1]
    for n in range(200):
        assert (tmp_path / "c" / f"{n:03d}.json").read_bytes() == (b"a" if n in won[0] else b"b") * 1000
    assert len(list((tmp_path / "c").iterdir())) == 200


def test_a_file_is_replaced_whole(storage: Storage) -> None:
    path = storage.join_path("x.json")
    for data in (b"one", b"two, and longer", b"3"):
        storage.replace(path, data)
        assert storage.read(path) == data
    assert storage.list(storage.root) == ["x.json"]


def test_deleting_what_is_not_there_is_no_error(storage: Storage) -> None:
    path = storage.join_path("c", "f")
    storage.delete(path)
    storage.create(path, b"x")
    storage.delete(path)
    storage.delete(path)
    assert storage.read(path) is None


def test_a_folder_is_listed_in_order_without_files_in_the_making(storage: Storage) -> None:
    assert storage.list(storage.join_path("nothing")) == []
    for name in ("b", "a", ".hidden.tmp", "c"):
        storage.create(storage.join_path("d", name), b"")
    assert storage.list(storage.join_path("d")) == ["a", "b", "c"]


def test_a_listing_is_never_an_old_one(storage_address: tuple[str, dict[str, Any]]) -> None:
    """Filesystem libraries remember listings; another process may have written since."""
    one, two = Storage(*storage_address), Storage(*storage_address)
    one.create(one.join_path("d", "a"), b"")
    assert one.list(one.join_path("d")) == ["a"]
    two.create(two.join_path("d", "b"), b"")
    assert one.list(one.join_path("d")) == ["a", "b"]


# files being written


@pytest.mark.parametrize("parts", [[], [b""], [b"abc"], [b"a" * 70_000, b"", b"b" * 7_000_000]])
def test_a_file_is_what_was_written_with_its_size_and_checksum(storage: Storage, parts: list[bytes]) -> None:
    path = storage.join_path("c", "data", "f.parquet")
    file = storage.open_output(path)
    for part in parts:
        assert file.write(part) == len(part)
        assert file.tell() == file.size
    file.close()
    file.close()
    data = b"".join(parts)
    assert storage.read(path) == data
    assert (file.size, file.crc32) == (len(data), zlib.crc32(data))
    with storage.open_input(path) as f:
        assert f.read() == data


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_the_checksum_does_not_depend_on_how_the_file_was_cut(parts: list[bytes]) -> None:
    class Sink:
        def write(self, data: bytes) -> None:
            pass

    file = DurableFile(Storage("/tmp"), "x", Sink())  # type: ignore[arg-type]
    for part in parts:
        file.write(memoryview(part))  # type: ignore[arg-type]
    assert (file.size, file.crc32) == (sum(map(len, parts)), zlib.crc32(b"".join(parts)))


def test_a_discarded_file_is_gone_and_takes_what_is_still_written(storage: Storage) -> None:
    path = storage.join_path("c", "f")
    for closed in (False, True):
        file = storage.open_output(path)
        file.write(b"x" * 100)
        if closed:
            file.close()
        file.discard()
        assert file.write(b"footer") == 6
        file.close()
        file.discard()
        assert storage.read(path) is None


class _SyncRecorder:
    """A record of all syncs, by kind: the folder's entry counts only after the file's content."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        fsync = os.fsync

        def record_call(fd: int) -> None:
            fsync(fd)
            status = os.fstat(fd)
            self.calls.append(("folder", 0) if stat.S_ISDIR(status.st_mode) else ("file", status.st_size))

        monkeypatch.setattr(os, "fsync", record_call)


def test_a_closed_file_is_on_disk_with_all_its_bytes_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, synced = Storage(str(tmp_path)), _SyncRecorder(monkeypatch)
    file = storage.open_output(storage.join_path("c", "f"))
    file.write(b"x" * 1000)
    assert synced.calls == []
    file.close()
    assert synced.calls == [("file", 1000), ("folder", 0)]


def test_a_created_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, synced = Storage(str(tmp_path)), _SyncRecorder(monkeypatch)
    link, at_link = os.link, []

    def record_call(source: str, target: str) -> None:
        at_link.extend(synced.calls)
        link(source, target)

    monkeypatch.setattr(os, "link", record_call)
    storage.create(storage.join_path("c", "1.json"), b"x" * 1000)
    assert at_link == [("file", 1000)]
    assert synced.calls == [("file", 1000), ("folder", 0)]


# addresses


def test_paths_and_addresses(storage: Storage, storage_address: tuple[str, dict[str, Any]]) -> None:
    assert storage.join_path("a", "b").endswith("/log/a/b")
    scheme = "file" if storage.local else "s3"
    assert storage.build_uri("a", "b") == f"{scheme}://{storage.join_path('a', 'b')}"


@pytest.mark.parametrize("url", ["s3://lake/log", "s3a://lake/log", "s3a://lake/log/"])
def test_an_address_begins_as_the_users_url_does(url: str) -> None:
    assert Storage(url, {"key": "k", "secret": "s"}).build_uri("a", "b") == f"{url.rstrip('/')}/a/b"


@pytest.mark.parametrize("form", ["{0}", "{0}/", "file://{0}"])
def test_a_local_folder_can_be_written_in_several_ways(tmp_path: Path, form: str) -> None:
    storage = Storage(form.format(tmp_path))
    assert storage.local
    assert storage.join_path("a") == f"{tmp_path}/a"


def test_the_folder_of_a_local_change_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Every user of the machine could read the rows in it. A folder that exists stays as it is."""
    for make in ("create", "replace", "open"):
        root = tmp_path / make / "changelog"
        storage = Storage(str(root))
        path = storage.join_path("shop", "1")
        storage.open_output(path).close() if make == "open" else getattr(storage, make)(path, b"x")
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    Storage(str(shared)).replace(f"{shared}/shop/1", b"x")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


@pytest.mark.parametrize("url", ["memory://x", "http://host/x"])
def test_a_store_without_exclusive_creation_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot create a file only if it is absent") as caught:
        Storage(url)
    assert "local folder" in (caught.value.remedy or "")


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        Storage("nosuch://x/y")


# errors


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_reported_with_what_to_do(number: int) -> None:
    error = storage_error(OSError(number, os.strerror(number)), "/lake/x")
    assert isinstance(error, StorageFull)
    assert error.where == "/lake/x"
    assert "offset was not moved" in (error.safe or "")
    assert "free space" in (error.remedy or "")
    assert "airflow cdc maintain CONNECTOR --only retention --now" in (error.remedy or "")


def test_a_refused_request_is_worth_a_retry(storage: Storage, tmp_path: Path) -> None:
    """A file stands where a folder has to be, or the bucket does not exist."""
    if storage.local:
        (tmp_path / "log").write_text("in the way")
        broken = storage
    else:
        broken = Storage("s3://no-such-bucket-here/x", {**_options(storage)})
    for call in (
        lambda: broken.create(broken.join_path("a", "b"), b"x"),
        lambda: _write(broken),
    ):
        with pytest.raises(StorageUnavailable) as caught:
            call()
        assert caught.value.where
        assert caught.value.safe == "The offset was not moved: the unwritten events will be captured again."


def test_an_object_store_that_does_not_answer_is_worth_a_retry() -> None:
    options = {
        "key": "k", "secret": "hunter2",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:1", "region_name": "us-east-1"},
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }  # fmt: skip
    away = Storage("s3://b/log", options)
    for call in (
        lambda: away.read(away.join_path("x")),
        lambda: away.list(away.join_path("x")),
        lambda: away.create(away.join_path("x"), b""),
    ):
        with pytest.raises(StorageUnavailable) as caught:
            call()
        assert "127.0.0.1:1" in str(caught.value)
        assert "hunter2" not in str(caught.value)


def _write(storage: Storage) -> None:
    file = storage.open_output(storage.join_path("a", "b"))
    file.write(b"x")
    file.close()


def _options(storage: Storage) -> dict[str, Any]:
    return dict(storage._fs.storage_options)


def test_a_file_that_is_not_there_is_reported_as_such(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError), storage.open_input(storage.join_path("nope")) as f:
        f.read()


def test_a_file_in_place_of_the_folder_is_storage_that_is_gone_and_no_file_of_another_run(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")
    storage = Storage(str(tmp_path / "log"))
    with pytest.raises(StorageUnavailable):
        storage.describe_store()
    with pytest.raises(StorageUnavailable):
        storage.create(storage.join_path("orders", "manifest.json"), b"{}")
