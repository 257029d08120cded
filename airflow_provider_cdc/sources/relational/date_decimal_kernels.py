"""Array kernels of more than one source: the calendar, and decimals of 128 bits.

Like every kernel they are plain Python that numba compiles, and that tests run uncompiled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit


@jit
def days_from_date(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; the date must exist."""
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@jit
def is_date(year: int, month: int, day: int) -> bool:
    """Check whether the calendar has this day: not 0000-00-00, 2024-00-00 or 2024-02-30, which some databases keep."""
    if month < 1 or month > 12 or day < 1 or year < 1:
        return False
    if day <= 28:
        return True
    if month == 2:
        return day == 29 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= 30 or (day == 31 and month != 4 and month != 6 and month != 9 and month != 11)


@jit
def store_decimal(w0: int, w1: int, w2: int, w3: int, negative: bool, out: npt.NDArray[np.int64]) -> None:
    """Keep a number of four limbs of 32 bits, ``w0`` the lowest, as 128 bits in two's complement: ``out[0]`` low, ``out[1]`` high.

    :param w0: and the others, ``uint64``
    """
    low = np.uint64(w0) | (np.uint64(w1) << np.uint64(32))
    high = np.uint64(w2) | (np.uint64(w3) << np.uint64(32))
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
    out[0] = np.int64(low)
    out[1] = np.int64(high)
