"""``CREATE TABLE``."""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.columns import ColumnDef, Key
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.attributes import read_column
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.constraints import (
    at_constraint,
    read_constraint,
    skip_supplemental,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.options import skip_options
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import CreateTable

Element = ColumnDef | Key


def read_create_table(cursor: Cursor) -> CreateTable:
    """The statement after ``CREATE``."""
    temporary = cursor.accept("GLOBAL", "TEMPORARY") or cursor.accept("PRIVATE", "TEMPORARY")
    cursor.accept("IMMUTABLE")
    cursor.accept("BLOCKCHAIN")
    cursor.accept_any("SHARDED", "DUPLICATED")
    cursor.expect("TABLE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = cursor.table()
    if cursor.accept("SHARING", "="):
        cursor.accept("EXTENDED")
        if not cursor.accept_any("METADATA", "DATA", "NONE"):
            cursor.fail("a kind of sharing expected")
    of = str(cursor.object_name()) if cursor.accept("OF") else None
    elements: list[Element] = []
    if cursor.key == "(":
        elements = _object_elements(cursor) if of else read_elements(cursor)
    options = skip_options(cursor, "create")
    select = _query(cursor)
    cursor.finish()
    columns = tuple(e for e in elements if isinstance(e, ColumnDef))
    if not columns and not select and of is None:
        cursor.fail("columns expected")
    return CreateTable(
        table=table,
        columns=columns,
        keys=tuple(e for e in elements if isinstance(e, Key)),
        select=select,
        temporary=temporary,
        organization=options.organization,
        of=of,
        if_not_exists=if_not_exists,
    )


def read_elements(cursor: Cursor) -> list[Element]:
    """``(column, constraint, …)`` of ``CREATE TABLE`` and ``ADD``; what is neither column nor key is left out."""
    elements: list[Element] = []
    cursor.expect("(")
    while True:
        if cursor.accept("SUPPLEMENTAL"):
            skip_supplemental(cursor)
        elif at_constraint(cursor):
            key = read_constraint(cursor)
            elements += [key] if key is not None else []
        elif cursor.sees("PERIOD", "FOR"):
            cursor.fail("columns of a period are not understood")
        else:
            column, keys = read_column(cursor)
            elements += [column, *keys]
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return elements


def _object_elements(cursor: Cursor) -> list[Element]:
    """Of an object table: the columns are those of the type, whatever stands here."""
    cursor.skip_group()
    return []


def _query(cursor: Cursor) -> bool:
    if not cursor.accept("AS"):
        return False
    if cursor.key not in ("SELECT", "WITH", "("):
        cursor.fail("a query expected")
    cursor.rest()
    return True
