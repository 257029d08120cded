"""Expressions: where one ends, and whether it is a literal.

>>> read_default("DATE '2024-02-29'").value
'2024-02-29'
>>> read_default("SYSDATE + 1").kind
'expression'
"""

from __future__ import annotations

import re
from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.ddl.columns import Default
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import RESERVED, Cursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.tokens import tokenize
from airflow_provider_cdc.sources.relational.tokens import BAD, END, NUMBER, QUOTED, STRING, WORD, NotUnderstood

_OPERANDS = frozenset(("USER", "UID", "SYSDATE", "ROWNUM", "LEVEL", "ROWID"))
"""Reserved words that are values."""
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_MASKS = {
    "YYYY-MM-DD": re.compile(r"\d{4}-\d\d-\d\d"),
    "YYYY-MM-DD HH24:MI:SS": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
}
_Kind = Literal["null", "string", "number", "date", "timestamp", "expression"]


def read_default(text: str) -> Default:
    """The default that a text is, such as ``ALL_TAB_COLUMNS.DATA_DEFAULT``; what cannot be read is an expression."""
    cursor = Cursor(text, tokenize(text))
    try:
        found = default(cursor, on_null=False)
        cursor.finish()
    except NotUnderstood:
        return Default(text.strip(), "expression")
    return found


def default(cursor: Cursor, *, on_null: bool) -> Default:
    """The expression at the cursor."""
    start = cursor.mark()
    found = _literal(cursor)
    if found is None or _operator(cursor) or cursor.key in ("AT", "COLLATE"):
        cursor.reset(start)
        skip_expression(cursor)
        return Default(cursor.since(start), "expression", None, on_null)
    kind, value = found
    return Default(cursor.since(start), kind, value, on_null)


def _literal(cursor: Cursor) -> tuple[_Kind, str | None] | None:
    """A literal, maybe in parentheses, and its value; ``None`` when there is none, the cursor anywhere then."""
    depth = 0
    while cursor.accept("("):
        depth += 1
    found = _bare(cursor)
    return found if all(cursor.accept(")") for _ in range(depth)) else None


def _bare(cursor: Cursor) -> tuple[_Kind, str | None] | None:
    token = cursor.token
    if token.kind == STRING:
        cursor.take()
        return ("string", token.value) if token.value else ("null", None)
    if cursor.accept("NULL"):
        return "null", None
    if token.key in ("DATE", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.take()
        return ("date" if token.key == "DATE" else "timestamp"), cursor.text()
    if cursor.sees("TO_DATE", "("):
        return _to_date(cursor)
    sign = cursor.accept_any("-", "+")
    number = cursor.token
    if number.kind != NUMBER or number.value[-1] in "fFdD":
        return None
    cursor.take()
    return "number", ("-" if sign == "-" else "") + number.value


def _to_date(cursor: Cursor) -> tuple[_Kind, str | None] | None:
    """``TO_DATE('2024-02-29', 'YYYY-MM-DD')``: the masks that leave nothing open."""
    value, comma, mask, end = (cursor.peek(i) for i in range(2, 6))
    if (value.kind, comma.key, mask.kind, end.key) != (STRING, ",", STRING, ")"):
        return None
    shape = _MASKS.get(mask.value.upper())
    if shape is None or not shape.fullmatch(value.value):
        return None
    for _ in range(6):
        cursor.take()
    return "timestamp" if " " in value.value else "date", value.value


def skip_expression(cursor: Cursor) -> None:
    """Move past an expression."""
    while True:
        while cursor.accept_any("-", "+"):
            pass
        _operand(cursor)
        _suffixes(cursor)
        if not _operator(cursor):
            return
        cursor.take()
        cursor.accept("|")


def _operator(cursor: Cursor) -> bool:
    return cursor.key in ("+", "-", "*", "/") or cursor.sees("|", "|")


def _operand(cursor: Cursor) -> None:
    token = cursor.token
    if token.key == "(":
        cursor.skip_group()
    elif token.key == "CASE":
        _case(cursor)
    elif token.key == "NULL" or token.kind in (NUMBER, STRING):
        cursor.take()
    elif token.key in ("DATE", "TIMESTAMP") and cursor.peek().kind == STRING:
        cursor.take()
        cursor.take()
    elif token.key == "INTERVAL" and cursor.peek().kind == STRING:
        cursor.take()
        cursor.take()
        _units(cursor)
    elif token.kind == QUOTED or (token.kind == WORD and (token.key not in RESERVED or token.key in _OPERANDS)):
        _call(cursor)
    else:
        cursor.fail("an expression expected")


def _call(cursor: Cursor) -> None:
    """``a.b.c(…)``."""
    cursor.take()
    while True:
        if cursor.accept("."):
            if cursor.token.kind not in (WORD, QUOTED):
                cursor.fail("a name expected")
            cursor.take()
        elif cursor.key == "(":
            cursor.skip_group()
        else:
            return


def _units(cursor: Cursor) -> None:
    """``DAY(2) TO SECOND(6)``."""
    for more in (True, False):
        if not cursor.accept_any(*_UNITS):
            cursor.fail("a unit of time expected")
        if cursor.key == "(":
            cursor.skip_group()
        if not (more and cursor.accept("TO")):
            return


def _case(cursor: Cursor) -> None:
    depth = 0
    while True:
        token = cursor.token
        if token.kind in (END, BAD):
            cursor.fail("CASE without END")
        if token.key == "(":
            cursor.skip_group()
            continue
        cursor.take()
        depth += {"CASE": 1, "END": -1}.get(token.key, 0)
        if token.key in (")", ","):
            cursor.fail("CASE without END")
        if not depth:
            return


def _suffixes(cursor: Cursor) -> None:
    if cursor.accept("AT"):
        if cursor.accept("TIME", "ZONE"):
            _operand(cursor)
        else:
            cursor.expect("LOCAL")
    if cursor.accept("COLLATE"):
        cursor.name()
