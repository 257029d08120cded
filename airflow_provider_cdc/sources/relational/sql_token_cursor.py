"""Base of the readers of DDL: tokens, and a place in a list of them.

Each source cuts its own texts (``ddl/tokens.py``) and adds the moves of its grammar (``ddl/cursor.py``).
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn

WORD, QUOTED, STRING, NUMBER = "word", "quoted", "string", "number"
BITS, HEX, OP, END, BAD = "bits", "hex", "op", "end", "bad"

MAX_DIGITS: Final = 20
"""No number of a grammar is longer, and Python refuses to read numbers of thousands of digits."""

REST_OF_COMMENT: Final = r"[^*]*+(?:\*(?!/)[^*]*+)*"
"""Matches a comment between ``/*`` and ``*/``. No possessive group has a lookahead in it: Python before 3.11.5 continues behind the text that such a
group has tried in vain."""


class SqlToken(NamedTuple):
    """A token of a statement.

    :param kind: ``word`` (a name or keyword without quotes), ``quoted`` (a name in quotes), ``string``, ``number``, ``bits``
        (``b'01'``), ``hex`` (``x'2a'``), ``op`` (one character), ``end``, and ``bad`` where reading stopped
    :param key: the value that a grammar compares with: the upper-case text of a word that may be a keyword, the character of an
        operator, otherwise empty
    :param value: the name as the catalog spells it, the string without quotes and escapes, the number as written; for ``bad``
        the reason
    """

    kind: str
    key: str
    value: str
    start: int
    end: int


class StatementNotUnderstood(Exception):
    """The reader does not know the text; the statement becomes ``Unknown``."""


class TokenCursor:
    """Moves over the tokens of one statement; the last one has the kind ``end`` or ``bad``, and no key."""

    __slots__ = ("_at", "_tokens", "sql")

    def __init__(self, sql: str, tokens: list[SqlToken]):
        self.sql = sql
        self._tokens = tokens
        self._at = 0

    @property
    def next_token(self) -> SqlToken:
        """The next token; at the end, again and again the last."""
        return self._tokens[self._at]

    @property
    def next_key(self) -> str:
        """Key of the next token."""
        return self._tokens[self._at].key

    @property
    def is_at_end(self) -> bool:
        """True if everything was read."""
        return self._tokens[self._at].kind == END

    def peek(self, ahead: int = 1) -> SqlToken:
        """Return the token that many places after the next one."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def consume_token(self) -> SqlToken:
        """Return the next token, and move past it."""
        token = self._tokens[self._at]
        if self._at < len(self._tokens) - 1:
            self._at += 1
        return token

    def has_next_keys(self, *keys: str) -> bool:
        """Check whether these keys come next."""
        tokens, at = self._tokens, self._at
        for key in keys:
            # the last token has no key, so this never runs past the list
            if tokens[at].key != key:
                return False
            at += 1
        return True

    def accept(self, *keys: str) -> bool:
        """Move past these keys if all of them come next."""
        if not self.has_next_keys(*keys):
            return False
        self._at += len(keys)
        return True

    def accept_any(self, *keys: str) -> str:
        """Move past the next token if it is one of these; its key or an empty string."""
        key = self.next_key
        if key and key in keys:
            self._at += 1
            return key
        return ""

    def expect(self, *keys: str) -> None:
        """Move past these keys.

        :raises StatementNotUnderstood: something else comes
        """
        if not self.accept(*keys):
            self.fail(f"{' '.join(keys)} expected")

    def fail(self, reason: str) -> NoReturn:
        """Give up on the statement."""
        token = self.next_token
        if token.kind == BAD:
            raise StatementNotUnderstood(token.value)
        near = self.sql[token.start : token.start + 40]
        raise StatementNotUnderstood(f"{reason} at {near!r}" if near else f"{reason} at the end")

    def mark(self) -> int:
        """Return this place, for :meth:`reset`."""
        return self._at

    def reset(self, mark: int) -> None:
        """Go back to a marked place."""
        self._at = mark

    def parse_string(self) -> str:
        """Parse a string."""
        if self.next_token.kind != STRING:
            self.fail("a string expected")
        return self.consume_token().value

    def parse_integer(self) -> int:
        """Parse a whole number."""
        token = self.next_token
        digits = token.value.isascii() and token.value.isdigit()
        if token.kind != NUMBER or not digits or len(token.value) > MAX_DIGITS:
            self.fail("a whole number expected")
        return int(self.consume_token().value)

    def skip_group(self) -> None:
        """Move past a parenthesis and its content."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.consume_token()
            if token.key == "(":
                depth += 1
            elif token.key == ")":
                depth -= 1
            elif token.kind in (END, BAD):
                self.fail("a parenthesis is not closed")

    def expect_end(self) -> None:
        """Check that the statement ends here.

        :raises StatementNotUnderstood: something is left
        """
        if not self.is_at_end:
            self.fail("nothing more expected")
