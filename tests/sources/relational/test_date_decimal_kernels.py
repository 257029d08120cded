"""Kernels of several sources, compiled and as plain Python."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from airflow_provider_cdc.sources.relational import date_decimal_kernels as k


def _both_kernels(kernel: Any) -> list[Callable[..., Any]]:
    return [kernel, getattr(kernel, "py_func", kernel)]


@pytest.mark.parametrize("days", _both_kernels(k.days_from_date))
def test_days_are_counted_as_python_counts_them(days: Callable[[int, int, int], int]) -> None:
    epoch = dt.date(1970, 1, 1).toordinal()
    turns = [
        dt.date(y, m, d) for y in (*range(1, 9999, 97), 1600, 1900, 2000, 9999) for m, d in ((2, 28), (3, 1), (12, 31))
    ]
    for date in [*turns, dt.date.min, dt.date.max]:
        assert days(date.year, date.month, date.day) == date.toordinal() - epoch, date


@pytest.mark.parametrize("is_date", _both_kernels(k.is_date))
def test_a_date_is_what_the_calendar_has(is_date: Callable[[int, int, int], bool]) -> None:
    for year in (1, 1900, 1999, 2000, 2023, 2024, 9999):
        for month in range(1, 13):
            last = calendar.monthrange(year, month)[1]
            assert [is_date(year, month, day) for day in range(33)] == [0 < day <= last for day in range(33)]
    assert not any(is_date(*date) for date in ((0, 0, 0), (2024, 0, 1), (2024, 13, 1), (0, 1, 1), (-1, 1, 1)))


@pytest.mark.parametrize("store", _both_kernels(k.store_decimal))
@pytest.mark.parametrize("number", [0, 1, 2**31, 2**32, 2**64 - 1, 2**64, 10**38 - 1, 5 * 2**64])
@pytest.mark.parametrize("negative", [False, True])
def test_a_decimal_is_kept_in_two_s_complement(store: Callable[..., None], number: int, negative: bool) -> None:
    limbs = [np.uint64(number >> shift & 0xFFFFFFFF) for shift in (0, 32, 64, 96)]
    out = np.zeros(2, np.int64)
    with np.errstate(over="ignore"):  # as the compiled kernel has it
        store(*limbs, negative, out)
    assert int.from_bytes(out.tobytes(), "little", signed=True) == (-number if negative else number)
