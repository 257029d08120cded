"""Manifests are found by number: the same as in a whole listing, in few requests, however many there are."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.manifest_number_search import MOST, BatchNumbers, batch_name
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import ChangeLogDamaged, StorageUnavailable
from dev.servers import S3
from tests.support.change_log.manifests import manifest
from tests.support.servers.s3_proxy import other_store

PROBES = 310
"""The most that a look for a gap takes on a local disk, where each is a call of the system."""


@st.composite
def logs(draw: st.DrawFn, most: int) -> tuple[set[int], int]:
    """The numbers that are there: runs with gaps between them; and one of them from which to look, or 0."""
    there: set[int] = set()
    end = draw(st.integers(0, 3 * most))
    for length, gap in draw(st.lists(st.tuples(st.integers(1, most), st.integers(1, 3 * most)), max_size=4)):
        there |= set(range(end + 1, end + length + 1))
        end += length + gap
    return there, draw(st.sampled_from([0, *sorted(there)]))


class CountedStorage(Storage):
    """Counts what is asked for."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        super().__init__(url, options)
        self.asked: Counter[str] = Counter()

    def exists(self, path: str) -> bool:
        self.asked["exists"] += 1
        return super().exists(path)

    def names_after(self, folder: str, name: str, most: int) -> list[str] | None:
        self.asked["names_after"] += 1
        return super().names_after(folder, name, most)

    def list(self, path: str) -> list[str]:
        self.asked["list"] += path.endswith("/manifests")  # and not the marks of what is kept
        return super().list(path)

    def read(self, path: str) -> bytes | None:
        self.asked["read"] += 1
        return super().read(path)


def _fill(storage: Storage, there: set[int]) -> BatchNumbers:
    numbers = BatchNumbers(storage, "c")
    if storage.local:
        Path(numbers.manifest_path(1)).parent.mkdir(parents=True)
        for n in there:
            Path(numbers.manifest_path(n)).touch()
    else:
        for n in there:
            storage.replace(numbers.manifest_path(n), b"x")
    return numbers


def _run_end(there: set[int], after: int) -> int:
    """The last number before the first gap behind one."""
    end = after or min(there, default=0)
    while end + 1 in there:
        end += 1
    return end


