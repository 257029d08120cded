"""The moves that every part of the grammar is made of."""

from __future__ import annotations

from airflow_provider_cdc.sources.relational.ddl_statements import Name
from airflow_provider_cdc.sources.relational.tokens import QUOTED, WORD, Token, TokenCursor

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


class Cursor(TokenCursor):
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if the rest is
    not understood.
    """

    __slots__ = ("tables",)

    def __init__(self, sql: str, tokens: list[Token]):
        super().__init__(sql, tokens)
        self.tables: list[Name] = []

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

    def since(self, mark: int) -> str:
        """Source text from a mark up to the last token taken."""
        return self.sql[self._tokens[mark].start : self._tokens[self._at - 1].end] if self._at > mark else ""

    # --- skipping -----------------------------------------------------------------------------------------------------

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
