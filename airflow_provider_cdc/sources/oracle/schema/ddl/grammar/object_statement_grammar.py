"""Statements on whole tables, indexes and schemas."""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import (
    AlterIndex,
    CommentOn,
    CreateIndex,
    DropIndex,
    DropTable,
    DropUser,
    FlashbackTable,
    RenameObject,
    Statement,
    TruncateCluster,
    TruncateTable,
)
from airflow_provider_cdc.sources.relational.ddl_statements import IgnoredStatement, QualifiedName
from airflow_provider_cdc.sources.relational.sql_token_cursor import STRING


def read_comment(cursor: DdlCursor) -> Statement:
    """Parse the statement after ``COMMENT``. Comments on anything but tables and their columns concern no table."""
    cursor.expect("ON")
    of_column = cursor.accept("COLUMN")
    if not of_column and not cursor.accept("TABLE"):
        return IgnoredStatement("comment")
    path = [cursor.parse_name()]
    while cursor.accept("."):
        path.append(cursor.parse_name())
    column = path.pop() if of_column else None
    if not 0 < len(path) < 3:
        cursor.fail("a name of this database expected")
    cursor.expect("IS")
    if cursor.next_token.kind != STRING:
        cursor.fail("a text expected")
    text = cursor.consume_token().value
    cursor.expect_end()
    return CommentOn(QualifiedName(path[0] if len(path) > 1 else None, path[-1]), column, text or None)


def read_drop_table(cursor: DdlCursor) -> DropTable:
    """Parse the statement after ``TABLE``."""
    cursor.accept("IF", "EXISTS")
    table = cursor.parse_table_name()
    cursor.accept("IF", "EXISTS")
    cursor.accept("CASCADE", "CONSTRAINTS")
    purge = cursor.accept("PURGE")
    bin_name = cursor.parse_name() if cursor.accept("AS") else None
    cursor.expect_end()
    return DropTable(table, purge, bin_name)


def read_truncate(cursor: DdlCursor) -> Statement:
    """Parse the statement after ``TRUNCATE``."""
    if cursor.accept("CLUSTER"):
        cluster = cursor.object_name()
        _storage(cursor)
        cursor.expect_end()
        return TruncateCluster(cluster)
    cursor.expect("TABLE")
    table = cursor.parse_table_name()
    if cursor.accept_any("PRESERVE", "PURGE"):
        cursor.expect("MATERIALIZED", "VIEW", "LOG")
    _storage(cursor)
    cascade = cursor.accept("CASCADE")
    cursor.expect_end()
    return TruncateTable(table, cascade)


def _storage(cursor: DdlCursor) -> None:
    if cursor.accept_any("DROP", "REUSE"):
        cursor.accept("ALL")
        cursor.expect("STORAGE")


def read_flashback(cursor: DdlCursor) -> FlashbackTable:
    """Parse the statement after ``TABLE``."""
    tables = [cursor.parse_table_name()]
    while cursor.accept(","):
        tables.append(cursor.parse_table_name())
    cursor.expect("TO")
    if not cursor.accept("BEFORE", "DROP"):
        if not cursor.accept_any("SCN", "TIMESTAMP", "RESTORE"):
            cursor.fail("BEFORE DROP, SCN, TIMESTAMP or RESTORE POINT expected")
        cursor.read_rest()
        return FlashbackTable(tuple(tables))
    renamed = None
    if cursor.accept("RENAME", "TO"):
        renamed = cursor.parse_table_name()
    cursor.expect_end()
    return FlashbackTable(tuple(tables), True, renamed)


def read_rename(cursor: DdlCursor) -> RenameObject:
    """Parse the statement after ``RENAME``."""
    old = cursor.parse_table_name()
    cursor.expect("TO")
    new = cursor.parse_table_name()
    cursor.expect_end()
    return RenameObject(old, new)


def read_create_index(cursor: DdlCursor) -> Statement:
    """Parse the statement after ``CREATE``."""
    unique = bool(cursor.accept_any("UNIQUE", "BITMAP", "MULTIVALUE") == "UNIQUE")
    cursor.expect("INDEX")
    cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name()
    cursor.expect("ON")
    if cursor.accept("CLUSTER"):
        cursor.read_rest()
        return IgnoredStatement("create cluster index")
    table = cursor.parse_table_name()
    if cursor.next_key != "(":
        cursor.parse_name()  # an alias, of a bitmap join index
    columns = _index_columns(cursor)
    cursor.read_rest()
    return CreateIndex(name, table, unique, columns)


def _index_columns(cursor: DdlCursor) -> tuple[str, ...]:
    mark = cursor.mark()
    columns: list[str] = []
    cursor.expect("(")
    while cursor.at_name:
        columns.append(cursor.parse_name())
        cursor.accept_any("ASC", "DESC")
        if cursor.accept(")"):
            return tuple(columns)
        if not cursor.accept(","):
            break
    cursor.reset(mark)
    cursor.skip_group()
    return ()


def read_drop_index(cursor: DdlCursor) -> DropIndex:
    """Parse the statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.object_name()
    cursor.accept("IF", "EXISTS")
    while cursor.accept_any("ONLINE", "FORCE", "DEFERRED", "IMMEDIATE", "INVALIDATION"):
        pass
    cursor.expect_end()
    return DropIndex(name)


def read_alter_index(cursor: DdlCursor) -> AlterIndex:
    """Parse the statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.object_name()
    renamed = cursor.parse_name() if cursor.accept("RENAME", "TO") else None
    cursor.read_rest()
    return AlterIndex(name, renamed)


def read_drop_user(cursor: DdlCursor) -> DropUser:
    """Parse the statement after ``USER``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.parse_name()
    cursor.accept("IF", "EXISTS")
    cursor.accept("CASCADE")
    cursor.expect_end()
    return DropUser(name)


def read_drop_view(cursor: DdlCursor) -> Statement:
    """``DROP MATERIALIZED VIEW`` after ``VIEW``: with ``PRESERVE TABLE`` a table is left."""
    if cursor.accept("LOG"):
        cursor.read_rest()
        return IgnoredStatement("drop materialized view log")
    cursor.accept("IF", "EXISTS")
    name: QualifiedName = cursor.object_name()
    if cursor.accept("PRESERVE", "TABLE"):
        cursor.tables.append(name)
        cursor.fail("a materialized view becomes a table")
    cursor.expect_end()
    return IgnoredStatement("drop materialized")
