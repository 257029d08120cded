"""Patterns of names: the list of them in one text, and the one that matches a single name alone.

Include lists cut patterns at commas and strip blanks, ``field.exclude.list`` cuts at colons, signals take double quotes for quoting, filters of
``airflow cdc snapshot`` cut at ``=``, and texts of errors put commands between backticks. So all of those characters are numbers in it.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*)?")
"""Names that are patterns of themselves alone. A single dot needs no escape: every table's name has one, so that it cannot stand for anything else.
Of several, each can, as ``a.b.c`` shows, which matches ``axb.c``, too."""
_TOKEN = re.compile(r"\\.|[^,\\]+|,|\\", re.DOTALL)
_NUMBERED = frozenset("'\"`=,:")


def format_exact_pattern(table: object, *, case: bool = False) -> str:
    r"""Return the pattern of one table. It has no blank, quote, comma, colon or ``=``, and is one line.

    Two tables with the same full name cannot be distinguished: ``c`` of a database ``a.b``, and ``b.c`` of a database ``a``.

    :param table: its full name
    :param case: distinguish names that differ by case alone, which lists match otherwise

    >>> print(*map(format_exact_pattern, ("shop.orders", "shop.o'brien s", "shop.fs.files")))
    shop.orders shop\.o\x27brien\x20s shop\.fs\.files
    >>> print(format_exact_pattern("shop.Orders", case=True))
    (?-i:shop.Orders)
    """
    name = str(table)
    pattern = name if _PLAIN.fullmatch(name) else escape_name(name)
    return f"(?-i:{pattern})" if case else pattern


def escape_name(name: str) -> str:
    r"""Return the pattern of any name, such as a column's or a topic's; each dot is escaped.

    >>> print(escape_name("net.total, EUR"))
    net\.total\x2c\x20EUR
    """
    return "".join(map(_exact, name))


def split_patterns(text: str) -> list[str]:
    r"""Split a comma-separated list of patterns; a comma with a backslash before it is part of a pattern.

    A backslash escapes the one character behind it. So a comma behind two backslashes separates.

    >>> split_patterns(r"shop\.a\,b,shop\.c\\,d") == [r"shop\.a,b", r"shop\.c\\", "d"]
    True
    """
    parts = [""]
    for token in _TOKEN.findall(text):
        if token == ",":
            parts.append("")
        else:
            parts[-1] += "," if token == "\\," else token
    return parts


def _exact(character: str) -> str:
    if character in _NUMBERED or character.isspace() or not character.isprintable():
        code = ord(character)
        return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
    return re.escape(character)
