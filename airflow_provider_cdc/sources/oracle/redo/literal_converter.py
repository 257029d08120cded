"""Converts literals to values of a column's type in the change log: the plain-Python twin of ``kernels.convert``."""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

import numpy as np

from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels import literal_scanner as li
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import (
    LiteralKind,
    ParsedLiteral,
    UnreadableRedo,
    decode_unistr,
)
from airflow_provider_cdc.sources.oracle.schema.column_types import number_text

UNAVAILABLE: Final = object()
"""Marks a value that the statement does not have."""

_SINGLE = 3.4028235677973366e38
"""The smallest number that is infinite as a BINARY_FLOAT."""
_EXACT = Context(prec=400, Emin=-999, Emax=999, traps=[InvalidOperation])
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?|[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_MOMENT = re.compile(
    r"\s*([+-]?)(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{0,9}))?)?\s*([+-]\d\d?:\d\d|[A-Za-z][\w/+-]*)?"
)
_FORMAT = re.compile(r"S?YYYY-MM-DD(?: HH24:MI:SS(?:[.X]?FF\d?|\.)?)?(?: ?(?:TZH:TZM|TZR))?")
_YEAR_TO_MONTH = re.compile(r"([+-]?)(\d{1,9})-(\d{1,2})")
_DAY_TO_SECOND = re.compile(r"([+-]?)(\d{1,9}) (\d\d):(\d\d):(\d\d)(?:\.(\d{0,9}))?")
_EPOCH: Final = dt.date(1970, 1, 1)
MONTH_US: Final = 2_629_800_000_000
"""Microseconds of a month, a twelfth of 365.25 days (Debezium's ``MicroDuration``)."""


def read_value(literal: ParsedLiteral | None, how: int, a: int, b: int) -> Any:
    """Return the value as ``int``, ``Decimal``, ``str``, ``bytes``, ``None`` or :data:`UNAVAILABLE`.

    Dates and times are numbers since the epoch, in the unit of the column's type; doubles are decimal text.

    :param how: the column's kind in ``kernels.convert``, with its parameters ``a`` and ``b``
    :raises UnreadableRedo: it is not a value of the column's type
    """
    if literal is None or how == k.NOT_READ or literal.kind in (LiteralKind.LATER, LiteralKind.UNSUPPORTED):
        return UNAVAILABLE
    if literal.kind is LiteralKind.NULL:
        return None
    if how in (k.TEXT, k.BYTES):
        return _text(literal, a == 1) if how == k.TEXT else _bytes(literal, a == 1)
    if literal.kind is LiteralKind.TEXT and literal.text == "":
        return None  # Oracle has no empty strings: '' is NULL
    if how in (k.NUMBER, k.NUMBER_WIDE, k.NUMBER_TEXT):
        number = _number(literal)
        if how == k.NUMBER_TEXT:
            return number_text(number) if b < 0 else f"{_scaled(number, a, b):f}"
        scaled = _scaled(number, a, b)
        return int(scaled) if b == 0 else scaled
    if how == k.FLOAT_TEXT:
        if literal.kind not in (LiteralKind.TEXT, LiteralKind.NUMBER) or not _FLOAT.fullmatch(literal.text):
            raise UnreadableRedo(f"{literal} is not a floating point number")
        return _floating(literal, single=a == 1)
    if how in (k.YEAR_TO_MONTH, k.DAY_TO_SECOND, k.DURATION_TEXT):
        return _duration(literal, how, a)
    return _time(literal, how, a, b)


def _floating(literal: ParsedLiteral, *, single: bool) -> str:
    """Format a BINARY_FLOAT or BINARY_DOUBLE as text; a number that its column cannot hold is an error."""
    text = literal.text.lower()
    number = float(text)
    if not math.isfinite(number):
        damaged = not text.lstrip("+-").startswith(("inf", "nan"))
    else:
        stored = abs(number) if not single else abs(float(np.float32(number))) if abs(number) < _SINGLE else math.inf
        damaged = stored == math.inf or (stored == 0 and any(c in "123456789" for c in text.partition("e")[0]))
    if damaged:
        raise UnreadableRedo(f"{literal} does not fit the column's type")
    return text


# -- texts and bytes --------------------------------------------------------------------------------------------------------------


def _text(literal: ParsedLiteral, lob: bool) -> str | None:
    if literal.kind is LiteralKind.TEXT:
        text = literal.text
    elif literal.kind is LiteralKind.CALL and literal.name == "UNISTR":
        text = decode_unistr(literal.text)
    elif lob and literal.kind is LiteralKind.CALL and literal.name == "EMPTY_CLOB":
        return ""
    else:
        raise UnreadableRedo(f"{literal} is not a text")
    return text if text or lob else None


def _bytes(literal: ParsedLiteral, lob: bool) -> bytes | None:
    if literal.kind is LiteralKind.TEXT and literal.text == "":
        return b"" if lob else None
    if literal.kind is LiteralKind.CALL and literal.name == "EMPTY_BLOB" and lob:
        return b""
    if literal.kind is not LiteralKind.CALL or literal.name != "HEXTORAW":
        raise UnreadableRedo(f"{literal} is not a binary value")
    digits = literal.text
    if not digits:
        return b"" if lob else None
    if re.search(r"[^0-9A-Fa-f]", digits):
        raise UnreadableRedo(f"{literal} is not hexadecimal")
    return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)


