"""Effects of a change of a column's definition on rows that are already there.

The log has no row events for them: either their new values follow from the statement, or the table has to be read again.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.mysql.schema.column_types import (
    BLOBS,
    INTEGERS,
    MAX_DECIMAL_DIGITS,
    TEXTS,
    MySqlColumnType,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import BYTES_PER_CHARACTER
from airflow_provider_cdc.sources.relational.alter_table_change import FillValue

UNICODE = {"utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "ucs2"}
_COUNTED = {"char", "varchar"}
"""Texts whose length is in characters."""
_TEXT_BYTES = {"tinytext": 255, "text": 65_535, "mediumtext": (1 << 24) - 1, "longtext": (1 << 32) - 1}
_BLOB_BYTES = {"tinyblob": 255, "blob": 65_535, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1}
_LEAST_BYTES = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""Fewest bytes that a character takes; 1 in all other character sets."""


def existing_rows(column: Column) -> FillValue | None:
    """Return the value that existing rows get in a new column; ``None`` when the statement does not say it.

    >>> existing_rows(Column(name="n", type="int32"))
    Fill(value=None)
    """
    d = column.declared
    if d.generated or d.default_is_expression or d.auto_incremented:
        return None
    if d.default is None and column.nullable:
        return FillValue(None)
    type_ = MySqlColumnType.from_column(column)
    text = d.default if d.default is not None else _implicit_default(type_)
    value = None if text is None else _castable(type_, column, text)
    return None if value is None else FillValue(value)


def _implicit_default(t: MySqlColumnType) -> str | None:
    """Return the value that a NOT NULL column without a default is filled with."""
    if t.base in INTEGERS or t.base in ("bit", "decimal", "float", "double", "year"):
        return "0"
    if t.base in TEXTS or t.base == "set":
        return ""
    return t.values[0] if t.base == "enum" else None


def _castable(t: MySqlColumnType, column: Column, text: str) -> str | None:
    """Return a default as text that casts to the column's change log type; ``None`` where that is not certain."""
    number = re.fullmatch(r"[+-]?\d+(\.\d+)?", text.strip())
    if column.type == "string":
        if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text, re.I) and (t.charset in _LEAST_BYTES or "e" in text.lower()):
            return None  # perhaps a number: servers do not write it as it was written
        return text.rstrip(" ") if t.base == "char" else text if t.base in TEXTS | {"enum", "set"} else None
    if column.type == "bool":  # by a converter: any number but 0 is true
        return str(int(int(text) != 0)) if number and not number[1] else None
    if t.base in INTEGERS or t.base == "year":
        return str(int(text)) if number and not number[1] else None
    if t.base == "decimal" and number and column.type.startswith("decimal"):
        return str(
            Decimal(text).quantize(
                Decimal(1).scaleb(-t.precision_and_scale[1]),
                ROUND_HALF_UP,
                Context(prec=MAX_DECIMAL_DIGITS + t.precision_and_scale[1]),
            )
        )
    if t.base == "double" and number and (t.scale is None or _rounded(float(text), t.scale) == float(text)):
        return text.strip()
    if t.base == "date" and _in_calendar(text):
        return text
    if t.base == "datetime" and re.fullmatch(r".{10} \d\d:\d\d:\d\d", text) and _in_calendar(text[:10]):
        return text
    return None


def _in_calendar(date: str) -> bool:
    """Check whether a date is written as 2024-02-29, and is one: events have no other."""
    try:
        return dt.date.fromisoformat(date).isoformat() == date
    except ValueError:
        return False


def _rounded(number: float, scale: int) -> float:
    """Round a number as a server stores it in ``DOUBLE(…, scale)``: it rounds the fraction alone.

    >>> _rounded(1.239, 4)
    1.2389999999999999
    """
    whole = math.floor(number)
    return whole + round((number - whole) * 10.0**scale) / 10.0**scale