def _may_be_overlooked(there: set[int], end: int) -> bool:
    """Check whether all that comes after a gap is little, in comparison with the gap."""
    beyond = sorted(n for n in there if n > end + 1)
    runs: list[list[int]] = []
    for n in beyond:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return all((gap := run[0] - end - 1) > 15 and len(run) < gap // 8 for run in runs)


def _check(storage: CountedStorage, there: set[int], after: int, *, exact: bool) -> None:
    numbers = _fill(storage, there)
    assert numbers.list_all() == sorted(there)
    assert numbers.find_first() == min(there, default=0)
    end = _run_end(there, after)
    beyond = {n for n in there if n > end}
    ahead = numbers.find_beyond_gap(end + 1)
    if exact:
        assert ahead == min(beyond, default=0)
    assert ahead in beyond or (ahead == 0 and (not beyond or _may_be_overlooked(there, end)))
    storage.asked.clear()
    try:
        last = numbers.find_last(after)
    except ChangeLogDamaged as e:
        assert beyond, "nothing is missing"
        missing = int(Path(e.where or "").stem)
        assert missing not in there
        assert missing < max(there)
        storage.asked.clear()  # what is wrong may be looked for everywhere
    else:
        whole = max(there, default=0)
        assert last == whole or (not exact and last in there and _may_be_overlooked(there, last))
    span = max([*there, 1]) - after + 2
    few = storage.asked["exists"] + storage.asked["names_after"]
    assert few <= 2 * math.log2(span) + 6 + (0 if exact else 2 * PROBES)
    if after:
        assert not storage.asked["list"]


@settings(max_examples=150, deadline=None)
@given(logs(most=120))
def test_on_a_disk_numbers_are_those_of_a_whole_listing_or_damage_is_reported(log: tuple[set[int], int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _check(CountedStorage(folder), *log, exact=False)


@settings(max_examples=15, deadline=None)
@given(logs(most=9))
def test_on_s3_numbers_are_those_of_a_whole_listing_or_damage_is_reported(s3: S3, log: tuple[set[int], int]) -> None:
    storage = CountedStorage(f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", s3.storage_options)
    _check(storage, *log, exact=True)
    assert not storage.asked["list"]


@pytest.mark.parametrize("gap", [1, 2, 15])
def test_a_short_gap_is_found_wherever_it_is(tmp_path: Path, gap: int) -> None:
    """Find a gap, such as the one that a batch deleted by hand leaves."""
    for last in range(gap + 2, 60):
        storage = Storage(str(tmp_path / f"{last}"))
        start = last - gap
        numbers = _fill(storage, {*range(1, start), last})
        assert numbers.find_beyond_gap(start) == last
        with pytest.raises(ChangeLogDamaged, match=f"batch {start} of connector c is missing, although batch {last}"):
            numbers.find_last(start - 1)


def test_a_long_gap_is_found_when_enough_has_come_after_it(tmp_path: Path) -> None:
    """A rule of the store has removed 1,000 manifests."""
    numbers, found_at = _fill(Storage(str(tmp_path)), {1, 2}), 0
    for n in range(1003, 2003):
        Path(numbers.manifest_path(n)).touch()
        if numbers.find_beyond_gap(3):
            found_at = n
            break
        assert numbers.find_last(2) == 2
    assert 1003 <= found_at <= 1003 + 1000 // 8


def test_the_end_of_the_names_is_not_passed(tmp_path: Path) -> None:
    numbers = _fill(Storage(str(tmp_path)), {MOST - 1, MOST})
    assert numbers.find_beyond_gap(MOST - 3) == MOST - 1
    assert numbers.find_last(MOST - 1) == MOST
    assert numbers.find_beyond_gap(MOST) == 0


def test_files_of_someone_else_are_no_manifests(storage_address: tuple[str, dict[str, Any]]) -> None:
    storage = Storage(*storage_address)
    numbers = _fill(storage, {1, 2, 4})
    folder = storage.join_path("c", "manifests")
    for name in (f"{batch_name(3)}.json.bak", "README", "notes.json"):
        storage.replace(f"{folder}/{name}", b"x")
    assert (numbers.list_all(), numbers.find_beyond_gap(3), numbers.find_beyond_gap(5)) == ([1, 2, 4], 4, 0)


def test_an_empty_manifest_is_there(storage_address: tuple[str, dict[str, Any]]) -> None:
    storage = Storage(*storage_address)
    numbers = BatchNumbers(storage, "c")
    assert not numbers.has_manifest(1)
    storage.create(numbers.manifest_path(1), b"")
    assert numbers.has_manifest(1)
    with pytest.raises(ChangeLogDamaged, match="cannot be read"):
        list(ChangeLog(*storage_address).read_manifests("c"))


def test_a_store_that_cannot_be_asked_is_not_the_end_of_the_log(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        Storage("s3://bucket/log", {**s3.storage_options, "secret": "wrong", "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}, "config_kwargs": {"retries": {"max_attempts": 1}}}).exists("bucket/log/x")  # fmt: skip
    (tmp_path / "c" / "manifests").mkdir(parents=True)
    (tmp_path / "c" / "manifests" / "loop").symlink_to("loop")
    with pytest.raises(StorageUnavailable):
        Storage(str(tmp_path)).exists(str(tmp_path / "c" / "manifests" / "loop"))


def test_a_store_that_takes_no_notice_of_where_a_list_begins_is_asked_for_numbers(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such server can be had here: the client leaves the parameter out."""
    storage = Storage(f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", s3.storage_options)
    numbers = _fill(storage, {1, 2, 3, 5, 6})
    call = storage._fs.call_s3
    monkeypatch.setattr(
        storage._fs, "call_s3",
        lambda method, **given: call(method, **{k: v for k, v in given.items() if k != "StartAfter"}),
    )  # fmt: skip
    assert storage.names_after(storage.join_path("c", "manifests"), f"{batch_name(4)}.json", 5) is None
    assert (numbers.find_beyond_gap(4), numbers.find_beyond_gap(7), numbers.find_first()) == (5, 0, 1)
    with pytest.raises(ChangeLogDamaged, match="batch 4"):
        numbers.find_last(3)
    storage.delete(numbers.manifest_path(1))
    assert numbers.find_first() == 2


@pytest.mark.parametrize("committed", [1, 2, 3])
def test_batches_that_are_committed_while_the_end_is_looked_at_are_no_damage(
    storage_address: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, committed: int
) -> None:
    changelog = ChangeLog(*storage_address)
    for n in (1, 2):
        changelog.commit_manifest(manifest(n))
    ahead, left = BatchNumbers.find_beyond_gap, [committed]

    def commit_late(self: BatchNumbers, number: int) -> int:
        for n in range(number, number + left.pop() if left else 0):
            changelog.commit_manifest(manifest(n))
        return ahead(self, number)

    monkeypatch.setattr(BatchNumbers, "find_beyond_gap", commit_late)
    found = [m.batch for m in changelog.read_manifests("c", after=1)]
    # one that came alone is found by the next look
    assert found == ([2] if committed == 1 else list(range(2, committed + 3)))
    left.append(committed)
    monkeypatch.setattr(BatchNumbers, "find_beyond_gap", commit_late)
    last = changelog.find_last_batch("c", after=2)
    assert last == 2 + committed + (0 if committed == 1 else committed)


def test_a_look_costs_as_many_requests_after_a_long_history_as_after_a_short_one(s3: S3) -> None:
    """All requests are counted, those of the client that no one asked for among them."""
    with other_store(s3, "honours") as proxy:
        changelog = ChangeLog(f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", proxy.storage_options)
        counted = []
        for n in range(1, 41):
            changelog.commit_manifest(manifest(n))
            if n not in (2, 40):
                continue
            proxy.requests.clear()
            assert list(changelog.read_manifests("c", after=n)) == []
            counted.append(sum(proxy.requests.values()))
            proxy.requests.clear()
            assert [m.batch for m in changelog.read_manifests("c", after=n - 1)] == [n]
            counted.append(sum(proxy.requests.values()))
            proxy.requests.clear()
            assert changelog.ends_with("c", n)
            counted.append(sum(proxy.requests.values()))
            proxy.requests.clear()
            assert changelog.find_last_batch("c", after=n - 1) == n
            counted.append(sum(proxy.requests.values()))
    assert counted == [2, 3, 3, 4] * 2


def test_a_look_at_a_long_history_on_disk_lists_and_reads_nothing_of_it(tmp_path: Path) -> None:
    storage = CountedStorage(str(tmp_path))
    changelog = ChangeLog(str(tmp_path))
    changelog.storage = storage
    requests = []
    for n in (10, 5_000):
        numbers = BatchNumbers(storage, "c")
        Path(numbers.manifest_path(1)).parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, n + 1):
            Path(numbers.manifest_path(number)).touch()
        storage.asked.clear()
        assert list(changelog.read_manifests("c", after=n)) == []
        assert changelog.ends_with("c", n)
        assert (storage.asked["list"], storage.asked["read"]) == (0, 1)
        requests.append(storage.asked["exists"])
    assert max(requests) <= 2 * PROBES


def test_the_end_of_the_log_differs_from_a_gap(storage_address: tuple[str, dict[str, Any]]) -> None:
    changelog = ChangeLog(*storage_address)
    assert (changelog.find_first_batch("c"), changelog.find_last_batch("c"), changelog.ends_with("c", 0)) == (
        0,
        0,
        False,
    )
    for n in (1, 2, 4):
        changelog.commit_manifest(manifest(n))
    assert (changelog.find_first_batch("c"), changelog.has_batch("c", 3), changelog.has_batch("c", 4)) == (
        1,
        False,
        True,
    )
    assert [changelog.ends_with("c", n) for n in (1, 2, 3, 4)] == [False, False, False, True]
    with pytest.raises(ChangeLogDamaged, match="batch 3 of connector c is missing, although batch 4 exists"):
        changelog.find_last_batch("c", after=2)
    changelog.storage.delete(changelog.path_of("c", 1))
    changelog.storage.delete(changelog.path_of("c", 2))
    assert (
        changelog.find_first_batch("c"),
        changelog.find_last_batch("c"),
        changelog.find_last_batch("c", after=4),
    ) == (4, 4, 4)
    assert [m.batch for m in changelog.read_manifests("c", after=3)] == [4]
