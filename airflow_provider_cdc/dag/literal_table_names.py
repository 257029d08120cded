"""Names of tables that a definition contains: a form can offer them at DAG parse, without a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from airflow_provider_cdc.core.name_patterns import split_patterns

_LISTS = ("table.include.list", "collection.include.list")
_SPECIAL = set("*+?[]{}^$")
_LIMIT = 1000
"""Names that one pattern may stand for."""


def named_tables(properties: Mapping[str, Any]) -> list[str]:
    """Tables that the include list names one by one. Patterns without fixed names are left out.

    >>> named_tables({"table.include.list": r"inventory\\.(customers|orders),archive\\..*"})
    ['inventory.customers', 'inventory.orders']
    """
    names: dict[str, None] = {}
    for name in _LISTS:
        for pattern in _patterns(properties.get(name)):
            names |= dict.fromkeys(list_literals(pattern))
    return list(names)


def list_literals(pattern: str) -> list[str]:
    """List the texts that a regular expression matches where it is made of texts, groups and choices; otherwise none.

    A dot without a backslash counts as a dot, as people mean it between two names.
    """
    try:
        texts, rest = _choice(pattern, 0)
    except _OpenPattern:
        return []
    return texts if rest == len(pattern) and "" not in texts else []


class _OpenPattern(Exception):
    """A pattern that does not say which names it matches."""


def _patterns(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        if "{{" in value or "{%" in value:
            return []  # a template: it is rendered when a task runs
        value = split_patterns(value)
    return [part.strip() for part in value or () if isinstance(part, str) and part.strip()]


def _choice(pattern: str, at: int) -> tuple[list[str], int]:
    """Alternatives up to the end of the group."""
    texts: list[str] = []
    while True:
        more_texts, at = _sequence(pattern, at)
        texts += more_texts
        if at >= len(pattern) or pattern[at] != "|":
            return texts, at
        at += 1


def _sequence(pattern: str, at: int) -> tuple[list[str], int]:
    parts: list[list[str]] = []
    while at < len(pattern) and pattern[at] not in "|)":
        letter = pattern[at]
        if letter == "(":
            at += 3 if pattern.startswith("(?:", at) else 1
            if pattern.startswith("?", at):
                raise _OpenPattern
            alternatives, at = _choice(pattern, at)
            if at >= len(pattern):
                raise _OpenPattern
            parts.append(alternatives)
        elif letter == "\\":
            at += 1
            if at >= len(pattern) or pattern[at].isalnum():
                raise _OpenPattern
            parts.append([pattern[at]])
        elif letter in _SPECIAL:
            raise _OpenPattern
        else:
            parts.append([letter])
        at += 1
        if at < len(pattern) and pattern[at] in "*+?{":
            raise _OpenPattern
    texts = list(_joined(parts))
    return texts, at


def _joined(parts: list[list[str]]) -> Iterator[str]:
    for number, combination in enumerate(product(*parts)):
        if number == _LIMIT:
            raise _OpenPattern
        yield "".join(combination)
