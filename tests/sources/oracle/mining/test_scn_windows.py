"""Windows of SCNs: always forward, never beyond the present, and as large as steps of some seconds allow."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.sources.oracle.mining.scn_windows import (
    AIM_ROWS,
    AIM_SECONDS,
    LARGEST,
    SMALLEST,
    WindowPlanner,
)
from tests.sources.oracle.redo.redo_tables import config

NOW = datetime.datetime(2026, 3, 1, 12)
SIZES = {"log.mining.batch.size.min": 100, "log.mining.batch.size.default": 1000, "log.mining.batch.size.max": 1300}


def times(seconds: float) -> Any:
    """The database's clock: every SCN of the last test was reached ``seconds`` after the one before."""
    moments = iter([NOW, NOW + datetime.timedelta(seconds=seconds)])
    return lambda scn: next(moments)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 10**6), st.floats(0, 1000), st.floats(0, 100)), max_size=60
    ),
    st.booleans(),
    st.integers(0, 3),
)
def test_windows_follow_each_other_without_a_hole_and_end_in_the_present(
    steps: list[tuple[int, int, float, float]], documented: bool, count: int
) -> None:
    windows = WindowPlanner(config(**(SIZES if documented else {}), **{"log.mining.log.count.min": count}))
    at = current = 2_000_000
    for ahead, rows, seconds, begin in steps:
        current += ahead
        window = windows.choose_window(
            at, current, time_of=lambda scn: NOW, log_ends=lambda scn: [scn + 10, scn + 10_000, scn + 10**8]
        )
        assert window.start == at
        assert at <= window.end <= max(current, at)
        assert (window.end > at) == (current > at)
        if documented:
            assert 100 <= windows.size <= 1300
        at = window.end
        windows.adapt_window_size(rows, seconds, begin)
        assert SMALLEST <= windows.size <= LARGEST
        assert 0 <= windows.pause_seconds <= 3
    for _ in range(100_000):
        if at >= current:
            break
        at = windows.choose_window(at, current).end
    assert at == current


@given(st.integers(100, 10**6), st.floats(0.01, 30))
def test_the_window_tunes_itself_to_steps_of_some_seconds(scns_per_second: int, overhead: float) -> None:
    """Whatever the speed of LogMiner, and however long it takes to begin, after some steps a step is worth its beginning."""
    windows = WindowPlanner(config())
    at, current, seconds, rows = 0, 10**12, 0.0, 0
    for _ in range(60):
        window = windows.choose_window(at, current)
        rows = (window.end - at) // 100
        seconds = overhead + (window.end - at) / scns_per_second
        windows.adapt_window_size(rows, seconds, overhead)
        at = window.end
    assert seconds <= 1.5 * max(AIM_SECONDS, 4 * overhead)
    assert seconds >= max(AIM_SECONDS, 4 * overhead) / 2 or rows >= AIM_ROWS / 2


@given(st.floats(0.01, 1000))
def test_a_step_has_a_bounded_number_of_rows_however_dense_they_are(rows_per_scn: float) -> None:
    windows = WindowPlanner(config())
    at, rows = 0, 0
    for _ in range(60):
        window = windows.choose_window(at, 10**13)
        rows = int((window.end - at) * rows_per_scn)
        windows.adapt_window_size(rows, 0.001, 0.0)
        at = window.end
    assert rows <= max(2 * AIM_ROWS, 2 * SMALLEST * rows_per_scn)


def test_a_window_that_the_present_cuts_short_does_not_make_the_next_one_larger() -> None:
    windows = WindowPlanner(config())
    before = windows.size
    for at in range(0, 100, 10):
        assert windows.choose_window(at, at + 10).end == at + 10
        windows.adapt_window_size(1, 0.01)
    assert windows.size == before


def test_documented_sizes_grow_and_shrink_by_the_smallest_one() -> None:
    assert WindowPlanner(config()).size == 20_000
    for part, size in (("min", 1_000), ("max", 100_000), ("default", 20_000)):  # documented, as the others are
        documented = WindowPlanner(config(**{f"log.mining.batch.size.{part}": size}))
        grown, at = list[int](), 0
        for _ in range(90):
            window = documented.choose_window(at, 10**9)
            at = window.end
            grown.append(at - window.start)
        assert (grown[:2], grown[-1]) == ([21_000, 22_000], 100_000)
    windows = WindowPlanner(config(**SIZES))
    sizes, at = [windows.size], 0
    for _ in range(5):
        at = windows.choose_window(at, 100_000).end
        windows.adapt_window_size(10**9, 10**6)  # has no effect on them
        sizes.append(windows.size)
    assert sizes == [1000, 1100, 1200, 1300, 1300, 1300]
    for _ in range(5):
        at = windows.choose_window(at, at + 1).end
        sizes.append(windows.size)
    assert sizes[-5:] == [1200, 1100, 1000, 1000, 1000]


