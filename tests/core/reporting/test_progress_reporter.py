"""Progress of work that takes long: its lines in the log and its entries on the board."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files import running_job_files as boards
from airflow_provider_cdc.changelog.files.running_job_files import JobProgressBoard
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.job_progress import JobProgress, format_duration
from airflow_provider_cdc.core.reporting import progress_reporter as module
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressReporter, ProgressTicker


class Clock:
    """A clock that a test moves on. In place of the real one, as rates are of a minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def after(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def open_board(tmp_path: Path) -> JobProgressBoard:
    return JobProgressBoard(Storage(str(tmp_path)), "shop")


def test_work_is_reported_every_few_seconds_and_not_before(clock: Clock) -> None:
    progress = ProgressReporter("Snapshot", "rows")
    clock.after(module.EVERY_S - 0.1)
    assert not progress.is_due
    clock.after(0.1)
    assert progress.is_due
    progress.report_progress(1)
    assert not progress.is_due
    clock.after(module.EVERY_S)
    assert progress.is_due


def test_rate_and_time_left_are_those_of_late(clock: Clock) -> None:
    progress = ProgressReporter("Snapshot", "rows")
    clock.after(5)
    assert (
        progress.report_progress(50_000, 1_000_000).progress_text
        == "Snapshot: 50,000 of 1,000,000 rows (5 %), 10,000 rows/s, about 100 s left"
    )
    for _ in range(20):  # slower from here on
        clock.after(5)
        work = progress.report_progress(progress._counted[-1][1] + 5_000, 1_000_000)
    assert work.per_s == pytest.approx(1_000)
    assert work.left_s == pytest.approx(850)
    assert work.progress_text.endswith("1,000 rows/s, about 15 min left")


def test_the_time_left_is_estimated_once_enough_is_done(clock: Clock) -> None:
    progress = ProgressReporter("Snapshot", "rows")
    rows = 0
    for seconds in range(5, 120, 5):  # connections are opened: a tenth of the later rate
        clock.after(5)
        rows += 1_000
        assert progress.report_progress(rows, 1_000_000).left_s is None, seconds
    clock.after(5)
    work = progress.report_progress(rows + 1_000, 1_000_000)
    assert work.left_s == pytest.approx(4_880)
    assert work.progress_text.endswith("(2 %), 200 rows/s, about 80 min left")


def test_the_way_may_be_another_number_than_what_is_counted(clock: Clock) -> None:
    progress = ProgressReporter("Snapshot", "rows", done=100)
    clock.after(10)
    work = progress.report_progress(600, span=(1.5, 3), now="now shop.b")
    assert work.progress_text == "Snapshot: 600 rows (50 %), 50 rows/s, about 10 s left; now shop.b"


def test_what_is_not_known_is_not_reported(clock: Clock) -> None:
    progress = ProgressReporter("Streaming", "events")
    clock.after(5)
    assert progress.report_progress(0).progress_text == "Streaming: 0 events"
    clock.after(5)
    assert progress.report_progress(7).progress_text == "Streaming: 7 events, 0.7 events/s"
    clock.after(5)
    assert (
        progress.report_progress(3, 10).progress_text == "Streaming: 3 of 10 events (30 %)"
    )  # taken back: no one knows how fast it is


def test_more_than_was_estimated_is_no_more_than_all(clock: Clock) -> None:
    progress = ProgressReporter("Snapshot", "rows")
    clock.after(5)
    work = progress.report_progress(30, 20)
    assert (work.part, work.left_s) == (1.0, 0.0)


def test_work_is_on_the_board_until_it_ends(tmp_path: Path) -> None:
    with ProgressReporter("Apply", "tables", where="delta at /lake", board=open_board(tmp_path)) as apply:
        assert open_board(tmp_path).list_work() == []
        progress = apply.report_progress(1, 2, now="at work: shop.b")
        with ProgressReporter("Apply", "tables", where="iceberg at /lake", board=open_board(tmp_path)) as other:
            second = other.report_progress(0, 5)
            assert open_board(tmp_path).list_work() == [progress, second]
        assert open_board(tmp_path).list_work() == [progress]
        assert apply.report_progress(2, 2, shown=False).done == 2
        assert open_board(tmp_path).list_work() == []
        apply.report_progress(2, 2)
    assert open_board(tmp_path).list_work() == []


def test_who_was_killed_is_on_the_board_for_a_while_and_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ProgressReporter("Apply", "tables", board=open_board(tmp_path)).report_progress(1, 2)
    assert len(open_board(tmp_path).list_work()) == 1
    now = time.time()
    monkeypatch.setattr(boards.time, "time", lambda: now + boards.DEAD_S)
    assert open_board(tmp_path).list_work() == []
    monkeypatch.undo()
    with ProgressReporter("Apply", "tables", board=open_board(tmp_path)) as work:
        work.report_progress(0, 2)
        (found,) = open_board(tmp_path).list_work()
        assert found.done == 0
    assert list((tmp_path / "shop" / "work").iterdir()) == []


def test_files_of_others_on_the_board_are_left_out(tmp_path: Path) -> None:
    progress = ProgressReporter("Apply", "tables", board=open_board(tmp_path)).report_progress(1, 2)
    folder = tmp_path / "shop" / "work"
    for name, text in (("a.json", "{"), ("b.json", f'{{"at": {time.time()}}}'), ("c.json", "[]"), ("d", "")):
        (folder / name).write_text(text)
    assert open_board(tmp_path).list_work() == [progress]


def test_a_board_that_fails_costs_the_work_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shop").write_text("in the way of the folder")
    with ProgressReporter("Apply", "tables", board=open_board(tmp_path)) as work:
        work.report_progress(1, 2)
    assert "The progress of apply cannot be shown" in caplog.text


def test_a_thread_reports_where_the_work_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    caplog.set_level(logging.INFO)
    done = 0

    def report_progress() -> dict[str, int]:
        nonlocal done
        done += 1
        return {"done": done, "total": 100}

    with ProgressTicker(ProgressReporter("Apply", "tables", board=open_board(tmp_path)), report_progress):
        until = time.monotonic() + 20
        while done < 3:
            assert time.monotonic() < until
            time.sleep(0.01)
        (work,) = open_board(tmp_path).list_work()
        assert work.total == 100
    assert open_board(tmp_path).list_work() == []
    assert "Apply: 2 of 100 tables (2 %)" in caplog.text


def test_a_document_is_read_as_it_was_written() -> None:
    work = JobProgress("Apply", "x", "tables", 1, None, 2.5, 0.25, None, "", 1.0, 2.0)
    assert JobProgress.from_document(work.to_document()) == work


def test_durations_have_two_units_at_most() -> None:
    for seconds, text in {0.4: "0 s", 119.4: "119 s", 121: "2 min", 7199: "2 h 0 min", 11_400: "3 h 10 min", 200_000: "2 d 7 h"}.items():  # fmt: skip
        assert format_duration(seconds) == text
