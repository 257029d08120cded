"""Reading a ``DEFAULT`` clause: a literal, or the source text of whatever else it is."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.columns import ColumnDef, Default
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.tokens import Modes, tokenize
from airflow_provider_cdc.sources.mysql.schema.ddl.values import WIDE_CHARSETS, Literal, typed, untyped
from airflow_provider_cdc.sources.relational.tokens import BAD, BITS, HEX, NUMBER, QUOTED, STRING, WORD, Token

_NOT_A_VALUE = frozenset((
    "NOT", "COMMENT", "ON", "PRIMARY", "KEY", "UNIQUE", "CHECK", "CONSTRAINT", "REFERENCES", "COLLATE", "CHARACTER",
    "CHARSET", "AUTO_INCREMENT", "GENERATED", "AS", "INVISIBLE", "VISIBLE", "COLUMN_FORMAT", "STORAGE", "FIRST",
    "AFTER", "WITH", "WITHOUT", "DEFAULT", "COMPRESSED",
))  # fmt: skip


def read_default(cursor: Cursor) -> Literal:
    """What follows ``DEFAULT``."""
    start = cursor.token
    literal = _parenthesized(cursor) if cursor.key == "(" else _literal(cursor)
    if literal is None:
        _skip_expression(cursor)
        return Literal("expression", "", cursor.since(start))
    return literal


def set_default(cursor: Cursor) -> Default:
    """What follows ``ALTER COLUMN … SET DEFAULT``, where the column's type is not said."""
    return untyped(read_default(cursor))


def typed_default(default: Default, column: ColumnDef) -> Default:
    """What a default that was read without a type is for this column.

    >>> typed_default(Default("b'101'", True), ColumnDef("a", "bit", length=8))
    Default(value='5', is_expression=False)
    """
    if default.value is None:
        return default
    if not default.is_expression:
        kind = "number" if column.type == "bit" and default.value.isdigit() else "unknown"
        return typed(Literal(kind, default.value, default.value), column)
    tokens, _ = tokenize(default.value, 0, Modes())
    if len(tokens) == 2 and tokens[0].kind in (BITS, HEX):
        return typed(Literal(tokens[0].kind, tokens[0].value, default.value), column)
    return default


def string_value(literal: str) -> str:
    """The text of a string as SQL writes it.

    >>> string_value(r"'it''s\\n'")
    "it's\\n"
    """
    return tokenize(literal, 0, Modes())[0][0].value


def _parenthesized(cursor: Cursor) -> Literal | None:
    """``('literal')``: MySQL wants the parentheses for TEXT and JSON, the value is known all the same."""
    mark = cursor.mark()
    cursor.take()
    literal = _literal(cursor)
    if literal is not None and cursor.accept(")"):
        return literal
    cursor.reset(mark)
    return None


def _literal(cursor: Cursor) -> Literal | None:
    start = cursor.token
    if start.key in ("+", "-"):
        if cursor.peek().kind != NUMBER:
            return None
        cursor.take()
        number = cursor.take().value
        return Literal("number", f"-{number}" if start.key == "-" else number, cursor.since(start))
    if start.kind in (NUMBER, BITS, HEX):
        cursor.take()
        return Literal(start.kind, start.value, cursor.since(start))
    if start.kind == STRING:
        return _strings(cursor, start)
    if cursor.accept("NULL"):
        return Literal("null", "", "")
    if word := cursor.accept_any("TRUE", "FALSE"):
        return Literal("number", "1" if word == "TRUE" else "0", word)
    if start.key in ("DATE", "TIME", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.take()
        return Literal("string", cursor.text(), cursor.since(start))
    if start.key == "{" and cursor.peek(2).kind == STRING and cursor.peek(3).key == "}":  # {d '2020-01-01'}
        cursor.take()
        cursor.take()
        text = cursor.text()
        cursor.take()
        return Literal("string", text, cursor.since(start))
    if start.key.startswith("_") and cursor.peek().kind in (STRING, BITS, HEX):
        return _introduced(cursor, start)
    return None


def _strings(cursor: Cursor, start: Token) -> Literal:
    text = cursor.take().value
    while cursor.token.kind == STRING:  # 'a' 'b' is 'ab'
        text += cursor.take().value
    return Literal("string", text, cursor.since(start))


def _introduced(cursor: Cursor, start: Token) -> Literal | None:
    """``_latin1'abc'`` gives the client's bytes another character set: only ASCII stays what it is. ``N'abc'``
    converts.
    """
    mark = cursor.mark()
    converts = cursor.sql[start.start] != "_"
    cursor.take()
    if cursor.token.kind != STRING:
        cursor.reset(mark)
        return None
    literal = _strings(cursor, start)
    if (literal.text.isascii() and start.value.lower()[1:] not in WIDE_CHARSETS) or converts:
        return literal
    cursor.reset(mark)
    return None


def _skip_expression(cursor: Cursor) -> None:
    """Move past ``(…)``, a function call, a word like ``CURRENT_TIMESTAMP``, ``CASE … END`` or the name of a column."""
    token = cursor.token
    if token.key == "(":
        cursor.skip_group()
    elif token.key.startswith("_") and cursor.peek().kind in (STRING, BITS, HEX):
        cursor.take()
        cursor.take()
    elif cursor.key == "CASE":
        _skip_case(cursor)
    elif cursor.accept("NEXT", "VALUE", "FOR") or cursor.accept("PREVIOUS", "VALUE", "FOR"):
        cursor.table(changed=False)
    elif token.kind in (WORD, QUOTED) and token.key not in _NOT_A_VALUE:
        cursor.table(changed=False)
        if cursor.key == "(":
            cursor.skip_group()
    else:
        cursor.fail("a default expected")


def _skip_case(cursor: Cursor) -> None:
    depth = 0
    while True:
        if cursor.key == "(":
            cursor.skip_group()
            continue
        if cursor.ended:
            cursor.fail("END expected")
        key = cursor.key
        if not key and cursor.token.kind == BAD:
            cursor.fail("")
        cursor.take()
        depth += {"CASE": 1, "END": -1}.get(key, 0)
        if depth == 0:
            return
