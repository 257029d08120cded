"""Dates and times as the binary log has them, of MySQL 5.6.4 and later and of before.

``TIME``, ``DATETIME`` and ``TIMESTAMP`` have ``fraction`` bytes of a fraction of a second behind them, none to three. MariaDB has fractions in a form of
its own besides (``mysql56_temporal_format=OFF``, ``Field_datetime_hires`` and its kin in ``sql/field.cc``): big-endian numbers with ``digits`` decimal places.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import inline_helper
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import (
    read_big_endian,
    read_little_endian,
    read_microseconds,
)
from airflow_provider_cdc.sources.relational.date_decimal_kernels import days_from_date, is_date

NO_DATE: Final = np.int64(-(2**63))
"""The result of a function for a date that the calendar does not have (``0000-00-00``, ``2024-02-30``)."""

_TIME_ZERO: Final = np.int64(839 * 3600 * 1000000)

Bytes = npt.NDArray[np.uint8]


@inline_helper
def decode_date(buf: Bytes, p: int) -> int:
    """``DATE`` in 3 bytes, as days since 1970."""
    v = read_little_endian(buf, p, 3)
    year, month, day = v >> 9, (v >> 5) & 15, v & 31
    if is_date(year, month, day):
        return days_from_date(year, month, day)
    return NO_DATE


@inline_helper
def decode_datetime(buf: Bytes, p: int, fraction: int) -> int:
    """``DATETIME`` in 5 bytes and ``fraction`` more, as microseconds since 1970."""
    v = read_big_endian(buf, p, 5) - 0x8000000000
    ym = v >> 22
    year, month, day = ym // 13, ym % 13, (v >> 17) & 31
    if is_date(year, month, day):
        seconds = days_from_date(year, month, day) * 86400 + ((v >> 12) & 31) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
        return seconds * 1000000 + read_microseconds(buf, p + 5, fraction)
    return NO_DATE


@inline_helper
def decode_timestamp(buf: Bytes, p: int, fraction: int) -> int:
    """``TIMESTAMP`` in 4 bytes and ``fraction`` more, as microseconds since 1970; 0 is ``0000-00-00 00:00:00``."""
    v = read_big_endian(buf, p, 4) * 1000000 + read_microseconds(buf, p + 4, fraction)
    return v if v else NO_DATE


@inline_helper
def decode_time(buf: Bytes, p: int, fraction: int) -> int:
    """``TIME`` in 3 bytes and ``fraction`` more, as microseconds. A negative one is the complement of all its bytes."""
    v = read_big_endian(buf, p, 3 + fraction) - (np.int64(0x800000) << (8 * fraction))
    sign = np.int64(1)
    if v < 0:
        v = -v
        sign = np.int64(-1)
    part = v & ((np.int64(1) << (8 * fraction)) - 1)
    if fraction == 1:
        part *= 10000
    elif fraction == 2:
        part *= 100
    v >>= 8 * fraction
    seconds = ((v >> 12) & 1023) * 3600 + ((v >> 6) & 63) * 60 + (v & 63)
    return sign * (seconds * 1000000 + part)


@inline_helper
def decode_year(buf: Bytes, p: int) -> int:
    """``YEAR`` in one byte; 0 is the year 0000."""
    v = np.int64(buf[p])
    return v + 1900 if v else v


@inline_helper
def old_datetime(buf: Bytes, p: int) -> int:
    """``DATETIME`` of before MySQL 5.6.4: the decimal number YYYYMMDDhhmmss in 8 bytes."""
    v = read_little_endian(buf, p, 8)
    d, t = v // 1000000, v % 1000000
    year, month, day = d // 10000, (d // 100) % 100, d % 100
    if is_date(year, month, day):
        seconds = days_from_date(year, month, day) * 86400 + (t // 10000) * 3600 + ((t // 100) % 100) * 60 + t % 100
        return seconds * 1000000
    return NO_DATE


@inline_helper
def old_timestamp(buf: Bytes, p: int) -> int:
    """``TIMESTAMP`` of before MySQL 5.6.4: seconds since 1970 in 4 bytes."""
    v = read_little_endian(buf, p, 4)
    return v * 1000000 if v else NO_DATE


@inline_helper
def old_time(buf: Bytes, p: int) -> int:
    """``TIME`` of before MySQL 5.6.4: the decimal number hhmmss in 3 bytes, with a sign."""
    v = read_little_endian(buf, p, 3)
    if v >> 23:
        v -= np.int64(1) << 24
    sign = np.int64(1)
    if v < 0:
        v = -v
        sign = np.int64(-1)
    seconds = (v // 10000) * 3600 + ((v // 100) % 100) * 60 + v % 100
    return sign * seconds * 1000000


@inline_helper
def mariadb_datetime(buf: Bytes, p: int, size: int, unit: int) -> int:
    """``DATETIME`` of one to six digits in MariaDB's own form, in ``size`` bytes.

    :param unit: microseconds of its last digit
    """
    v = read_big_endian(buf, p, size) * unit
    part, v = v % 1000000, v // 1000000
    seconds, v = v % 86400, v // 86400
    day, ym = v % 32, v // 32
    year, month = ym // 13, ym % 13
    if is_date(year, month, day):
        return (days_from_date(year, month, day) * 86400 + seconds) * 1000000 + part
    return NO_DATE


@inline_helper
def mariadb_timestamp(buf: Bytes, p: int, size: int, unit: int) -> int:
    """``TIMESTAMP`` of one to six digits in MariaDB's own form, in ``size`` bytes; 0 is ``0000-00-00 00:00:00``."""
    v = read_big_endian(buf, p, 4) * 1000000 + read_big_endian(buf, p + 4, size - 4) * unit
    return v if v else NO_DATE


@inline_helper
def mariadb_time(buf: Bytes, p: int, size: int, unit: int) -> int:
    """``TIME`` of one to six digits in MariaDB's own form, in ``size`` bytes: counted from -839:00:00."""
    return read_big_endian(buf, p, size) * unit - _TIME_ZERO
