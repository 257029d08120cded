"""Dates, timestamps and intervals: how they are kept, read and written, and the session settings they depend on."""

import datetime
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from dev.servers.oracle.errors import OraError

DEFAULTS = {
    "NLS_DATE_FORMAT": "DD-MON-RR",
    "NLS_TIMESTAMP_FORMAT": "DD-MON-RR HH.MI.SSXFF AM",
    "NLS_TIMESTAMP_TZ_FORMAT": "DD-MON-RR HH.MI.SSXFF AM TZR",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "NLS_LANGUAGE": "AMERICAN",
    "NLS_TERRITORY": "AMERICA",
    "NLS_CALENDAR": "GREGORIAN",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
UTC = datetime.UTC


@dataclass
class Nls:
    """The settings of one session that say how dates look, and its time zone in minutes from UTC."""

    settings: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))
    zone: int = 0

    def format_of(self, kind: str) -> str:
        names = {"DATE": "NLS_DATE_FORMAT", "TIMESTAMP": "NLS_TIMESTAMP_FORMAT"}
        return self.settings[names.get(kind, "NLS_TIMESTAMP_TZ_FORMAT")]


@dataclass(frozen=True)
class Moment:
    """A point in time with nanoseconds; ``zone`` in minutes when the value has one, and then ``time`` is local to it."""

    time: datetime.datetime
    nanos: int = 0
    zone: int | None = None


STORED = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{0,9}))?)?(?: ?(Z?)([+-])(\d\d):(\d\d)| ?Z)?"
)
"""A kept value, or a literal: ``Z+02:00`` behind a kept one says that it is in UTC, ``+02:00`` behind a literal that it is not."""


def read(text: str) -> Moment:
    """A kept value or a literal."""
    match = STORED.fullmatch(text)
    if not match:
        raise OraError(1861)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    time = _datetime(year, month, day, hour, minute, second)
    nanos = int((match[7] or "").ljust(9, "0"))
    if match[9] is None:
        return Moment(time, nanos, 0 if text.endswith("Z") else None)
    zone = (int(match[10]) * 60 + int(match[11])) * (-1 if match[9] == "-" else 1)
    return Moment(time + datetime.timedelta(minutes=zone) if match[8] else time, nanos, zone)


def store_moment(moment: Moment, kind: str, session_zone: int = 0) -> str:
    """A moment as the engine keeps a value of this kind."""
    time = moment.time
    if kind == "DATE":
        return f"{time:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
    if kind in ("TIMESTAMP_TZ", "TIMESTAMP_LTZ"):
        zone = session_zone if moment.zone is None else moment.zone
        time -= datetime.timedelta(minutes=zone)
    text = f"{time.year:04d}-{time:%m-%d %H:%M:%S}.{moment.nanos:09d}"
    return f"{text} Z{offset(zone)}" if kind == "TIMESTAMP_TZ" else text


def offset(minutes: int) -> str:
    """A zone as ``+02:00``."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def store(value: Any, kind: str, scale: int, nls: Nls) -> str:
    """A value for a date column: a kept value, or text in the session's format."""
    text = str(value)
    if kind == "DATE" and len(text) == 19 and STORED.fullmatch(text):
        return text
    moment = read(text) if STORED.fullmatch(text) else parse(text, nls.format_of(kind), nls)
    if kind != "DATE":
        moment = _round_moment(moment, scale)
    return store_moment(moment, kind, nls.zone)


