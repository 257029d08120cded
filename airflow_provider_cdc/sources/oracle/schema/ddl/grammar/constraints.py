"""Constraints, of a column and of a table. Only keys come out of here: nothing else says what a row is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.ddl.columns import Key
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.options import skip_options


@dataclass(slots=True)
class State:
    """How a constraint is kept."""

    enabled: bool = True
    validated: bool = True
    deferrable: bool = False

    @property
    def certain(self) -> bool:
        """Whether no row can break it at any time: what the dictionary's ``NULLABLE`` goes by."""
        return self.enabled and self.validated and not self.deferrable


def _is_state(cursor: Cursor, *, inline: bool) -> bool:
    """Whether ``ENABLE`` or ``DISABLE`` belongs to the constraint before it, or begins a clause of its own."""
    following, after = cursor.peek().key, cursor.peek(3).key
    if following == "CONSTRAINT":  # the next constraint has a definition
        return after in ("NOT", "NULL", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "FOREIGN")
    if following == "UNIQUE":
        return (cursor.peek(2).key == "(") is not inline
    if following == "PRIMARY":
        return inline or after == "("
    return following not in ("ROW", "TABLE", "ALL", "LOGICAL")


def read_state(cursor: Cursor, *, inline: bool = False) -> State:
    """``[NOT] DEFERRABLE INITIALLY … RELY USING INDEX … ENABLE NOVALIDATE EXCEPTIONS INTO …``, in any order."""
    state = State()
    while True:
        if cursor.accept("NOT", "DEFERRABLE") or cursor.accept_any("RELY", "NORELY", "PRECHECK", "NOPRECHECK"):
            continue
        if cursor.accept("DEFERRABLE"):
            state.deferrable = True
        elif cursor.accept("INITIALLY"):
            if not cursor.accept_any("DEFERRED", "IMMEDIATE"):
                cursor.fail("DEFERRED or IMMEDIATE expected")
        elif cursor.key in ("ENABLE", "DISABLE") and _is_state(cursor, inline=inline):
            state.enabled = state.validated = cursor.take().key == "ENABLE"
        elif word := cursor.accept_any("VALIDATE", "NOVALIDATE"):
            state.validated = word == "VALIDATE"
        elif cursor.accept("USING", "INDEX"):
            _using_index(cursor)
        elif cursor.accept("EXCEPTIONS", "INTO"):
            cursor.object_name()
        else:
            return state


def _using_index(cursor: Cursor) -> None:
    if cursor.key == "(":
        cursor.skip_group()
    elif not skip_options(cursor, "index").count and cursor.at_name and cursor.key not in _STATES:
        cursor.object_name()


_STATES = frozenset((
    "ENABLE", "DISABLE", "VALIDATE", "NOVALIDATE", "RELY", "NORELY", "DEFERRABLE", "INITIALLY", "EXCEPTIONS", "CONSTRAINT", "PRECHECK",
    "NOPRECHECK",
))  # fmt: skip


def at_constraint(cursor: Cursor) -> bool:
    """Whether a constraint of the table comes next, not a column."""
    key, after = cursor.key, cursor.peek().key
    return (
        key in ("CONSTRAINT", "CHECK")
        or (key == "UNIQUE" and after == "(")
        or (key in ("PRIMARY", "FOREIGN") and after == "KEY")
        or (key == "SCOPE" and after == "FOR")
    )


def read_constraint(cursor: Cursor) -> Key | None:
    """A constraint of the table; ``None`` when it is no key."""
    name = cursor.name() if cursor.accept("CONSTRAINT") else None
    if kind := _key_kind(cursor):
        columns = cursor.names()
        return Key(kind, columns, name, read_state(cursor).enabled)
    if cursor.accept("FOREIGN", "KEY"):
        cursor.names()
        cursor.expect("REFERENCES")
        read_reference(cursor)
    elif cursor.accept("CHECK"):
        cursor.skip_group()
    else:
        cursor.fail("a constraint expected")
    read_state(cursor)
    return None


def inline_key(cursor: Cursor, column: str, name: str | None) -> Key | None:
    """``PRIMARY KEY`` or ``UNIQUE`` within a column's definition."""
    kind = _key_kind(cursor)
    return Key(kind, (column,), name, read_state(cursor, inline=True).enabled) if kind else None


def _key_kind(cursor: Cursor) -> Literal["primary", "unique"] | None:
    if cursor.accept("PRIMARY", "KEY"):
        return "primary"
    return "unique" if cursor.accept("UNIQUE") else None


def read_reference(cursor: Cursor) -> None:
    """What follows ``REFERENCES``."""
    cursor.object_name()
    if cursor.key == "(":
        cursor.names()
    if cursor.accept("ON", "DELETE") and not (cursor.accept("CASCADE") or cursor.accept("SET", "NULL")):
        cursor.fail("CASCADE or SET NULL expected")


def skip_supplemental(cursor: Cursor) -> None:
    """``LOG GROUP g (a, b NO LOG) ALWAYS`` and ``LOG DATA (ALL) COLUMNS`` after ``SUPPLEMENTAL``."""
    cursor.expect("LOG")
    if cursor.accept("GROUP"):
        cursor.name()
        if cursor.key == "(":
            cursor.skip_group()
        cursor.accept("ALWAYS")
        return
    cursor.expect("DATA")
    cursor.expect("(")
    while True:
        if not (
            cursor.accept("ALL")
            or cursor.accept("PRIMARY", "KEY")
            or cursor.accept("UNIQUE")
            or cursor.accept("FOREIGN", "KEY")
        ):
            cursor.fail("a kind of supplemental logging expected")
        cursor.accept("INDEX")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    cursor.expect("COLUMNS")
