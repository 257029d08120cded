"""Types of the change log in Spark's words, and which type takes in the values of another."""

from __future__ import annotations

import re

_SIMPLE = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
    "list<item: float>": "array<float>",
    "struct<wkb: binary, srid: int32>": "struct<wkb:binary,srid:int>",
}
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integers and the decimal digits that they need."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def spark_type(text: str) -> str:
    """Spark's name for a change log type (``Column.type``).

    >>> spark_type("timestamp[us, tz=UTC]")
    'timestamp'
    """
    if text in _SIMPLE:
        return _SIMPLE[text]
    if text.startswith("decimal128("):
        return "decimal" + text.removeprefix("decimal128").replace(" ", "")
    raise ValueError(f"unknown change log type {text!r}")


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of a Spark type has an equal one in another type.

    >>> holds("bigint", "int"), holds("decimal(14,4)", "decimal(10,2)"), holds("int", "string")
    (True, True, False)
    """
    if wide == narrow:
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS[narrow] < _INTEGERS[wide]
    if into := _DECIMAL.fullmatch(wide):
        digits, scale = int(into[1]), int(into[2])
        if narrow in _INTEGERS:
            return digits - scale >= _INTEGERS[narrow]
        if out := _DECIMAL.fullmatch(narrow):
            return scale >= int(out[2]) and digits - scale >= int(out[1]) - int(out[2])
        return False
    return (narrow, wide) in {
        ("float", "double"), ("tinyint", "double"), ("smallint", "double"), ("int", "double"), ("date", "timestamp_ntz"),
    }  # fmt: skip


def common(a: str, b: str) -> str | None:
    """The wider of two types; ``None`` when neither holds the other."""
    return a if holds(a, b) else b if holds(b, a) else None


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """A text as SQL takes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
