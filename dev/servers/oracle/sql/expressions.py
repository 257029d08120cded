"""Expressions and conditions: Oracle's text in, SQLite's text out, with the types found on the way."""

from collections.abc import Callable, Sequence
from typing import Any

from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.sql import functions
from dev.servers.oracle.sql.inference import (
    RENAMED,
    Inference,
    Scope,
    Subquery,
    split_cast,
    until_branch,
)
from dev.servers.oracle.sql.lexer import BIND, NAME, NUMBER, QUOTED, STRING, SYMBOL, Token, Tokens, split
from dev.servers.oracle.values import datatypes, moments
from dev.servers.oracle.values.datatypes import DATE_KINDS, DataType

KEYWORDS = frozenset(
    [
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "LIKE",
        "BETWEEN",
        "ESCAPE",
        "ASC",
        "DESC",
        "NULLS",
        "FIRST",
        "LAST",
        "OVER",
        "PARTITION",
        "BY",
        "ORDER",
        "ROWS",
        "DISTINCT",
        "ALL",
        "PRECEDING",
        "FOLLOWING",
        "UNBOUNDED",
        "CURRENT",
        "ROW",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CASE",
        "EXISTS",
        "ON",
        "USING",
    ]
)
COMPARISONS = frozenset({"=", "<>", "!=", "^=", "<", ">", "<=", ">="})
VALUES = {
    "SYSDATE": "SYSDATE()", "SYSTIMESTAMP": "SYSTIMESTAMP()", "CURRENT_TIMESTAMP": "ORA_CURRENT_TIMESTAMP()",
    "CURRENT_DATE": "CURRENT_DATE()", "LOCALTIMESTAMP": "LOCALTIMESTAMP()", "DBTIMEZONE": "DBTIMEZONE()",
    "SESSIONTIMEZONE": "SESSIONTIMEZONE()", "USER": "SYS_CONTEXT('USERENV', 'SESSION_USER')", "UID": "1",
    "ROWNUM": "ROW_NUMBER() OVER ()", "SYS_GUID": "RANDOMBLOB(16)", "TRUE": "1", "FALSE": "0",
}  # fmt: skip
"""Words that are values without parentheses."""


