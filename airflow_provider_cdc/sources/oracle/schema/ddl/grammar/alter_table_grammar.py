"""``ALTER TABLE``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from airflow_provider_cdc.sources.oracle.schema.ddl.alter_table_model import (
    LESS_LOGGED,
    Action,
    AddColumn,
    AddKey,
    ChangePartitionData,
    DropColumn,
    KeysChanged,
    ModifyColumn,
    RenameColumn,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import ColumnDefinition
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.column_definition import read_column
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.constraints import (
    at_constraint,
    read_constraint,
    read_state,
    skip_supplemental,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.create_table_grammar import Element, read_elements
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.physical_properties import skip_options
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import AlterTable
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange, RenameTo

_PARTITION = ("PARTITION", "SUBPARTITION", "PARTITIONS", "SUBPARTITIONS")


def read_alter_table(cursor: DdlCursor) -> AlterTable:
    """Parse the statement after ``TABLE``."""
    cursor.accept("IF", "EXISTS")
    table = cursor.parse_table_name()
    actions: list[Action] = []
    while not cursor.is_at_end:
        actions += _actions(cursor)
    cursor.expect_end()
    if not actions:
        cursor.fail("a clause of ALTER TABLE expected")
    return AlterTable(table, tuple(actions))


def _actions(cursor: DdlCursor) -> list[Action]:
    read = _ACTIONS.get(cursor.next_key)
    if read is not None:
        cursor.consume_token()
        return read(cursor)
    options = skip_options(cursor, "alter")
    if not options.count:
        cursor.fail("a clause of ALTER TABLE expected")
    return [NoColumnChange("storage")]


# --- columns ----------------------------------------------------------------------------------------------------------


def _add(cursor: DdlCursor) -> list[Action]:
    if cursor.next_key in _PARTITION or cursor.next_key in ("OVERFLOW", "CLUSTERING"):
        return _upkeep(cursor, f"add {cursor.next_key.lower()}")
    if cursor.next_key == "SUPPLEMENTAL":
        return _supplemental(cursor, "add supplemental logging")
    if cursor.next_key == "(":
        return [_added(e) for e in read_elements(cursor)] or [NoColumnChange("add constraint")]
    if cursor.has_next_keys("PERIOD", "FOR"):
        cursor.fail("columns of a period are not understood")
    if not at_constraint(cursor):
        column, keys = read_column(cursor)
        if column.type is None and not column.virtual:
            cursor.fail("a type expected")
        return [AddColumn(column), *map(AddKey, keys)]
    actions: list[Action] = []
    while at_constraint(cursor):
        key = read_constraint(cursor)
        actions.append(AddKey(key) if key is not None else NoColumnChange("add constraint"))
    return actions


def _added(element: Element) -> Action:
    return AddColumn(element) if isinstance(element, ColumnDefinition) else AddKey(element)


def _supplemental(cursor: DdlCursor, clause: str) -> list[Action]:
    while True:
        cursor.expect("SUPPLEMENTAL")
        skip_supplemental(cursor)
        if not cursor.accept(","):
            return [NoColumnChange(clause)]


def _modify(cursor: DdlCursor) -> list[Action]:
    if cursor.accept("CONSTRAINT"):
        cursor.parse_name()
        return _key_state(cursor, "modify constraint")
    if cursor.accept("PRIMARY", "KEY"):
        return _key_state(cursor, "modify primary key")
    if cursor.accept("UNIQUE"):
        cursor.parse_names()
        return _key_state(cursor, "modify unique key")
    if cursor.next_key in (*_PARTITION, "LOB", "VARRAY", "NESTED", "CLUSTERING") or cursor.has_next_keys(
        "DEFAULT", "ATTRIBUTES"
    ):
        return _upkeep(cursor, f"modify {cursor.next_key.lower()}", allowed=("ADD", "DROP"))
    actions: list[Action] = []
    if not cursor.accept("("):
        return _modified(cursor)
    while True:
        actions += _modified(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return actions


def _modified(cursor: DdlCursor) -> list[Action]:
    mark = cursor.mark()
    column, keys = read_column(cursor)
    if cursor.mark() == mark + 1:
        cursor.fail("the definition of the column is missing")
    return [ModifyColumn(column), *map(AddKey, keys)]


def _key_state(cursor: DdlCursor, clause: str) -> list[Action]:
    read_state(cursor)
    cursor.accept("CASCADE")
    return [KeysChanged(clause)]


def _drop(cursor: DdlCursor) -> list[Action]:
    if cursor.next_key in _PARTITION:
        return _partition_data(cursor, "drop partition")
    if cursor.next_key == "SUPPLEMENTAL":
        return _supplemental(cursor, LESS_LOGGED)
    if cursor.accept("UNUSED", "COLUMNS") or cursor.accept("COLUMNS", "CONTINUE"):
        _checkpoint(cursor)
        return [NoColumnChange("drop unused columns")]
    if cursor.accept("CLUSTERING"):
        return [NoColumnChange("drop clustering")]
    if cursor.accept("PRIMARY", "KEY"):
        return _dropped_key(cursor, KeysChanged("drop primary key", primary=True))
    if cursor.accept("UNIQUE"):
        cursor.parse_names()
        return _dropped_key(cursor, KeysChanged("drop unique key"))
    if cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        cursor.parse_name()
        return _dropped_key(cursor, KeysChanged("drop constraint"))
    return _dropped_columns(cursor)


def _dropped_key(cursor: DdlCursor, action: KeysChanged) -> list[Action]:
    cursor.accept("CASCADE")
    if cursor.accept_any("KEEP", "DROP"):
        cursor.expect("INDEX")
    cursor.accept("ONLINE")
    return [action]


def _dropped_columns(cursor: DdlCursor) -> list[Action]:
    """``COLUMN a`` or ``(a, b)`` with the clauses that follow, of ``DROP`` and ``SET UNUSED``."""
    names = cursor.parse_names() if cursor.next_key == "(" else None
    if names is None:
        cursor.expect("COLUMN")
        names = (cursor.parse_name(),)
    while cursor.accept("CASCADE", "CONSTRAINTS") or cursor.accept_any("INVALIDATE", "ONLINE"):
        pass
    _checkpoint(cursor)
    return [DropColumn(name) for name in names]


def _checkpoint(cursor: DdlCursor) -> None:
    if cursor.accept("CHECKPOINT"):
        cursor.parse_integer()


def _set(cursor: DdlCursor) -> list[Action]:
    if cursor.accept("UNUSED"):
        return _dropped_columns(cursor)
    if cursor.next_key in ("INTERVAL", "SUBPARTITION", "PARTITIONING", "STORE"):
        return _upkeep(cursor, f"set {cursor.next_key.lower()}")
    return cursor.fail("UNUSED expected")


def _rename(cursor: DdlCursor) -> list[Action]:
    if cursor.accept("COLUMN"):
        old = cursor.parse_name()
        cursor.expect("TO")
        return [RenameColumn(old, cursor.parse_name())]
    if cursor.accept("CONSTRAINT"):
        cursor.parse_name()
        cursor.expect("TO")
        cursor.parse_name()
        return [NoColumnChange("rename constraint")]
    if cursor.next_key in (*_PARTITION, "LOB"):
        return _upkeep(cursor, "rename partition")
    cursor.expect("TO")
    return [RenameTo(cursor.parse_table_name())]


# --- keys, rows and partitions ----------------------------------------------------------------------------------------


def _enable(cursor: DdlCursor) -> list[Action]:
    """``ENABLE`` and ``DISABLE``."""
    for words in (("ROW", "MOVEMENT"), ("TABLE", "LOCK"), ("ALL", "TRIGGERS")):
        if cursor.accept(*words):
            return [NoColumnChange(" ".join(words).lower())]
    if cursor.accept("LOGICAL", "REPLICATION"):
        return _upkeep(cursor, "logical replication")
    cursor.accept_any("VALIDATE", "NOVALIDATE")
    if cursor.accept("CONSTRAINT"):
        cursor.parse_name()
    elif cursor.accept("UNIQUE"):
        cursor.parse_names()
    else:
        cursor.expect("PRIMARY", "KEY")
    read_state(cursor)
    cursor.accept("CASCADE")
    if cursor.accept_any("KEEP", "DROP"):
        cursor.expect("INDEX")
    return [KeysChanged("enable or disable constraint")]


def _exchange(cursor: DdlCursor) -> list[Action]:
    if not cursor.accept_any("PARTITION", "SUBPARTITION"):
        cursor.fail("PARTITION expected")
    if cursor.accept("FOR"):
        cursor.skip_group()
    else:
        cursor.parse_name()
    cursor.expect("WITH", "TABLE")
    table = cursor.parse_table_name()
    return [ChangePartitionData("exchange partition", (table,), "CASCADE" in _to_end(cursor, ()))]


def _truncate(cursor: DdlCursor) -> list[Action]:
    if cursor.next_key not in _PARTITION:
        cursor.fail("PARTITION expected")
    return _partition_data(cursor, "truncate partition")


def _partition_data(cursor: DdlCursor, clause: str) -> list[Action]:
    return [ChangePartitionData(clause, (), "CASCADE" in _to_end(cursor, ("DROP",)))]


def _upkeep(cursor: DdlCursor, clause: str, allowed: tuple[str, ...] = ()) -> list[Action]:
    """Parse a clause that continues to the end of the statement; ``INCLUDING ROWS WHERE`` leaves rows out."""
    words = _to_end(cursor, allowed)
    return [ChangePartitionData(clause) if ("INCLUDING", "ROWS") in pairwise(words) else NoColumnChange(clause)]


def _to_end(cursor: DdlCursor, allowed: tuple[str, ...]) -> list[str]:
    """Move to the end, unless a clause seems to follow that changes columns; the words up to there."""
    words, depth = [], 0
    for token in cursor.read_rest():
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if not depth:
            if token.key in ("ADD", "MODIFY", "RENAME", "DROP") and token.key not in allowed:
                cursor.fail(f"{token.key} is not understood here")
            words.append(token.key)
    return words


def _maintain(clause: str) -> Callable[[DdlCursor], list[Action]]:
    return lambda cursor: _upkeep(cursor, clause)


def _ilm(cursor: DdlCursor) -> list[Action]:
    cursor.read_rest()
    return [NoColumnChange("ilm")]


_ACTIONS: dict[str, Callable[[DdlCursor], list[Action]]] = {
    "ADD": _add,
    "MODIFY": _modify,
    "DROP": _drop,
    "SET": _set,
    "RENAME": _rename,
    "ENABLE": _enable,
    "DISABLE": _enable,
    "EXCHANGE": _exchange,
    "TRUNCATE": _truncate,
    "MOVE": _maintain("move"),
    "SPLIT": _maintain("split partition"),
    "MERGE": _maintain("merge partitions"),
    "COALESCE": _maintain("coalesce"),
    "SHRINK": _maintain("shrink"),
    "ILM": _ilm,
}
"""First word → function that reads the clause after that word."""
