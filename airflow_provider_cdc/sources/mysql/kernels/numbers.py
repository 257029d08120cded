"""Numbers and dates in bytes; used by all kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit


@jit
def u32(buf: npt.NDArray[np.uint8], p: int) -> int:
    return np.int64(buf[p]) | np.int64(buf[p + 1]) << 8 | np.int64(buf[p + 2]) << 16 | np.int64(buf[p + 3]) << 24


@jit
def little(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    v = np.int64(0)
    for i in range(width):
        v |= np.int64(buf[p + i]) << np.int64(8 * i)
    return v


@jit
def big(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    v = np.int64(0)
    for i in range(width):
        v = (v << np.int64(8)) | np.int64(buf[p + i])
    return v


@jit
def days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; the date must exist."""
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    yoe = y - era * 400
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


@jit
def is_date(year: int, month: int, day: int) -> bool:
    """Whether the calendar has this day; MySQL may store 0000-00-00, 2024-00-00 or 2024-02-30."""
    if month < 1 or month > 12 or day < 1 or year < 1:
        return False
    if day <= 28:
        return True
    if month == 2:
        return day == 29 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= 30 or (day == 31 and month != 4 and month != 6 and month != 9 and month != 11)


@jit
def micros(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    """A fraction of 1, 2 or 3 bytes, in microseconds."""
    f = big(buf, p, width)
    if width == 1:
        return f * 10000
    if width == 2:
        return f * 100
    return f
