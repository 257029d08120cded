"""``CREATE TABLE``."""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import ColumnDefinition, KeyDefinition
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.column_definition import read_column
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.constraints import (
    at_constraint,
    read_constraint,
    skip_supplemental,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.physical_properties import skip_options
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import CreateTable

Element = ColumnDefinition | KeyDefinition


def read_create_table(cursor: DdlCursor) -> CreateTable:
    """Parse the statement after ``CREATE``."""
    temporary = cursor.accept("GLOBAL", "TEMPORARY") or cursor.accept("PRIVATE", "TEMPORARY")
    cursor.accept("IMMUTABLE")
    cursor.accept("BLOCKCHAIN")
    cursor.accept_any("SHARDED", "DUPLICATED")
    cursor.expect("TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = cursor.parse_table_name()
    if cursor.accept("SHARING", "="):
        cursor.accept("EXTENDED")
        if not cursor.accept_any("METADATA", "DATA", "NONE"):
            cursor.fail("a kind of sharing expected")
    of = str(cursor.object_name()) if cursor.accept("OF") else None
    elements: list[Element] = []
    if cursor.next_key == "(":
        elements = _object_elements(cursor) if of else read_elements(cursor)
    options = skip_options(cursor, "create")
    select = _query(cursor)
    cursor.expect_end()
    columns = tuple(e for e in elements if isinstance(e, ColumnDefinition))
    if not columns and not select and of is None:
        cursor.fail("columns expected")
    return CreateTable(
        table=table,
        columns=columns,
        keys=tuple(e for e in elements if isinstance(e, KeyDefinition)),
        select=select,
        temporary=temporary,
        organization=options.organization,
        object_type=of,
        if_not_exists=if_not_exists,
    )


def read_elements(cursor: DdlCursor) -> list[Element]:
    """``(column, constraint, …)`` of ``CREATE TABLE`` and ``ADD``; clauses that are neither column nor key are left out."""
    elements: list[Element] = []
    cursor.expect("(")
    while True:
        if cursor.accept("SUPPLEMENTAL"):
            skip_supplemental(cursor)
        elif at_constraint(cursor):
            key = read_constraint(cursor)
            elements += [key] if key is not None else []
        elif cursor.has_next_keys("PERIOD", "FOR"):
            cursor.fail("columns of a period are not understood")
        else:
            column, keys = read_column(cursor)
            elements += [column, *keys]
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return elements


def _object_elements(cursor: DdlCursor) -> list[Element]:
    """Skip the elements of an object table: its columns are those of the type, whatever stands here."""
    cursor.skip_group()
    return []


def _query(cursor: DdlCursor) -> bool:
    if not cursor.accept("AS"):
        return False
    if cursor.next_key not in ("SELECT", "WITH", "("):
        cursor.fail("a query expected")
    cursor.read_rest()
    return True