def test_a_window_ends_behind_the_one_before_or_in_the_present() -> None:
    """Also where the stream goes back."""
    windows = WindowPlanner(config(**SIZES))
    at, ends = 0, list[int]()
    for _ in range(5):
        at = windows.choose_window(at, 10**6).end
        ends.append(at)
    assert ends == [1100, 2300, 3600, 4900, 6200]
    assert windows.choose_window(at - 1300, 10**6).end == 10**6
    assert windows.choose_window(10**6, 10**6 + 7).end == 10**6 + 7
    assert (windows.choose_window(10**6, 10**6 - 5).start, windows.choose_window(10**6, 10**6 - 5).end) == (
        10**6,
        10**6,
    )


def test_pauses_grow_while_there_is_nothing_and_shrink_while_there_is_much() -> None:
    sleep = "log.mining.sleep.time"
    own = {f"{sleep}.min.ms": 250, f"{sleep}.max.ms": 900, f"{sleep}.default.ms": 500, f"{sleep}.increment.ms": 100}
    assert WindowPlanner(config()).pause_seconds == 1.0
    for properties, first, longest, shortest in (
        ({f"{sleep}.increment.ms": 200}, [1.0, 1.2, 1.4], 3.0, 0.0),
        (own, [0.5, 0.6, 0.7], 0.9, 0.25),
    ):
        windows = WindowPlanner(config(**properties, **SIZES))
        pauses, at = [windows.pause_seconds], 0
        for _ in range(12):
            windows.choose_window(at, at)
            pauses.append(windows.pause_seconds)
        assert (pauses[:3], pauses[-1]) == (first, longest)
        for _ in range(16):
            at = windows.choose_window(at, 10**6).end
        assert windows.pause_seconds == shortest
    windows = WindowPlanner(config())
    windows.choose_window(0, 10**6)  # which makes none
    windows.choose_window(10**6, 10**6)
    assert windows.pause_seconds == 0.2


def test_no_pause_is_made_by_default_while_the_stream_is_behind() -> None:
    windows = WindowPlanner(config())
    windows.choose_window(0, 10**6)
    assert windows.pause_seconds == 0.0
    windows.choose_window(10**6, 10**6)
    assert windows.pause_seconds == 0.2


def test_only_archived_logs_are_polled_as_configured() -> None:
    given_ = {
        "log.mining.archive.log.only.mode": True,
        "log.mining.archive.log.only.scn.poll.interval.ms": 7_000,
    }
    usual = WindowPlanner(config(**{"log.mining.archive.log.only.mode": True}))
    assert usual.choose_window(500, 400).is_empty
    assert usual.pause_seconds == 10.0
    windows = WindowPlanner(config(**given_))
    assert windows.choose_window(500, 400).is_empty
    assert windows.pause_seconds == 7.0
    assert not windows.choose_window(500, 600).is_empty
    assert windows.pause_seconds < 7.0


@pytest.mark.parametrize("properties", [{}, SIZES])
@pytest.mark.parametrize(
    ("jump", "seconds", "gap"),
    [(2_000_000, 1.0, True), (1_000_000, 1.0, False), (2_000_000, 20.0, False), (2_000_000, 19.9, True)],
)
def test_a_jump_of_the_scn_in_a_short_time_is_taken_at_once(
    properties: dict[str, Any], jump: int, seconds: float, gap: bool
) -> None:
    windows = WindowPlanner(config(**properties))
    at = windows.choose_window(100, 200, time_of=times(seconds)).end
    window = windows.choose_window(at, at + jump, time_of=times(seconds))
    assert (window.gap, window.end == at + jump) == (gap, gap)
    assert windows.counters.gaps == gap


def test_without_a_window_before_or_a_known_time_there_is_no_gap() -> None:
    windows = WindowPlanner(config())
    window = windows.choose_window(0, 10**9, time_of=times(0.1))
    assert not window.gap
    assert not windows.choose_window(window.end, 10**9, time_of=lambda scn: None).gap


def test_the_settings_of_gaps_are_honoured() -> None:
    given_ = {
        "log.mining.scn.gap.detection.gap.size.min": 50_000,
        "log.mining.scn.gap.detection.time.interval.max.ms": 5_000,
    }
    for properties, jump, seconds in (({}, 1_000_000, 20.0), (given_, 50_000, 5.0)):
        for more, less, gap in ((1, 0.1, True), (0, 0.1, False), (1, 0.0, False)):
            windows = WindowPlanner(config(**properties))
            at = windows.choose_window(0, 10).end
            assert windows.choose_window(at, at + jump + more, time_of=times(seconds - less)).gap is gap


def test_a_window_has_at_least_so_many_logs_as_configured() -> None:
    windows = WindowPlanner(config(**{"log.mining.log.count.min": 2}))
    assert windows.choose_window(0, 10**9, log_ends=lambda scn: [50_000, 90_000, 120_000]).end == 90_000
    assert windows.choose_window(90_000, 10**9, log_ends=lambda scn: [120_000]).end == 10**9


def test_a_session_that_is_ahead_of_the_present_waits() -> None:
    windows = WindowPlanner(config())
    window = windows.choose_window(1000, 900)
    assert (window.start, window.end, window.is_empty) == (1000, 1000, True)
    assert windows.caught_up
