"""The types of expressions, as far as their texts show them, and the names that they may use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.sql import functions
from dev.servers.oracle.sql.lexer import NUMBER, STRING, SYMBOL, Token, Tokens, split
from dev.servers.oracle.values import datatypes
from dev.servers.oracle.values.datatypes import DATE_KINDS, DataType

RENAMED = {
    "DBMS_FLASHBACK_GET_SYSTEM_CHANGE_NUMBER": "READ_SCN", "SUBSTRB": "SUBSTR", "IFNULL": "NVL", "SYS_XMLTYPE": "XMLTYPE",
    "XMLTYPE_CREATEXML": "XMLTYPE", "TO_NCHAR": "TO_CHAR", "LISTAGG": "GROUP_CONCAT",
}  # fmt: skip
ROW_ID = "__ROWID"
ROW_SCN = "__ROWSCN"


@dataclass
class Scope:
    """The columns that can be named in one SELECT, by the alias of their table."""

    tables: dict[str, list[tuple[str, DataType | None]]] = field(default_factory=dict)
    aliases: dict[str, DataType | None] = field(default_factory=dict)
    """Names given in the select list, for ORDER BY."""
    stored: set[str] = field(default_factory=set)
    """The aliases of tables, which have kept values as they are."""
    outer: "Scope | None" = None

    def find_column(self, path: Sequence[str]) -> tuple[str, str, DataType | None] | None:
        """Find a column as :meth:`find` does, with the ROWID and ORA_ROWSCN of a table, too."""
        special = {"ROWID": ROW_ID, "ORA_ROWSCN": ROW_SCN}.get(path[-1])
        return (self.find([*path[:-1], special]) if special else None) or self.find(path)

    def find(self, path: Sequence[str]) -> tuple[str, str, DataType | None] | None:
        """Alias, column and type of a column; ORA-00918 when two tables have it."""
        column = path[-1]
        hits = [
            (alias, name, kind)
            for alias, columns in self.tables.items()
            if len(path) == 1 or path[-2] == alias
            for name, kind in columns
            if name == column
        ]
        if len(hits) > 1:
            raise OraError(918)
        if hits:
            return hits[0]
        return self.outer.find(path) if self.outer else None


Subquery = Callable[[Sequence[Token], Scope], tuple[str, list[tuple[str, DataType | None]]]]


class Inference:
    """Finds the types of the expressions of one statement."""

    def __init__(self, sql: str, subquery: Subquery) -> None:
        self.sql = sql
        self._subquery = subquery

    def infer(self, tokens: Sequence[Token], scope: Scope) -> DataType | None:
        """The type of an expression; None where only its values tell."""
        if not tokens:
            return None
        operators = {token.text for token in _outside(tokens) if token.kind == SYMBOL}
        if "||" in operators:
            return datatypes.VARCHAR
        first = tokens[0]
        if operators & {"*", "/"} or (first.kind == SYMBOL and first.text in ("-", "+")):
            return datatypes.NUMBER
        if operators & {"+", "-"}:
            parts = split(tokens, "-") if "-" in operators else split(tokens, "+")
            kinds = [self.infer(part, scope) for part in parts if part]
            dates = [kind for kind in kinds if kind and kind.kind in DATE_KINDS]
            return dates[0] if len(dates) == 1 and len(kinds) > 1 else datatypes.NUMBER
        if len(tokens) == 1 and first.kind in (STRING, NUMBER):
            return (
                datatypes.NUMBER if first.kind == NUMBER else DataType("CHAR", length=max(len(first.text.encode()), 1))
            )
        if first.text == "(" and first.kind == SYMBOL:
            inside = Tokens(tokens, self.sql).group()
            if inside and inside[0].word in ("SELECT", "WITH"):
                return self._subquery(inside, scope)[1][0][1]
            return self.infer(inside, scope)
        if first.word == "CASE":
            at = next((index for index, token in enumerate(tokens) if token.word == "THEN"), None)
            return self.infer(until_branch(Tokens(tokens[at + 1 :], self.sql)), scope) if at is not None else None
        if first.word in ("DATE", "TIMESTAMP") and len(tokens) == 2 and tokens[1].kind == STRING:
            return datatypes.DATE if first.word == "DATE" else datatypes.TIMESTAMP
        return self._infer_name(Tokens(tokens, self.sql), scope) if first.is_identifier else None

    def ranked(self, tokens: Sequence[Token], scope: Scope) -> bool:
        """Check whether this is a table's column whose kept values do not have the order of what they stand for."""
        if not all(token.is_identifier or token.text == "." for token in tokens) or len(tokens) % 2 == 0:
            return False
        hit = scope.find_column([token.text for token in tokens[::2]])
        return bool(hit and hit[0] in scope.stored and hit[1] != ROW_ID and hit[2] and hit[2].ranked)

    def _infer_name(self, reader: Tokens, scope: Scope) -> DataType | None:
        path = reader.names()
        if reader.word() == "(":
            name = "_".join(path[1:] if path[0] == "SYS" else path)
            inside = reader.group()
            if name == "CAST":
                return datatypes.parse(split_cast(Tokens(inside, self.sql))[1])
            if name in functions.LIKE_FIRST_ARGUMENT and inside:
                return self.infer(split(inside)[0], scope)
            return functions.TYPES.get(RENAMED.get(name, name))
        if hit := scope.find_column(path):
            return hit[2]
        if path[-1] == "NEXTVAL":
            return datatypes.NUMBER
        if len(path) == 1 and path[0] == "USER":
            return DataType("VARCHAR2", length=128)
        return functions.TYPES.get(path[-1]) if len(path) == 1 else None


def split_cast(reader: Tokens) -> tuple[list[Token], str]:
    value = reader.until("AS")
    reader.expect("AS")
    return value, reader.text(reader.until())


def until_branch(reader: Tokens) -> list[Token]:
    """Up to the WHEN, ELSE or END of this CASE."""
    start, depth = reader.at, 0
    while reader.more:
        word = reader.word()
        if depth == 0 and word in ("WHEN", "ELSE", "END"):
            break
        depth += {"(": 1, "CASE": 1, ")": -1, "END": -1}.get(word, 0)
        reader.at += 1
    return list(reader.tokens[start : reader.at])


def _outside(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that are in no parentheses."""
    found, depth = [], 0
    for token in tokens:
        text = token.text if token.kind == SYMBOL else ""
        depth -= text == ")"
        if depth == 0:
            found.append(token)
        depth += text == "("
    return found
