"""SQL text of a DDL row → a statement.

    >>> parse_ddl_statement("ALTER TABLE shop.orders ADD (total NUMBER(12,2))").table
    Name(namespace='SHOP', name='ORDERS')
    >>> parse_ddl_statement("ALTER TABLE orders FROBNICATE").tables
    (Name(namespace=None, name='ORDERS'),)

The reader knows a closed grammar. Whatever is outside of it, in however small a part, makes the whole statement :class:`UnknownStatement`;
then the catalog has to be read. It never raises and never takes a clause for granted.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.alter_table_grammar import read_alter_table
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.create_table_grammar import read_create_table
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ignored_statements import ignored_kind
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.object_statement_grammar import (
    read_alter_index,
    read_comment,
    read_create_index,
    read_drop_index,
    read_drop_table,
    read_drop_user,
    read_drop_view,
    read_flashback,
    read_rename,
    read_truncate,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.sql_tokenizer import tokenize
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import Statement
from airflow_provider_cdc.sources.relational.ddl_statements import IgnoredStatement, UnknownStatement
from airflow_provider_cdc.sources.relational.sql_token_cursor import StatementNotUnderstood

_HEAD = 12
"""Number of tokens that identify the kind of a statement; the body of a package is never cut up."""


def parse_ddl_statement(sql: str) -> Statement:
    """Parse the statement of a text.

    :param sql: text of a DDL row (``SQL_REDO`` of operation code 5), its continuation rows joined; with or without the ``;`` or
        ``/`` at the end

    >>> parse_ddl_statement('drop table t AS "BIN$x==$0" ;').bin_name
    'BIN$x==$0'
    >>> parse_ddl_statement("CREATE OR REPLACE PROCEDURE p IS BEGIN NULL; END;")
    Ignored(kind='create procedure')
    """
    if not sql.strip(" \t\r\n\0;/"):
        return UnknownStatement(sql.strip(), (), "the statement is empty")
    head = DdlCursor(sql, tokenize(sql, _HEAD))
    if head.is_at_end:
        return IgnoredStatement("comment")
    kind = ignored_kind(head)
    if kind:
        return IgnoredStatement(kind)
    cursor = DdlCursor(sql, tokenize(sql))
    try:
        return _statement(cursor)
    except StatementNotUnderstood as e:
        if head.next_key == "COMMENT":  # whatever it says, no row is read in another way
            return IgnoredStatement("comment")
        return UnknownStatement(sql.strip(), tuple(dict.fromkeys(cursor.tables)), str(e))


def _statement(cursor: DdlCursor) -> Statement:
    match cursor.consume_token().key:
        case "CREATE":
            if cursor.next_key in ("INDEX", "UNIQUE", "BITMAP", "MULTIVALUE"):
                return read_create_index(cursor)
            return read_create_table(cursor)
        case "ALTER":
            if cursor.accept("INDEX"):
                return read_alter_index(cursor)
            cursor.expect("TABLE")
            return read_alter_table(cursor)
        case "DROP":
            return _drop(cursor)
        case "TRUNCATE":
            return read_truncate(cursor)
        case "RENAME":
            return read_rename(cursor)
        case "COMMENT":
            return read_comment(cursor)
        case "FLASHBACK":
            cursor.expect("TABLE")
            return read_flashback(cursor)
        case _:
            return cursor.fail("no known statement starts like this")


def _drop(cursor: DdlCursor) -> Statement:
    if cursor.accept("TABLE"):
        return read_drop_table(cursor)
    if cursor.accept("INDEX"):
        return read_drop_index(cursor)
    if cursor.accept("USER"):
        return read_drop_user(cursor)
    if cursor.accept("MATERIALIZED", "VIEW"):
        return read_drop_view(cursor)
    if cursor.next_key in ("CLUSTER", "TABLESPACE", "MATERIALIZED"):
        kind = cursor.consume_token().key
        words = [t.key for t in cursor.read_rest()]
        if "INCLUDING" in words:
            cursor.fail(f"tables may be dropped with the {kind.lower()}")
        return IgnoredStatement(f"drop {kind.lower()}")
    return cursor.fail("a kind of object expected")