def keeps_values(old: Column, new: Column, *, strict: bool, numbers_zeros: bool = True) -> bool:
    """Check whether rows that are already there show the same values after a column's definition has changed.

    :param strict: the session refused to bend values, so a value that does not fit would have failed
    :param numbers_zeros: a zero in a column that becomes AUTO_INCREMENT gets the next number
    """
    a, z = _named_alike(old), _named_alike(new)
    if old.declared.generated or new.declared.generated:
        return False  # another expression may be behind the same words
    if new.declared.auto_incremented and not old.declared.auto_incremented and (numbers_zeros or old.nullable):
        return False
    if old.nullable and not new.nullable and not strict:
        return False
    if old.nullable != new.nullable and a.base in _DATES:
        return False  # a date that the calendar does not have is null, or 1970-01-01 where there is no null
    if old.type != new.type and not _widens(old.type, new.type):
        return False
    if a.base in INTEGERS and z.base in INTEGERS:
        return strict or _range(z)[0] <= _range(a)[0] <= _range(a)[1] <= _range(z)[1]
    if a.base in TEXTS and z.base in TEXTS:
        return _keeps_text(a, z, strict)
    if a.base in BLOBS and z.base in BLOBS:
        return a == z or (z.base != "binary" and (strict or _bytes(a) <= _bytes(z)))
    same: dict[str, Callable[[], bool]] = {
        "decimal": lambda: _keeps_decimal(a, z, strict, text=new.type == "string"),
        "float": lambda: _keeps_float(a, z, strict),
        "double": lambda: _keeps_float(a, z, strict),
        "enum": lambda: _keeps_members(a, z, strict) and set(a.values) <= set(z.values),
        "set": lambda: _keeps_members(a, z, strict) and _in_order(a.values, z.values),
        "bit": lambda: _bit_bytes(a) == _bit_bytes(z) and (strict or (a.length or 1) <= (z.length or 1)),
        "year": lambda: True,
        "time": lambda: a.fraction_digits <= z.fraction_digits,
        "datetime": lambda: a.fraction_digits <= z.fraction_digits,
        "timestamp": lambda: a.fraction_digits <= z.fraction_digits,
    }
    if a.base == z.base:
        return same.get(a.base, lambda: a == z)()
    # FLOAT(7,2) shows 1.1 where a double has 1.10000002384; a DOUBLE(12,4) is rounded to 1.1
    return (a.base, z.base) == ("float", "double") and z.scale is None and (strict or a.unsigned or not z.unsigned)


_DATES = {"date", "datetime", "timestamp"}
_WHOLE_UNICODE = {"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"}
_UTF8 = {"utf8", "utf8mb3", "utf8mb4"}
_NOT_ASCII = {"swe7"}
"""Character sets that lack characters of ASCII."""
_LOSSY = {"cp932"}
"""Character sets into which a strict server, too, converts a character as another one."""


def _widens(old: str, new: str) -> bool:
    """Check whether a value cast to another change log type is the value that a source gives in that type."""
    numbers = ("int", "decimal128")
    return (old.startswith(numbers) and new.startswith(numbers)) or (old, new) == ("float", "double")


def _range(t: MySqlColumnType) -> tuple[int, int]:
    bits = 8 * INTEGERS[t.base]
    return (0, (1 << bits) - 1) if t.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _keeps_decimal(a: MySqlColumnType, z: MySqlColumnType, strict: bool, *, text: bool) -> bool:
    """:param text: values are texts, with as many digits as the scale has"""
    if a.precision_and_scale[1] > z.precision_and_scale[1] or (
        text and a.precision_and_scale[1] != z.precision_and_scale[1]
    ):
        return False
    fits = a.precision_and_scale[0] - a.precision_and_scale[1] <= z.precision_and_scale[0] - z.precision_and_scale[
        1
    ] and (a.unsigned or not z.unsigned)
    return strict or fits


def _keeps_float(a: MySqlColumnType, z: MySqlColumnType, strict: bool) -> bool:
    """Servers round and clip stored values to other digits, not always."""
    same_digits = z.scale is None or (a.length, a.scale, a.unsigned) == (z.length, z.scale, z.unsigned)
    return same_digits and (strict or a.unsigned or not z.unsigned)


def _keeps_members(a: MySqlColumnType, z: MySqlColumnType, strict: bool) -> bool:
    """Check whether each value becomes the member that it was.

    Of members that a collation takes for equal, it becomes the first.
    """
    return (strict and z.values[: len(a.values)] == a.values) or _distinct(z.values)


