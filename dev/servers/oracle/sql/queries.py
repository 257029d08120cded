"""SELECT statements: sources, visibility, grouping, order, limits, and the description of the result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dev.servers.oracle.errors import unknown
from dev.servers.oracle.sql.expressions import KEYWORDS, Expressions, identifier
from dev.servers.oracle.sql.inference import ROW_ID, ROW_SCN, Scope
from dev.servers.oracle.sql.lexer import BIND, NAME, QUOTED, STRING, SYMBOL, Token, Tokens, split
from dev.servers.oracle.sql.lexer import NUMBER as NUMBER_TOKEN
from dev.servers.oracle.values.datatypes import NUMBER, DataType

Columns = list[tuple[str, DataType | None]]
SET_WORDS = {"UNION": "UNION", "MINUS": "EXCEPT", "INTERSECT": "INTERSECT", "EXCEPT": "EXCEPT"}
AFTER_FROM = ("WHERE", "START", "CONNECT", "GROUP", "HAVING", "ORDER", "OFFSET", "FETCH", "FOR")
JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
NOT_AN_ALIAS = frozenset(
    {*AFTER_FROM, *JOIN_WORDS, "ON", "USING", "UNION", "MINUS", "INTERSECT", "AS", "SET", "VALUES", "RETURNING"}
)


@dataclass
class Source:
    """A table, a view or a subquery as SQLite shall read it."""

    sql: str
    columns: Columns
    table: str | None = None
    """The internal name of a base table: ``FOR UPDATE`` needs it."""


class Resolver(Protocol):
    """Finds what a name in a FROM means for this session and this moment."""

    def source(self, path: list[str], as_of: str | None, as_of_time: bool) -> Source: ...
    def sequence(self, path: list[str]) -> str | None: ...


@dataclass
class Compiled:
    """A statement for SQLite, and the columns it gives."""

    sql: str
    columns: Columns
    for_update: str | None = None
    """How to wait for locked rows: empty, NOWAIT, a number of seconds, or SKIP."""
    sources: list[Source] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The table names of the outermost FROM."""


