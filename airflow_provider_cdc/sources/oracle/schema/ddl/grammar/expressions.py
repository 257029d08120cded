"""Expressions: where one ends, and whether it is a literal.

>>> read_default("DATE '2024-02-29'").value
'2024-02-29'
>>> read_default("SYSDATE + 1").kind
'expression'
"""

from __future__ import annotations

import re
from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import ColumnDefault
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import RESERVED, DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.sql_tokenizer import tokenize
from airflow_provider_cdc.sources.relational.sql_token_cursor import (
    BAD,
    END,
    NUMBER,
    QUOTED,
    STRING,
    WORD,
    StatementNotUnderstood,
)

_OPERANDS = frozenset(("USER", "UID", "SYSDATE", "ROWNUM", "LEVEL", "ROWID"))
"""Reserved words that are values."""
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_MASKS = {
    "YYYY-MM-DD": re.compile(r"\d{4}-\d\d-\d\d"),
    "YYYY-MM-DD HH24:MI:SS": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
}
_Kind = Literal["null", "string", "number", "date", "timestamp", "expression"]


def read_default(text: str) -> ColumnDefault:
    """Parse a text as a default, such as ``ALL_TAB_COLUMNS.DATA_DEFAULT``.

    A text that cannot be read is an expression.
    """
    cursor = DdlCursor(text, tokenize(text))
    try:
        default = parse_default_expression(cursor, on_null=False)
        cursor.expect_end()
    except StatementNotUnderstood:
        return ColumnDefault(text.strip(), "expression")
    return default


def parse_default_expression(cursor: DdlCursor, *, on_null: bool) -> ColumnDefault:
    """Parse the expression at the cursor."""
    start = cursor.mark()
    literal = _literal(cursor)
    if literal is None or _operator(cursor) or cursor.next_key in ("AT", "COLLATE"):
        cursor.reset(start)
        skip_expression(cursor)
        return ColumnDefault(cursor.text_from_mark(start), "expression", None, on_null)
    kind, value = literal
    return ColumnDefault(cursor.text_from_mark(start), kind, value, on_null)


def _literal(cursor: DdlCursor) -> tuple[_Kind, str | None] | None:
    """Parse a literal, maybe in parentheses, and its value.

    The result is ``None`` when there is none, the cursor anywhere then.
    """
    depth = 0
    while cursor.accept("("):
        depth += 1
    literal = _bare(cursor)
    return literal if all(cursor.accept(")") for _ in range(depth)) else None


def _bare(cursor: DdlCursor) -> tuple[_Kind, str | None] | None:
    token = cursor.next_token
    if token.kind == STRING:
        cursor.consume_token()
        return ("string", token.value) if token.value else ("null", None)
    if cursor.accept("NULL"):
        return "null", None
    if token.key in ("DATE", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.consume_token()
        return ("date" if token.key == "DATE" else "timestamp"), cursor.parse_string()
    if cursor.has_next_keys("TO_DATE", "("):
        return _to_date(cursor)
    sign = cursor.accept_any("-", "+")
    number = cursor.next_token
    if number.kind != NUMBER or number.value[-1] in "fFdD":
        return None
    cursor.consume_token()
    return "number", ("-" if sign == "-" else "") + number.value


def _to_date(cursor: DdlCursor) -> tuple[_Kind, str | None] | None:
    """``TO_DATE('2024-02-29', 'YYYY-MM-DD')``: the masks that leave nothing open."""
    value, comma, mask, end = (cursor.peek(i) for i in range(2, 6))
    if (value.kind, comma.key, mask.kind, end.key) != (STRING, ",", STRING, ")"):
        return None
    shape = _MASKS.get(mask.value.upper())
    if shape is None or not shape.fullmatch(value.value):
        return None
    for _ in range(6):
        cursor.consume_token()
    return "timestamp" if " " in value.value else "date", value.value


def skip_expression(cursor: DdlCursor) -> None:
    """Move past an expression."""
    while True:
        while cursor.accept_any("-", "+"):
            pass
        _operand(cursor)
        _suffixes(cursor)
        if not _operator(cursor):
            return
        cursor.consume_token()
        cursor.accept("|")


def _operator(cursor: DdlCursor) -> bool:
    return cursor.next_key in ("+", "-", "*", "/") or cursor.has_next_keys("|", "|")


def _operand(cursor: DdlCursor) -> None:
    token = cursor.next_token
    if token.key == "(":
        cursor.skip_group()
    elif token.key == "CASE":
        _case(cursor)
    elif token.key == "NULL" or token.kind in (NUMBER, STRING):
        cursor.consume_token()
    elif token.key in ("DATE", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.consume_token()
        cursor.consume_token()
    elif token.key == "INTERVAL" and cursor.peek().kind == STRING:
        cursor.consume_token()
        cursor.consume_token()
        _units(cursor)
    elif token.kind == QUOTED or (token.kind == WORD and (token.key not in RESERVED or token.key in _OPERANDS)):
        _call(cursor)
    else:
        cursor.fail("an expression expected")


def _call(cursor: DdlCursor) -> None:
    """``a.b.c(…)``."""
    cursor.consume_token()
    while True:
        if cursor.accept("."):
            if cursor.next_token.kind not in (WORD, QUOTED):
                cursor.fail("a name expected")
            cursor.consume_token()
        elif cursor.next_key == "(":
            cursor.skip_group()
        else:
            return


def _units(cursor: DdlCursor) -> None:
    """``DAY(2) TO SECOND(6)``."""
    for more in (True, False):
        if not cursor.accept_any(*_UNITS):
            cursor.fail("a unit of time expected")
        if cursor.next_key == "(":
            cursor.skip_group()
        if not (more and cursor.accept("TO")):
            return


def _case(cursor: DdlCursor) -> None:
    depth = 0
    while True:
        token = cursor.next_token
        if token.kind in (END, BAD):
            cursor.fail("CASE without END")
        if token.key == "(":
            cursor.skip_group()
            continue
        cursor.consume_token()
        depth += {"CASE": 1, "END": -1}.get(token.key, 0)
        if token.key in (")", ","):
            cursor.fail("CASE without END")
        if not depth:
            return


def _suffixes(cursor: DdlCursor) -> None:
    if cursor.accept("AT"):
        if cursor.accept("TIME", "ZONE"):
            _operand(cursor)
        else:
            cursor.expect("LOCAL")
    if cursor.accept("COLLATE"):
        cursor.parse_name()
