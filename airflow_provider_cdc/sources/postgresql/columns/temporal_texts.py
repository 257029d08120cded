"""Dates, times and intervals: the texts that the server prints with ``DateStyle`` ISO, ``IntervalStyle`` postgres and the time zone UTC."""

from __future__ import annotations

import re
import struct
from typing import Final

EPOCH_DAYS: Final = 10_957
"""Days from 1970 to 2000, from which PostgreSQL counts."""
DAY_US: Final = 86_400_000_000
EPOCH_US: Final = EPOCH_DAYS * DAY_US
_SECOND_US: Final = 1_000_000
_MAX_INT64: Final = 2**63 - 1
_MAX_INT32: Final = 2**31 - 1
_DAYS_TO_1970: Final = 719_468
"""From March 1 of the year 0."""
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years."""
_DATE: Final = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_MOMENT: Final = re.compile(r"(\d{4,7}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d(?::\d\d){0,2})?( BC)?")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-]\d\d(?::\d\d){0,2})?")
_PART: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_DURATION: Final = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
_MONTH_US: Final = 2_629_800_000_000
"""Microseconds of a twelfth of 365.25 days."""
INFINITE_INTERVAL: Final = (_MAX_INT64, _MAX_INT32, _MAX_INT32)
_PAST_INTERVAL: Final = (-_MAX_INT64 - 1, -_MAX_INT32 - 1, -_MAX_INT32 - 1)

Interval = tuple[int, int, int]
"""Microseconds, days, months."""


def parse_date(text: str) -> int:
    """Return the days since 1970 of a date; those of an infinite one are the ends of 32 bits.

    >>> parse_date("2000-01-01"), parse_date("0001-01-01 BC")
    (10957, -719528)
    """
    if text in ("infinity", "-infinity"):
        return _MAX_INT32 if text == "infinity" else -_MAX_INT32 - 1
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no date")
    year = int(match[1])
    return _days(1 - year if match[4] else year, int(match[2]), int(match[3]))


def parse_moment(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp with or without an offset; those of an infinite one are the ends of 64 bits."""
    if text in ("infinity", "-infinity"):
        return _MAX_INT64 if text == "infinity" else -_MAX_INT64 - 1
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp")
    us, _ = parse_clock(match[2])
    return parse_date(match[1] + (match[4] or "")) * DAY_US + us - _offset_s(match[3]) * _SECOND_US


