"""Statements on whole tables, indexes and schemas."""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import (
    AlterIndex,
    CreateIndex,
    DropIndex,
    DropTable,
    DropUser,
    FlashbackTable,
    Rename,
    Statement,
    TruncateCluster,
    TruncateTable,
)
from airflow_provider_cdc.sources.relational.ddl_statements import Ignored, Name


def read_drop_table(cursor: Cursor) -> DropTable:
    """The statement after ``TABLE``."""
    cursor.accept("IF", "EXISTS")
    table = cursor.table()
    cursor.accept("IF", "EXISTS")
    cursor.accept("CASCADE", "CONSTRAINTS")
    purge = cursor.accept("PURGE")
    bin_name = cursor.name() if cursor.accept("AS") else None
    cursor.finish()
    return DropTable(table, purge, bin_name)


def read_truncate(cursor: Cursor) -> Statement:
    """The statement after ``TRUNCATE``."""
    if cursor.accept("CLUSTER"):
        cluster = cursor.object_name()
        _storage(cursor)
        cursor.finish()
        return TruncateCluster(cluster)
    cursor.expect("TABLE")
    table = cursor.table()
    if cursor.accept_any("PRESERVE", "PURGE"):
        cursor.expect("MATERIALIZED", "VIEW", "LOG")
    _storage(cursor)
    cascade = cursor.accept("CASCADE")
    cursor.finish()
    return TruncateTable(table, cascade)


def _storage(cursor: Cursor) -> None:
    if cursor.accept_any("DROP", "REUSE"):
        cursor.accept("ALL")
        cursor.expect("STORAGE")


def read_flashback(cursor: Cursor) -> FlashbackTable:
    """The statement after ``TABLE``."""
    tables = [cursor.table()]
    while cursor.accept(","):
        tables.append(cursor.table())
    cursor.expect("TO")
    if not cursor.accept("BEFORE", "DROP"):
        if not cursor.accept_any("SCN", "TIMESTAMP", "RESTORE"):
            cursor.fail("BEFORE DROP, SCN, TIMESTAMP or RESTORE POINT expected")
        cursor.rest()
        return FlashbackTable(tuple(tables))
    renamed = None
    if cursor.accept("RENAME", "TO"):
        renamed = cursor.table()
    cursor.finish()
    return FlashbackTable(tuple(tables), True, renamed)


def read_rename(cursor: Cursor) -> Rename:
    """The statement after ``RENAME``."""
    old = cursor.table()
    cursor.expect("TO")
    new = cursor.table()
    cursor.finish()
    return Rename(old, new)


def read_create_index(cursor: Cursor) -> Statement:
    """The statement after ``CREATE``."""
    unique = bool(cursor.accept_any("UNIQUE", "BITMAP", "MULTIVALUE") == "UNIQUE")
    cursor.expect("INDEX")
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name()
    cursor.expect("ON")
    if cursor.accept("CLUSTER"):
        cursor.rest()
        return Ignored("create cluster index")
    table = cursor.table()
    if cursor.key != "(":
        cursor.name()  # an alias, of a bitmap join index
    columns = _index_columns(cursor)
    cursor.rest()
    return CreateIndex(name, table, unique, columns)


def _index_columns(cursor: Cursor) -> tuple[str, ...]:
    mark = cursor.mark()
    columns: list[str] = []
    cursor.expect("(")
    while cursor.at_name:
        columns.append(cursor.name())
        cursor.accept_any("ASC", "DESC")
        if cursor.accept(")"):
            return tuple(columns)
        if not cursor.accept(","):
            break
    cursor.reset(mark)
    cursor.skip_group()
    return ()


def read_drop_index(cursor: Cursor) -> DropIndex:
    """The statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.object_name()
    cursor.accept("IF", "EXISTS")
    while cursor.accept_any("ONLINE", "FORCE", "DEFERRED", "IMMEDIATE", "INVALIDATION"):
        pass
    cursor.finish()
    return DropIndex(name)


def read_alter_index(cursor: Cursor) -> AlterIndex:
    """The statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.object_name()
    renamed = cursor.name() if cursor.accept("RENAME", "TO") else None
    cursor.rest()
    return AlterIndex(name, renamed)


def read_drop_user(cursor: Cursor) -> DropUser:
    """The statement after ``USER``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.accept("IF", "EXISTS")
    cursor.accept("CASCADE")
    cursor.finish()
    return DropUser(name)


def read_drop_view(cursor: Cursor) -> Statement:
    """``DROP MATERIALIZED VIEW`` after ``VIEW``: with ``PRESERVE TABLE`` a table is left."""
    if cursor.accept("LOG"):
        cursor.rest()
        return Ignored("drop materialized view log")
    cursor.accept("IF", "EXISTS")
    name: Name = cursor.object_name()
    if cursor.accept("PRESERVE", "TABLE"):
        cursor.tables.append(name)
        cursor.fail("a materialized view becomes a table")
    cursor.finish()
    return Ignored("drop materialized")