def _distinct(members: tuple[str, ...]) -> bool:
    """Check whether members differ in every collation, as far as case and accents matter."""
    letters = ["".join(c for c in unicodedata.normalize("NFKD", m.casefold()) if not unicodedata.combining(c)) for m in members]  # fmt: skip
    return len(set(letters)) == len(letters)


def _bit_bytes(t: MySqlColumnType) -> int:
    """Bytes of a value; 0 for a single bit, which is a boolean."""
    return 0 if (t.length or 1) == 1 else ((t.length or 1) + 7) // 8


def expressions_see_no_change(old: Column, new: Column) -> bool:
    """Check whether every expression over the column gives the same result for the same values.

    Of a text it is not known: its collation may be another one.
    """
    a, z = MySqlColumnType.from_column(old), MySqlColumnType.from_column(new)
    if a.zerofill or z.zerofill or a.base in TEXTS | {"enum", "set"}:
        return False
    if a.base in INTEGERS and z.base in INTEGERS:
        return a.unsigned == z.unsigned and INTEGERS[a.base] <= INTEGERS[z.base]
    return a == z


def _in_order(a: tuple[str, ...], z: tuple[str, ...]) -> bool:
    rest = iter(z)
    return all(member in rest for member in a)


def _keeps_text(a: MySqlColumnType, z: MySqlColumnType, strict: bool) -> bool:
    """Into a shorter type, a strict server, too, cuts spaces off; into CHAR, any spaces at the end are lost."""
    return _has_characters(a, z, strict) and (a.base == "char" or z.base != "char") and _fits(a, z)


def _has_characters(a: MySqlColumnType, z: MySqlColumnType, strict: bool) -> bool:
    if a.charset == z.charset or z.charset in _WHOLE_UNICODE:
        return True
    if None in (a.charset, z.charset) or z.charset in _LOSSY:
        return False
    basic = z.charset in UNICODE and a.charset not in _WHOLE_UNICODE
    return strict or basic or (a.charset == "ascii" and z.charset not in _NOT_ASCII)


def keeps_members_converted(t: MySqlColumnType, charset: str | None) -> bool:
    """Check whether values of an ENUM or SET stay the same when their table gets another character set.

    Servers keep the bytes of members, which are other characters then. A value becomes empty or these characters, or is refused: which of
    it, does not depend on the session alone.

    >>> keeps_members_converted(MySqlColumnType("enum", charset="latin1", values=("a", "é")), "utf8mb4")
    False
    """
    if t.charset == charset:
        return True
    if {t.charset, charset} & (_LEAST_BYTES.keys() | _NOT_ASCII):
        return False
    members = "".join(t.values)
    # MariaDB's catalog shows characters beyond U+FFFF as question marks
    basic = max(members, default="") < "\U00010000" and "?" not in members
    return basic if {t.charset, charset} <= _UTF8 else members.isascii()


def _fits(a: MySqlColumnType, z: MySqlColumnType) -> bool:
    """Check whether the longest text of one type fits into the other."""
    characters = a.length if a.base in _COUNTED else _TEXT_BYTES[a.base] // _LEAST_BYTES.get(a.charset or "", 1)
    if z.base in _COUNTED:
        return (characters or 1) <= (z.length or 1)
    if a.base not in _COUNTED and (a.charset == z.charset or _same_bytes(a.charset, z.charset)):
        return _TEXT_BYTES[a.base] <= _TEXT_BYTES[z.base]
    return (characters or 1) * BYTES_PER_CHARACTER.get(z.charset or "", 4) <= _TEXT_BYTES[z.base]


def _same_bytes(a: str | None, z: str | None) -> bool:
    """Check whether each character of one character set has the same bytes in the other."""
    return (a, z) == ("utf8mb3", "utf8mb4") or (a == "ascii" and z not in _NOT_ASCII and z not in _LEAST_BYTES)


def _named_alike(column: Column) -> MySqlColumnType:
    """Return the column's type; ``utf8`` has been the name of ``utf8mb3`` for most of its life."""
    type_ = MySqlColumnType.from_column(column)
    return replace(type_, charset="utf8mb3") if type_.charset == "utf8" else type_


def _bytes(t: MySqlColumnType) -> int:
    return _BLOB_BYTES.get(t.base) or t.length or 1
