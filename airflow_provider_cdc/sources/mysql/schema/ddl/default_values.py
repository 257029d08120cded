"""Values of literals as the default of a column.

That depends on the column's type: ``0x41`` is 65 in an INT and ``A`` in a VARCHAR, ``1.5`` is 2 in an INT, 5 is the
year 2005, and an ENUM's default is written in any case. The result is text that a cast to the column's type
understands. Where MySQL and MariaDB would disagree, or something decides that the text does not say, the literal is
given as an expression, as it stands: its value is the server's to know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Protocol

from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import TEXT_TYPES
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import MySqlColumnDefault
from airflow_provider_cdc.sources.relational.sql_token_cursor import BITS, HEX

WIDE_CHARSETS = frozenset(("ucs2", "utf16", "utf16le", "utf32"))
"""Character sets in which the bytes of an ASCII text are not ASCII."""

_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_NUMBERS = _INTEGERS | {"decimal", "float", "double"}
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_TEXTS = TEXT_TYPES - {"enum", "set"}
_MAX_NUMBER = 100
"""No default of a numeric column is written with more characters, or has more digits."""
_EXACT = Context(prec=4 * _MAX_NUMBER)
"""Python would round to 28 digits, and columns have up to 65."""

_DATE = re.compile(
    r"(\d{4})[-/.:](\d{1,2})[-/.:](\d{1,2})(?:[T ]+(\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d{1,6})?)?", re.ASCII
)
_PRINTED = re.compile(r"-?(?:[1-9]\d*(?:\.\d+)?|0\.\d*[1-9]\d*)|0(?:\.\d+)?", re.ASCII)
"""A number as servers print it: a number in another form, ``007`` or ``-0``, is another text in a column of texts."""
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{1,2}):(\d{1,2})(\.\d{1,6})?", re.ASCII)
_ZERO = {
    "date": "0000-00-00",
    "datetime": "0000-00-00 00:00:00",
    "timestamp": "0000-00-00 00:00:00",
    "time": "00:00:00",
}


@dataclass(frozen=True, slots=True)
class DefaultLiteral:
    """A default as written.

    :param kind: ``null``, ``string``, ``number``, ``bits``, ``hex``; ``expression`` for everything else; ``unknown``
        for a string or a number
    :param text: the string, the number, the digits
    :param source: the source text
    """

    kind: str
    text: str
    source: str


class TypedColumn(Protocol):
    """The known properties of a column; definitions have them, and so have drafts of definitions."""

    @property
    def type(self) -> str: ...
    @property
    def length(self) -> int | None: ...
    @property
    def scale(self) -> int | None: ...
    @property
    def charset(self) -> str | None: ...
    @property
    def values(self) -> tuple[str, ...]: ...


def resolve_untyped_default(literal: DefaultLiteral) -> MySqlColumnDefault:
    """Return the default of a column that nothing is known of.

    Only strings, numbers and NULL have the value that they look like.
    """
    if literal.kind == "null":
        return MySqlColumnDefault(None)
    return (
        MySqlColumnDefault(literal.text)
        if literal.kind in ("string", "number")
        else MySqlColumnDefault(literal.source, True)
    )


def resolve_typed_default(literal: DefaultLiteral, column: TypedColumn) -> MySqlColumnDefault:
    """Return the default of this column."""
    if literal.kind == "null":
        return MySqlColumnDefault(None)
    value = _value(literal, column)
    return MySqlColumnDefault(literal.source, True) if value is None else MySqlColumnDefault(value)


def literal_bytes(kind: str, digits: str) -> bytes:
    """Return the bytes of a bit or hexadecimal literal.

    >>> literal_bytes("hex", "F0F")
    b'\\x0f\\x0f'
    """
    if kind == BITS:
        return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "big")
    return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")


def _value(literal: DefaultLiteral, column: TypedColumn) -> str | None:
    """Text of the value; ``None`` if only the server knows it."""
    kind, text, type_ = literal.kind, literal.text, column.type
    if kind == "expression":
        return None
    if kind in (BITS, HEX):
        data = literal_bytes(kind, text)
        if type_ == "bit":
            return _unsigned(data)
        if type_ in _NUMBERS:
            # x'35' is 53 to MySQL and '5' to MariaDB.
            return None if kind == HEX and not literal.source.startswith("0x") else _unsigned(data)
        if column.charset in WIDE_CHARSETS or not data.isascii():
            return None
        kind, text = "string", data.decode("ascii")
    if type_ == "bit":
        return text if kind == "number" else _unsigned(text.encode()) if text.isascii() else None
    if type_ in _INTEGERS:
        return _rounded(text, 0)
    if type_ == "decimal":
        return _rounded(text, column.scale or 0)
    if type_ == "year":
        return _year(text, kind, column.length)
    if type_ in _ZERO:
        return _temporal(text, type_, column.length or 0)
    if type_ == "enum":
        return _member(text, column.values)
    if type_ == "set":
        return _members(text, column.values)
    if type_ in _TEXTS and kind == "number" and not _PRINTED.fullmatch(text):
        return None
    is_exact = type_ in _TEXTS or type_ in _BYTES or type_ in _NUMBERS or literal.kind not in (BITS, HEX)
    return text if is_exact else None


def _unsigned(data: bytes) -> str | None:
    # Nothing longer fits a column, and Python limits how long a number's text may become.
    return str(int.from_bytes(data, "big")) if len(data) <= 8 else None


def _rounded(text: str, scale: int) -> str | None:
    """Round a number to so many decimal places, as a column does: ``1.5`` is 2, ``007`` is 7, ``.5`` is 0.50."""
    try:
        number = Decimal(text) if len(text) <= _MAX_NUMBER else None
    except InvalidOperation:
        return None
    if number is None or not number.is_finite() or not -_MAX_NUMBER < number.adjusted() < _MAX_NUMBER:
        return None
    shifted = number.scaleb(scale, _EXACT).to_integral_value(ROUND_HALF_UP, _EXACT)
    return str(int(shifted)) if scale == 0 else format(Decimal(int(shifted)).scaleb(-scale, _EXACT), f".{scale}f")


def _year(text: str, kind: str, length: int | None) -> str | None:
    """``5`` is 2005 and ``99`` is 1999. The number 0 is the year 0000, the string is 2000."""
    if not (text.isascii() and text.isdigit()) or length == 2:
        return None
    if len(text) == 4:
        return text
    number = int(text) if len(text) < 4 else 100
    if number > 99 or (number == 0 and kind == "unknown"):
        return None
    if number == 0 and kind == "number":
        return "0000"
    return str(number + (2000 if number < 70 else 1900))


def _temporal(text: str, type_: str, digits: int) -> str | None:
    """Format dates and times in the one form that all databases understand."""
    if text.strip("0") == "" and text:
        return _ZERO[type_]
    if type_ == "time":
        if not (match := _TIME.fullmatch(text)) or not _fits(match[5], digits):
            return None
        sign, hours, minutes, seconds, fraction = match.groups()
        return f"{sign}{int(hours):02}:{int(minutes):02}:{int(seconds):02}{fraction or ''}"
    if not (match := _DATE.fullmatch(text)):
        return None
    year, month, day, hours, minutes, seconds, fraction = match.groups()
    date = f"{year}-{int(month):02}-{int(day):02}"
    if type_ == "date":
        return date
    if not _fits(fraction, digits):
        return None
    return f"{date} {int(hours or 0):02}:{int(minutes or 0):02}:{int(seconds or 0):02}{fraction or ''}"


def _fits(fraction: str | None, digits: int) -> bool:
    """Check whether the server keeps the fraction as it is.

    Further digits are rounded or cut, as ``sql_mode`` has it.
    """
    return fraction is None or len(fraction) - 1 <= digits


def _member(text: str, values: tuple[str, ...]) -> str | None:
    """Return the member of an ENUM as declared.

    Trailing spaces and, in most collations, case do not matter.
    """
    if text in values:
        return text
    folded = text.rstrip(" ").casefold()
    members = [v for v in values if v.rstrip(" ").casefold() == folded]
    return members[0].rstrip(" ") if len(members) == 1 else None


def _members(text: str, values: tuple[str, ...]) -> str | None:
    """Return a SET's value: its members in the order of the declaration, each once."""
    if not text:
        return ""
    parts = [_member(part, values) for part in text.split(",")]
    members = [v for v in values if v in parts or v.rstrip(" ") in parts]
    return None if None in parts else ",".join(members)
