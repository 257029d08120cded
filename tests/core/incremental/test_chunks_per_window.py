"""The number of chunks in a window: by the share of time that waiting takes, whatever the machine's speed."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.incremental import chunks_per_window as sharing
from airflow_provider_cdc.core.incremental.chunks_per_window import WindowSize


def settle_window_size(
    waiting_s: float, chunk_s: float, limit: int = 1024, *, slower: float = 1.0, windows: int = 60
) -> int:
    """Return the number of chunks that a window holds in the end."""
    size = WindowSize()
    for _ in range(windows):
        n = size.compute_chunk_count(limit)
        size.record_window(waiting_s * slower, chunk_s * n * slower, limit * n, limit)
    return size.compute_chunk_count(limit)


@pytest.mark.parametrize("slower", [1.0, 2.0, 5.0, 15.0])
@pytest.mark.parametrize("waiting_s", [0.0005, 0.001, 0.002])
def test_a_slow_machine_s_windows_hold_as_many_chunks_as_a_quick_one_s(waiting_s: float, slower: float) -> None:
    chunk_s = 0.002
    assert settle_window_size(waiting_s, chunk_s, slower=slower) == settle_window_size(waiting_s, chunk_s) > 1


@pytest.mark.parametrize(("waiting_s", "chunk_s"), [(0.001, 0.001), (0.002, 0.003), (0.0005, 0.002)])
def test_waiting_is_no_more_than_its_share(waiting_s: float, chunk_s: float) -> None:
    held = settle_window_size(waiting_s, chunk_s, limit=100)
    assert 1 < held < sharing.CHUNKS
    assert waiting_s / (waiting_s + held * chunk_s) == pytest.approx(sharing.WAITING, rel=0.2)


def test_a_window_is_bounded_by_its_chunks_its_rows_and_its_time() -> None:
    assert settle_window_size(1.0, 0.001, limit=100) == sharing.CHUNKS
    assert settle_window_size(1.0, 0.001, limit=sharing.ROWS // 4) == 4
    assert settle_window_size(1.0, 0.001, limit=10 * sharing.ROWS) == 1
    assert settle_window_size(1.0, 0.1, limit=100) == round(sharing.WINDOW_S / 0.1)
    assert settle_window_size(1.0, 10.0, limit=100) == 1


def test_one_slow_window_does_not_undo_what_is_known() -> None:
    size = WindowSize()
    for waiting_s in [0.001] * 30 + [0.05] + [0.001] * 30:
        n = size.compute_chunk_count(100)
        size.record_window(waiting_s, 0.001 * n, 100 * n, 100)
    assert size.compute_chunk_count(100) == settle_window_size(0.001, 0.001, 100)


def test_a_window_that_is_not_full_reports_nothing() -> None:
    size = WindowSize()
    size.record_window(1.0, 0.001, 99, 100)
    assert size.compute_chunk_count(100) == 1
