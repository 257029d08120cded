"""Constraints, of a column and of a table. Only keys come out of here: nothing else identifies a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import KeyDefinition
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.physical_properties import skip_options


@dataclass(slots=True)
class ConstraintState:
    """The state of a constraint: enabled, validated, deferrable."""

    enabled: bool = True
    validated: bool = True
    deferrable: bool = False

    @property
    def is_enforced(self) -> bool:
        """Check whether no row can break it at any time: the dictionary's ``NULLABLE`` follows from that."""
        return self.enabled and self.validated and not self.deferrable


def _is_state(cursor: DdlCursor, *, inline: bool) -> bool:
    """Check whether ``ENABLE`` or ``DISABLE`` belongs to the constraint before it, or begins a separate clause."""
    following, after = cursor.peek().key, cursor.peek(3).key
    if following == "CONSTRAINT":  # the next constraint has a definition
        return after in ("NOT", "NULL", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "FOREIGN")
    if following == "UNIQUE":
        return (cursor.peek(2).key == "(") is not inline
    if following == "PRIMARY":
        return inline or after == "("
    return following not in ("ROW", "TABLE", "ALL", "LOGICAL")


def read_state(cursor: DdlCursor, *, inline: bool = False) -> ConstraintState:
    """``[NOT] DEFERRABLE INITIALLY … RELY USING INDEX … ENABLE NOVALIDATE EXCEPTIONS INTO …``, in any order."""
    state = ConstraintState()
    while True:
        if cursor.accept("NOT", "DEFERRABLE") or cursor.accept_any("RELY", "NORELY", "PRECHECK", "NOPRECHECK"):
            continue
        if cursor.accept("DEFERRABLE"):
            state.deferrable = True
        elif cursor.accept("INITIALLY"):
            if not cursor.accept_any("DEFERRED", "IMMEDIATE"):
                cursor.fail("DEFERRED or IMMEDIATE expected")
        elif cursor.next_key in ("ENABLE", "DISABLE") and _is_state(cursor, inline=inline):
            state.enabled = state.validated = cursor.consume_token().key == "ENABLE"
        elif word := cursor.accept_any("VALIDATE", "NOVALIDATE"):
            state.validated = word == "VALIDATE"
        elif cursor.accept("USING", "INDEX"):
            _using_index(cursor)
        elif cursor.accept("EXCEPTIONS", "INTO"):
            cursor.object_name()
        else:
            return state


def _using_index(cursor: DdlCursor) -> None:
    if cursor.next_key == "(":
        cursor.skip_group()
    elif not skip_options(cursor, "index").count and cursor.at_name and cursor.next_key not in _STATES:
        cursor.object_name()


_STATES = frozenset((
    "ENABLE", "DISABLE", "VALIDATE", "NOVALIDATE", "RELY", "NORELY", "DEFERRABLE", "INITIALLY", "EXCEPTIONS", "CONSTRAINT", "PRECHECK",
    "NOPRECHECK",
))  # fmt: skip


def at_constraint(cursor: DdlCursor) -> bool:
    """Check whether a constraint of the table comes next, not a column."""
    key, after = cursor.next_key, cursor.peek().key
    return (
        key in ("CONSTRAINT", "CHECK")
        or (key == "UNIQUE" and after == "(")
        or (key in ("PRIMARY", "FOREIGN") and after == "KEY")
        or (key == "SCOPE" and after == "FOR")
    )


def read_constraint(cursor: DdlCursor) -> KeyDefinition | None:
    """Parse a constraint of the table; ``None`` when it is no key."""
    name = cursor.parse_name() if cursor.accept("CONSTRAINT") else None
    if kind := _key_kind(cursor):
        columns = cursor.parse_names()
        return KeyDefinition(kind, columns, name, read_state(cursor).enabled)
    if cursor.accept("FOREIGN", "KEY"):
        cursor.parse_names()
        cursor.expect("REFERENCES")
        read_reference(cursor)
    elif cursor.accept("CHECK"):
        cursor.skip_group()
    else:
        cursor.fail("a constraint expected")
    read_state(cursor)
    return None


def inline_key(cursor: DdlCursor, column: str, name: str | None) -> KeyDefinition | None:
    """``PRIMARY KEY`` or ``UNIQUE`` within a column's definition."""
    kind = _key_kind(cursor)
    return KeyDefinition(kind, (column,), name, read_state(cursor, inline=True).enabled) if kind else None


def _key_kind(cursor: DdlCursor) -> Literal["primary", "unique"] | None:
    if cursor.accept("PRIMARY", "KEY"):
        return "primary"
    return "unique" if cursor.accept("UNIQUE") else None


def read_reference(cursor: DdlCursor) -> None:
    """Parse the text after ``REFERENCES``."""
    cursor.object_name()
    if cursor.next_key == "(":
        cursor.parse_names()
    if cursor.accept("ON", "DELETE") and not (cursor.accept("CASCADE") or cursor.accept("SET", "NULL")):
        cursor.fail("CASCADE or SET NULL expected")


def skip_supplemental(cursor: DdlCursor) -> None:
    """``LOG GROUP g (a, b NO LOG) ALWAYS`` and ``LOG DATA (ALL) COLUMNS`` after ``SUPPLEMENTAL``."""
    cursor.expect("LOG")
    if cursor.accept("GROUP"):
        cursor.parse_name()
        if cursor.next_key == "(":
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
