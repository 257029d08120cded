"""Texts of arrays, composites and ranges: how they are quoted and read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_WHITE: Final = " \t\n\r\v\f"
_BOUNDS: Final = re.compile(r"((?:\[[+-]?\d+:[+-]?\d+\])+)=")
_LOWER: Final = re.compile(r"\[([+-]?\d+):")

Nested = list[Any]
"""Elements as texts, ``None`` for NULL, or lists of them."""


def join_array(elements: Nested, lowers: list[int], lengths: list[int], delimiter: str) -> str:
    """Return the text of an array, as ``array_out`` prints it."""
    text = _join(elements, delimiter)
    if all(lower == 1 for lower in lowers):
        return text
    bounds = "".join(f"[{lower}:{lower + n - 1}]" for lower, n in zip(lowers, lengths, strict=True))
    return f"{bounds}={text}"


def split_array(text: str, delimiter: str) -> tuple[Nested, bool]:
    """Read the text of an array. Returns its elements, and whether all subscripts begin at 1.

    >>> split_array('{{1,NULL},{"a\\\\"b","NULL"}}', ",")
    ([['1', None], ['a"b', 'NULL']], True)

    :raises ValueError: it is no array
    """
    begin, plain = 0, True
    if match := _BOUNDS.match(text):
        begin, plain = match.end(), all(int(lower) == 1 for lower in _LOWER.findall(match[1]))
    elements, end = _read_level(text, begin, delimiter)
    if end != len(text):
        raise ValueError(f"an array has more than its elements: {text[:100]!r}")
    return elements, plain


def quote_field(text: str) -> str:
    """Quote a field of a composite, as ``record_out`` does."""
    return _quote(text, '"\\(),' + _WHITE)


def quote_bound(text: str) -> str:
    """Quote a bound of a range, as ``range_out`` does."""
    return _quote(text, '"\\()[],' + _WHITE)


def map_nested(elements: Nested, convert: Callable[[str], Any]) -> Nested:
    """Convert each element of an array that is not NULL."""
    return [map_nested(e, convert) if isinstance(e, list) else (None if e is None else convert(e)) for e in elements]


def _quote(text: str, signs: str) -> str:
    if text and not any(sign in text for sign in signs):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '""')
    return f'"{escaped}"'


def _join(elements: Nested, delimiter: str) -> str:
    signs = '"\\{}' + delimiter + _WHITE
    texts = []
    for element in elements:
        if isinstance(element, list):
            texts.append(_join(element, delimiter))
        elif element is None:
            texts.append("NULL")
        elif element == "" or element.upper() == "NULL" or any(sign in element for sign in signs):
            escaped = element.replace("\\", "\\\\").replace('"', '\\"')
            texts.append(f'"{escaped}"')
        else:
            texts.append(element)
    return "{" + delimiter.join(texts) + "}"


def _read_level(text: str, p: int, delimiter: str) -> tuple[Nested, int]:
    """Read the elements of one dimension, which begins at ``p``. Returns them, and the offset behind its end."""
    if text[p : p + 1] != "{":
        raise ValueError(f"no array: {text[:100]!r}")
    p += 1
    elements: Nested = []
    if text[p : p + 1] == "}":
        return elements, p + 1
    while True:
        element: Any
        if text[p : p + 1] == "{":
            element, p = _read_level(text, p, delimiter)
        else:
            element, p = _read_element(text, p, delimiter)
        elements.append(element)
        sign = text[p : p + 1]
        p += 1
        if sign == "}":
            return elements, p
        if sign != delimiter:
            raise ValueError(f"an array has no end: {text[:100]!r}")


def _read_element(text: str, p: int, delimiter: str) -> tuple[str | None, int]:
    parts: list[str] = []
    quoted = text[p : p + 1] == '"'
    p += quoted
    while p < len(text):
        sign = text[p]
        if sign == "\\":
            parts.append(text[p + 1 : p + 2])
            p += 2
        elif quoted and sign == '"':
            return "".join(parts), p + 1
        elif not quoted and sign in (delimiter, "}"):
            element = "".join(parts)
            return (None if element.upper() == "NULL" else element), p
        else:
            parts.append(sign)
            p += 1
    raise ValueError(f"an element of an array has no end: {text[:100]!r}")
