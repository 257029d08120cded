"""The moves that every part of the grammar is made of."""

from __future__ import annotations

from airflow_provider_cdc.sources.relational.ddl_statements import QualifiedName
from airflow_provider_cdc.sources.relational.sql_token_cursor import QUOTED, WORD, SqlToken, TokenCursor

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


class DdlCursor(TokenCursor):
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if the rest is
    not understood.
    """

    __slots__ = ("tables",)

    def __init__(self, sql: str, tokens: list[SqlToken]):
        super().__init__(sql, tokens)
        self.tables: list[QualifiedName] = []

    # --- words --------------------------------------------------------------------------------------------------------

    @property
    def at_name(self) -> bool:
        """Check whether a name may stand here."""
        return self.next_token.kind == QUOTED or (self.next_token.kind == WORD and self.next_key not in RESERVED)

    def parse_name(self) -> str:
        """Parse an identifier."""
        if not self.at_name:
            self.fail("a name expected")
        return self.consume_token().value

    def object_name(self) -> QualifiedName:
        """``[schema.]name``."""
        first = self.parse_name()
        name = QualifiedName(first, self.parse_name()) if self.accept(".") else QualifiedName(None, first)
        if self.next_key in (".", "@"):
            self.fail("a name of this database expected")
        return name

    def parse_table_name(self) -> QualifiedName:
        """Parse a table that the statement changes; remembered in ``tables``."""
        name = self.object_name()
        self.tables.append(name)
        return name

    def parse_names(self) -> tuple[str, ...]:
        """Parse a list of names, ``(a, b)``."""
        self.expect("(")
        names = [self.parse_name()]
        while self.accept(","):
            names.append(self.parse_name())
        self.expect(")")
        return tuple(names)

    def text_from_mark(self, mark: int) -> str:
        """Source text from a mark up to the last token taken."""
        return self.sql[self._tokens[mark].start : self._tokens[self._at - 1].end] if self._at > mark else ""

    # --- skipping -----------------------------------------------------------------------------------------------------

    def read_rest(self) -> list[SqlToken]:
        """Move to the end, past balanced parentheses; the tokens up to there."""
        rest = self._tokens[self._at : -1]
        self._at = len(self._tokens) - 1
        if not self.is_at_end:
            self.fail("")
        depth = 0
        for token in rest:
            depth += {"(": 1, ")": -1}.get(token.key, 0)
            if depth < 0:
                break
        if depth:
            self.fail("a parenthesis is not closed")
        return rest
