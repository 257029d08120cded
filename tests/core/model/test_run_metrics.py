"""Metrics that tell times, by a clock of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.core.model import run_metrics
from airflow_provider_cdc.core.model.run_metrics import ChunkMetrics, EventMetrics, HistoryMetrics, SnapshotMetrics

BEGAN_S = 1_700_000_000.0


class Clock:
    """Both clocks of a run show the same."""

    def __init__(self) -> None:
        self.now = BEGAN_S

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_metrics, "time", clock)
    return clock


def made_at(seconds: float) -> Any:
    """Events of which the last was made at the source at this time."""
    source = [{"ts_ms": 0}, {"ts_ms": int(seconds * 1000)}]
    events = pa.record_batch({"op": ["c", "u"], "source": source})
    return SimpleNamespace(topic="t", counts={"c": 1, "u": 1}, last_seq=2, events=events)


def test_a_snapshot_reports_how_long_it_takes_and_how_long_ago_its_last_event_was(clock: Clock) -> None:
    snapshot = SnapshotMetrics(began=clock.now)
    snapshot.start_snapshot(1)
    clock.now += 61.7
    snapshot.record_events([made_at(BEGAN_S)])
    clock.now += 5
    found = snapshot.to_snapshot_document([])
    assert (found["SnapshotDurationInSeconds"], found["MilliSecondsSinceLastEvent"]) == (66, 5_000)
    snapshot.end_snapshot()
    clock.now += 1_000
    found = snapshot.to_snapshot_document([])
    assert (found["SnapshotDurationInSeconds"], found["MilliSecondsSinceLastEvent"]) == (66, 1_005_000)


def test_a_snapshot_runs_until_it_is_complete_or_aborted_and_may_begin_again() -> None:
    snapshot = SnapshotMetrics()

    def states() -> list[Any]:
        found = snapshot.to_snapshot_document([])
        return [found[f"Snapshot{name}"] for name in ("Running", "Aborted", "Completed")]

    for aborted, ended in ((True, [False, True, False]), (False, [False, False, True])):
        snapshot.start_snapshot(2)
        assert states() == [True, False, False]
        snapshot.end_snapshot(aborted=aborted)
        assert states() == ended


def test_pauses_of_incremental_snapshots_add_up(clock: Clock) -> None:
    """Asking for one again makes it no shorter, and the one that lasts counts as far as it has come."""
    chunks = ChunkMetrics()
    for seconds, total in ((3.5, 3), (4.0, 7)):
        chunks.pause()
        clock.now += seconds / 2
        chunks.pause()
        clock.now += seconds / 2
        found = chunks.to_incremental_document([])
        assert (found["SnapshotPaused"], found["SnapshotPausedDurationInSeconds"]) == (True, total)
        chunks.resume()
        clock.now += 60
        found = chunks.to_incremental_document([])
        assert (found["SnapshotPaused"], found["SnapshotPausedDurationInSeconds"]) == (False, total)


def test_a_stream_reports_how_long_ago_its_last_event_was_and_how_late_it_came(clock: Clock) -> None:
    stream = EventMetrics()
    assert stream.to_document([])["MilliSecondsSinceLastEvent"] == -1
    stream.record_events([made_at(BEGAN_S - 7.5)])
    clock.now += 2
    assert (stream.to_document([])["MilliSecondsSinceLastEvent"], stream.behind_ms) == (2_000, 7_500)
    stream.record_events([made_at(clock.now + 60)])
    assert stream.behind_ms == 0, "its clock is ahead"


def test_a_schema_history_reports_how_long_ago_its_changes_were_read_and_made(clock: Clock) -> None:
    history = HistoryMetrics()
    record: Any = SimpleNamespace(changes=[SimpleNamespace(id="shop.a")], ddl="ALTER")
    names = ("MilliSecondsSinceLastRecoveredChange", "MilliSecondsSinceLastAppliedChange")
    assert [history.to_document()[name] for name in names] == [-1, -1]
    history.record_recovered([record, record])
    clock.now += 3
    history.record_applied(record)
    clock.now += 1
    assert [history.to_document()[name] for name in names] == [4_000, 1_000]