class Expressions(Inference):
    """Translates the expressions of one statement."""

    def __init__(self, sql: str, tokens: Sequence[Token], allowed: frozenset[str], subquery: Subquery) -> None:
        super().__init__(sql, subquery)
        self._allowed = allowed
        binds = [token for token in tokens if token.kind == BIND]
        self._bind_numbers = {token.start: index for index, token in enumerate(binds, 1)}
        self.sequences: Callable[[list[str]], str | None] = lambda path: None

    def translate(self, tokens: Sequence[Token], scope: Scope) -> str:
        """Any expression or condition."""
        reader = Tokens(tokens, self.sql)
        parts: list[str] = []
        while reader.more:
            parts.append(self._piece(reader, scope))
        return " ".join(parts)

    # conditions

    def _piece(self, reader: Tokens, scope: Scope) -> str:
        word = reader.word()
        if word in ("AND", "OR", "NOT", "ON") or word in COMPARISONS or word == ",":
            reader.next()
            return {"^=": "<>"}.get(word, word)
        if word == "EXISTS":
            reader.next()
            return f"EXISTS ({self._subquery(reader.group(), scope)[0]})"
        start = reader.at
        left = self._sum(reader, scope)
        kind = self.infer(reader.tokens[start : reader.at], scope)
        if kind and kind.kind == "TIMESTAMP_TZ" and reader.word() in (*COMPARISONS, "NOT", "BETWEEN", "IN"):
            left = f"SYS_EXTRACT_UTC({left})"
        if reader.word() in ("<", ">", "<=", ">=") and self.ranked(reader.tokens[start : reader.at], scope):
            operator = reader.next().text
            return f"ORA_RANK({left}) {operator} ORA_RANK({self._operand(reader, scope, kind)})"
        return f"{left} {self._comparison(reader, scope, kind)}"

    def _comparison(self, reader: Tokens, scope: Scope, kind: DataType | None) -> str:
        negated = "NOT " if reader.skip_words("NOT") else ""
        word = reader.word()
        if word in COMPARISONS and not negated:
            reader.next()
            operator = "<>" if word == "^=" else word
            if reader.word() in ("ANY", "ALL", "SOME"):
                raise unknown(self.sql, "ANY and ALL")
            return f"{operator} {self._operand(reader, scope, kind)}"
        if reader.skip_words("BETWEEN"):
            low = self._operand(reader, scope, kind)
            reader.expect("AND")
            return f"{negated}BETWEEN {low} AND {self._operand(reader, scope, kind)}"
        if reader.skip_words("IN"):
            inside = reader.group()
            if inside and inside[0].word in ("SELECT", "WITH"):
                return f"{negated}IN ({self._subquery(inside, scope)[0]})"
            members = (self._operand(Tokens(part, self.sql), scope, kind) for part in split(inside))
            return f"{negated}IN ({', '.join(members)})"
        if reader.skip_words("LIKE"):
            text = f"{negated}LIKE {self._sum(reader, scope)}"
            return f"{text} ESCAPE {self._sum(reader, scope)}" if reader.skip_words("ESCAPE") else text
        if reader.skip_words("IS"):
            return self._is(reader)
        return negated + self._suffix(reader, scope)

    def _is(self, reader: Tokens) -> str:
        negated = "NOT " if reader.skip_words("NOT") else ""
        reader.expect("NULL")
        return f"IS {negated}NULL"

    def _suffix(self, reader: Tokens, scope: Scope) -> str:
        """Compile the words that may follow an expression outside conditions: an order, a window."""
        if reader.skip_words("OVER"):
            inside = reader.group()
            return f"OVER ({self._window(inside, scope)})"
        parts = []
        while reader.word() in ("ASC", "DESC", "NULLS", "FIRST", "LAST"):
            parts.append(reader.next().text)
        return " ".join(parts)

    def _window(self, tokens: Sequence[Token], scope: Scope) -> str:
        reader = Tokens(tokens, self.sql)
        parts = []
        if reader.skip_words("PARTITION", "BY"):
            parts.append("PARTITION BY " + self.translate(reader.until("ORDER"), scope))
        if reader.skip_words("ORDER", "BY"):
            parts.append("ORDER BY " + self.translate(reader.until(), scope))
        reader.end()
        return " ".join(parts)

    def _operand(self, reader: Tokens, scope: Scope, kind: DataType | None) -> str:
        """The other side of a comparison, turned into the type of this side."""
        start = reader.at
        text = self._sum(reader, scope)
        tokens = reader.tokens[start : reader.at]
        simple = len(tokens) == 1 and tokens[0].kind in (STRING, BIND)
        if kind is None or text == "NULL":
            return text
        if kind.kind == "ROWID":
            return f"CHARTOROWID({text})"
        if kind.kind == "TIMESTAMP_TZ":
            return f"SYS_EXTRACT_UTC(ORA_AS('TIMESTAMP_TZ', {text}))"
        if kind.kind in DATE_KINDS and (simple or self.infer(tokens, scope) != kind):
            return f"ORA_AS('{kind.kind}', {text})"
        if kind.kind == "NUMBER" and simple:
            return f"ORA_AS('NUMBER', {text})"
        if kind.kind in ("CHAR", "NCHAR") and simple and tokens[0].kind == STRING:
            return f"RPAD({text}, {kind.length})"
        return text

    # arithmetic

    def _sum(self, reader: Tokens, scope: Scope) -> str:
        start = reader.at
        left = self._product(reader, scope)
        while (word := reader.word()) in ("+", "-", "||"):
            kind = self.infer(reader.tokens[start : reader.at], scope)
            reader.next()
            right = self._product(reader, scope)
            if word == "||":
                left = f"ORA_CONCAT({left}, {right})"
            elif kind and kind.kind in DATE_KINDS:
                left = f"ORA_ADD({left}, {'1' if word == '+' else '-1'}, {right})"
            else:
                left = f"{left} {word} {right}"
        return left

    def _product(self, reader: Tokens, scope: Scope) -> str:
        left = self._primary(reader, scope)
        while (word := reader.word()) in ("*", "/"):
            reader.next()
            right = self._primary(reader, scope)
            left = f"ORA_DIVIDE({left}, {right})" if word == "/" else f"{left} * {right}"
        return left

    def _primary(self, reader: Tokens, scope: Scope) -> str:
        token = reader.next()
        if token.kind == STRING:
            return _quote(token.text) if token.text else "NULL"
        if token.kind == NUMBER:
            return _number(token.text)
        if token.kind == BIND:
            return f"?{self._bind_numbers[token.start]}"
        if token.kind == SYMBOL:
            return self._symbol(token, reader, scope)
        if token.word == "CASE":
            return self._case(reader, scope)
        if token.word in ("DATE", "TIMESTAMP", "INTERVAL") and reader.more and reader.tokens[reader.at].kind == STRING:
            return self._literal(token.word, reader)
        if token.word == "PRIOR" or token.word == "CONNECT_BY_ROOT":
            raise unknown(self.sql, token.word)
        reader.at -= 1
        return self._named(reader, scope)

    def _symbol(self, token: Token, reader: Tokens, scope: Scope) -> str:
        if token.text in ("-", "+"):
            return f"{token.text}{self._primary(reader, scope)}"
        if token.text == "*":
            return "*"
        if token.text == "(":
            reader.at -= 1
            inside = reader.group()
            if inside and inside[0].word in ("SELECT", "WITH"):
                return f"({self._subquery(inside, scope)[0]})"
            return f"({self.translate(inside, scope)})"
        raise unknown(self.sql, f"not expected: {token.raw}")

    def _case(self, reader: Tokens, scope: Scope) -> str:
        parts = ["CASE"]
        if reader.word() != "WHEN":
            parts.append(self.translate(reader.until("WHEN"), scope))
        while reader.skip_words("WHEN"):
            parts.append(f"WHEN {self.translate(reader.until('THEN'), scope)}")
            reader.expect("THEN")
            parts.append(f"THEN {self.translate(until_branch(reader), scope)}")
        if reader.skip_words("ELSE"):
            parts.append(f"ELSE {self.translate(until_branch(reader), scope)}")
        reader.expect("END")
        return " ".join([*parts, "END"])

    def _literal(self, word: str, reader: Tokens) -> str:
        text = reader.next().text
        if word == "INTERVAL":
            unit = reader.name()
            if reader.skip_words("TO"):
                reader.name()
                return _quote(moments.year_month(text) if unit == "YEAR" else moments.day_second(text))
            if reader.word() == "(":
                reader.group()
            return _quote(functions.interval(text, unit))
        moment = moments.read(text)
        kind = "DATE" if word == "DATE" else "TIMESTAMP" if moment.zone is None else "TIMESTAMP_TZ"
        return _quote(moments.store_moment(moment, kind))

    # names

    def _named(self, reader: Tokens, scope: Scope) -> str:
        path = reader.names()
        if reader.word() == "(" and reader.tokens[reader.at - 1].kind in (NAME, QUOTED):
            return self._call(path, reader, scope)
        if path[-1] in ("NEXTVAL", "CURRVAL") and (sequence := self.sequences(path[:-1])):
            return sequence
        if hit := scope.find_column(path):
            return f"{_identifier(hit[0])}.{_identifier(hit[1])}"
        if len(path) == 1:
            if path[0] in scope.aliases:
                return _identifier(path[0])
            if path[0] == "NULL":
                return "NULL"
            if path[0] in VALUES:
                return VALUES[path[0]]
        if RENAMED.get("_".join(path)) in self._allowed:
            return f"{RENAMED['_'.join(path)]}()"
        raise OraError(904, datatypes.qualify_names(*path))

    def _call(self, path: list[str], reader: Tokens, scope: Scope) -> str:
        name = "_".join(path[1:] if path[0] == "SYS" else path)
        name = RENAMED.get(name, name)
        inside = reader.group()
        if name == "CAST":
            value, kind = split_cast(Tokens(inside, self.sql))
            return f"ORA_CAST({self.translate(value, scope)}, {_quote(kind)})"
        if name in ("XMLSERIALIZE", "JSON_SERIALIZE", "VECTOR_SERIALIZE"):
            content = Tokens(inside, self.sql)
            content.skip_words("CONTENT")
            return f"TO_CLOB({self.translate(content.until('AS', 'RETURNING'), scope)})"
        if name in VALUES and not inside:
            return VALUES[name]
        if name == "GROUP_CONCAT":
            raise unknown(self.sql, "LISTAGG")
        if name not in self._allowed:
            raise OraError(904, datatypes.qualify_names(*path))
        distinct = "DISTINCT " if inside and inside[0].word == "DISTINCT" else ""
        arguments = (self.translate(part, scope) for part in split(inside[1:] if distinct else inside))
        call = f"{name}({distinct}{', '.join(arguments)})"
        if reader.skip_words("OVER"):
            call += f" OVER ({self._window(reader.group(), scope)})"
        return call


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _number(text: str) -> str:
    value: Any = datatypes.number(text.rstrip("FDfd"))
    return _quote(value) if isinstance(value, str) else repr(value)


quote, identifier = _quote, _identifier
