"""The capture's side of a shared snapshot, with readers that are lost, late or kept out of a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.snapshot_exchange import reader_coordinator
from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderCoordinator
from airflow_provider_cdc.changelog.snapshot_exchange.reader_mailbox import ReaderMailbox, open_documents
from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReadGroup

GROUP = ReadGroup(number=1, batch=1, epoch=1, writer="w", position={}, ts_us=0, tables={})
TASK = ChunkTask(number=0, table="s.t", first_seq=1, last_seq=9)


class SnapshotInTest:
    """Implements :class:`airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator.ReaderJob`; its readers are mailboxes of the test."""

    def __init__(self, folder: Path, readers: int) -> None:
        self._storage, self._id = Storage(str(folder)), ""
        self.coordinator = ReaderCoordinator(self._storage, {"name": "shop"}, "key", self, readers)

    def start(self, snapshot: str, readers: int) -> None:
        self._id = snapshot
        self.mailboxes = [self.join(str(number)) for number in range(readers)]

    def join(self, name: str) -> ReaderMailbox:
        return ReaderMailbox(open_documents(self._storage, "shop", self._id, "key"), name).__enter__()

    def find_error(self) -> CdcError | None:
        return None

    def cancel(self, patience_s: float) -> None:
        for mailbox in self.mailboxes:
            mailbox.__exit__(None, None, None)


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[SnapshotInTest]:
    made = SnapshotInTest(tmp_path, 2)
    with made.coordinator:
        assert made.coordinator.gather_readers(lambda: False) == 2
        yield made


def _open_views(snapshot: SnapshotInTest, *numbers: int) -> int:
    def open_later() -> None:
        time.sleep(0.2)
        for number in numbers:
            snapshot.mailboxes[number].report_view(1, {})

    thread = threading.Thread(target=open_later)
    thread.start()
    views = snapshot.coordinator.open_views()
    thread.join()
    return len(views)


def _collect(snapshot: SnapshotInTest, times: int) -> None:
    for _ in range(times):
        snapshot.coordinator.collect_results()


def test_a_reader_that_has_ended_keeps_no_writer_waiting(snapshot: SnapshotInTest) -> None:
    snapshot.mailboxes[1].__exit__(None, None, None)
    began = time.monotonic()
    assert _open_views(snapshot, 0) == 1
    assert time.monotonic() - began < 2


def test_a_reader_that_does_not_open_its_view_takes_no_part(
    snapshot: SnapshotInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_coordinator, "_OPENING_S", 0.5)
    assert _open_views(snapshot, 0) == 1
    snapshot.coordinator.begin_group(GROUP)
    snapshot.mailboxes[1].report_view(1, {})  # at a later moment, so that it shows other rows
    assert snapshot.mailboxes[1].read_phase().phase == "ended"
    assert snapshot.mailboxes[0].read_phase().phase == "reading"


def test_a_chunk_that_the_readers_left_do_not_see_is_out_of_view(snapshot: SnapshotInTest) -> None:
    """A statement that waits for the lost reader keeps the other one out of the table."""
    assert _open_views(snapshot, 0, 1) == 2
    snapshot.coordinator.begin_group(GROUP)
    snapshot.coordinator.hand_out([TASK])
    first = next(mailbox for mailbox in snapshot.mailboxes if mailbox.next_task() is not None)
    other = next(mailbox for mailbox in snapshot.mailboxes if mailbox is not first)
    first.report_result(1, ChunkResult(number=0, attempt=0, outcome="out_of_view"))
    while other.next_task() is None:
        assert snapshot.coordinator.collect_results() == []
    other.__exit__(None, None, None)
    results, until = list[ChunkResult](), time.monotonic() + 10
    while not results and time.monotonic() < until:
        results = snapshot.coordinator.collect_results()
    assert [(result.number, result.outcome) for result in results] == [(0, "out_of_view")]


def test_the_error_of_the_last_reader_is_raised(snapshot: SnapshotInTest) -> None:
    assert _open_views(snapshot, 0, 1) == 2
    snapshot.coordinator.begin_group(GROUP)
    snapshot.coordinator.hand_out([TASK])
    error = SourceUnavailable("The connection was lost.", where="db:3306")
    for mailbox in snapshot.mailboxes:
        mailbox.__exit__(SourceUnavailable, error, None)
    with pytest.raises(SourceUnavailable, match=r"The connection was lost\.") as caught:
        _collect(snapshot, 30)
    assert caught.value.where == "db:3306"


# readers that may join at any time


@pytest.fixture
def late_snapshot(tmp_path: Path) -> Iterator[SnapshotInTest]:
    """A snapshot that one reader has joined, and that more may join."""
    made = SnapshotInTest(tmp_path, 1)
    with made.coordinator:
        assert made.coordinator.gather_readers(lambda: False, late=True) == 1
        made.coordinator.begin_group(GROUP)
        made.coordinator.hand_out([TASK])
        yield made


def _end_reader(mailbox: ReaderMailbox) -> None:
    mailbox.__exit__(None, None, None)


def _find_task(snapshot: SnapshotInTest, mailbox: ReaderMailbox) -> ChunkTask:
    until = time.monotonic() + 20
    while (found := mailbox.next_task()) is None and time.monotonic() < until:
        assert snapshot.coordinator.collect_results() == []
    assert found is not None
    return found[1]


def test_a_chunk_of_a_lost_reader_is_read_by_one_that_joins_after_all_others_are_gone(
    late_snapshot: SnapshotInTest,
) -> None:
    _end_reader(late_snapshot.mailboxes[0])
    _collect(late_snapshot, 8)
    late_snapshot.mailboxes.append(late_snapshot.join("later"))
    assert late_snapshot.mailboxes[1].read_phase().phase == "reading"
    assert _find_task(late_snapshot, late_snapshot.mailboxes[1]) == TASK
    late_snapshot.mailboxes[1].report_result(1, ChunkResult(number=0, attempt=0, outcome="read", rows=3))
    assert [result.rows for result in late_snapshot.coordinator.collect_results()] == [3]


def test_a_lost_reader_that_is_back_is_given_no_more_chunks(
    late_snapshot: SnapshotInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read the chunk already, and would not read it again."""
    lost = late_snapshot.mailboxes[0]
    assert lost.next_task() is not None
    with monkeypatch.context() as patch:
        patch.setattr(reader_coordinator, "_LOST_S", -1.0)
        _collect(late_snapshot, 8)
    late_snapshot.mailboxes.append(late_snapshot.join("later"))
    assert _find_task(late_snapshot, late_snapshot.mailboxes[1]) == TASK
    lost.report_result(1, ChunkResult(number=0, attempt=0, outcome="read", rows=3))
    assert late_snapshot.coordinator.collect_results() == []
    assert late_snapshot.coordinator.count_rows() == 0


def test_a_reader_in_the_place_of_the_last_one_is_not_waited_for_without_end(
    late_snapshot: SnapshotInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_coordinator, "_REPLACEMENT_S", 1.0)
    error = SourceUnavailable("The connection was lost.", where="db:1521")
    late_snapshot.mailboxes[0].__exit__(SourceUnavailable, error, None)
    with pytest.raises(SourceUnavailable, match=r"The connection was lost\."):
        _collect(late_snapshot, 60)


def test_a_table_that_one_reader_does_not_see_is_out_of_the_view_of_all(late_snapshot: SnapshotInTest) -> None:
    late_snapshot.mailboxes.append(late_snapshot.join("later"))
    late_snapshot.mailboxes[0].report_result(1, ChunkResult(number=0, attempt=0, outcome="out_of_view"))
    assert [result.outcome for result in late_snapshot.coordinator.collect_results()] == ["out_of_view"]
