"""Effects of a change of a column's definition on rows that are already there.

The log has no row events for them: either their new values follow from the statement, or the table has to be read again.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL, ColumnType, number_text
from airflow_provider_cdc.sources.relational.alter_table_change import FillValue

_KEPT = {("CHAR", "VARCHAR2"), ("NCHAR", "NVARCHAR2"), ("DATE", "TIMESTAMP")}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")
_INTEGER = re.compile(r"-?\d{1,38}")
_DIGITS = 40
_EXACT = Context(prec=4 * _DIGITS)
"""Python would calculate with 28 digits, and columns have 38."""
"""No NUMBER has more; longer literals are left to the database."""


def existing_rows(column: Column, definition: ddl.ColumnDefinition) -> FillValue | None:
    """Return the value that existing rows have in a new column; ``None`` when the statement does not say it.

    Oracle gives them the default, which it evaluates once; a column that is NOT NULL without a default can be added to an empty
    table only.

    >>> existing_rows(Column(name="N", type="int32"), ddl.ColumnDef("N"))
    Fill(value=None)
    """
    default = definition.default
    if column.type == NULL:
        return FillValue(None)
    if definition.identity:
        return None
    if default is None or default.kind == "null":
        return FillValue(None)
    value = None if default.value is None else _castable(column, default, definition.unit)
    return None if value is None else FillValue(value)


def _castable(column: Column, default: ddl.ColumnDefault, unit: str | None) -> str | None:
    """Return a default as text that casts to the column's type; ``None`` where that is not certain."""
    t, value = ColumnType.from_column(column), default.value or ""
    if t.base in ("CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2"):
        if default.kind == "number" and _INTEGER.fullmatch(value):
            value = str(int(value))
        elif default.kind != "string":
            return None
        return _padded(t, value, unit)
    if t.base in ("NUMBER", "FLOAT", "BINARY_FLOAT", "BINARY_DOUBLE"):
        return _number(t, column.type, value) if default.kind == "number" and len(value) <= _DIGITS else None
    if t.base in ("DATE", "TIMESTAMP"):
        return _moment(t, column.type, default)
    return None


def _padded(t: ColumnType, value: str, unit: str | None) -> str | None:
    """CHAR is filled up with spaces. How many, is clear only where a character is a byte or the length counts characters."""
    if t.base.endswith("VARCHAR2"):
        return value
    if t.length is None or not (value.isascii() or t.base == "NCHAR" or unit == "CHAR"):
        return None
    return value.ljust(t.length)


def _number(t: ColumnType, arrow: str, text: str) -> str | None:
    number = Decimal(text)
    if abs(number.adjusted()) > _DIGITS:
        return None
    if t.base == "FLOAT":
        whole = number == number.to_integral_value() and abs(number) < 2 ** min(t.length or 126, 53)
        number = number if whole else Decimal("NaN")
    elif t.base == "NUMBER" and t.length is not None and t.scale is not None:
        number = number.quantize(Decimal(1).scaleb(-t.scale), ROUND_HALF_UP, _EXACT)
    if number.is_nan():
        return None
    if arrow == "bool":
        return "true" if number else "false"
    if arrow.startswith("decimal") or (arrow == "string" and t.scale is not None and t.scale > 0):
        return format(number.quantize(Decimal(1).scaleb(-max(t.scale or 0, 0)), context=_EXACT), "f")
    return number_text(number)


def _moment(t: ColumnType, arrow: str, default: ddl.ColumnDefault) -> str | None:
    value = default.value or ""
    if default.kind == "date" and _DATE.fullmatch(value):
        value += " 00:00:00"
    match = _MOMENT.fullmatch(value) if default.kind in ("date", "timestamp") else None
    if match is None or (match[3] and (t.base == "DATE" or len(match[3]) > min(t.fraction_digits, 6))):
        return None
    if arrow == "date32[day]":
        return match[1]
    return value if arrow == "timestamp[us]" else None


def keeps_values(old: Column, new: Column, definition: ddl.ColumnDefinition) -> bool:
    """Check whether rows that are already there show the same values after ``MODIFY``.

    Oracle refuses what would bend a value: fewer digits of a NUMBER or of a second need a column without values, a shorter text
    needs values that fit. CHAR is the exception, whose values are filled up with spaces.
    """
    if definition.type is None or definition.virtual:
        return True
    if NULL in (old.type, new.type):
        return old.type == new.type
    a, z = ColumnType.from_column(old), ColumnType.from_column(new)
    if z.base in ("CHAR", "NCHAR"):
        return a == z and definition.unit is None
    if (a.base, z.base) == ("FLOAT", "NUMBER"):
        return z.length is None
    return a.base == z.base or (a.base, z.base) in _KEPT
