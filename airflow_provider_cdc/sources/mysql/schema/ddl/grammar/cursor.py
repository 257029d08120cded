"""The moves that every part of the grammar is made of."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.tokens import Modes
from airflow_provider_cdc.sources.relational.ddl_statements import Name
from airflow_provider_cdc.sources.relational.tokens import BAD, NUMBER, QUOTED, STRING, WORD, Token, TokenCursor


class Cursor(TokenCursor):
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if
    the rest is not understood.
    """

    __slots__ = ("modes", "tables")

    def __init__(self, sql: str, tokens: list[Token], modes: Modes):
        super().__init__(sql, tokens)
        self.modes = modes
        self.tables: list[Name] = []

    # --- words --------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        """An identifier."""
        if self.token.kind not in (WORD, QUOTED):
            self.fail("a name expected")
        return self.take().value

    def table(self, *, changed: bool = True) -> Name:
        """A table's name; remembered in ``tables`` if the statement changes it."""
        self.accept(".")  # ".t" is t
        first = self.name()
        found = Name(first, self.name()) if self.accept(".") else Name(None, first)
        if changed:
            self.tables.append(found)
        return found

    def column(self) -> str:
        """A column's name; ``table.column`` is understood."""
        found = self.name()
        while self.accept("."):
            found = self.name()
        return found

    def word_or_text(self) -> str:
        """What may be a name or a string: character sets, collations, engines."""
        if self.token.kind not in (WORD, QUOTED, STRING):
            self.fail("a name or a string expected")
        return self.take().value

    def since(self, start: Token) -> str:
        """Source text from a token up to the last one taken."""
        return self.sql[start.start : self._tokens[self._at - 1].end]

    # --- skipping -----------------------------------------------------------------------------------------------------

    def skip_clause(self) -> None:
        """Move to the comma or closing parenthesis that ends this part of a list, or to the end."""
        while self.key not in (",", ")") and not self.ended:
            if self.key == "(":
                self.skip_group()
            elif self.token.kind == BAD:
                self.fail("")
            else:
                self.take()

    def skip_rest(self) -> None:
        """Move to the end."""
        self._at = len(self._tokens) - 1
        if not self.ended:
            self.fail("")

    def skip_wait(self) -> None:
        """``WAIT n`` and ``NOWAIT`` of MariaDB."""
        if self.key == "WAIT" and self.peek().kind == NUMBER:
            self.take()
            self.take()
        elif self.key == "NOWAIT":
            self.take()
