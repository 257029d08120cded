"""Parses single redo statements, of any form that LogMiner is known to write.

Besides the forms that ``kernels.split`` reads, there are aliases (``update .. set a."A" = ..``), statements without ``where``,
``UNISTR(..) || UNISTR(..)``, comments, numbers without quotes, bind variables for values that follow in later rows, and text in which
LogMiner has not doubled apostrophes.

    >>> read_statement('''delete from "SHOP"."PARTS" where "ID" = '7';''').where
    {'ID': Literal(kind=<Kind.TEXT: 'a text'>, text='7', name='', format=None)}
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from airflow_provider_cdc.sources.oracle.kernels.operations import DELETE, INSERT, UPDATE
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import Kind, Literal, Unreadable, unistr

_VERBS = {"insert": INSERT, "delete": DELETE, "update": UPDATE}

_BLANK = re.compile(r"(?:\s|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_$#]*")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_BIND = re.compile(r":[A-Za-z0-9_]+")
_VALUE = r"(?:'|NULL\b|TO_[A-Z_]+\(|HEXTORAW\(|UNISTR\(|EMPTY_[BC]LOB\()"
_ENDS_ITEM = re.compile(rf"'\s*(?:,\s*{_VALUE}|\)\s*;?\s*\Z)")
_ENDS_CONDITION = re.compile(
    r"""'\s*(?:,\s*(?:\w+\.)?"[^"]+"\s*=|where\s+(?:\w+\.)?"[^"]+"\s*(?:=|IS\s)|and\s+(?:\w+\.)?"[^"]+"\s*(?:=|IS\s)|;?\s*\Z)"""
)


@dataclass(slots=True)
class Statement:
    """A parsed statement.

    :param code: 1 insert, 2 delete, 3 update, as ``OPERATION_CODE``
    :param new: columns of an insert, or of the ``set`` of an update
    :param where: columns of ``where``: the row before the change
    """

    code: int
    owner: str | None
    table: str
    new: dict[str, Literal] = field(default_factory=dict)
    where: dict[str, Literal] = field(default_factory=dict)


def read_statement(text: str, *, relaxed: bool = False) -> Statement:
    """Parse an insert, update or delete.

    :param relaxed: if it cannot be parsed as SQL, try again with apostrophes that are not doubled: an apostrophe ends a value only if
        the next characters can follow a value (``internal.log.mining.sql.relaxed.quote.detection``)
    :raises Unreadable: it is none of them, or is truncated
    """
    try:
        return _Reader(text).statement()
    except Unreadable:
        if not relaxed:
            raise
    return _Reader(text, relaxed=True).statement()