# -- numbers ----------------------------------------------------------------------------------------------------------------------


def _number(literal: ParsedLiteral) -> Decimal:
    if literal.kind not in (LiteralKind.TEXT, LiteralKind.NUMBER) or not _NUMBER.fullmatch(literal.text):
        raise UnreadableRedo(f"{literal} is not a number")
    return _EXACT.create_decimal(literal.text)


def _scaled(number: Decimal, digits: int, scale: int) -> Decimal:
    """Return the number with exactly ``scale`` digits after the point."""
    scaled = number.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    if scaled != number:
        raise UnreadableRedo(f"{number} has more than {scale} decimals")
    if scaled.copy_abs() >= Decimal((0, (1,), digits - scale)):
        raise UnreadableRedo(f"{number} has more than {digits} digits")
    return scaled if scaled else scaled.copy_abs()


# -- dates and times --------------------------------------------------------------------------------------------------------------


def _time(literal: ParsedLiteral, how: int, a: int, b: int) -> int | str:
    if literal.kind is not LiteralKind.CALL or literal.name not in ("TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ"):
        raise UnreadableRedo(f"{literal} is not a date or time")
    if literal.format is not None and not _FORMAT.fullmatch(literal.format.upper()):
        raise UnreadableRedo(
            f"{literal} has the format {literal.format!r}, which the session's NLS settings should prevent"
        )
    m = _MOMENT.fullmatch(literal.text)
    if m is None:
        raise UnreadableRedo(
            f"{literal} does not have the format of the session's NLS settings (YYYY-MM-DD HH24:MI:SS)"
        )
    if m[1] == "-" or m[2] == "0000":
        raise UnreadableRedo(f"{literal} is before the year 1, which change log readers cannot represent")
    try:
        day = dt.date(int(m[2]), int(m[3]), int(m[4]))
        clock = dt.time(int(m[5] or 0), int(m[6] or 0), int(m[7] or 0))
    except ValueError as e:
        raise UnreadableRedo(f"{literal} is not a valid date: {e}") from e
    second = (day - _EPOCH).days * 86400 + (clock.hour * 60 + clock.minute) * 60 + clock.second
    nanos = int((m[8] or "").ljust(9, "0"))
    zoned = how in (k.ZONED_TIMESTAMP, k.LOCAL_TIMESTAMP)
    if zoned and m[9] is not None:
        minutes = _minutes(m[9], dt.datetime.combine(day, clock), literal)
    elif how == k.ZONED_TIMESTAMP or m[9] is not None:
        raise UnreadableRedo(f"{literal} has {'a' if m[9] else 'no'} time zone")
    else:
        minutes = 0
    if how == k.ZONED_TIMESTAMP:
        return _zoned(day, clock, nanos, minutes, a, literal)
    if how == k.DATE:
        if nanos:
            raise UnreadableRedo(f"{literal} has decimals, which a DATE does not support")
        return second // 86400 if a == 1 else second * 1_000_000
    return _units(second - minutes * 60, nanos, a, b, literal)


def _units(second: int, nanos: int, digits: int, cut: int, literal: ParsedLiteral) -> int:
    """Microseconds or nanoseconds since the epoch."""
    if digits == 9:
        if not k.FIRST_NANOSECOND <= second <= k.LAST_NANOSECOND:
            raise UnreadableRedo(
                f"{literal} is outside the years 1677 to 2262, which nanoseconds can represent; "
                "time.precision.mode=connect, set together with snapshot.mode=always for one run, captures "
                "microseconds, which cover it"
            )
        return second * 1_000_000_000 + nanos
    if nanos % 1000 and not cut:
        raise UnreadableRedo(f"{literal} has more than 6 decimals")
    return second * 1_000_000 + nanos // 1000


