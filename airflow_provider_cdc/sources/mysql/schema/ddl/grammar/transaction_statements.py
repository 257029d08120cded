"""Transaction control."""

from __future__ import annotations

from typing import Literal

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import Statement, TransactionControl
from airflow_provider_cdc.sources.relational.ddl_statements import IgnoredStatement
from airflow_provider_cdc.sources.relational.sql_token_cursor import BITS, HEX, NUMBER, STRING

TRANSACTION_WORDS = frozenset(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"))
"""First words of the statements that :func:`read_transaction` reads."""

_XA: dict[str, Literal["xa start", "xa end", "xa prepare", "xa commit", "xa rollback"]] = {
    "START": "xa start",
    "BEGIN": "xa start",
    "END": "xa end",
    "PREPARE": "xa prepare",
    "COMMIT": "xa commit",
    "ROLLBACK": "xa rollback",
}


def read_transaction(cursor: MySqlTokenCursor) -> list[Statement]:
    """Parse a statement of transaction control, from its first word on."""
    word = cursor.consume_token().key
    match word:
        case "BEGIN":
            cursor.accept("WORK")
            statements: list[Statement] = [TransactionControl("begin")]
        case "START":
            cursor.expect("TRANSACTION")
            cursor.skip_rest()
            statements = [TransactionControl("begin")]
        case "SAVEPOINT":
            statements = [TransactionControl("savepoint", cursor.read_name())]
        case "RELEASE":
            cursor.expect("SAVEPOINT")
            statements = [TransactionControl("release", cursor.read_name())]
        case "XA":
            statements = [_xa(cursor)]
        case _:
            statements = _end(cursor, commit=word == "COMMIT")
    cursor.expect_end()
    return statements


def _end(cursor: MySqlTokenCursor, *, commit: bool) -> list[Statement]:
    cursor.accept("WORK")
    if not commit and cursor.accept("TO"):
        cursor.accept("SAVEPOINT")
        return [TransactionControl("rollback to", cursor.read_name())]
    statements: list[Statement] = [TransactionControl("commit" if commit else "rollback")]
    if cursor.accept("AND", "CHAIN"):
        statements.append(TransactionControl("begin"))
    else:
        cursor.accept("AND", "NO", "CHAIN")
    if not cursor.accept("RELEASE"):
        cursor.accept("NO", "RELEASE")
    return statements


def _xa(cursor: MySqlTokenCursor) -> Statement:
    if cursor.accept("RECOVER"):
        cursor.skip_rest()
        return IgnoredStatement("xa recover")
    kind = _XA.get(cursor.next_key)
    if kind is None:
        cursor.fail("an XA command expected")
    cursor.consume_token()
    start = cursor.next_token
    for part in range(3):  # X'global',X'branch',format
        if cursor.next_token.kind not in ((STRING, HEX, BITS) if part < 2 else (NUMBER, HEX)):
            cursor.fail("an XA id expected")
        cursor.consume_token()
        if part == 2 or not cursor.accept(","):
            break
    name = cursor.slice_source(start)
    if not cursor.accept("ONE", "PHASE") and not cursor.accept_any("JOIN", "RESUME") and cursor.accept("SUSPEND"):
        cursor.accept("FOR", "MIGRATE")
    return TransactionControl(kind, name)
