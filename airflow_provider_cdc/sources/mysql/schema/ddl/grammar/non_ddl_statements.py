"""Statements whose first words say enough: changes of rows, and statements that concern no table at all.

The lists are closed. A statement that is on none of them is not understood.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.relational.sql_token_cursor import BAD

_DML = frozenset((
    "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "MERGE", "WITH", "SELECT", "VALUES", "TABLE", "DO",
    "ANALYZE",
))  # fmt: skip
"""``DO`` is how a stored function that changes rows gets into the log; ``ANALYZE UPDATE …`` runs the statement."""

_IGNORED = frozenset((
    "GRANT", "REVOKE", "SET", "FLUSH", "OPTIMIZE", "CHECK", "CHECKSUM", "INSTALL", "UNINSTALL", "RESET",
    "PURGE", "KILL", "LOCK", "UNLOCK", "USE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "HELP", "SHUTDOWN", "RESTART",
    "STOP", "CHANGE", "CACHE", "BACKUP", "HANDLER", "PREPARE", "DEALLOCATE", "SIGNAL", "RESIGNAL", "GET",
))  # fmt: skip
_OBJECTS = frozenset((
    "USER", "ROLE", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "SERVER", "TABLESPACE", "LOGFILE",
    "SEQUENCE", "PACKAGE", "LIBRARY", "RESOURCE", "INSTANCE", "PREPARE",
))  # fmt: skip
_WITH_BODY = frozenset(("TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "LIBRARY"))
"""Objects whose definition may hold semicolons."""

_PREFIXES = ("TEMPORARY", "AGGREGATE", "UNDO")


def dml_kind(cursor: MySqlTokenCursor) -> str:
    """Return the word of a statement that changes rows, or an empty string. Reads nothing."""
    key, following = cursor.next_key, cursor.peek().key
    if key == "(":
        return "SELECT" if following in ("SELECT", "WITH", "VALUES", "TABLE", "(") else ""
    if key == "LOAD" and following == "INDEX":
        return ""
    if key == "ANALYZE" and following in ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"):
        return ""
    return key if key in _DML else ""


def ignored_kind(cursor: MySqlTokenCursor) -> tuple[str, bool]:
    """Return the kind of a statement that concerns no table, or an empty string; and whether it may hold semicolons."""
    key, following = cursor.next_key, cursor.peek().key
    if key in ("CREATE", "ALTER", "DROP"):
        cursor.consume_token()
        return _object(cursor, key)
    if key in ("ANALYZE", "LOAD"):  # the rest of these words are row changes
        return f"{key} {following}".lower(), False
    if key == "RENAME":
        return ("rename user", False) if following == "USER" else ("", False)
    if key == "START":
        return ("", False) if following == "TRANSACTION" or not following else (f"start {following.lower()}", False)
    return (key.lower(), False) if key in _IGNORED else ("", False)


def _object(cursor: MySqlTokenCursor, verb: str) -> tuple[str, bool]:
    cursor.accept("OR", "REPLACE")
    _skip_prefixes(cursor)
    key = cursor.next_key
    name = key.lower()
    if key == "SPATIAL" and cursor.peek().key == "REFERENCE":
        name = "spatial reference system"
    elif key == "JSON" and "VIEW" in (cursor.peek(2).key, cursor.peek(3).key):
        name = "json view"
    elif key not in _OBJECTS:
        return "", False
    return f"{verb.lower()} {name}", key in _WITH_BODY and verb != "DROP"


def _skip_prefixes(cursor: MySqlTokenCursor) -> None:
    while True:
        if cursor.accept_any(*_PREFIXES):
            continue
        if cursor.accept("ALGORITHM", "=") or cursor.accept("SQL", "SECURITY"):
            cursor.consume_token()
        elif cursor.accept("DEFINER", "="):
            _skip_user(cursor)
        else:
            return


def _skip_user(cursor: MySqlTokenCursor) -> None:
    """``user@host``, ``CURRENT_USER()``, a role: tokens that touch one another."""
    while True:
        token = cursor.consume_token()
        following = cursor.next_token
        touches = following.start == token.end and following.kind != BAD and not cursor.is_at_end
        # MySQL and MariaDB allow spaces around the @.
        if not touches and following.key != "@" and token.key != "@":
            return
        if cursor.is_at_end:
            return
