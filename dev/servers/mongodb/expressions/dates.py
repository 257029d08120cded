"""Operators on dates (MongoDB manual, "Date Expression Operators"): years 1 to 9999 only, unlike the server's."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bson import Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.expressions.operators import is_null
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")
_DATE = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)([T ](?P<time>\d\d:\d\d(:\d\d(\.\d{1,9})?)?))?(?P<zone>Z|[+-]\d\d:?\d\d)?", re.ASCII
)
MILLISECONDS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _to_moment(value: Any, zone: Any = MISSING, what: str = "date") -> datetime:
    if isinstance(value, ObjectId):
        value = DatetimeMS(int(value.generation_time.timestamp() * 1000))
    if isinstance(value, Timestamp):
        value = DatetimeMS(value.time * 1000)
    if not isinstance(value, DatetimeMS):
        raise MongoError(16006, f"can't convert from BSON type {type_name(value)} to Date: {what}")
    try:
        return (_EPOCH + timedelta(milliseconds=int(value))).astimezone(_zone(zone))
    except OverflowError:
        raise MongoError(9, "the stand-in computes with dates of the years 1 to 9999 only") from None


def _zone(zone: Any) -> tzinfo:
    if is_null(zone):
        return UTC
    if not isinstance(zone, str):
        raise MongoError(40517, f"timezone must evaluate to a string, found {type_name(zone)}")
    if found := _OFFSET.fullmatch(zone):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return timezone(timedelta(minutes=minutes if found[1] == "+" else -minutes))
    try:
        return UTC if zone in ("UTC", "GMT", "Z") else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise MongoError(40485, f'unrecognized time zone identifier: "{zone}"') from None


def _date(moment: datetime) -> DatetimeMS:
    return DatetimeMS((moment - _EPOCH) // timedelta(milliseconds=1))


def text(value: DatetimeMS) -> str:
    """Format a date as ``$toString`` does."""
    return str(to_string(value))


def parse_date(value: str, zone: Any = MISSING) -> DatetimeMS:
    """A text of the ISO form as date."""
    found = _DATE.fullmatch(value)
    try:
        if found is None:
            raise ValueError(value)
        moment = datetime.fromisoformat(f"{found['day']}T{(found['time'] or '00:00')}".ljust(16))
    except ValueError:
        raise MongoError(241, f"Error parsing date string '{value}'") from None
    if found["zone"]:
        return _date(moment.replace(tzinfo=UTC if found["zone"] == "Z" else _zone(found["zone"])))
    return _date(moment.replace(tzinfo=_zone(zone)))


def _part(get: Callable[[datetime], Any]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        zone: Any = MISSING
        if isinstance(value, dict):
            value, zone = value.get("date", MISSING), value.get("timezone", MISSING)
            if zone is None:
                return None
        if is_null(value):
            return None
        return get(_to_moment(value, zone))

    return run


def _week(moment: datetime) -> int:
    return int(moment.strftime("%U"))


PARTS: dict[str, Callable[[Any], Any]] = {
    "$year": _part(lambda m: m.year),
    "$month": _part(lambda m: m.month),
    "$dayOfMonth": _part(lambda m: m.day),
    "$hour": _part(lambda m: m.hour),
    "$minute": _part(lambda m: m.minute),
    "$second": _part(lambda m: m.second),
    "$millisecond": _part(lambda m: m.microsecond // 1000),
    "$dayOfYear": _part(lambda m: m.timetuple().tm_yday),
    "$dayOfWeek": _part(lambda m: m.isoweekday() % 7 + 1),
    "$isoDayOfWeek": _part(lambda m: m.isoweekday()),
    "$week": _part(_week),
    "$isoWeek": _part(lambda m: m.isocalendar().week),
    "$isoWeekYear": _part(lambda m: Int64(m.isocalendar().year)),
}


def _offset(moment: datetime) -> int:
    given = moment.utcoffset()
    assert given is not None
    return given // timedelta(minutes=1)


_FORMATS: dict[str, Callable[[datetime], str]] = {
    "Y": lambda m: f"{m.year:04}", "m": lambda m: f"{m.month:02}", "d": lambda m: f"{m.day:02}", "H": lambda m: f"{m.hour:02}",
    "M": lambda m: f"{m.minute:02}", "S": lambda m: f"{m.second:02}", "L": lambda m: f"{m.microsecond // 1000:03}",
    "j": lambda m: f"{m.timetuple().tm_yday:03}", "u": lambda m: str(m.isoweekday()), "w": lambda m: str(m.isoweekday() % 7 + 1),
    "U": lambda m: f"{_week(m):02}", "V": lambda m: f"{m.isocalendar().week:02}", "G": lambda m: f"{m.isocalendar().year:04}",
    "b": lambda m: calendar.month_abbr[m.month], "B": lambda m: calendar.month_name[m.month], "%": lambda m: "%",
    "z": lambda m: f"{'-' if _offset(m) < 0 else '+'}{abs(_offset(m)) // 60:02}{abs(_offset(m)) % 60:02}", "Z": lambda m: str(_offset(m)),
}  # fmt: skip


def to_string(date: Any, format: Any = MISSING, timezone: Any = MISSING, onNull: Any = None) -> Any:
    """``$dateToString``."""
    if is_null(date):
        return onNull
    if format is None or timezone is None:
        return None
    if format is MISSING:
        format = "%Y-%m-%dT%H:%M:%S.%L" + ("Z" if timezone is MISSING or timezone in ("UTC", "GMT") else "")
    if not isinstance(format, str):
        raise MongoError(18533, "$dateToString requires that 'format' be a string")
    moment, out, at = _to_moment(date, timezone), "", 0
    while at < len(format):
        if format[at] != "%":
            out, at = out + format[at], at + 1
            continue
        letter = format[at + 1 : at + 2]
        if letter not in _FORMATS:
            code, what = (
                (18535, "Unmatched '%' at end of format string")
                if not letter
                else (18536, f"Invalid format character '%{letter}' in format string")
            )
            raise MongoError(code, what)
        out, at = out + _FORMATS[letter](moment), at + 2
    return out


def from_string(
    dateString: Any, timezone: Any = MISSING, onError: Any = MISSING, onNull: Any = None, **other: Any
) -> Any:
    """``$dateFromString`` without ``format``."""
    if other:
        raise MongoError(9, f"the stand-in's $dateFromString does not know {', '.join(other)}")
    if is_null(dateString):
        return onNull
    try:
        if not isinstance(dateString, str):
            raise MongoError(
                241, f"$dateFromString requires that 'dateString' be a string, found: {type_name(dateString)}"
            )
        return parse_date(dateString, timezone)
    except MongoError as error:
        if error.code != 241 or onError is MISSING:
            raise
        return onError


def to_parts(date: Any, timezone: Any = MISSING, iso8601: Any = False) -> Any:
    """``$dateToParts``."""
    if is_null(date) or timezone is None:
        return None
    m = _to_moment(date, timezone)
    clock = {"hour": m.hour, "minute": m.minute, "second": m.second, "millisecond": m.microsecond // 1000}
    if iso8601:
        iso = m.isocalendar()
        return {"isoWeekYear": iso.year, "isoWeek": iso.week, "isoDayOfWeek": iso.weekday, **clock}
    return {"year": m.year, "month": m.month, "day": m.day, **clock}


def from_parts(timezone: Any = MISSING, **parts: Any) -> Any:
    """``$dateFromParts``; parts beyond their range carry over."""
    if any(is_null(part) for part in parts.values()) or timezone is None:
        return None
    given = {name: int(order.number(part)) for name, part in parts.items()}
    zone = _zone(timezone)
    clock = timedelta(
        hours=given.get("hour", 0), minutes=given.get("minute", 0), seconds=given.get("second", 0), milliseconds=given.get("millisecond", 0)
    )  # fmt: skip
    if "isoWeekYear" in given:
        begin = datetime.fromisocalendar(given["isoWeekYear"], 1, 1).replace(tzinfo=zone)
        return _date(
            begin + timedelta(weeks=given.get("isoWeek", 1) - 1, days=given.get("isoDayOfWeek", 1) - 1) + clock
        )
    if "year" not in given:
        raise MongoError(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present")
    month = given.get("month", 1) - 1
    begin = datetime(given["year"] + month // 12, month % 12 + 1, 1, tzinfo=zone)
    return _date(begin + timedelta(days=given.get("day", 1) - 1) + clock)


def _unit(unit: Any, name: str) -> str:
    if not isinstance(unit, str) or unit not in (*MILLISECONDS, *MONTHS):
        code = 5439013 if not isinstance(unit, str) else 9
        raise MongoError(code, f"{name} parameter 'unit' value parsing failed: unknown time unit value: {unit}")
    return unit


def _months_later(moment: datetime, months: int) -> datetime:
    total = moment.year * 12 + moment.month - 1 + months
    year, month = total // 12, total % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


def _make_shift_operator(sign: int, name: str) -> Callable[..., Any]:
    def run(startDate: Any, unit: Any, amount: Any, timezone: Any = MISSING) -> Any:
        if is_null(startDate) or is_null(unit) or is_null(amount) or timezone is None:
            return None
        unit = _unit(unit, name)
        if not order.is_number(amount) or order.number(amount) != int(order.number(amount)):
            raise MongoError(5166405, f"{name} expects integer amount of time units")
        count = sign * int(order.number(amount))
        if not isinstance(startDate, DatetimeMS | ObjectId | Timestamp):
            raise MongoError(5166403, f"{name} requires startDate to be convertible to a date")
        moment = _to_moment(startDate, timezone)
        if unit in MONTHS:
            return _date(_months_later(moment, count * MONTHS[unit]))
        if unit in ("day", "week"):  # by the calendar: a day of 23 hours is a day
            return _date(
                (moment.replace(tzinfo=None) + timedelta(milliseconds=count * MILLISECONDS[unit])).replace(
                    tzinfo=moment.tzinfo
                )
            )
        return DatetimeMS(int(_date(moment)) + count * MILLISECONDS[unit])

    return run


add, subtract = _make_shift_operator(1, "$dateAdd"), _make_shift_operator(-1, "$dateSubtract")


def _first_of_week(given: Any) -> int:
    name = "sunday" if is_null(given) else str(given).lower()
    found = [i for i, day in enumerate(WEEKDAYS) if name in (day, day[:3])]
    if not found:
        raise MongoError(9, f"parameter 'startOfWeek' value cannot be recognized as a day of a week: {given}")
    return found[0]


def diff(startDate: Any, endDate: Any, unit: Any, timezone: Any = MISSING, startOfWeek: Any = MISSING) -> Any:
    """``$dateDiff``: the boundaries of units between two dates."""
    if is_null(startDate) or is_null(endDate) or is_null(unit) or timezone is None:
        return None
    unit = _unit(unit, "$dateDiff")
    one, other = _to_moment(startDate, timezone), _to_moment(endDate, timezone)
    if unit in MONTHS:
        return Int64(
            (other.year * 12 + other.month - 1) // MONTHS[unit] - (one.year * 12 + one.month - 1) // MONTHS[unit]
        )
    a, b = ((m.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) for m in (one, other))
    shift = (
        (3 - _first_of_week(startOfWeek)) % 7 * MILLISECONDS["day"] if unit == "week" else 0
    )  # the epoch is a Thursday
    return Int64((b + shift) // MILLISECONDS[unit] - (a + shift) // MILLISECONDS[unit])


def trunc(date: Any, unit: Any, binSize: Any = 1, timezone: Any = MISSING, startOfWeek: Any = MISSING) -> Any:
    """``$dateTrunc``: the beginning of the bin that a date is in, bins being counted from 2000-01-01 on."""
    if is_null(date) or is_null(unit) or is_null(binSize) or timezone is None:
        return None
    unit, size = _unit(unit, "$dateTrunc"), int(order.number(binSize))
    if size <= 0:
        raise MongoError(5439018, f"$dateTrunc requires 'binSize' to be greater than 0, but got value {size}")
    moment = _to_moment(date, timezone)
    first = datetime(2000, 1, 1, tzinfo=moment.tzinfo)
    if unit in MONTHS:
        step = size * MONTHS[unit]
        passed = (moment.year - 2000) * 12 + moment.month - 1
        return _date(_months_later(first, passed // step * step))
    if unit == "week":
        first += timedelta(days=(_first_of_week(startOfWeek) - first.weekday()) % 7)
    step_ms = size * MILLISECONDS[unit]
    if unit in ("day", "week"):
        passed = (moment.replace(tzinfo=None) - first.replace(tzinfo=None)) // timedelta(milliseconds=1)
        return _date(first + timedelta(milliseconds=passed // step_ms * step_ms))
    passed = (moment - first) // timedelta(milliseconds=1)
    return _date(first.astimezone(UTC) + timedelta(milliseconds=passed // step_ms * step_ms))


NAMED: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]] = {
    "$dateToString": (to_string, ("date",), ("format", "timezone", "onNull")),
    "$dateFromString": (from_string, ("dateString",), ("timezone", "onError", "onNull", "format")),
    "$dateToParts": (to_parts, ("date",), ("timezone", "iso8601")),
    "$dateFromParts": (
        from_parts, (), ("year", "isoWeekYear", "month", "isoWeek", "day", "isoDayOfWeek", "hour", "minute", "second", "millisecond", "timezone"),
    ),
    "$dateAdd": (add, ("startDate", "unit", "amount"), ("timezone",)),
    "$dateSubtract": (subtract, ("startDate", "unit", "amount"), ("timezone",)),
    "$dateDiff": (diff, ("startDate", "endDate", "unit"), ("timezone", "startOfWeek")),
    "$dateTrunc": (trunc, ("date", "unit"), ("binSize", "timezone", "startOfWeek")),
}  # fmt: skip
"""Operators with named arguments: what computes them, the arguments that they need, and those that they may have."""