def _minutes(zone: str, at: dt.datetime, literal: ParsedLiteral) -> int:
    """Minutes east of Greenwich of an offset or a region."""
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        value = int(digits[:-2]) * 60 + int(digits[-2:])
        if value >= 16 * 60 or int(digits[-2:]) > 59:
            raise UnreadableRedo(f"{literal} has an invalid offset")
        return -value if zone[0] == "-" else value
    name = _regions().get(zone.lower())
    if name is None:
        raise UnreadableRedo(f"{literal} has an unknown time zone {zone!r}")
    region = zoneinfo.ZoneInfo(name)
    offsets = {at.replace(tzinfo=region, fold=fold).utcoffset() for fold in (0, 1)}
    offset = offsets.pop()
    if offsets or offset is None:
        raise UnreadableRedo(f"{literal} is ambiguous: the clocks of {zone} were set back at that time")
    return int(offset.total_seconds()) // 60


@lru_cache(maxsize=1)
def _regions() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones()}


def _zoned(day: dt.date, clock: dt.time, nanos: int, minutes: int, digits: int, literal: ParsedLiteral) -> str:
    fraction = f"{nanos:09d}"
    if fraction[digits:].strip("0"):
        raise UnreadableRedo(f"{literal} has more than {digits} decimals")
    text = f"{day.isoformat()}T{clock.isoformat()}" + (f".{fraction[:digits]}" if digits else "")
    sign = "-" if minutes < 0 else "+"
    return text + (f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z")


# -- durations --------------------------------------------------------------------------------------------------------------------


def _duration(literal: ParsedLiteral, how: int, a: int) -> int | str:
    """Microseconds, or the literal's own text where the column is a text (see :func:`duration_text`)."""
    months = how == k.YEAR_TO_MONTH or (how == k.DURATION_TEXT and a == li.YEAR_TO_MONTH)
    if literal.kind is not LiteralKind.CALL or literal.name != ("TO_YMINTERVAL" if months else "TO_DSINTERVAL"):
        raise UnreadableRedo(f"{literal} is not an interval of the column's kind")
    sign, *parts = _parts(literal.text, months)
    if how == k.DURATION_TEXT:
        return literal.text
    if months:
        value = (parts[0] * 12 + parts[1]) * MONTH_US
    else:
        days, hours, minutes, seconds, nanos = parts
        value = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // 1000
    if value >= 1 << 63:
        raise UnreadableRedo(
            f"{literal} does not fit 63 bits of microseconds; interval.handling.mode=string has no limit"
        )
    return sign * value


def _parts(text: str, months: bool) -> list[int]:
    """Return the sign (1 or -1), then years and months, or days, hours, minutes, seconds and nanoseconds."""
    m = (_YEAR_TO_MONTH if months else _DAY_TO_SECOND).fullmatch(text)
    if m is None:
        raise UnreadableRedo(f"{text!r} is not an interval")
    sign = -1 if m[1] == "-" else 1
    if months:
        parts = [int(m[2]), int(m[3])]
        limits = [10**9, 11]
    else:
        parts = [int(m[2]), int(m[3]), int(m[4]), int(m[5]), int((m[6] or "").ljust(9, "0"))]
        limits = [10**9, 23, 59, 59, 10**9]
    if any(part > limit for part, limit in zip(parts, limits, strict=True)):
        raise UnreadableRedo(f"{text!r} is not an interval")
    return [sign, *parts]


def duration_text(text: str) -> str:
    """Return an interval's text in the form of ``io.debezium.time.Interval``.

    >>> duration_text("-001 02:03:04.56"), duration_text("+03-06")
    ('P0Y0M-1DT-2H-3M-4.56S', 'P3Y6M0DT0H0M0S')
    """
    if " " not in text:
        sign, years, months = _parts(text, True)
        return f"P{sign * years}Y{sign * months}M0DT0H0M0S"
    sign, days, hours, minutes, seconds, nanos = _parts(text, False)
    fraction = f"{nanos:09d}".rstrip("0")
    shown = f"{seconds}.{fraction}" if fraction else str(seconds)
    minus = "-" if sign < 0 and (seconds or nanos) else ""
    return f"P0Y0M{sign * days}DT{sign * hours}H{sign * minutes}M{minus}{shown}S"


def read_piece(literal: ParsedLiteral) -> str | bytes:
    """Return the characters or bytes of a piece of a long value."""
    if literal.kind is LiteralKind.CALL and literal.name == "HEXTORAW":
        return _bytes(literal, True) or b""
    return _text(literal, True) or ""
