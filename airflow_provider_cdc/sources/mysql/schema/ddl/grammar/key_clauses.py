"""Keys and constraints inside ``CREATE TABLE (…)`` and after ``ADD``."""

from __future__ import annotations

from typing import Literal

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import AddKey, AddPeriod
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange
from airflow_provider_cdc.sources.relational.sql_token_cursor import QUOTED, WORD

_INDEX_TYPES = ("BTREE", "HASH", "RTREE")


def read_key(cursor: MySqlTokenCursor) -> AddKey | AddPeriod | NoColumnChange | None:
    """Parse a key, index or constraint; ``None`` (and nothing read) when a column definition comes."""
    constraint, if_not_exists = None, False
    if cursor.accept("CONSTRAINT"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        if cursor.next_key not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            constraint = cursor.read_name()
        if cursor.next_key not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            cursor.fail("a constraint expected")
    if cursor.accept("PRIMARY"):
        cursor.expect("KEY")
        return _key(cursor, None, if_not_exists, primary=True)
    if cursor.accept("UNIQUE"):
        cursor.accept_any("INDEX", "KEY")
        return _key(cursor, constraint, if_not_exists, primary=False)
    if cursor.next_key == "PERIOD" and cursor.peek().key == "FOR":
        return read_period(cursor)
    clause = _other(cursor)
    if clause is None:
        return None
    cursor.skip_clause()
    return NoColumnChange(f"add {clause}")


def read_period(cursor: MySqlTokenCursor) -> AddPeriod | NoColumnChange:
    """``PERIOD FOR name (start, end)``; that of system versioning is over columns that say so themselves."""
    cursor.expect("PERIOD", "FOR")
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.read_name()
    columns, _ = read_key_parts(cursor)
    return NoColumnChange("period") if name.upper() == "SYSTEM_TIME" else AddPeriod(columns)


def _other(cursor: MySqlTokenCursor) -> str | None:
    """Parse the kind of an index or constraint that concerns neither columns nor row keys."""
    if cursor.accept_any("INDEX", "KEY"):
        return "index"
    if cursor.next_key in ("FULLTEXT", "SPATIAL"):
        return f"{cursor.consume_token().value.lower()} index"
    if cursor.next_key == "VECTOR" and (cursor.peek().key in ("INDEX", "KEY", "(") or _is_vector_index(cursor)):
        cursor.consume_token()
        return "vector index"
    if cursor.accept("FOREIGN"):
        cursor.expect("KEY")
        return "foreign key"
    if cursor.accept("CHECK"):
        return "check"
    return None


def _is_vector_index(cursor: MySqlTokenCursor) -> bool:
    """``VECTOR name (column)`` is an index; ``vector VARCHAR(10)`` is a column that is called so."""
    return cursor.peek(2).key == "(" and cursor.peek(3).kind in (WORD, QUOTED) and cursor.peek(4).key == ")"


def _key(cursor: MySqlTokenCursor, name: str | None, if_not_exists: bool, *, primary: bool) -> AddKey:
    """``name`` is the constraint's; the key's own, if there is one, wins."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS") or if_not_exists
    if cursor.next_token.kind in (WORD, QUOTED) and not _at_index_type(cursor):
        name = cursor.read_name()
    skip_index_type(cursor)
    columns, usable = read_key_parts(cursor)
    cursor.skip_clause()  # index options
    kind: Literal["primary", "unique"] = "primary" if primary else "unique"
    return AddKey(kind, columns, usable, None if primary else name, if_not_exists)


def _at_index_type(cursor: MySqlTokenCursor) -> bool:
    return cursor.next_key in ("USING", "TYPE") and cursor.peek().key in _INDEX_TYPES


def skip_index_type(cursor: MySqlTokenCursor) -> None:
    """Skip ``USING BTREE``."""
    if _at_index_type(cursor):
        cursor.consume_token()
        cursor.consume_token()


def read_key_parts(cursor: MySqlTokenCursor) -> tuple[tuple[str, ...], bool]:
    """Parse ``(a, b(10) DESC, (lower(c)))`` → the columns, and whether all parts are whole columns."""
    columns: list[str] = []
    usable = True
    cursor.expect("(")
    while True:
        if cursor.next_key == "(":
            cursor.skip_group()
            usable = False
        else:
            columns.append(cursor.read_column_name())
            if cursor.accept("("):
                cursor.parse_integer()
                cursor.expect(")")
                usable = False
        cursor.accept_any("ASC", "DESC")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(columns), usable
