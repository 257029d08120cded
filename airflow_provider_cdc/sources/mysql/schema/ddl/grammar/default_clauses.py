"""Reading a ``DEFAULT`` clause: a literal, or the source text of whatever else it is."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.default_values import (
    WIDE_CHARSETS,
    DefaultLiteral,
    resolve_typed_default,
    resolve_untyped_default,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.tokenizer import LexerModes, tokenize_statement
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef, MySqlColumnDefault
from airflow_provider_cdc.sources.relational.sql_token_cursor import (
    BAD,
    BITS,
    HEX,
    NUMBER,
    QUOTED,
    STRING,
    WORD,
    SqlToken,
)

_NOT_A_VALUE = frozenset((
    "NOT", "COMMENT", "ON", "PRIMARY", "KEY", "UNIQUE", "CHECK", "CONSTRAINT", "REFERENCES", "COLLATE", "CHARACTER",
    "CHARSET", "AUTO_INCREMENT", "GENERATED", "AS", "INVISIBLE", "VISIBLE", "COLUMN_FORMAT", "STORAGE", "FIRST",
    "AFTER", "WITH", "WITHOUT", "DEFAULT", "COMPRESSED",
))  # fmt: skip


def read_default(cursor: MySqlTokenCursor) -> DefaultLiteral:
    """Parse the clause after ``DEFAULT``."""
    start = cursor.next_token
    literal = _parenthesized(cursor) if cursor.next_key == "(" else _literal(cursor)
    if literal is None:
        _skip_expression(cursor)
        return DefaultLiteral("expression", "", cursor.slice_source(start))
    return literal


def set_default(cursor: MySqlTokenCursor) -> MySqlColumnDefault:
    """Parse the clause after ``ALTER COLUMN … SET DEFAULT``, where the column's type is not said."""
    return resolve_untyped_default(read_default(cursor))


def typed_default(default: MySqlColumnDefault, column: ColumnDef) -> MySqlColumnDefault:
    """Return the default for this column that a default read without a type stands for.

    >>> typed_default(MySqlColumnDefault("b'101'", True), ColumnDef("a", "bit", length=8))
    Default(value='5', is_expression=False)
    """
    if default.value is None:
        return default
    if not default.is_expression:
        kind = "number" if column.type == "bit" and default.value.isdigit() else "unknown"
        return resolve_typed_default(DefaultLiteral(kind, default.value, default.value), column)
    tokens, _ = tokenize_statement(default.value, 0, LexerModes())
    if len(tokens) == 2 and tokens[0].kind in (BITS, HEX):
        return resolve_typed_default(DefaultLiteral(tokens[0].kind, tokens[0].value, default.value), column)
    return default


def string_value(literal: str) -> str:
    """Return the text of a string as SQL writes it.

    >>> string_value(r"'it''s\\n'")
    "it's\\n"
    """
    return tokenize_statement(literal, 0, LexerModes())[0][0].value


def _parenthesized(cursor: MySqlTokenCursor) -> DefaultLiteral | None:
    """``('literal')``: MySQL wants the parentheses for TEXT and JSON, the value is known all the same."""
    mark = cursor.mark()
    cursor.consume_token()
    literal = _literal(cursor)
    if literal is not None and cursor.accept(")"):
        return literal
    cursor.reset(mark)
    return None


def _literal(cursor: MySqlTokenCursor) -> DefaultLiteral | None:
    start = cursor.next_token
    if start.key in ("+", "-"):
        if cursor.peek().kind != NUMBER:
            return None
        cursor.consume_token()
        number = cursor.consume_token().value
        return DefaultLiteral("number", f"-{number}" if start.key == "-" else number, cursor.slice_source(start))
    if start.kind in (NUMBER, BITS, HEX):
        cursor.consume_token()
        return DefaultLiteral(start.kind, start.value, cursor.slice_source(start))
    if start.kind == STRING:
        return _strings(cursor, start)
    if cursor.accept("NULL"):
        return DefaultLiteral("null", "", "")
    if word := cursor.accept_any("TRUE", "FALSE"):
        return DefaultLiteral("number", "1" if word == "TRUE" else "0", word)
    if start.key in ("DATE", "TIME", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.consume_token()
        return DefaultLiteral("string", cursor.parse_string(), cursor.slice_source(start))
    if start.key == "{" and cursor.peek(2).kind == STRING and cursor.peek(3).key == "}":  # {d '2020-01-01'}
        cursor.consume_token()
        cursor.consume_token()
        text = cursor.parse_string()
        cursor.consume_token()
        return DefaultLiteral("string", text, cursor.slice_source(start))
    if start.key.startswith("_") and cursor.peek().kind in (STRING, BITS, HEX):
        return _introduced(cursor, start)
    return None


def _strings(cursor: MySqlTokenCursor, start: SqlToken) -> DefaultLiteral:
    text = cursor.consume_token().value
    while cursor.next_token.kind == STRING:  # 'a' 'b' is 'ab'
        text += cursor.consume_token().value
    return DefaultLiteral("string", text, cursor.slice_source(start))


def _introduced(cursor: MySqlTokenCursor, start: SqlToken) -> DefaultLiteral | None:
    """Parse ``_latin1'abc'`` or ``N'abc'``.

    The first gives the client's bytes another character set: only ASCII stays the same. ``N'abc'`` converts.
    """
    mark = cursor.mark()
    converts = cursor.sql[start.start] != "_"
    cursor.consume_token()
    if cursor.next_token.kind != STRING:
        cursor.reset(mark)
        return None
    literal = _strings(cursor, start)
    if (literal.text.isascii() and start.value.lower()[1:] not in WIDE_CHARSETS) or converts:
        return literal
    cursor.reset(mark)
    return None


def _skip_expression(cursor: MySqlTokenCursor) -> None:
    """Move past ``(…)``, a function call, a word like ``CURRENT_TIMESTAMP``, ``CASE … END`` or the name of a column."""
    token = cursor.next_token
    if token.key == "(":
        cursor.skip_group()
    elif token.key.startswith("_") and cursor.peek().kind in (STRING, BITS, HEX):
        cursor.consume_token()
        cursor.consume_token()
    elif cursor.next_key == "CASE":
        _skip_case(cursor)
    elif cursor.accept("NEXT", "VALUE", "FOR") or cursor.accept("PREVIOUS", "VALUE", "FOR"):
        cursor.parse_table_name(changed=False)
    elif token.kind in (WORD, QUOTED) and token.key not in _NOT_A_VALUE:
        cursor.parse_table_name(changed=False)
        if cursor.next_key == "(":
            cursor.skip_group()
    else:
        cursor.fail("a default expected")


def _skip_case(cursor: MySqlTokenCursor) -> None:
    depth = 0
    while True:
        if cursor.next_key == "(":
            cursor.skip_group()
            continue
        if cursor.is_at_end:
            cursor.fail("END expected")
        key = cursor.next_key
        if not key and cursor.next_token.kind == BAD:
            cursor.fail("")
        cursor.consume_token()
        depth += {"CASE": 1, "END": -1}.get(key, 0)
        if depth == 0:
            return
