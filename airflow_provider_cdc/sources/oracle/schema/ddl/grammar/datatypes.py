"""The type of a column."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.relational.sql_token_cursor import QUOTED, WORD

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


class ParsedType(NamedTuple):
    """A type that was read; ``built_in`` and ``unit`` as in :class:`.ColumnDef`."""

    type: ColumnType
    built_in: bool = True
    unit: str | None = None


def read_type(cursor: DdlCursor) -> ParsedType:
    """Parse the type at the cursor.

    :raises StatementNotUnderstood: something else stands there
    """
    token = cursor.next_token
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
        cursor.consume_token()
        return ParsedType(_parsed({"BOOL": "BOOLEAN"}.get(key, key)))
    if token.kind not in (WORD, QUOTED):
        cursor.fail("a type expected")
    return _users(cursor)


def _parsed(text: str) -> ColumnType:
    return ColumnType.parse(text)


def _number(cursor: DdlCursor) -> ParsedType:
    word = cursor.consume_token().key
    if not cursor.accept("("):
        return ParsedType(_parsed(word))
    digits = "*" if cursor.accept("*") else str(cursor.parse_integer())
    scale = ""
    if cursor.accept(","):
        scale = "," + ("-" if cursor.accept("-") else "") + str(cursor.parse_integer())
    cursor.expect(")")
    return ParsedType(_parsed(f"{word}({digits}{scale})"))


def _text(cursor: DdlCursor) -> ParsedType:
    national = cursor.accept("NATIONAL")
    if national and cursor.next_key not in ("CHAR", "CHARACTER"):
        cursor.fail("CHARACTER expected")
    word = _TEXTS[cursor.consume_token().key]
    if national:
        word = "NCHAR"
    if cursor.accept("VARYING"):
        word = {"CHAR": "VARCHAR2", "NCHAR": "NVARCHAR2"}.get(word) or cursor.fail("no type has this name")
    unit: str | None = None
    if cursor.accept("("):
        length = cursor.parse_integer()
        unit = cursor.accept_any("BYTE", "CHAR") or None
        cursor.expect(")")
        return ParsedType(_parsed(f"{word}({length})"), unit=unit)
    if word not in ("CHAR", "NCHAR"):
        cursor.fail("a length expected")
    return ParsedType(_parsed(word))


def _sized(cursor: DdlCursor) -> ParsedType:
    word = cursor.consume_token().key
    if word in ("JSON", "VECTOR"):  # JSON (OBJECT), VECTOR(3, FLOAT32): nothing of it is captured
        if cursor.next_key == "(":
            cursor.skip_group()
        return ParsedType(ColumnType(word))
    if cursor.accept("("):
        length = cursor.parse_integer()
        cursor.expect(")")
        return ParsedType(_parsed(f"{word}({length})"))
    if word == "RAW":
        cursor.fail("a length expected")
    return ParsedType(_parsed(word))


def _words(cursor: DdlCursor) -> ParsedType:
    """Types whose names have more than one word."""
    match cursor.consume_token().key:
        case "DOUBLE":
            cursor.expect("PRECISION")
            return ParsedType(_parsed("DOUBLE PRECISION"))
        case "LONG":
            if cursor.accept("RAW"):
                return ParsedType(ColumnType("LONG RAW"))
            cursor.accept("VARCHAR")
            return ParsedType(ColumnType("LONG"))
        case "TIMESTAMP":
            fraction = _precision(cursor, 6)
            if not cursor.accept("WITH"):
                return ParsedType(_parsed(f"TIMESTAMP({fraction})"))
            local = "LOCAL " if cursor.accept("LOCAL") else ""
            cursor.expect("TIME", "ZONE")
            return ParsedType(_parsed(f"TIMESTAMP({fraction}) WITH {local}TIME ZONE"))
        case _:
            return _interval(cursor)


def _interval(cursor: DdlCursor) -> ParsedType:
    if cursor.accept("YEAR"):
        years = _precision(cursor, 2)
        cursor.expect("TO", "MONTH")
        return ParsedType(_parsed(f"INTERVAL YEAR({years}) TO MONTH"))
    cursor.expect("DAY")
    days = _precision(cursor, 2)
    cursor.expect("TO", "SECOND")
    return ParsedType(_parsed(f"INTERVAL DAY({days}) TO SECOND({_precision(cursor, 6)})"))


def _precision(cursor: DdlCursor, otherwise: int) -> int:
    if not cursor.accept("("):
        return otherwise
    digits = cursor.parse_integer()
    if digits > 9:
        cursor.fail("at most nine digits expected")
    cursor.expect(")")
    return digits


def _users(cursor: DdlCursor) -> ParsedType:
    """Parse a type with a schema, or one that a user has made; a domain looks the same."""
    cursor.accept("REF")
    name = cursor.object_name()
    if name.namespace in _SYSTEM_SCHEMAS and name.name in _SIMPLE:
        return ParsedType(_parsed(name.name))
    return ParsedType(ColumnType(str(name)), built_in=False)
