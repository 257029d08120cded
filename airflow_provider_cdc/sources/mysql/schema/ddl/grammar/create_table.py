"""``CREATE TABLE``."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import AddKey, AddPeriod
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.column_grammar import read_column
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.key_clauses import read_key
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.table_options import (
    QUERY_WORDS,
    read_table_options,
    skip_partitioning,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import CreateTable
from airflow_provider_cdc.sources.relational.ddl_statements import QualifiedName


def read_create_table(cursor: MySqlTokenCursor, *, or_replace: bool, temporary: bool) -> CreateTable:
    """Parse the statement after ``TABLE``."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = cursor.parse_table_name()
    like = _like(cursor)
    if like is not None:
        return CreateTable(table, like=like, or_replace=or_replace, if_not_exists=if_not_exists, temporary=temporary)
    elements = read_elements(cursor) if cursor.next_key == "(" and cursor.peek().key not in QUERY_WORDS else []
    options = read_table_options(cursor, commas=True)
    if cursor.accept("PARTITION", "BY"):
        skip_partitioning(cursor)
    select = _query(cursor)
    cursor.expect_end()
    columns = tuple(e for e in elements if isinstance(e, ColumnDef))
    if not columns and not select:
        cursor.fail("the storage engine determines the columns")
    periods = {name.lower() for e in elements if isinstance(e, AddPeriod) for name in e.columns}
    columns = tuple(replace(c, nullable=False) if c.name.lower() in periods else c for c in columns)
    keys = _keys(elements)
    unique = [k for k in keys if k.kind == "unique" and k.usable]
    return CreateTable(
        table=table,
        columns=columns,
        primary_key=next((k.columns for k in keys if k.kind == "primary"), ()),
        unique_keys=tuple(k.columns for k in unique),
        charset=options.charset,
        collation=options.collation,
        select=select,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        temporary=temporary,
        unique_key_names=tuple(k.name for k in unique),
        comment=options.comment,
        sequence=options.sequence,
        versioned=options.versioned or any(c.versioned for c in columns),
    )


def read_elements(cursor: MySqlTokenCursor) -> list[ColumnDef | AddKey | AddPeriod]:
    """``(column, key, …)``, of ``CREATE TABLE`` and ``ADD``; clauses that concern neither columns nor row keys are left out."""
    elements: list[ColumnDef | AddKey | AddPeriod] = []
    cursor.expect("(")
    while True:
        key = read_key(cursor)
        if key is None:
            elements.append(read_column(cursor))
        elif isinstance(key, AddKey | AddPeriod):
            elements.append(key)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return elements


def _like(cursor: MySqlTokenCursor) -> QualifiedName | None:
    parenthesis = cursor.accept("(", "LIKE")
    if not parenthesis and not cursor.accept("LIKE"):
        return None
    like = cursor.parse_table_name(changed=False)
    if parenthesis:
        cursor.expect(")")
    cursor.expect_end()
    return like


def _query(cursor: MySqlTokenCursor) -> bool:
    duplicates = cursor.accept_any("IGNORE", "REPLACE")
    as_ = cursor.accept("AS")
    if cursor.next_key in QUERY_WORDS:
        cursor.skip_rest()
        return True
    if duplicates or as_:
        cursor.fail("a query expected")
    return False


def _keys(elements: list[ColumnDef | AddKey | AddPeriod]) -> list[AddKey]:
    """All keys in order, those that columns bring along included."""
    keys: list[AddKey] = []
    for element in elements:
        if isinstance(element, AddKey):
            keys.append(element)
            continue
        if isinstance(element, AddPeriod):
            continue
        if element.primary:
            keys.append(AddKey("primary", (element.name,)))
        if element.unique:
            keys.append(AddKey("unique", (element.name,)))
    return keys
