"""The rows that a query gives a new table."""

from typing import Any

from dev.servers.oracle.engine import lobs
from dev.servers.oracle.engine.catalog import Column, Table
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Token, Tokens
from dev.servers.oracle.values import datatypes


def select_rows(session: Session, reader: Tokens, table: Table, query: list[Token]) -> list[Any]:
    """The rows of a query, and its columns for a table."""
    statement = session.statement(reader.text(query))
    compiled = session.compile(statement).query(statement.tokens)
    for index, (name, kind) in enumerate(compiled.columns, 1):
        table.columns.append(Column(index, name, kind or datatypes.VARCHAR))
    table.next_column = len(compiled.columns) + 1
    return session.evaluate(compiled.sql, [])


def fill(session: Session, table: Table, rows: list[Any]) -> None:
    """Insert and commit rows."""
    if rows:
        transaction = session.transaction()
        with session.engine.writing():
            for row in rows:
                values = {column.id: value for column, value in zip(table.live, row, strict=True)}
                number = session.engine.insert(transaction, table, values)
                lobs.record_insert(session.engine, transaction, table, number, values)
                session.engine.compact(transaction)
        session.commit()
