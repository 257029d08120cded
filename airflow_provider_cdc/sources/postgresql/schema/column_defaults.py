"""Defaults of columns, from the expressions that the catalog has of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CAST: Final = r"""(?:::(?:"[^"]+"|[a-z_][\w$]*|\.| |\(\d+(?:,-?\d+)?\)|\[\])+)*"""
_LITERAL: Final = re.compile(rf"([EB])?'((?:[^']|'')*)'{_CAST}", re.IGNORECASE)
_NUMBER: Final = re.compile(rf"\(?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\)?{_CAST}", re.IGNORECASE)
_NULL: Final = re.compile(rf"NULL{_CAST}", re.IGNORECASE)
_SHORT_OFFSET: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d)")
_BOOLEANS: Final = {"true": "1", "false": "0"}


@dataclass(frozen=True, slots=True)
class ColumnDefault:
    """Default of a column.

    :param text: the value, or the expression; ``None`` = NULL
    :param is_expression: the value is computed for each row or statement
    """

    text: str | None = None
    is_expression: bool = False


def parse_default(expression: str | None) -> ColumnDefault:
    """Return the default that an expression of the catalog stands for.

    >>> parse_default("'it''s'::character varying")
    ColumnDefault(text="it's", is_expression=False)
    >>> parse_default("'-5'::integer").text, parse_default("(-5)").text
    ('-5', '-5')
    >>> parse_default("now()")
    ColumnDefault(text='now()', is_expression=True)
    """
    if expression is None or _NULL.fullmatch(expression):
        return ColumnDefault()
    if expression in _BOOLEANS:
        return ColumnDefault(_BOOLEANS[expression])
    if number := _NUMBER.fullmatch(expression):
        return ColumnDefault(number[1])
    literal = _LITERAL.fullmatch(expression)
    if literal is None:
        return ColumnDefault(expression, is_expression=True)
    text = literal[2].replace("''", "'")
    if (literal[1] or "").upper() == "E":
        text = text.replace("\\\\", "\\")
    return ColumnDefault(f"{text}:00" if _SHORT_OFFSET.fullmatch(text) else text)
