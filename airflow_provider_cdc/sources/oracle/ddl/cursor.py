"""A place in a list of tokens, and the few moves that every part of the grammar is made of."""

from __future__ import annotations

from typing import NoReturn

from airflow_provider_cdc.sources.oracle.ddl.columns import Name
from airflow_provider_cdc.sources.oracle.ddl.tokens import BAD, END, NUMBER, QUOTED, STRING, WORD, Token

_MAX_DIGITS = 20
"""No number of a grammar is longer, and Python refuses to read numbers of thousands of digits."""

RESERVED = frozenset((
    "ACCESS", "ADD", "ALL", "ALTER", "AND", "ANY", "AS", "ASC", "AUDIT", "BETWEEN", "BY", "CHAR", "CHECK", "CLUSTER", "COLUMN",
    "COMMENT", "COMPRESS", "CONNECT", "CREATE", "CURRENT", "DATE", "DECIMAL", "DEFAULT", "DELETE", "DESC", "DISTINCT", "DROP",
    "ELSE", "EXCLUSIVE", "EXISTS", "FILE", "FLOAT", "FOR", "FROM", "GRANT", "GROUP", "HAVING", "IDENTIFIED", "IMMEDIATE", "IN",
    "INCREMENT", "INDEX", "INITIAL", "INSERT", "INTEGER", "INTERSECT", "INTO", "IS", "LEVEL", "LIKE", "LOCK", "LONG",
    "MAXEXTENTS", "MINUS", "MLSLABEL", "MODE", "MODIFY", "NOAUDIT", "NOCOMPRESS", "NOT", "NOWAIT", "NULL", "NUMBER", "OF",
    "OFFLINE", "ON", "ONLINE", "OPTION", "OR", "ORDER", "PCTFREE", "PRIOR", "PUBLIC", "RAW", "RENAME", "RESOURCE", "REVOKE",
    "ROW", "ROWID", "ROWNUM", "ROWS", "SELECT", "SESSION", "SET", "SHARE", "SIZE", "SMALLINT", "START", "SUCCESSFUL",
    "SYNONYM", "SYSDATE", "TABLE", "THEN", "TO", "TRIGGER", "UID", "UNION", "UNIQUE", "UPDATE", "USER", "VALIDATE", "VALUES",
    "VARCHAR", "VARCHAR2", "VIEW", "WHENEVER", "WHERE", "WITH",
))  # fmt: skip
"""Words that Oracle takes for a name in quotes only."""


class NotUnderstood(Exception):
    """The text is not what this reader knows; the statement becomes ``Unknown``."""


class Cursor:
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if the rest is
    not understood.
    """

    __slots__ = ("_at", "_tokens", "sql", "tables")

    def __init__(self, sql: str, tokens: list[Token]):
        self.sql = sql
        self.tables: list[Name] = []
        self._tokens = tokens
        self._at = 0

    @property
    def token(self) -> Token:
        """The next token; at the end, again and again the last."""
        return self._tokens[self._at]

    @property
    def key(self) -> str:
        """Key of the next token."""
        return self._tokens[self._at].key

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self._tokens[self._at].kind == END

    def peek(self, ahead: int = 1) -> Token:
        """The token that many places after the next one."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, and move past it."""
        token = self._tokens[self._at]
        if self._at < len(self._tokens) - 1:
            self._at += 1
        return token

    def sees(self, *keys: str) -> bool:
        """Whether these keys come next."""
        return all(self.peek(i).key == key for i, key in enumerate(keys))

    def accept(self, *keys: str) -> bool:
        """Move past these keys if all of them come next."""
        if not self.sees(*keys):
            return False
        self._at += len(keys)
        return True

    def accept_any(self, *keys: str) -> str:
        """Move past the next token if it is one of these; its key or an empty string."""
        key = self.key
        if key and key in keys:
            self._at += 1
            return key
        return ""

    def expect(self, *keys: str) -> None:
        """Move past these keys.

        :raises NotUnderstood: something else comes
        """
        if not self.accept(*keys):
            self.fail(f"{' '.join(keys)} expected")

    def fail(self, reason: str) -> NoReturn:
        """Give up on the statement."""
        token = self.token
        if token.kind == BAD:
            raise NotUnderstood(token.value)
        near = self.sql[token.start : token.start + 40]
        raise NotUnderstood(f"{reason} at {near!r}" if near else f"{reason} at the end")

    def mark(self) -> int:
        """This place, for :meth:`reset`."""
        return self._at

    def reset(self, mark: int) -> None:
        """Go back to a marked place."""
        self._at = mark

    # --- words --------------------------------------------------------------------------------------------------------

    @property
    def at_name(self) -> bool:
        """Whether a name may stand here."""
        return self.token.kind == QUOTED or (self.token.kind == WORD and self.key not in RESERVED)

    def name(self) -> str:
        """An identifier."""
        if not self.at_name:
            self.fail("a name expected")
        return self.take().value

    def object_name(self) -> Name:
        """``[schema.]name``."""
        first = self.name()
        found = Name(first, self.name()) if self.accept(".") else Name(None, first)
        if self.key in (".", "@"):
            self.fail("a name of this database expected")
        return found

    def table(self) -> Name:
        """A table that the statement changes; remembered in ``tables``."""
        found = self.object_name()
        self.tables.append(found)
        return found

    def names(self) -> tuple[str, ...]:
        """``(a, b)``."""
        self.expect("(")
        found = [self.name()]
        while self.accept(","):
            found.append(self.name())
        self.expect(")")
        return tuple(found)

    def integer(self) -> int:
        """A whole number."""
        token = self.token
        if (
            token.kind != NUMBER
            or not (token.value.isascii() and token.value.isdigit())
            or len(token.value) > _MAX_DIGITS
        ):
            self.fail("a whole number expected")
        return int(self.take().value)

    def text(self) -> str:
        """A string."""
        if self.token.kind != STRING:
            self.fail("a string expected")
        return self.take().value

    def since(self, mark: int) -> str:
        """Source text from a mark up to the last token taken."""
        return self.sql[self._tokens[mark].start : self._tokens[self._at - 1].end] if self._at > mark else ""

    # --- skipping -----------------------------------------------------------------------------------------------------

    def skip_group(self) -> None:
        """Move past a parenthesis and what it holds."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.take()
            depth += {"(": 1, ")": -1}.get(token.key, 0)
            if token.kind in (END, BAD):
                self.fail("a parenthesis is not closed")

    def rest(self) -> list[Token]:
        """Move to the end, past balanced parentheses; the tokens up to there."""
        found = self._tokens[self._at : -1]
        self._at = len(self._tokens) - 1
        if not self.ended:
            self.fail("")
        depth = 0
        for token in found:
            depth += {"(": 1, ")": -1}.get(token.key, 0)
            if depth < 0:
                break
        if depth:
            self.fail("a parenthesis is not closed")
        return found

    def finish(self) -> None:
        """:raises NotUnderstood: something is left"""
        if not self.ended:
            self.fail("nothing more expected")