def _round_moment(moment: Moment, digits: int) -> Moment:
    unit = 10 ** (9 - digits)
    nanos = (moment.nanos + unit // 2) // unit * unit
    carry, nanos = divmod(nanos, 10**9)
    return Moment(moment.time + datetime.timedelta(seconds=carry), nanos, moment.zone)


def _datetime(year: int, month: int, day: int, hour: int, minute: int, second: int) -> datetime.datetime:
    try:
        return datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        raise OraError(1839) from None


# formats: the elements that are used for dates here, in the order they must be tried

ELEMENTS = (
    "YYYY", "SYYYY", "RRRR", "YY", "RR", "MONTH", "MON", "MM", "DDD", "DD", "HH24", "HH12", "HH", "MI", "SSSSS", "SS",
    "FF9", "FF8", "FF7", "FF6", "FF5", "FF4", "FF3", "FF2", "FF1", "FF", "TZH", "TZM", "TZR", "AM", "PM", "X", "FM",
)  # fmt: skip


def _elements(pattern: str) -> list[str]:
    found, rest = [], pattern
    while rest:
        upper = rest.upper()
        if rest[0] == '"':
            literal, _, rest = rest[1:].partition('"')
            found.append("'" + literal)
            continue
        element = next((name for name in sorted(ELEMENTS, key=len, reverse=True) if upper.startswith(name)), None)
        if element is None and rest[0].isalnum():
            raise OraError(922, f"date format {pattern}")
        found.append(element or "'" + rest[0])
        rest = rest[len(element or " ") :]
    return found


def parse(text: str, pattern: str, nls: Nls) -> Moment:
    """Text in a date format."""
    now = datetime.datetime.now(UTC)
    found: dict[str, Any] = {"year": now.year, "month": now.month, "day": 1}
    at = 0
    for element in _elements(pattern):
        match = re.compile(_reading(element), re.IGNORECASE).match(text, at)
        if not match:
            if at >= len(text) and element not in ("YYYY", "MM", "DD"):
                break
            raise OraError(1861 if at < len(text) else 1858)
        at = match.end()
        _set(found, element, match[0])
    if text[at:].strip():
        raise OraError(1830)
    if found.get("pm") is not None:
        found["hour"] = found.get("hour", 0) % 12 + (12 if found["pm"] else 0)
    parts = (
        found["year"],
        found["month"],
        found["day"],
        found.get("hour", 0),
        found.get("minute", 0),
        found.get("second", 0),
    )
    zone = None
    if "zone_hour" in found:
        sign, hours = found["zone_hour"]
        zone = sign * (hours * 60 + found.get("zone_minute", 0))
    return Moment(_datetime(*parts), found.get("nanos", 0), zone)


def _reading(element: str) -> str:
    if element.startswith("'"):
        literal = element[1:]
        return r"[^0-9A-Za-z]?" if not literal.isalnum() else re.escape(literal)
    special = {
        "YYYY": r"\d{1,4}", "RRRR": r"\d{1,4}", "SYYYY": r"[ -]?\d{1,4}", "MON": r"[a-z]{3}", "MONTH": r"[a-z]+",
        "TZH": r"[+-]?\d\d", "TZR": r"[+-]\d\d:\d\d|[A-Za-z/_]+", "AM": r"[ap]\.?m\.?", "PM": r"[ap]\.?m\.?", "X": r"\.",
        "FM": "", "SSSSS": r"\d{1,5}", "DDD": r"\d{1,3}",
    }  # fmt: skip
    if element.startswith("FF"):
        return r"\d{0,9}"
    return special.get(element, r"\d{1,2}")


def _set(found: dict[str, Any], element: str, text: str) -> None:
    plain = {"MM": "month", "DD": "day", "HH24": "hour", "HH12": "hour", "HH": "hour", "MI": "minute", "SS": "second"}
    if element in plain:
        found[plain[element]] = int(text)
    elif element in ("YYYY", "SYYYY"):
        found["year"] = int(text)
    elif element in ("YY", "RR", "RRRR"):
        year = int(text)
        found["year"] = year if year > 99 else 2000 + year if year < 50 or element == "YY" else 1900 + year
    elif element in ("MON", "MONTH"):
        found["month"] = MONTHS.index(text[:3].upper()) + 1
    elif element.startswith("FF"):
        found["nanos"] = int(text.ljust(9, "0") or 0)
    elif element == "TZH":
        found["zone_hour"] = (-1 if text.startswith("-") else 1, abs(int(text)))
    elif element == "TZM":
        found["zone_minute"] = int(text)
    elif element == "TZR":
        _set_region(found, text)
    elif element in ("AM", "PM"):
        found["pm"] = text[0] in "Pp"


def _set_region(found: dict[str, Any], text: str) -> None:
    if text.upper() in ("UTC", "GMT"):
        found["zone_hour"] = (1, 0)
    elif ":" in text:
        found["zone_hour"] = (-1 if text.startswith("-") else 1, int(text[1:3]))
        found["zone_minute"] = int(text[4:6])
    else:
        raise OraError(1882, text)


def region(text: str) -> int:
    """A time zone in minutes from UTC: ``+02:00``, ``00:00`` or UTC."""
    found: dict[str, Any] = {}
    _set_region(found, f"+{text}" if text[0].isdigit() else text)
    sign, hours = found["zone_hour"]
    return int(sign * (hours * 60 + found.get("zone_minute", 0)))


def write(moment: Moment, pattern: str, digits: int = 9, session_zone: int = 0) -> str:
    """A moment in a date format; ``FF`` writes this many digits, and FF9 no more than that."""
    time = moment.time
    zone = session_zone if moment.zone is None else moment.zone
    fraction = f"{moment.nanos:09d}"
    values = {
        "YYYY": f"{time.year:04d}", "SYYYY": f" {time.year:04d}", "RRRR": f"{time.year:04d}", "YY": f"{time.year % 100:02d}",
        "RR": f"{time.year % 100:02d}", "MM": f"{time.month:02d}", "DD": f"{time.day:02d}", "HH24": f"{time.hour:02d}",
        "HH12": f"{(time.hour - 1) % 12 + 1:02d}", "HH": f"{(time.hour - 1) % 12 + 1:02d}", "MI": f"{time.minute:02d}",
        "SS": f"{time.second:02d}", "AM": "AM" if time.hour < 12 else "PM", "PM": "AM" if time.hour < 12 else "PM",
        "X": ".", "FM": "", "TZH": offset(zone)[:3], "TZM": offset(zone)[4:], "TZR": offset(zone), "FF": fraction[:digits],
        "MON": MONTHS[time.month - 1], "MONTH": f"{time:%B}".upper().ljust(9), "DDD": f"{time:%j}",
        "SSSSS": f"{time.hour * 3600 + time.minute * 60 + time.second:05d}",
    }  # fmt: skip
    parts = []
    for element in _elements(pattern):
        if element.startswith("'"):
            parts.append(element[1:])
        elif element.startswith("FF") and len(element) == 3:
            parts.append(fraction[: min(int(element[2]), digits)])
        else:
            parts.append(values[element])
    return "".join(parts)


# intervals

DAYS = re.compile(r"([+-]?)\s*(\d+)(?:\s+(\d+):(\d+)(?::(\d+)(?:\.(\d{0,9}))?)?)?")
YEARS = re.compile(r"([+-]?)\s*(\d+)-(\d+)")


def day_second(text: str, precision: int = 9, scale: int = 9) -> str:
    """A kept interval of days to seconds out of ``-1 02:03:04.5``."""
    match = DAYS.fullmatch(text.strip())
    if not match:
        raise OraError(1867)
    if len(match[2].lstrip("0")) > precision:
        raise OraError(1873)
    fraction = (match[6] or "").ljust(9, "0")[: max(scale, 0)].ljust(9, "0")
    hours, minutes, seconds = (int(match[index] or 0) for index in (3, 4, 5))
    return f"{match[1] or '+'}{int(match[2]):09d} {hours:02d}:{minutes:02d}:{seconds:02d}.{fraction}"


def of_nanos(total: int) -> str:
    """A kept interval of days to seconds."""
    sign, total = ("-", -total) if total < 0 else ("+", total)
    rest, nanos = divmod(total, 10**9)
    days, rest = divmod(rest, 86400)
    return f"{sign}{days:09d} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{nanos:09d}"


def year_month(text: str, precision: int = 9) -> str:
    """A kept interval of years to months out of ``-3-06``."""
    match = YEARS.fullmatch(text.strip())
    if not match or int(match[3]) > 11:
        raise OraError(1867)
    if len(match[2].lstrip("0")) > precision:
        raise OraError(1873)
    return f"{match[1] or '+'}{int(match[2]):09d}-{int(match[3]):02d}"


def interval_parts(stored: str) -> tuple[int, ...]:
    """Days, hours, minutes, seconds and nanoseconds, all of the sign of the interval; or years and months."""
    sign = -1 if stored.startswith("-") else 1
    return tuple(sign * int(part) for part in re.split(r"[ :.-]", stored[1:]))


def interval_days(stored: str) -> float:
    """An interval of days to seconds in days."""
    days, hours, minutes, seconds, nanos = interval_parts(stored)
    return days + (hours * 3600 + minutes * 60 + seconds + nanos / 1e9) / 86400


# bytes and floats


def from_hex(text: str) -> bytes:
    """HEXTORAW."""
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise OraError(1722) from None


def single(value: float) -> float:
    """The nearest number of single precision."""
    try:
        return float(struct.unpack(">f", struct.pack(">f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
