"""Converts values in Oracle's internal format to the literals that LogMiner writes for them.

LogMiner shows the internal bytes, as ``HEXTORAW('c102')``, if the row does not match its dictionary. The formats are those that ``DUMP``
shows (Oracle Call Interface Programmer's Guide, "Data Types"). Bytes that the type's format does not allow are an error: they mean that
the column has another type than assumed.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, number_text
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StoredFormats

_CODECS: Final = {
    "AL32UTF8": "utf-8", "US7ASCII": "ascii", "WE8ISO8859P1": "iso8859-1", "WE8ISO8859P9": "iso8859-9",
    "WE8ISO8859P15": "iso8859-15", "WE8MSWIN1252": "cp1252", "WE8PC850": "cp850", "WE8PC858": "cp858", "WE8PC860": "cp860",
    "WE8ROMAN8": "hp-roman8", "WE8EBCDIC37": "cp037", "WE8EBCDIC500": "cp500", "WE8EBCDIC1047": "cp1047",
    "WE8EBCDIC1140": "cp1140", "EE8ISO8859P2": "iso8859-2", "EE8MSWIN1250": "cp1250", "CL8MSWIN1251": "cp1251",
    "CL8ISO8859P5": "iso8859-5", "EL8ISO8859P7": "iso8859-7", "EL8MSWIN1253": "cp1253", "TR8MSWIN1254": "cp1254",
    "AL16UTF16": "utf-16-be",
}  # fmt: skip
"""Oracle character set → Python codec."""
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_MIDDLE: Final = 1 << 31
"""Bias of the four-byte parts of an interval; that of the one-byte parts is 60."""
_REGION = 0x80
_NATIONAL = ("NCHAR", "NVARCHAR2")


def stored_literal(data: bytes, type_: ColumnType, formats: StoredFormats) -> str:
    """Return the literal of a value that is not NULL, as LogMiner writes it.

    >>> stored_literal(bytes.fromhex("c102"), ColumnType.parse("NUMBER(9)"), StoredFormats())
    "'1'"

    :param formats: character sets and time zone of the database
    :raises UnreadableRedo: it is not a value of the type, or the type's format is not known
    """
    if type_.base in ("CHAR", "VARCHAR2", *_NATIONAL):
        return _text(data, type_, formats)
    if type_.base == "TIMESTAMP WITH LOCAL TIME ZONE":
        return _local(data, type_.fraction_digits, _minutes(formats.zone))
    read = _READERS.get(type_.base)
    if read is None:
        raise UnreadableRedo(f"the internal format of {type_.ddl_expression} is unknown")
    return read(data, type_)


def _text(data: bytes, type_: ColumnType, formats: StoredFormats) -> str:
    text = decode_text(data, formats.national if type_.base in _NATIONAL else formats.characters)
    if type_.length is not None and len(text) > type_.length:
        raise UnreadableRedo(f"a text of {len(text)} characters does not fit {type_.ddl_expression}")
    return "'" + text.replace("'", "''") + "'"


def is_known_format(type_: ColumnType) -> bool:
    """Check whether the internal format of a type is known."""
    return type_.base in _READERS or type_.base in ("CHAR", "VARCHAR2", *_NATIONAL, "TIMESTAMP WITH LOCAL TIME ZONE")


def decode_text(data: bytes, characters: str) -> str:
    """Text in one of Oracle's character sets.

    :param characters: name of the character set, as ``NLS_CHARACTERSET`` has it
    :raises UnreadableRedo: it is not text in this character set, or the character set is not known
    """
    try:
        if characters == "UTF8":  # CESU-8: characters beyond the first 65,536 are pairs of three bytes each
            return data.decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        codec = _CODECS.get(characters)
        if codec is None:
            raise UnreadableRedo(
                f"texts in the character set {characters} cannot be decoded from their internal format"
            )
        return data.decode(codec)
    except UnicodeDecodeError as e:
        raise UnreadableRedo(f"{data[:20].hex()} is not a text in {characters}") from e


# -- numbers ------------------------------------------------------------------------------------------------------------------------


def decode_number(data: bytes) -> Decimal:
    """Decode a NUMBER.

    It is a base-100 exponent and up to 20 base-100 digits, in a form whose bytes sort like the numbers.

    >>> decode_number(bytes.fromhex("c20349")), decode_number(bytes.fromhex("3e6466"))
    (Decimal('272'), Decimal('-1'))
    """
    if data == b"\x80":
        return Decimal(0)
    if not 2 <= len(data) <= 21:
        raise UnreadableRedo(f"{data[:22].hex()} is not a NUMBER")
    positive = data[0] >= 0x80
    rest = data[1:]
    if not positive:
        if rest[-1] == 102:
            rest = rest[:-1]
        elif len(rest) < 20:
            raise UnreadableRedo(f"{data.hex()} is not a NUMBER: a negative number ends with 66")
    digits = [byte - 1 if positive else 101 - byte for byte in rest]
    if not digits or not all(0 <= digit <= 99 for digit in digits) or not digits[0]:
        raise UnreadableRedo(f"{data.hex()} is not a NUMBER")
    exponent = (data[0] - 193 if positive else 62 - data[0]) - len(digits) + 1
    figures = tuple(int(figure) for digit in digits for figure in f"{digit:02d}")
    return Decimal((0 if positive else 1, figures, 2 * exponent))


def _number(data: bytes, type_: ColumnType) -> str:
    value = decode_number(data)
    if type_.base == "NUMBER" and type_.length is not None and type_.scale is not None:
        unit, bound = Decimal((0, (1,), -type_.scale)), Decimal((0, (1,), type_.length - type_.scale))
        if value.copy_abs() >= bound or value % unit:
            raise UnreadableRedo(f"{number_text(value)} does not fit {type_.ddl_expression}")
    return f"'{number_text(value)}'"


def _float(data: bytes, type_: ColumnType) -> str:
    """IEEE 754 with the sign bit inverted; in a negative number all bits are inverted."""
    single = type_.base == "BINARY_FLOAT"
    if len(data) != (4 if single else 8):
        raise UnreadableRedo(f"{data[:20].hex()} is not a {type_.base}")
    raw = bytes((data[0] & 0x7F, *data[1:])) if data[0] & 0x80 else bytes(byte ^ 0xFF for byte in data)
    value: float = struct.unpack(">f" if single else ">d", raw)[0]
    if math.isnan(value):
        return "'Nan'"
    if math.isinf(value):
        return "'Inf'" if value > 0 else "'-Inf'"
    return f"'{value:.{8 if single else 16}E}'"


# -- dates and times ----------------------------------------------------------------------------------------------------------------


def _moment(data: bytes) -> tuple[int, int, int, int, int, int]:
    """Year, month, day, hour, minute and second, from the first seven bytes."""
    year = (data[0] - 100) * 100 + data[1] - 100
    month, day, hour, minute, second = data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1
    signs = (data[0] - 100 >= 0) == (data[1] - 100 >= 0) or data[1] == 100 or data[0] == 100
    in_range = 1 <= month <= 12 and 1 <= day <= 31 and 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59
    if not (in_range and signs and -4712 <= year <= 9999 and abs(data[1] - 100) <= 99):
        raise UnreadableRedo(f"{data.hex()} is not a date")
    return year, month, day, hour, minute, second


def _shown(year: int, month: int, day: int, hour: int, minute: int, second: int) -> str:
    return f"{'-' if year < 0 else ' '}{abs(year):04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"


def _date(data: bytes, type_: ColumnType) -> str:
    if len(data) != 7:
        raise UnreadableRedo(f"{data[:20].hex()} is not a DATE")
    return f"TO_DATE('{_shown(*_moment(data))}', 'SYYYY-MM-DD HH24:MI:SS')"


def _nanos(data: bytes, digits: int) -> int:
    nanos = int.from_bytes(data[7:11], "big")
    if nanos >= 10**9 or nanos % 10 ** (9 - digits):
        raise UnreadableRedo(f"{data.hex()} is not a time with {digits} decimals")
    return nanos


def _timestamp(data: bytes, type_: ColumnType) -> str:
    if len(data) not in (7, 11):
        raise UnreadableRedo(f"{data[:20].hex()} is not a TIMESTAMP")
    return f"TO_TIMESTAMP('{_shown(*_moment(data))}.{_nanos(data, type_.fraction_digits):09d}')"


def _shifted(data: bytes, minutes: int) -> str:
    """Return the moment ``minutes`` later, as text."""
    parts = _moment(data)
    if parts[0] < 1:
        raise UnreadableRedo(
            f"{_shown(*parts).strip()} is before the year 1, which change log readers cannot represent"
        )
    try:
        at = dt.datetime(*parts) + dt.timedelta(minutes=minutes)
    except (ValueError, OverflowError) as e:
        raise UnreadableRedo(f"{data.hex()} is not a valid date: {e}") from e
    return _shown(at.year, at.month, at.day, at.hour, at.minute, at.second)


def _zoned(data: bytes, type_: ColumnType) -> str:
    """Decode a moment in UTC, followed by the zone: 20 + hours and 60 + minutes, or the number of a region."""
    if len(data) != 13:
        raise UnreadableRedo(f"{data[:20].hex()} is not a TIMESTAMP WITH TIME ZONE")
    if data[11] & _REGION:
        raise UnreadableRedo("the time zone is a region number, which only the server's time zone file can resolve")
    minutes = (data[11] - 20) * 60 + data[12] - 60
    if abs(data[11] - 20) > 15 or abs(data[12] - 60) > 59:
        raise UnreadableRedo(f"{data.hex()} has an invalid time zone")
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return f"TO_TIMESTAMP_TZ('{_shifted(data, minutes)}.{_nanos(data, type_.fraction_digits):09d} {zone}')"


def _local(data: bytes, digits: int, minutes: int) -> str:
    """Decode a moment in the database's time zone (``minutes`` east of UTC).

    The text is in UTC, the session's time zone.
    """
    if len(data) not in (7, 11):
        raise UnreadableRedo(f"{data[:20].hex()} is not a TIMESTAMP WITH LOCAL TIME ZONE")
    return f"TO_TIMESTAMP_TZ('{_shifted(data, -minutes)}.{_nanos(data, digits):09d} +00:00')"


def _minutes(zone: str) -> int:
    match = _OFFSET.fullmatch(zone.strip())
    if match is None:
        raise UnreadableRedo(f"the database's time zone {zone!r} is a region: its offset at that time is not certain")
    value = int(match[2]) * 60 + int(match[3])
    return -value if match[1] == "-" else value


def _year_to_month(data: bytes, type_: ColumnType) -> str:
    if len(data) != 5:
        raise UnreadableRedo(f"{data[:20].hex()} is not an INTERVAL YEAR TO MONTH")
    years, months = int.from_bytes(data[:4], "big") - _MIDDLE, data[4] - 60
    if abs(years) >= 10**9 or abs(months) > 11 or years * months < 0:
        raise UnreadableRedo(f"{data.hex()} is not an INTERVAL YEAR TO MONTH")
    return f"TO_YMINTERVAL('{_sign(years, months)}{abs(years):02d}-{abs(months):02d}')"


def _day_to_second(data: bytes, type_: ColumnType) -> str:
    if len(data) != 11:
        raise UnreadableRedo(f"{data[:20].hex()} is not an INTERVAL DAY TO SECOND")
    days, nanos = int.from_bytes(data[:4], "big") - _MIDDLE, int.from_bytes(data[7:], "big") - _MIDDLE
    hours, minutes, seconds = (byte - 60 for byte in data[4:7])
    parts = (days, hours, minutes, seconds, nanos)
    limits = (10**9, 24, 60, 60, 10**9)
    if any(abs(part) >= limit for part, limit in zip(parts, limits, strict=True)) or min(parts) < 0 < max(parts):
        raise UnreadableRedo(f"{data.hex()} is not an INTERVAL DAY TO SECOND")
    if abs(nanos) % 10 ** (9 - type_.fraction_digits):
        raise UnreadableRedo(f"{data.hex()} has more than {type_.fraction_digits} decimals")
    clock = f"{abs(hours):02d}:{abs(minutes):02d}:{abs(seconds):02d}.{abs(nanos):09d}"
    return f"TO_DSINTERVAL('{_sign(*parts)}{abs(days):03d} {clock}')"


def _sign(*parts: int) -> str:
    return "-" if min(parts) < 0 else "+"


# -- the rest -----------------------------------------------------------------------------------------------------------------------


def _raw(data: bytes, type_: ColumnType) -> str:
    if type_.length is not None and len(data) > type_.length:
        raise UnreadableRedo(f"{len(data)} bytes do not fit {type_.ddl_expression}")
    return f"HEXTORAW('{data.hex()}')"


def _row_id(data: bytes, type_: ColumnType) -> str:
    """Decode a ROWID: data object (32 bits), file (10) with block (22), and row (16)."""
    if len(data) != 10:
        raise UnreadableRedo(f"{data[:20].hex()} is not an extended ROWID")
    file, block = data[4] << 2 | data[5] >> 6, int.from_bytes(data[4:8], "big") & 0x3FFFFF
    parts = ((int.from_bytes(data[:4], "big"), 6), (file, 3), (block, 6), (int.from_bytes(data[8:], "big"), 3))
    return "'" + "".join(_digits(value, width) for value, width in parts) + "'"


def _digits(value: int, width: int) -> str:
    """Return a number in base 64, as in a ROWID."""
    bits = value << (24 - 6 * width % 24) % 24
    size = -(-width // 4) * 3
    return base64.b64encode(bits.to_bytes(size, "big")).decode()[:width]


_READERS: Final[dict[str, Callable[[bytes, ColumnType], str]]] = {
    "NUMBER": _number, "FLOAT": _number, "BINARY_FLOAT": _float, "BINARY_DOUBLE": _float, "DATE": _date,
    "TIMESTAMP": _timestamp, "TIMESTAMP WITH TIME ZONE": _zoned, "INTERVAL YEAR TO MONTH": _year_to_month,
    "INTERVAL DAY TO SECOND": _day_to_second, "RAW": _raw, "ROWID": _row_id,
}  # fmt: skip
