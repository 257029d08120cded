"""The limit of rows in a second: their average is kept, and a pause earns nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.row_rate_limit import RowRateLimit


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@given(st.integers(1, 10_000), st.lists(st.integers(0, 5_000), min_size=1, max_size=30))
def test_rows_take_the_time_that_the_limit_gives_them(rate: int, blocks: list[int]) -> None:
    clock = Clock()
    limit, began = RowRateLimit(rate, clock), clock.seconds
    for rows in blocks:
        clock.seconds += limit.compute_pause()
        limit.record_rows(rows)
    clock.seconds += limit.compute_pause()
    assert abs((clock.seconds - began) * rate - sum(blocks)) < 1


def test_a_pause_in_the_reading_earns_no_burst_afterwards() -> None:
    clock = Clock()
    limit = RowRateLimit(100, clock)
    limit.record_rows(100)
    clock.seconds += 3_600
    limit.record_rows(100)
    assert limit.compute_pause() == 1.0


def test_without_a_limit_no_pause_is_made() -> None:
    limit = RowRateLimit(0, Clock())
    limit.record_rows(10**12)
    assert limit.compute_pause() == 0.0
