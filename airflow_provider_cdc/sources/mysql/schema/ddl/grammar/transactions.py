"""Transaction control."""

from __future__ import annotations

from typing import Literal

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import Statement, Transaction
from airflow_provider_cdc.sources.relational.ddl_statements import Ignored
from airflow_provider_cdc.sources.relational.tokens import BITS, HEX, NUMBER, STRING

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


def read_transaction(cursor: Cursor) -> list[Statement]:
    """A statement of transaction control, from its first word on."""
    word = cursor.take().key
    match word:
        case "BEGIN":
            cursor.accept("WORK")
            found: list[Statement] = [Transaction("begin")]
        case "START":
            cursor.expect("TRANSACTION")
            cursor.skip_rest()
            found = [Transaction("begin")]
        case "SAVEPOINT":
            found = [Transaction("savepoint", cursor.name())]
        case "RELEASE":
            cursor.expect("SAVEPOINT")
            found = [Transaction("release", cursor.name())]
        case "XA":
            found = [_xa(cursor)]
        case _:
            found = _end(cursor, commit=word == "COMMIT")
    cursor.finish()
    return found


def _end(cursor: Cursor, *, commit: bool) -> list[Statement]:
    cursor.accept("WORK")
    if not commit and cursor.accept("TO"):
        cursor.accept("SAVEPOINT")
        return [Transaction("rollback to", cursor.name())]
    found: list[Statement] = [Transaction("commit" if commit else "rollback")]
    if cursor.accept("AND", "CHAIN"):
        found.append(Transaction("begin"))
    else:
        cursor.accept("AND", "NO", "CHAIN")
    if not cursor.accept("RELEASE"):
        cursor.accept("NO", "RELEASE")
    return found


def _xa(cursor: Cursor) -> Statement:
    if cursor.accept("RECOVER"):
        cursor.skip_rest()
        return Ignored("xa recover")
    kind = _XA.get(cursor.key)
    if kind is None:
        cursor.fail("an XA command expected")
    cursor.take()
    start = cursor.token
    for part in range(3):  # X'global',X'branch',format
        if cursor.token.kind not in ((STRING, HEX, BITS) if part < 2 else (NUMBER, HEX)):
            cursor.fail("an XA id expected")
        cursor.take()
        if part == 2 or not cursor.accept(","):
            break
    name = cursor.since(start)
    if not cursor.accept("ONE", "PHASE") and not cursor.accept_any("JOIN", "RESUME") and cursor.accept("SUSPEND"):
        cursor.accept("FOR", "MIGRATE")
    return Transaction(kind, name)