class Cursor:
    """A position in a statement, with methods that parse what comes next.

    :ivar at: index of the next character
    :ivar ends: pattern that begins with the apostrophe at the end of a value, for relaxed parsing; ``None`` = apostrophes are doubled
    """

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends: re.Pattern[str] | None = None

    def blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def fail(self, expected: str) -> Unreadable:
        rest = self.text[self.at : self.at + 40]
        return Unreadable(f"{expected} is expected at character {self.at}, where the text goes on with {rest!r}")

    def done(self) -> bool:
        self.blank()
        return self.at >= len(self.text)

    def sign(self, sign: str) -> bool:
        """Skip ``sign`` if it is next; returns whether it was."""
        self.blank()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def expect(self, sign: str) -> None:
        if not self.sign(sign):
            raise self.fail(repr(sign))

    def keyword(self, *words: str) -> bool:
        """Skip these words if they are next; returns whether they were."""
        start = self.at
        for word in words:
            self.blank()
            found = _WORD.match(self.text, self.at)
            if found is None or found[0].lower() != word:
                self.at = start
                return False
            self.at = found.end()
        return True

    def sees(self, word: str) -> bool:
        """Whether this word or sign is next."""
        start = self.at
        seen = self.keyword(word) if word.isalpha() else self.sign(word)
        self.at = start
        return seen

    def identifier(self) -> str:
        self.blank()
        if self.text.startswith('"', self.at):
            end = self.text.find('"', self.at + 1)
            if end < 0:
                raise self.fail("a name with its closing quote")
            name, self.at = self.text[self.at + 1 : end], end + 1
            return name
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.fail("a name")
        self.at = found.end()
        return found[0].upper()

    def column(self) -> str:
        """A column's name, with or without an alias before it."""
        name = self.identifier()
        return self.identifier() if self.sign(".") else name

    def table(self) -> tuple[str | None, str]:
        name = self.identifier()
        return (name, self.identifier()) if self.sign(".") else (None, name)

    def quoted(self) -> str:
        """Parse a quoted text, after its opening apostrophe."""
        if self.ends is not None:
            return self._relaxed(self.ends)
        parts = []
        while True:
            end = self.text.find("'", self.at)
            if end < 0:
                raise self.fail("a closing apostrophe")
            parts.append(self.text[self.at : end])
            self.at = end + 1
            if not self.text.startswith("'", self.at):
                return "".join(parts)
            parts.append("'")
            self.at += 1

    def _relaxed(self, ends: re.Pattern[str]) -> str:
        found = ends.search(self.text, self.at)
        if found is None:
            raise self.fail("a closing apostrophe")
        raw, self.at = self.text[self.at : found.start()], found.start() + 1
        single = raw.replace("''", "")
        if "'" not in single:
            return raw.replace("''", "'")
        if "''" in raw:
            raise Unreadable(f"the text {raw[:60]!r} has doubled apostrophes and single ones, so it is ambiguous")
        return raw

    def value(self) -> Literal:
        """Parse a value; texts concatenated with ``||`` are one value."""
        first = self._operand()
        if not self.sign("||"):
            return first
        parts = [joined(first)]
        while True:
            parts.append(joined(self._operand()))
            if not self.sign("||"):
                return Literal(Kind.TEXT, "".join(parts))

    def _operand(self) -> Literal:
        self.blank()
        if self.sign("'"):
            return Literal(Kind.TEXT, self.quoted())
        if found := _NUMBER.match(self.text, self.at):
            self.at = found.end()
            return Literal(Kind.NUMBER, found[0])
        if found := _BIND.match(self.text, self.at):
            self.at = found.end()
            return Literal(Kind.LATER, found[0])
        if self.keyword("null"):
            return Literal(Kind.NULL)
        if self.keyword("unsupported", "type") or self.keyword("unsupported"):
            return Literal(Kind.UNSUPPORTED)
        if self.keyword("lm_empty_string"):
            return Literal(Kind.TEXT)
        name = self.identifier()
        if not self.sign("("):
            raise self.fail(f"a value instead of {name!r}")
        return self._call(name)

    def _call(self, name: str) -> Literal:
        if self.sign(")"):
            return Literal(Kind.CALL, "", name)
        ends, self.ends = self.ends, None
        arguments = [self.value()]
        while self.sign(","):
            arguments.append(self.value())
        self.ends = ends
        self.expect(")")
        if name == "XMLTYPE" and len(arguments) == 1:
            return arguments[0]
        if len(arguments) > 2 or any(a.kind is not Kind.TEXT for a in arguments):
            raise Unreadable(f"{name} with {', '.join(str(a) for a in arguments)} is not a known value")
        return Literal(Kind.CALL, arguments[0].text, name, arguments[1].text if len(arguments) > 1 else None)

    def conditions(self) -> dict[str, Literal]:
        """Parse ``"A" = '1' and "B" IS NULL``."""
        found: dict[str, Literal] = {}
        while True:
            name = self.column()
            if self.keyword("is", "null"):
                put(found, name, Literal(Kind.NULL))
            else:
                self.expect("=")
                put(found, name, self.value())
            if not self.keyword("and"):
                return found


def joined(literal: Literal) -> str:
    """The text of an operand of ``||``."""
    if literal.kind is Kind.NULL:
        return ""
    if literal.kind is Kind.CALL and literal.name == "UNISTR":
        return unistr(literal.text)
    if literal.kind is not Kind.TEXT:
        raise Unreadable(f"{literal} cannot be concatenated with ||")
    return literal.text


def put(found: dict[str, Literal], name: str, value: Literal) -> None:
    if name in found:
        raise Unreadable(f"column {name} occurs twice")
    found[name] = value


class _Reader(Cursor):
    """Reads a whole statement."""

    def __init__(self, text: str, *, relaxed: bool = False) -> None:
        super().__init__(text)
        self.relaxed = relaxed

    def statement(self) -> Statement:
        code = next((code for verb, code in _VERBS.items() if self.keyword(verb)), 0)
        if not code:
            raise self.fail("insert, update or delete")
        if code != UPDATE:
            self.keyword("into" if code == INSERT else "from")
        statement = Statement(code, *self.table())
        if self.relaxed:
            self.ends = _ENDS_ITEM if code == INSERT else _ENDS_CONDITION
        if code == INSERT:
            self._insert(statement)
        else:
            self._change(statement)
        self.sign(";")
        if not self.done():
            raise self.fail("the end of the statement")
        return statement

    def _insert(self, statement: Statement) -> None:
        names = []
        self.expect("(")
        while True:
            names.append(self.column())
            if not self.sign(","):
                break
        self.expect(")")
        if not self.keyword("values"):
            raise self.fail("values")
        self.expect("(")
        values = [self.value()]
        while self.sign(","):
            values.append(self.value())
        self.expect(")")
        if len(names) != len(values):
            raise Unreadable(f"the statement has {len(names)} columns and {len(values)} values")
        for name, value in zip(names, values, strict=True):
            put(statement.new, name, value)

    def _change(self, statement: Statement) -> None:
        """Parse an update or delete, with or without an alias."""
        for word in ("set", "where"):
            if self.sees(word):
                break
        else:
            if not self.done() and not self.text.startswith(";", self.at):
                self.identifier()
        if statement.code == UPDATE:
            if not self.keyword("set"):
                raise self.fail("set")
            while True:
                name = self.column()
                self.expect("=")
                put(statement.new, name, self.value())
                if not self.sign(","):
                    break
        if self.keyword("where"):
            statement.where = self.conditions()
