"""Statements on whole tables, indexes and databases."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import DropKey
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.key_clauses import read_key_parts, skip_index_type
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.table_options import MySqlTableOptions, read_charset
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
from airflow_provider_cdc.sources.relational.ddl_statements import QualifiedName


def read_drop_table(cursor: MySqlTokenCursor, *, temporary: bool) -> DropTable:
    """Parse the statement after ``TABLE`` or ``TABLES``."""
    if_exists = cursor.accept("IF", "EXISTS")
    tables = [cursor.parse_table_name()]
    while cursor.accept(","):
        tables.append(cursor.parse_table_name())
    cursor.skip_wait()
    cursor.accept_any("RESTRICT", "CASCADE")
    cursor.expect_end()
    return DropTable(tuple(tables), temporary, if_exists)


def read_rename_table(cursor: MySqlTokenCursor) -> RenameTable:
    """Parse the statement after ``TABLE`` or ``TABLES``."""
    if_exists = cursor.accept("IF", "EXISTS")
    pairs: list[tuple[QualifiedName, QualifiedName]] = []
    while True:
        old = cursor.parse_table_name()
        cursor.skip_wait()
        cursor.expect("TO")
        pairs.append((old, cursor.parse_table_name()))
        if not cursor.accept(","):
            break
    cursor.expect_end()
    return RenameTable(tuple(pairs), if_exists)


def read_truncate(cursor: MySqlTokenCursor) -> TruncateTable:
    """Parse the statement after ``TRUNCATE``."""
    cursor.accept("TABLE")
    table = cursor.parse_table_name()
    cursor.skip_wait()
    cursor.expect_end()
    return TruncateTable(table)


def read_create_index(cursor: MySqlTokenCursor, *, or_replace: bool, unique: bool) -> list[Statement]:
    """Parse the statement after ``INDEX``; ``OR REPLACE`` first drops."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.read_name()
    skip_index_type(cursor)
    cursor.expect("ON")
    table = cursor.parse_table_name()
    columns, usable = read_key_parts(cursor)
    cursor.skip_clause()  # options of the index, algorithm, lock, wait
    cursor.expect_end()
    created = CreateIndex(table, unique, columns, usable, name, if_not_exists)
    return [DropIndex(table, name), created] if or_replace else [created]


def read_drop_index(cursor: MySqlTokenCursor) -> Statement:
    """Parse the statement after ``INDEX``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.read_name()
    cursor.expect("ON")
    table = cursor.parse_table_name()
    cursor.skip_clause()  # algorithm, lock, wait
    cursor.expect_end()
    if name.upper() == "PRIMARY":
        return AlterTable(table, (DropKey("primary"),))
    return DropIndex(table, name)


def read_create_database(cursor: MySqlTokenCursor, *, or_replace: bool) -> list[Statement]:
    """Parse the statement after ``DATABASE`` or ``SCHEMA``; ``OR REPLACE`` first drops, with all tables."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.read_name()
    options = _database_options(cursor)
    created = CreateDatabase(name, options.charset, options.collation, if_not_exists)
    return [DropDatabase(name), created] if or_replace else [created]


def read_alter_database(cursor: MySqlTokenCursor) -> AlterDatabase:
    """Parse the statement after ``DATABASE`` or ``SCHEMA``; without a name it is the session's database."""
    options = _database_options(cursor, finish=False)
    if options.count:
        cursor.expect_end()
        return AlterDatabase(None, options.charset, options.collation)
    name = cursor.read_name()
    options = _database_options(cursor)
    if not options.count:
        cursor.fail("an option of a database expected")
    return AlterDatabase(name, options.charset, options.collation)


def read_drop_database(cursor: MySqlTokenCursor) -> DropDatabase:
    """Parse the statement after ``DATABASE`` or ``SCHEMA``."""
    cursor.accept("IF", "EXISTS")
    name = cursor.read_name()
    cursor.expect_end()
    return DropDatabase(name)


def _database_options(cursor: MySqlTokenCursor, *, finish: bool = True) -> MySqlTableOptions:
    options = MySqlTableOptions()
    while True:
        mark = cursor.mark()
        cursor.accept("DEFAULT")
        if cursor.accept("ENCRYPTION") or cursor.accept("COMMENT"):
            cursor.accept("=")
            cursor.parse_string()
        elif cursor.accept("READ", "ONLY"):
            cursor.accept("=")
            cursor.consume_token()
        else:
            cursor.reset(mark)
            if not read_charset(cursor, options):
                break
        options.count += 1
    if finish:
        cursor.expect_end()
    return options.infer_charset()
