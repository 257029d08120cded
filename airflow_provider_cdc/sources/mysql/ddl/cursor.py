"""A place in a list of tokens, and the few moves that every part of the grammar is made of."""

from __future__ import annotations

from typing import NoReturn

from airflow_provider_cdc.sources.mysql.ddl.columns import Name
from airflow_provider_cdc.sources.mysql.ddl.tokens import BAD, END, NUMBER, QUOTED, STRING, WORD, Modes, Token

_MAX_DIGITS = 20
"""No number of a grammar is longer, and Python refuses to read numbers of thousands of digits."""


class NotUnderstood(Exception):
    """The text is not what this reader knows; the statement becomes ``Unknown``."""


class Cursor:
    """Moves over the tokens of one statement.

    ``tables`` collects the tables that the statement changes as soon as they are read, so that they are known even if
    the rest is not understood.
    """

    __slots__ = ("_at", "_tokens", "modes", "sql", "tables")

    def __init__(self, sql: str, tokens: list[Token], modes: Modes):
        self.sql = sql
        self.modes = modes
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

    def accept(self, *keys: str) -> bool:
        """Move past these keys if all of them come next."""
        tokens, at = self._tokens, self._at
        for key in keys:
            # The last token has no key, so this never runs past the list.
            if tokens[at].key != key:
                return False
            at += 1
        self._at = at
        return True

    def accept_any(self, *keys: str) -> str:
        """Move past the next token if it is one of these; its key or an empty string."""
        key = self._tokens[self._at].key
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

    def text(self) -> str:
        """A string."""
        if self.token.kind != STRING:
            self.fail("a string expected")
        return self.take().value

    def integer(self) -> int:
        """A whole number."""
        token = self.token
        if token.kind != NUMBER or not token.value.isdigit() or len(token.value) > _MAX_DIGITS:
            self.fail("a whole number expected")
        return int(self.take().value)

    def since(self, start: Token) -> str:
        """Source text from a token up to the last one taken."""
        return self.sql[start.start : self._tokens[self._at - 1].end]

    # --- skipping -----------------------------------------------------------------------------------------------------

    def skip_group(self) -> None:
        """Move past a parenthesis and what it holds."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.take()
            if token.key == "(":
                depth += 1
            elif token.key == ")":
                depth -= 1
            elif token.kind in (END, BAD):
                self.fail("a parenthesis is not closed")

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

    def finish(self) -> None:
        """:raises NotUnderstood: something is left"""
        if not self.ended:
            self.fail("nothing more expected")
