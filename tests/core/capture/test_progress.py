"""Progress of captures: reports about snapshots, chunks and the stream."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.running_job_files import JobProgressBoard
from airflow_provider_cdc.core.capture.stream_progress_reporter import BEHIND_S, StreamProgress
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.job_progress import JobProgress
from airflow_provider_cdc.core.model.run_metrics import EventMetrics
from airflow_provider_cdc.core.reporting import progress_reporter as module
from airflow_provider_cdc.core.writing import request_progress
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector


class ProgressRecorder(logging.Handler):
    """At each line about progress, what is on the board. The line comes before the board: it shows the one before."""

    def __init__(self, connector: Connector) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._board = connector.changelog.open_progress_board(connector.name)
        self.shown: list[JobProgress] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(("Snapshot: ", "Streaming: ", "Incremental snapshot: ")):
            self.lines.append(record.getMessage())
            self.shown += self._board.list_work()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> MemoryDatabase:
    """Two tables of 20 rows."""
    database = MemoryDatabase(request.node.nodeid)
    for table in ("s.a", "s.b"):
        database.create_table(table, {"id": "int64!"}, key=("id",))
        with database.transaction() as t:
            for i in range(20):
                t.insert(table, {"id": i})
    return database


@pytest.fixture
def connector(database: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connector:
    """Return a connector that reads rows one by one, and reports its progress at each."""
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    monkeypatch.setattr(request_progress, "_INTERVAL_S", 0.0)
    return memory_connector(database, tmp_path, memory_block_rows=1, batch_max_rows=20)


@pytest.fixture
def progress_recorder(connector: Connector, caplog: pytest.LogCaptureFixture) -> Iterator[ProgressRecorder]:
    caplog.set_level(logging.INFO)
    progress_recorder = ProgressRecorder(connector)
    logging.getLogger().addHandler(progress_recorder)
    yield progress_recorder
    logging.getLogger().removeHandler(progress_recorder)


def test_a_snapshot_reports_rows_tables_and_time_left(
    connector: Connector, progress_recorder: ProgressRecorder
) -> None:
    connector.capture()
    ends = [line for line in progress_recorder.lines if line.startswith("Snapshot: 30 rows (75 %), ")]
    assert len(ends) == 1
    assert ends[0].endswith("; now s.b (10 of about 20 rows), 1 of 2 tables left")
    assert " rows/s, about 10 s left" in ends[0]
    parts = [work.part for work in progress_recorder.shown if work.name == "Snapshot"]
    assert len(parts) > 30
    assert parts == sorted(parts, key=float)  # type: ignore[arg-type]
    assert connector.changelog.open_progress_board(connector.name).list_work() == []


def test_a_snapshot_that_fails_is_not_at_work_any_more(
    connector: Connector, progress_recorder: ProgressRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = JobProgressBoard.show_progress

    def full(self: JobProgressBoard, work: JobProgress) -> None:
        real(self, work)
        if work.done == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(JobProgressBoard, "show_progress", full)
    with pytest.raises(KeyboardInterrupt):
        connector.capture()
    assert progress_recorder.shown
    assert connector.changelog.open_progress_board(connector.name).list_work() == []


def test_a_stream_reports_its_events_and_its_position(
    connector: Connector, database: MemoryDatabase, progress_recorder: ProgressRecorder
) -> None:
    connector.capture()
    progress_recorder.lines.clear()
    for i in range(20, 25):
        with database.transaction() as t:
            t.insert("s.a", {"id": i})
    connector.capture()
    assert any(
        line.startswith("Streaming: 3 events, ") and "; now at entry " in line for line in progress_recorder.lines
    )


def test_an_incremental_snapshot_reports_rows_and_how_much_is_left(
    connector: Connector, progress_recorder: ProgressRecorder
) -> None:
    connector.capture()
    progress_recorder.lines.clear()
    data = '{"data-collections": ["s.a", "s.b"], "type": "incremental"}'
    connector.store.send(connector.name, SentSignal("x", "execute-snapshot", data))
    connector.capture({"incremental.snapshot.chunk.size": "4"})
    lines = [line for line in progress_recorder.lines if line.startswith("Incremental snapshot: ")]
    assert any("; now s.b, 1 of 2 tables left" in line for line in lines)
    assert any(re.match(r"Incremental snapshot: \d+ rows \(\d+ %\), ", line) for line in lines)
    assert any(work.name == "Incremental snapshot" for work in progress_recorder.shown)
    assert connector.changelog.open_progress_board(connector.name).list_work() == []


class Board:
    """A board that keeps only the progress shown now."""

    def __init__(self) -> None:
        self.work: JobProgress | None = None

    def show_progress(self, work: JobProgress) -> None:
        self.work = work

    def clear_progress(self, work: JobProgress) -> None:
        self.work = None


@pytest.mark.parametrize("bounded", [True, False])
def test_a_stream_is_at_work_as_long_as_it_is_behind_the_source(monkeypatch: pytest.MonkeyPatch, bounded: bool) -> None:
    """The clock is moved by hand: an hour of the log in each second."""
    wall, clock = 1_000_000.0, 500.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    board, metrics = Board(), EventMetrics()
    stream = StreamProgress(board, lambda: 7, metrics, lambda: "entry 9", logging.getLogger())
    stream.start_stretch(bounded=bounded)
    began = wall
    for second in range(1, 12):
        wall, clock = wall + 1, clock + 1
        reached = min(began - 36_000 + second * 3600, wall)
        metrics.at, metrics.behind_ms = clock, int((wall - reached) * 1000)
        stream.report_if_due()
        if second == 5:
            assert board.work is not None
            assert board.work.now == "now at entry 9, 5 h 0 min behind the source"
            assert board.work.part == pytest.approx(4 / 9, abs=0.01)
            assert board.work.left_s == pytest.approx(6, abs=1.1)
    assert metrics.behind_ms < BEHIND_S * 1000
    assert board.work is None


def test_a_stream_without_new_events_is_not_behind() -> None:
    board, metrics = Board(), EventMetrics()
    metrics.at, metrics.behind_ms = time.monotonic() - 1, 10**9
    stream = StreamProgress(board, lambda: 7, metrics, lambda: "entry 9", logging.getLogger())
    stream.start_stretch(bounded=False)
    assert stream._work is not None
    stream._work._due = 0
    stream.report_if_due()
    assert board.work is None
    stream.end_stretch()
