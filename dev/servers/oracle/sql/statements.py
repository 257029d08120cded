"""A statement of a client."""

from dev.servers.oracle.sql.lexer import Token, Tokens, tokenize


class Statement:
    """A statement and its tokens."""

    def __init__(self, sql: str) -> None:
        self.sql = sql.strip()
        self.tokens = tokenize(self.sql)
        self._binds = {token.start: index for index, token in enumerate(t for t in self.tokens if t.kind == "bind")}

    @property
    def word(self) -> str:
        return self.tokens[0].word if self.tokens else ""

    def reader(self) -> Tokens:
        return Tokens(self.tokens, self.sql)

    def bind_number(self, token: Token) -> int:
        return self._binds[token.start]

    @property
    def bind_count(self) -> int:
        return len(self._binds)
