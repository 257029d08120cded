"""Views, and their registry by name."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.values.datatypes import CLOB, DATE, NUMBER, DataType

Rows = Sequence[tuple[Any, ...]]
KINDS = {"N": NUMBER, "T": DataType("VARCHAR2", length=4000), "D": DATE, "R": DataType("RAW", length=16), "C": CLOB}


@dataclass(frozen=True)
class View:
    """A view."""

    name: str
    columns: tuple[tuple[str, DataType | None], ...]
    rows: Callable[[Session], Rows]


_VIEWS: dict[str, View] = {}


def view(name: str, columns: str, rows: Callable[[Session], Iterable[Any]]) -> View:
    """A view out of ``NAME:N OTHER:T``; the function gives a dictionary or a tuple for each row."""
    pairs = [part.split(":") for part in columns.split()]
    names = [column for column, _ in pairs]

    def answer(session: Session) -> Rows:
        return [
            tuple(row.get(column) for column in names) if isinstance(row, dict) else tuple(row) for row in rows(session)
        ]

    return View(name, tuple((column, KINDS[kind]) for column, kind in pairs), answer)


def register(views: Iterable[View]) -> None:
    """Make views known."""
    for one in views:
        _VIEWS[one.name] = one


def find(path: list[str]) -> View | None:
    """The view of a name, with or without SYS; ``V_$LOG`` is ``V$LOG``."""
    if len(path) > 2 or (len(path) == 2 and path[0] not in ("SYS", "PUBLIC")):
        return None
    return _VIEWS.get(re.sub(r"^(G?V)_\$", r"\1$", path[-1]))


def no_rows(session: Session) -> Rows:
    """No rows: there is no such thing in this database."""
    return []
