"""Statements on whole tables, indexes and databases."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.actions import DropKey
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.keys import read_key_parts, skip_index_type
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.options import Options, read_charset
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateIndex,
    DropDatabase,
    DropIndex,
    DropTable,
    RenameTable,
    Statement,
    TruncateTable,
)
from airflow_provider_cdc.sources.relational.ddl_statements import Name


def read_drop_table(cursor: Cursor, *, temporary: bool) -> DropTable:
    """The statement after ``TABLE`` or ``TABLES``."""
    if_exists = cursor.accept("IF", "EXISTS")
    tables = [cursor.table()]
    while cursor.accept(","):
        tables.append(cursor.table())
    cursor.skip_wait()
    cursor.accept_any("RESTRICT", "CASCADE")
    cursor.finish()
    return DropTable(tuple(tables), temporary, if_exists)


def read_rename_table(cursor: Cursor) -> RenameTable:
    """The statement after ``TABLE`` or ``TABLES``."""
    if_exists = cursor.accept("IF", "EXISTS")
    pairs: list[tuple[Name, Name]] = []
    while True:
        old = cursor.table()
        cursor.skip_wait()
        cursor.expect("TO")
        pairs.append((old, cursor.table()))
        if not cursor.accept(","):
            break
    cursor.finish()
    return RenameTable(tuple(pairs), if_exists)


def read_truncate(cursor: Cursor) -> TruncateTable:
    """The statement after ``TRUNCATE``."""
    cursor.accept("TABLE")
    table = cursor.table()
    cursor.skip_wait()
    cursor.finish()
    return TruncateTable(table)


def read_create_index(cursor: Cursor, *, or_replace: bool, unique: bool) -> list[Statement]:
    """The statement after ``INDEX``; ``OR REPLACE`` first drops."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    skip_index_type(cursor)
    cursor.expect("ON")
    table = cursor.table()
    columns, usable = read_key_parts(cursor)
    cursor.skip_clause()  # options of the index, algorithm, lock, wait
    cursor.finish()
    created = CreateIndex(table, unique, columns, usable, name, if_not_exists)
    return [DropIndex(table, name), created] if or_replace else [created]


def read_drop_index(cursor: Cursor) -> Statement:
    """The statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.expect("ON")
    table = cursor.table()
    cursor.skip_clause()  # algorithm, lock, wait
    cursor.finish()
    if name.upper() == "PRIMARY":
        return AlterTable(table, (DropKey("primary"),))
    return DropIndex(table, name)


def read_create_database(cursor: Cursor, *, or_replace: bool) -> list[Statement]:
    """The statement after ``DATABASE`` or ``SCHEMA``; ``OR REPLACE`` first drops, with all tables."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    options = _database_options(cursor)
    created = CreateDatabase(name, options.charset, options.collation, if_not_exists)
    return [DropDatabase(name), created] if or_replace else [created]


def read_alter_database(cursor: Cursor) -> AlterDatabase:
    """The statement after ``DATABASE`` or ``SCHEMA``; without a name it is the session's database."""
    options = _database_options(cursor, finish=False)
    if options.count:
        cursor.finish()
        return AlterDatabase(None, options.charset, options.collation)
    name = cursor.name()
    options = _database_options(cursor)
    if not options.count:
        cursor.fail("an option of a database expected")
    return AlterDatabase(name, options.charset, options.collation)


def read_drop_database(cursor: Cursor) -> DropDatabase:
    """The statement after ``DATABASE`` or ``SCHEMA``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.finish()
    return DropDatabase(name)


def _database_options(cursor: Cursor, *, finish: bool = True) -> Options:
    options = Options()
    while True:
        mark = cursor.mark()
        cursor.accept("DEFAULT")
        if cursor.accept("ENCRYPTION") or cursor.accept("COMMENT"):
            cursor.accept("=")
            cursor.text()
        elif cursor.accept("READ", "ONLY"):
            cursor.accept("=")
            cursor.take()
        else:
            cursor.reset(mark)
            if not read_charset(cursor, options):
                break
        options.count += 1
    if finish:
        cursor.finish()
    return options.finish()
