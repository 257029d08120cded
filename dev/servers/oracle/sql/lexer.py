"""Tokens of Oracle's SQL."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dev.servers.oracle.errors import OraError, unknown

NAME, QUOTED, STRING, NUMBER, BIND, SYMBOL = "name", "quoted", "string", "number", "bind", "symbol"

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<literal>[nN]?[qQ]'(?:\[(?:.*?)\]|\{(?:.*?)\}|\((?:.*?)\)|<(?:.*?)>|(?P<mark>[^\[{(<\s])(?:.*?)(?P=mark))')
  | (?P<string>[nN]?'(?:[^']|'')*')
  | (?P<quoted>"[^"]+")
  | (?P<bind>:\s*(?:"[^"]+"|[A-Za-z0-9_$\#]+))
  | (?P<size>\d+[KMGTkmgt](?![\w$\#]))
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?(?![A-Za-z_$\#]))
  | (?P<name>[^\W\d][\w$\#]*)
  | (?P<symbol><>|!=|\^=|<=|>=|\|\||=>|:=|\(\+\)|\.\.|[-+*/(),.;<>=@%])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A token; ``text`` of a name is in upper case, of a quoted name without quotes, of a string its value."""

    kind: str
    text: str
    start: int
    end: int
    raw: str = ""

    @property
    def word(self) -> str:
        """The keyword this may be; empty for anything that is not a plain name."""
        return self.text if self.kind == NAME else ""

    @property
    def is_identifier(self) -> bool:
        return self.kind in (NAME, QUOTED)


def tokenize(sql: str) -> list[Token]:
    """The tokens without white space, comments and hints.

    Raises:
        OraError: ORA-01756 for an open string, ORA-00911 for a character that starts no token.
    """
    tokens = []
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        if not match:
            raise OraError(1756 if sql[at] in "'\"" else 911)
        at = match.end()
        kind, raw = str(match.lastgroup), match[0]
        if kind == "space":
            continue
        if match["literal"] is not None:
            kind, text = STRING, raw[raw.index("'") + 2 : -2]
        elif kind == STRING:
            text = raw[raw.index("'") + 1 : -1].replace("''", "'")
        elif kind == QUOTED:
            text = raw[1:-1]
        elif kind == BIND:
            text = raw[1:].strip().strip('"')
        else:
            text = raw.upper()
        tokens.append(Token(kind, text, match.start(), match.end(), raw))
    return tokens


class Tokens:
    """Reads a statement token by token; anything not expected refuses the whole statement."""

    def __init__(self, tokens: Sequence[Token], sql: str) -> None:
        self.tokens = tokens
        self.sql = sql
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self.tokens)

    def word(self, ahead: int = 0) -> str:
        """The keyword, or symbol, at this place; empty at the end."""
        index = self.at + ahead
        if index >= len(self.tokens):
            return ""
        token = self.tokens[index]
        return token.text if token.kind in (NAME, SYMBOL) else ""

    def next(self) -> Token:
        if not self.more:
            raise unknown(self.sql, "ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def skip_words(self, *words: str) -> bool:
        """Move over these words if they come next."""
        if all(self.word(index) == word for index, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.skip_words(*words):
            raise unknown(self.sql, f"{' '.join(words)} expected")

    def name(self) -> str:
        """The identifier that comes next."""
        token = self.next()
        if not token.is_identifier:
            raise unknown(self.sql, f"a name expected, not {token.raw}")
        return token.text

    def names(self) -> list[str]:
        """Names with points between them."""
        parts = [self.name()]
        while self.skip_words("."):
            parts.append(self.name())
        return parts

    def group(self) -> list[Token]:
        """The tokens inside the parentheses that come next."""
        self.expect("(")
        start, depth = self.at, 1
        while depth:
            word = self.next()
            if word.kind == SYMBOL:
                depth += {"(": 1, ")": -1}.get(word.text, 0)
        return list(self.tokens[start : self.at - 1])

    def until(self, *words: str) -> list[Token]:
        """The tokens up to one of these words outside of parentheses, or up to the end."""
        start, depth = self.at, 0
        while self.more:
            word = self.word()
            if depth == 0 and word in words:
                break
            depth += {"(": 1, ")": -1}.get(word, 0)
            self.at += 1
        return list(self.tokens[start : self.at])

    def end(self) -> None:
        """Nothing may follow but a semicolon."""
        self.skip_words(";")
        if self.more:
            raise unknown(self.sql, f"not expected: {self.tokens[self.at].raw}")

    def text(self, tokens: Sequence[Token]) -> str:
        """The statement's own text of these tokens."""
        return self.sql[tokens[0].start : tokens[-1].end] if tokens else ""


def split(tokens: Sequence[Token], separator: str = ",") -> list[list[Token]]:
    """Parts between separators outside of parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        symbol = token.text if token.kind in (SYMBOL, NAME) else ""
        depth += {"(": 1, ")": -1}.get(symbol, 0)
        if depth == 0 and symbol == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if len(parts) > 1 or parts[0] else []