def parse_clock(text: str) -> tuple[int, int]:
    """Return the microseconds since midnight, and the seconds by which the clock is ahead of UTC.

    >>> parse_clock("24:00:00"), parse_clock("01:02:03.4+02:30")
    ((86400000000, 0), (3723400000, 9000))
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    seconds = (int(match[1]) * 60 + int(match[2])) * 60 + int(match[3])
    return seconds * _SECOND_US + int((match[4] or "").ljust(6, "0")), _offset_s(match[5])


def parse_interval(text: str) -> Interval:
    """Return the parts of an interval.

    >>> parse_interval("-1 years -2 mons +3 days -04:05:06.7")
    (-14706700000, 3, -14)
    """
    if text in ("infinity", "-infinity"):
        return INFINITE_INTERVAL if text == "infinity" else _PAST_INTERVAL
    us, rest = 0, text
    if match := _DURATION.search(text):
        sign, hours, minutes, seconds, fraction = match.groups()
        us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _SECOND_US + int((fraction or "").ljust(6, "0"))
        us, rest = -us if sign == "-" else us, text[: match.start()].strip()
    parts = dict.fromkeys(("year", "mon", "day"), 0)
    found = _PART.findall(rest)
    if " ".join(_PART.sub("", rest).split()) or not (found or rest == ""):
        raise ValueError(f"{text!r} is no interval")
    for number, unit in found:
        parts[unit] = int(number)
    return us, parts["day"], parts["year"] * 12 + parts["mon"]


def format_date(days: int) -> str:
    """Return the text of days since 2000, as the binary form has them."""
    if days in (_MAX_INT32, -_MAX_INT32 - 1):
        return "infinity" if days > 0 else "-infinity"
    text, suffix = _date_text(days + EPOCH_DAYS)
    return text + suffix


def format_moment(us: int, zone: str = "") -> str:
    """Return the text of microseconds since 2000, as the binary form has them.

    :param zone: ``+00`` where the type has one
    """
    if us in (_MAX_INT64, -_MAX_INT64 - 1):
        return "infinity" if us > 0 else "-infinity"
    days, clock = divmod(us, DAY_US)
    text, suffix = _date_text(days + EPOCH_DAYS)
    return f"{text} {format_clock(clock)}{zone}{suffix}"


def format_clock(us: int) -> str:
    """Return the text of microseconds since midnight.

    >>> format_clock(86400000000), format_clock(1500000)
    ('24:00:00', '00:00:01.5')
    """
    seconds, fraction = divmod(us, _SECOND_US)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text + f".{fraction:06d}".rstrip("0") if fraction else text


def format_zoned_clock(us: int, ahead_s: int) -> str:
    """Return the text of a time with an offset."""
    sign, seconds = ("-" if ahead_s < 0 else "+"), abs(ahead_s)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    offset = f"{hours:02d}" + (f":{minutes:02d}" if minutes or rest else "") + (f":{rest:02d}" if rest else "")
    return f"{format_clock(us)}{sign}{offset}"


def utc_clock(us: int, ahead_s: int) -> str:
    """Return a time with an offset as a text in UTC.

    >>> utc_clock(*parse_clock("01:00:00+02"))
    '23:00:00Z'
    """
    return format_clock((us - ahead_s * _SECOND_US) % DAY_US) + "Z"


def unpack_interval(data: bytes) -> Interval:
    """Read the parts of an interval from its binary form."""
    us, days, months = struct.unpack("!qii", data)
    return us, days, months


def format_interval(interval: Interval) -> str:
    """Return the text of an interval.

    >>> format_interval((-14706700000, 3, -14))
    '-1 years -2 mons +3 days -04:05:06.7'
    """
    if interval in (INFINITE_INTERVAL, _PAST_INTERVAL):
        return "infinity" if interval == INFINITE_INTERVAL else "-infinity"
    us, days, months = interval
    years, months = _split(months, 12)
    text, before = "", False
    for value, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if value:
            plus = "+" if before and value > 0 else ""
            text += f"{' ' if text else ''}{plus}{value} {unit}{'' if value == 1 else 's'}"
            before = value < 0
    if us or not text:
        sign = "-" if us < 0 else ("+" if before else "")
        text += f"{' ' if text else ''}{sign}{format_clock(abs(us))}"
    return text


def iso_interval(interval: Interval) -> str:
    """Return an interval in the form of ISO 8601, with all its parts.

    >>> iso_interval((-14706700000, 3, -14))
    'P-1Y-2M3DT-4H-5M-6.7S'

    :raises ValueError: it is infinite
    """
    us, days, months = _finite(interval)
    years, months = _split(months, 12)
    seconds, fraction = divmod(abs(us), _SECOND_US)
    sign = -1 if us < 0 else 1
    shown = f"{seconds % 60}" + (f".{fraction:06d}".rstrip("0") if fraction else "")
    minus = "-" if us < 0 and (seconds % 60 or fraction) else ""
    return f"P{years}Y{months}M{days}DT{sign * (seconds // 3600)}H{sign * (seconds // 60 % 60)}M{minus}{shown}S"


def interval_us(interval: Interval) -> int:
    """Return the microseconds of an interval, with months of 365.25 / 12 days.

    :raises ValueError: it is infinite, or longer than 64 bits hold
    """
    us, days, months = _finite(interval)
    total = us + days * DAY_US + months * _MONTH_US
    if not -_MAX_INT64 <= total <= _MAX_INT64:
        raise ValueError(f"the interval {format_interval(interval)} has more microseconds than 64 bits hold")
    return total


def _finite(interval: Interval) -> Interval:
    if interval in (INFINITE_INTERVAL, _PAST_INTERVAL):
        raise ValueError(f"the interval {format_interval(interval)} has no end")
    return interval


def _split(number: int, unit: int) -> tuple[int, int]:
    """Divide towards zero."""
    quotient = abs(number) // unit * (-1 if number < 0 else 1)
    return quotient, number - quotient * unit


def _offset_s(text: str | None) -> int:
    if not text:
        return 0
    hours, minutes, seconds = (int(part) for part in f"{text[1:]}:0:0".split(":")[:3])
    return ((hours * 60 + minutes) * 60 + seconds) * (-1 if text[0] == "-" else 1)


def _days(year: int, month: int, day: int) -> int:
    y = year - (month <= 2)
    era, of_era = divmod(y, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * _CYCLE_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _DAYS_TO_1970


def _date_text(days: int) -> tuple[str, str]:
    """Return the text of a day since 1970, and what stands behind time and zone."""
    era, of_era = divmod(days + _DAYS_TO_1970, _CYCLE_DAYS)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return (f"{year:04d}-{month:02d}-{day:02d}", "") if year > 0 else (f"{1 - year:04d}-{month:02d}-{day:02d}", " BC")
