"""The progress of a job, while it works."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.running_job_files import JobProgressBoard
from airflow_provider_cdc.core.model.job_progress import JobProgress
from airflow_provider_cdc.core.reporting import progress_reporter as module
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Lake


def _line(progress: JobTableProgress) -> str:
    document = progress.to_document()
    return f"{document['done']} of {document['total']} tables; {document['now']}"


def test_a_line_names_the_tables_at_work_and_which_of_their_batches() -> None:
    progress = JobTableProgress(200, 540)
    assert _line(progress) == "0 of 200 tables; "
    progress.start_table("shop.b", 17)
    progress.start_table("shop.a", 0)
    progress.record_batch_range("shop.b", 20, 20)
    progress.record_batch_range("shop.a", 1, 500)
    assert _line(progress) == ("0 of 200 tables; at work: shop.a (batches 1 to 500 of 540), shop.b (batch 3 of 523)")
    progress.release_table("shop.a")
    assert "shop.a" not in _line(progress)


def test_a_line_names_a_few_tables_only() -> None:
    progress = JobTableProgress(50, 1)
    for number in range(20):
        progress.start_table(f"t{number:02}", 0)
    assert _line(progress).endswith("t07 (batch 1 of 1) and 12 more")


def test_batches_of_tables_at_work_count_as_a_part_of_the_way() -> None:
    progress = JobTableProgress(2, 100)
    progress.start_table("a", 0)
    assert progress.to_document()["span"] == (0, 2)
    progress.record_batch_range("a", 51, 75)
    assert progress.to_document()["span"] == (0.5, 2)
    progress.release_table("a")
    progress.count_finished_table()
    assert progress.to_document()["span"] == (1, 2)
    progress.start_table("b")
    assert progress.to_document()["now"] == "at work: b"
    assert progress.to_document()["span"] == (1, 2)


def test_quick_work_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with JobTableProgress(200, 1) as progress:
        progress.start_table("a", 0)
        progress.count_finished_table()
    assert caplog.records == []


class BoardRecorder(logging.Handler):
    """A log handler that records the entries on a board at each line of the log."""

    def __init__(self, board: JobProgressBoard) -> None:
        super().__init__()
        self.found, self._board = list[JobProgress](), board

    def emit(self, record: logging.LogRecord) -> None:
        self.found += self._board.list_work()


@pytest.fixture
def reported_progress(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[list[JobProgress]]:
    """Yield the entries on the board, over and over, while something is at work."""
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    caplog.set_level(logging.INFO)
    board = lake.connector.changelog.open_progress_board(lake.connector.name)
    looks = BoardRecorder(board)
    logging.getLogger().addHandler(looks)
    for name in ("slow", "quick"):
        lake.connector.database.create_table(f"s.{name}", {"id": "int64!"}, key=("id",))
    _insert(lake, 0)
    yield looks.found
    logging.getLogger().removeHandler(looks)


def _insert(lake: Lake, first: int) -> None:
    for n in range(first, first + 3):
        with lake.connector.database.transaction() as t:
            t.insert("s.slow", {"id": n})
            t.insert("s.quick", {"id": n})
        lake.connector.capture()


@pytest.mark.spark
def test_an_apply_that_takes_long_says_where_it_is(
    lake: Lake, reported_progress: list[JobProgress], caplog: pytest.LogCaptureFixture
) -> None:
    board = lake.connector.changelog.open_progress_board(lake.connector.name)
    seen = list[str]()

    def hook(location: str, name: str, write: Callable[[], Any]) -> Any:
        if location.endswith("slow"):
            until = time.monotonic() + 20
            while (
                not (now := [work.progress_text for work in board.list_work() if work.done == 1])
                and time.monotonic() < until
            ):
                time.sleep(0.01)
            seen.extend(now)
        return write()

    lake.hook = hook
    lake.apply()
    assert seen
    assert all(text.startswith("Apply: 1 of 2 tables (50 %)") for text in seen)
    assert all(text.endswith("at work: p.s.slow (batches 1 to 3 of 3)") for text in seen)
    assert seen[0] in caplog.messages
    assert board.list_work() == []
    lake.check()


@pytest.mark.spark
def test_other_jobs_say_where_they_are(
    lake: Lake, reported_progress: list[JobProgress], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lake.apply()
    _insert(lake, 3)
    lake.apply()
    reference = memory_connector(
        lake.connector.database, tmp_path / "now", snapshot_mode="initial_only", topic_prefix="p"
    )
    reference.capture()
    jobs: dict[str, Callable[[], Any]] = {
        "Maintain": lambda: MaintainTables(
            lake.spark, lake.connector.changelog, lake.connector.name, location=lake.location, target=lake.kind,
            keep=timedelta(hours=1),
        ).run(),
        "Rebuild": lambda: RebuildTables(
            lake.spark, lake.connector.changelog, lake.connector.name, location=lake.location, target=lake.kind
        ).run(["p.s.slow", "p.s.quick"]),
        "Verify": lambda: VerifyTables(
            lake.spark, reference.changelog, reference.name, location=lake.location, target=lake.kind,
            tables_of=lake.connector.name,
        ).run(),
    }  # fmt: skip
    for what, job in jobs.items():
        caplog.clear()
        job()
        lines = [line for line in caplog.messages if line.startswith(f"{what}: ")]
        assert any(" of 2 tables" in line and "at work: p.s." in line for line in lines), what
    assert {"Apply", "Maintain", "Rebuild"} <= {work.name for work in reported_progress}
    assert all(work.where == f"{lake.kind} at {lake.location}" for work in reported_progress if work.name in jobs)
    assert lake.connector.changelog.open_progress_board(lake.connector.name).list_work() == []
