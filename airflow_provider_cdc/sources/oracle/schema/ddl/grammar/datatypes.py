"""The type of a column."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.oracle.schema.types import ColumnType
from airflow_provider_cdc.sources.relational.tokens import QUOTED, WORD

_SIMPLE = frozenset((
    "INTEGER", "INT", "SMALLINT", "REAL", "DATE", "BINARY_FLOAT", "BINARY_DOUBLE", "CLOB", "NCLOB", "BLOB", "BFILE", "ROWID",
    "XMLTYPE", "BOOLEAN", "BOOL", "ANYDATA", "ANYTYPE", "ANYDATASET", "URITYPE", "SDO_GEOMETRY",
))  # fmt: skip
_NUMBERS = frozenset(("NUMBER", "DECIMAL", "DEC", "NUMERIC"))
_TEXTS = {
    "CHAR": "CHAR",
    "CHARACTER": "CHAR",
    "VARCHAR2": "VARCHAR2",
    "VARCHAR": "VARCHAR2",
    "NVARCHAR2": "NVARCHAR2",
    "NCHAR": "NCHAR",
}
_SYSTEM_SCHEMAS = frozenset(("SYS", "PUBLIC", "MDSYS"))


class TypeText(NamedTuple):
    """A type that was read; ``built_in`` and ``unit`` as in :class:`.ColumnDef`."""

    type: ColumnType
    built_in: bool = True
    unit: str | None = None


def read_type(cursor: Cursor) -> TypeText:
    """The type at the cursor.

    :raises NotUnderstood: something else stands there
    """
    token = cursor.token
    key = token.key
    if key in _NUMBERS:
        return _number(cursor)
    if key in _TEXTS or key == "NATIONAL":
        return _text(cursor)
    if key in ("TIMESTAMP", "INTERVAL", "DOUBLE", "LONG"):
        return _words(cursor)
    if key in ("FLOAT", "RAW", "UROWID", "JSON", "VECTOR"):
        return _sized(cursor)
    if key in _SIMPLE:
        cursor.take()
        return TypeText(_parsed({"BOOL": "BOOLEAN"}.get(key, key)))
    if token.kind not in (WORD, QUOTED):
        cursor.fail("a type expected")
    return _users(cursor)


def _parsed(text: str) -> ColumnType:
    return ColumnType.parse(text)


def _number(cursor: Cursor) -> TypeText:
    word = cursor.take().key
    if not cursor.accept("("):
        return TypeText(_parsed(word))
    digits = "*" if cursor.accept("*") else str(cursor.integer())
    scale = ""
    if cursor.accept(","):
        scale = "," + ("-" if cursor.accept("-") else "") + str(cursor.integer())
    cursor.expect(")")
    return TypeText(_parsed(f"{word}({digits}{scale})"))


def _text(cursor: Cursor) -> TypeText:
    national = cursor.accept("NATIONAL")
    if national and cursor.key not in ("CHAR", "CHARACTER"):
        cursor.fail("CHARACTER expected")
    word = _TEXTS[cursor.take().key]
    if national:
        word = "NCHAR"
    if cursor.accept("VARYING"):
        word = {"CHAR": "VARCHAR2", "NCHAR": "NVARCHAR2"}.get(word) or cursor.fail("no type has this name")
    unit: str | None = None
    if cursor.accept("("):
        length = cursor.integer()
        unit = cursor.accept_any("BYTE", "CHAR") or None
        cursor.expect(")")
        return TypeText(_parsed(f"{word}({length})"), unit=unit)
    if word not in ("CHAR", "NCHAR"):
        cursor.fail("a length expected")
    return TypeText(_parsed(word))


def _sized(cursor: Cursor) -> TypeText:
    word = cursor.take().key
    if word in ("JSON", "VECTOR"):  # JSON (OBJECT), VECTOR(3, FLOAT32): nothing of it is captured
        if cursor.key == "(":
            cursor.skip_group()
        return TypeText(ColumnType(word))
    if cursor.accept("("):
        length = cursor.integer()
        cursor.expect(")")
        return TypeText(_parsed(f"{word}({length})"))
    if word == "RAW":
        cursor.fail("a length expected")
    return TypeText(_parsed(word))


def _words(cursor: Cursor) -> TypeText:
    """Types whose names have more than one word."""
    match cursor.take().key:
        case "DOUBLE":
            cursor.expect("PRECISION")
            return TypeText(_parsed("DOUBLE PRECISION"))
        case "LONG":
            if cursor.accept("RAW"):
                return TypeText(ColumnType("LONG RAW"))
            cursor.accept("VARCHAR")
            return TypeText(ColumnType("LONG"))
        case "TIMESTAMP":
            fraction = _precision(cursor, 6)
            if not cursor.accept("WITH"):
                return TypeText(_parsed(f"TIMESTAMP({fraction})"))
            local = "LOCAL " if cursor.accept("LOCAL") else ""
            cursor.expect("TIME", "ZONE")
            return TypeText(_parsed(f"TIMESTAMP({fraction}) WITH {local}TIME ZONE"))
        case _:
            return _interval(cursor)


def _interval(cursor: Cursor) -> TypeText:
    if cursor.accept("YEAR"):
        years = _precision(cursor, 2)
        cursor.expect("TO", "MONTH")
        return TypeText(_parsed(f"INTERVAL YEAR({years}) TO MONTH"))
    cursor.expect("DAY")
    days = _precision(cursor, 2)
    cursor.expect("TO", "SECOND")
    return TypeText(_parsed(f"INTERVAL DAY({days}) TO SECOND({_precision(cursor, 6)})"))


def _precision(cursor: Cursor, otherwise: int) -> int:
    if not cursor.accept("("):
        return otherwise
    found = cursor.integer()
    if found > 9:
        cursor.fail("at most nine digits expected")
    cursor.expect(")")
    return found


def _users(cursor: Cursor) -> TypeText:
    """A type with a schema, or one that a user has made; a domain looks the same."""
    cursor.accept("REF")
    name = cursor.object_name()
    if name.namespace in _SYSTEM_SCHEMAS and name.name in _SIMPLE:
        return TypeText(_parsed(name.name))
    return TypeText(ColumnType(str(name)), built_in=False)
