"""The moves that every part of the grammar is made of."""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.tokenizer import LexerModes
from airflow_provider_cdc.sources.relational.ddl_statements import QualifiedName
from airflow_provider_cdc.sources.relational.sql_token_cursor import (
    BAD,
    NUMBER,
    QUOTED,
    STRING,
    WORD,
    SqlToken,
    TokenCursor,
)


class MySqlTokenCursor(TokenCursor):
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if
    the rest is not understood.
    """

    __slots__ = ("modes", "tables")

    def __init__(self, sql: str, tokens: list[SqlToken], modes: LexerModes):
        super().__init__(sql, tokens)
        self.modes = modes
        self.tables: list[QualifiedName] = []

    # --- words --------------------------------------------------------------------------------------------------------

    def read_name(self) -> str:
        """Parse an identifier."""
        if self.next_token.kind not in (WORD, QUOTED):
            self.fail("a name expected")
        return self.consume_token().value

    def parse_table_name(self, *, changed: bool = True) -> QualifiedName:
        """Parse a table's name; remember it in ``tables`` if the statement changes it."""
        self.accept(".")  # ".t" is t
        first = self.read_name()
        name = QualifiedName(first, self.read_name()) if self.accept(".") else QualifiedName(None, first)
        if changed:
            self.tables.append(name)
        return name

    def read_column_name(self) -> str:
        """Parse a column's name; ``table.column`` is understood."""
        name = self.read_name()
        while self.accept("."):
            name = self.read_name()
        return name

    def word_or_text(self) -> str:
        """Parse a word that may be a name or a string: character sets, collations, engines."""
        if self.next_token.kind not in (WORD, QUOTED, STRING):
            self.fail("a name or a string expected")
        return self.consume_token().value

    def slice_source(self, start: SqlToken) -> str:
        """Source text from a token up to the last one taken."""
        return self.sql[start.start : self._tokens[self._at - 1].end]

    # --- skipping -----------------------------------------------------------------------------------------------------

    def skip_clause(self) -> None:
        """Move to the comma or closing parenthesis that ends this part of a list, or to the end."""
        while self.next_key not in (",", ")") and not self.is_at_end:
            if self.next_key == "(":
                self.skip_group()
            elif self.next_token.kind == BAD:
                self.fail("")
            else:
                self.consume_token()

    def skip_rest(self) -> None:
        """Move to the end."""
        self._at = len(self._tokens) - 1
        if not self.is_at_end:
            self.fail("")

    def skip_wait(self) -> None:
        """``WAIT n`` and ``NOWAIT`` of MariaDB."""
        if self.next_key == "WAIT" and self.peek().kind == NUMBER:
            self.consume_token()
            self.consume_token()
        elif self.next_key == "NOWAIT":
            self.consume_token()