class Queries:
    """Compiles the queries of one statement."""

    def __init__(self, sql: str, tokens: Sequence[Token], allowed: frozenset[str], resolver: Resolver) -> None:
        self.sql = sql
        self._resolver = resolver
        self.expressions = Expressions(sql, tokens, allowed, self._as_subquery)
        self.expressions.sequences = resolver.sequence
        self._ctes: dict[str, Columns] = {}

    def _as_subquery(self, tokens: Sequence[Token], outer: Scope) -> tuple[str, Columns]:
        compiled = self.query(tokens, outer)
        return compiled.sql, compiled.columns

    def query(self, tokens: Sequence[Token], outer: Scope | None = None) -> Compiled:
        """A whole query with its set operators."""
        reader = Tokens(tokens, self.sql)
        prefix = self._with(reader, outer) if reader.skip_words("WITH") else ""
        parts: list[str] = []
        first: Compiled | None = None
        order = ""
        while True:
            start = reader.at
            body = reader.until(*SET_WORDS)
            last = not reader.more
            compiled, order = self._member(body, outer, last=last and first is not None)
            first = first or compiled
            parts.append(compiled.sql)
            if last:
                break
            word = SET_WORDS[reader.next().text]
            parts.append(f"{word} ALL" if reader.skip_words("ALL") else word)
            if reader.at == start:
                raise unknown(self.sql)
        first.sql = prefix + " ".join(parts) + order
        return first

    def _member(self, body: list[Token], outer: Scope | None, *, last: bool) -> tuple[Compiled, str]:
        """Compile a SELECT of a set; the order of the whole set stands behind the last one."""
        order = ""
        if last:
            reader = Tokens(body, self.sql)
            body = reader.until("ORDER")
            if reader.more:
                reader.expect("ORDER", "BY")
                order = " ORDER BY " + ", ".join(
                    " ".join(token.text if token.kind == NUMBER_TOKEN else identifier(token.text) if token.word not in KEYWORDS else token.text for token in part)
                    for part in split(reader.until())
                )  # fmt: skip
        if body and body[0].text == "(" and body[0].kind == SYMBOL:
            inside = Tokens(body, self.sql).group()
            compiled = self.query(inside, outer)
            names = ", ".join(identifier(name) for name, _ in compiled.columns)
            compiled.sql = f"SELECT {names} FROM ({compiled.sql})"
            return compiled, order
        return self._select(body, outer), order

    def _with(self, reader: Tokens, outer: Scope | None) -> str:
        parts = []
        while True:
            name = reader.name()
            names = (
                [token.text for token in reader.group() if token.kind in (NAME, QUOTED)]
                if reader.word() == "("
                else None
            )
            reader.expect("AS")
            compiled = self.query(reader.group(), outer)
            renamed = (
                [(new, kind) for new, (_, kind) in zip(names, compiled.columns, strict=True)]
                if names
                else compiled.columns
            )
            head = ", ".join(identifier(column) for column, _ in renamed)
            self._ctes[name] = renamed
            parts.append(f"{identifier(name)}({head}) AS ({compiled.sql})")
            if not reader.skip_words(","):
                break
        return f"WITH {', '.join(parts)} "

    # one SELECT

    def _select(self, tokens: Sequence[Token], outer: Scope | None) -> Compiled:
        reader = Tokens(tokens, self.sql)
        reader.expect("SELECT")
        distinct = "DISTINCT " if reader.skip_words("DISTINCT") or reader.skip_words("UNIQUE") else ""
        reader.skip_words("ALL")
        items = split(reader.until("FROM"))
        if not items or not reader.skip_words("FROM"):
            raise unknown(self.sql, "a query needs columns and FROM")
        scope = Scope(outer=outer)
        compiled = Compiled("", [])
        from_text = self._from(reader, scope, compiled)
        if reader.skip_words("CONNECT", "BY"):
            from_text = self._levels(reader, scope)
        conditions, limit = self._where(reader, scope)
        selected, compiled.columns = self._items(items, scope)
        text = f"SELECT {distinct}{', '.join(selected)} FROM {from_text}{conditions}"
        return self._tail(reader, scope, compiled, text, limit)

    def _tail(self, reader: Tokens, scope: Scope, compiled: Compiled, text: str, limit: str) -> Compiled:
        translate = self.expressions.translate
        if reader.skip_words("GROUP", "BY"):
            text += f" GROUP BY {translate(reader.until(*AFTER_FROM), scope)}"
        if reader.skip_words("HAVING"):
            text += f" HAVING {translate(reader.until(*AFTER_FROM), scope)}"
        if reader.skip_words("ORDER", "BY"):
            if limit:
                raise unknown(self.sql, "ROWNUM and ORDER BY in one SELECT")
            scope.aliases |= dict(compiled.columns)
            text += f" ORDER BY {self._order(reader.until(*AFTER_FROM), scope)}"
        offset = ""
        if reader.skip_words("OFFSET"):
            offset = translate(reader.until("ROW", "ROWS"), scope)
            reader.next()
        if reader.skip_words("FETCH"):
            reader.next()
            limit = "1" if reader.word() in ("ROW", "ROWS") else translate(reader.until("ROW", "ROWS"), scope)
            reader.next()
            reader.expect("ONLY")
        if reader.skip_words("FOR", "UPDATE"):
            compiled.for_update = self._wait(reader)
        reader.end()
        if limit or offset:
            text += f" LIMIT {limit or -1}" + (f" OFFSET {offset}" if offset else "")
        compiled.sql = text
        return compiled

    def _wait(self, reader: Tokens) -> str:
        if reader.skip_words("OF"):
            reader.until("NOWAIT", "WAIT", "SKIP")
        if reader.skip_words("NOWAIT"):
            return "0"
        if reader.skip_words("WAIT"):
            return reader.next().text
        return "SKIP" if reader.skip_words("SKIP", "LOCKED") else ""

    def _order(self, tokens: list[Token], scope: Scope) -> str:
        parts = []
        for part in split(tokens):
            ends = [i for i, token in enumerate(part) if token.word in ("ASC", "DESC", "NULLS")]
            value = part[: ends[0]] if ends else part
            text = self.expressions.translate(part, scope)
            if self.expressions.ranked(value, scope):
                rest = " ".join(token.text for token in part[len(value) :])
                text = f"ORA_RANK({self.expressions.translate(value, scope)}) {rest}"
            if "NULLS" not in [token.word for token in part]:
                text += " NULLS FIRST" if part[-1].word == "DESC" else " NULLS LAST"
            parts.append(text)
        return ", ".join(parts)

    def _where(self, reader: Tokens, scope: Scope) -> tuple[str, str]:
        if not reader.skip_words("WHERE"):
            return "", ""
        tokens = reader.until(*AFTER_FROM)
        limit = ""
        if any(token.word == "ROWNUM" for token in tokens):
            kept = []
            for part in split(tokens, "AND"):
                if part[0].word == "ROWNUM" and part[1].text in ("<=", "<", "="):
                    limit = f"{self.expressions.translate(part[2:], scope)}{' - 1' if part[1].text == '<' else ''}"
                else:
                    kept.append(self.expressions.translate(part, scope))
            return (f" WHERE {' AND '.join(kept)}" if kept else ""), limit
        return f" WHERE {self.expressions.translate(tokens, scope)}", ""

    # FROM

    def _from(self, reader: Tokens, scope: Scope, compiled: Compiled) -> str:
        text = self._source(reader, scope, compiled)
        while reader.more and reader.word() not in AFTER_FROM:
            if reader.skip_words(","):
                text += f" CROSS JOIN {self._source(reader, scope, compiled)}"
                continue
            words = []
            while reader.word() in (*JOIN_WORDS, "OUTER"):
                words.append(reader.next().text)
            if "JOIN" not in words or "NATURAL" in words:
                raise unknown(self.sql, f"not expected: {reader.next().raw}")
            text += f" {' '.join(words)} {self._source(reader, scope, compiled)}"
            if reader.skip_words("ON"):
                condition = reader.until(*AFTER_FROM, *JOIN_WORDS, ",")
                text += f" ON {self.expressions.translate(condition, scope)}"
            elif reader.skip_words("USING"):
                raise unknown(self.sql, "JOIN ... USING")
        return text

    def _source(self, reader: Tokens, scope: Scope, compiled: Compiled) -> str:
        if reader.word() == "(":
            inner = self.query(reader.group(), scope.outer)
            source, default = Source(f"({inner.sql})", inner.columns), f"Q{len(scope.tables)}"
        else:
            path = reader.names()
            default = path[-1]
            as_of, by_time = self._as_of(reader, scope)
            if len(path) == 1 and path[0] in self._ctes and as_of is None:
                source = Source(identifier(path[0]), self._ctes[path[0]])
            else:
                source = self._resolver.source(path, as_of, by_time)
            compiled.names.append(path[-1])
        compiled.sources.append(source)
        reader.skip_words("AS")
        alias = default
        if reader.more and reader.tokens[reader.at].is_identifier and reader.word() not in NOT_AN_ALIAS:
            alias = reader.name()
        if alias in scope.tables:
            raise unknown(self.sql, f"two tables are called {alias}")
        scope.tables[alias] = source.columns
        if source.table is not None:
            scope.stored.add(alias)
        return f"{source.sql} AS {identifier(alias)}"

    def _as_of(self, reader: Tokens, scope: Scope) -> tuple[str | None, bool]:
        if not reader.skip_words("AS", "OF"):
            return None, False
        by_time = not reader.skip_words("SCN")
        if by_time:
            reader.expect("TIMESTAMP")
        start = reader.at
        depth = 0
        while reader.more:
            token = reader.tokens[reader.at]
            ends_value = (
                reader.at > start and depth == 0 and reader.tokens[reader.at - 1].text not in ("(", "+", "-", "*", ".")
            )
            if ends_value and (token.is_identifier or token.text in (",", ")")):
                break
            depth += {"(": 1, ")": -1}.get(token.text if token.kind == SYMBOL else "", 0)
            reader.at += 1
        return self.expressions.translate(reader.tokens[start : reader.at], Scope()), by_time

    def _levels(self, reader: Tokens, scope: Scope) -> str:
        """``FROM dual CONNECT BY LEVEL <= n``: numbers from one."""
        if list(scope.tables) != ["DUAL"]:
            raise unknown(self.sql, "CONNECT BY")
        reader.expect("LEVEL")
        operator = reader.next().text
        count = self.expressions.translate(reader.until(*AFTER_FROM), Scope())
        if operator not in ("<=", "<"):
            raise unknown(self.sql, "CONNECT BY")
        scope.tables = {"DUAL": [("LEVEL", NUMBER), ("DUMMY", DataType("VARCHAR2", length=1))]}
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 {operator} {count})"
        return f"({numbers} SELECT i AS `LEVEL`, 'X' AS `DUMMY` FROM n) AS `DUAL`"

    # the select list

    def _items(self, items: list[list[Token]], scope: Scope) -> tuple[list[str], Columns]:
        texts: list[str] = []
        columns: Columns = []
        for item in items:
            if item and item[-1].text == "*" and item[-1].kind == SYMBOL and (len(item) == 1 or item[-2].text == "."):
                expected = item[-3].text if len(item) > 1 else None
                for alias, found in scope.tables.items():
                    if expected in (None, alias):
                        visible = [pair for pair in found if pair[0] not in (ROW_ID, ROW_SCN)]
                        texts += [f"{identifier(alias)}.{identifier(name)}" for name, _ in visible]
                        columns += visible
                continue
            expression, name = self._named(item)
            texts.append(f"{self.expressions.translate(expression, scope)} AS {identifier(name)}")
            columns.append((name, self.expressions.infer(expression, scope)))
        if not columns:
            raise unknown(self.sql, "no columns")
        return texts, columns

    def _named(self, item: list[Token]) -> tuple[list[Token], str]:
        if len(item) > 2 and item[-2].word == "AS":
            return item[:-2], item[-1].text
        unit_of_interval = len(item) > 2 and item[-3].word == "INTERVAL" and item[-2].kind == STRING
        if (
            len(item) > 1
            and not unit_of_interval
            and item[-1].is_identifier
            and item[-1].word not in KEYWORDS
            and _ends_operand(item[-2])
        ):
            return item[:-1], item[-1].text
        if item and item[-1].is_identifier and all(token.is_identifier or token.text == "." for token in item):
            return item, item[-1].text
        return item, "".join(token.raw.upper() if token.kind != STRING else token.raw for token in item)[:128]


def _ends_operand(token: Token) -> bool:
    if token.kind == SYMBOL:
        return token.text == ")"
    return token.kind in (QUOTED, STRING, NUMBER_TOKEN, BIND) or token.word not in KEYWORDS - {"END", "NULL"}
