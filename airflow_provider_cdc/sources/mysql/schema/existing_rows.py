"""What a change of a column's definition means for rows that are already there.

The log has no row events for them: either their new values follow from the statement, or the table has to be read again.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from airflow_provider_cdc.core.model.schema import Column
from airflow_provider_cdc.sources.mysql.schema.types import BLOBS, INTEGERS, TEXTS, ColumnType
from airflow_provider_cdc.sources.relational.altered_table import Fill

UNICODE = {"utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "ucs2"}
_TEXT_SIZES = {"char": 0, "varchar": 1, "tinytext": 2, "text": 3, "mediumtext": 4, "longtext": 5}
_BLOB_SIZES = {"varbinary": 1, "tinyblob": 2, "blob": 3, "mediumblob": 4, "longblob": 5}


def existing_rows(column: Column) -> Fill | None:
    """The value that rows which are already there get in a new column; ``None`` when the statement does not say it.

    >>> existing_rows(Column(name="n", type="int32"))
    Fill(value=None)
    """
    d = column.declared
    if d.generated or d.default_is_expression or d.auto_incremented:
        return None
    if d.default is None and column.nullable:
        return Fill(None)
    type_ = ColumnType.of(column)
    text = d.default if d.default is not None else _implicit_default(type_)
    value = None if text is None else _castable(type_, column, text)
    return None if value is None else Fill(value)


def _implicit_default(t: ColumnType) -> str | None:
    """What a NOT NULL column without a default is filled with."""
    if t.base in INTEGERS or t.base in ("decimal", "float", "double", "year"):
        return "0"
    if t.base in TEXTS or t.base == "set":
        return ""
    return t.values[0] if t.base == "enum" else None


def _castable(t: ColumnType, column: Column, text: str) -> str | None:
    """A default as text that casts to the column's change log type; ``None`` where that is not certain."""
    number = re.fullmatch(r"[+-]?\d+(\.\d+)?", text.strip())
    if column.type == "string":
        return text.rstrip(" ") if t.base == "char" else text if t.base in TEXTS | {"enum", "set"} else None
    if t.base in INTEGERS or t.base == "year":
        return str(int(text)) if number and not number[1] else None
    if t.base == "decimal" and number and column.type.startswith("decimal"):
        return str(Decimal(text).quantize(Decimal(1).scaleb(-t.digits[1]), ROUND_HALF_UP))
    if t.base == "double" and number:
        return text
    if t.base == "date" and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", text):
        return text
    if t.base == "datetime" and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]) \d\d:\d\d:\d\d", text):
        return text
    return None


def keeps_values(old: Column, new: Column, *, strict: bool) -> bool:
    """Whether rows that are already there show the same values after a column's definition has changed.

    :param strict: the session refused to bend values, so what does not fit would have failed
    """
    a, z = ColumnType.of(old), ColumnType.of(new)
    if old.declared.generated or new.declared.generated:
        return old == new
    if old.nullable and not new.nullable and not strict:
        return False
    if a == z:
        return True
    if a.base in INTEGERS and z.base in INTEGERS:
        return strict or (INTEGERS[z.base] >= INTEGERS[a.base] and a.unsigned == z.unsigned)
    if a.base == z.base == "decimal":
        return a.digits[1] <= z.digits[1] and (strict or a.digits[0] - a.digits[1] <= z.digits[0] - z.digits[1])
    if a.base in TEXTS and z.base in TEXTS:
        return _keeps_text(a, z, strict)
    if a.base in BLOBS and z.base in BLOBS:
        larger = a.base in _BLOB_SIZES and _BLOB_SIZES.get(z.base, 0) >= _BLOB_SIZES[a.base]
        return larger and (strict or (a.length or 0) <= (z.length or 1 << 32))
    if a.base == z.base in ("enum", "set"):
        return z.values[: len(a.values)] == a.values
    if a.base == z.base in ("time", "datetime", "timestamp"):
        return a.fraction <= z.fraction
    return (a.base, z.base) == ("float", "double")


def _keeps_text(a: ColumnType, z: ColumnType, strict: bool) -> bool:
    same_charset = a.charset == z.charset or z.charset in UNICODE
    if a.base == "char" and z.base != "char":
        same_length = True
    else:
        same_length = z.base != "char" and (_TEXT_SIZES[z.base], z.length or 0) >= (_TEXT_SIZES[a.base], a.length or 0)
        same_length = same_length or (a.base == z.base and (z.length or 0) >= (a.length or 0))
    # into CHAR, spaces at the end are lost even in strict mode
    return same_charset and (same_length or (strict and z.base != "char"))
