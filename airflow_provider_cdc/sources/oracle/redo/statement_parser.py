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

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import DELETE, INSERT, UPDATE
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import (
    LiteralKind,
    ParsedLiteral,
    UnreadableRedo,
    decode_unistr,
)

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
class RedoStatement:
    """A parsed statement.

    :param code: 1 insert, 2 delete, 3 update, as ``OPERATION_CODE``
    :param new: columns of an insert, or of the ``set`` of an update
    :param where: columns of ``where``: the row before the change
    """

    code: int
    owner: str | None
    table: str
    new: dict[str, ParsedLiteral] = field(default_factory=dict)
    where: dict[str, ParsedLiteral] = field(default_factory=dict)


def read_statement(text: str, *, relaxed: bool = False) -> RedoStatement:
    """Parse an insert, update or delete.

    :param relaxed: if it cannot be parsed as SQL, try again with apostrophes that are not doubled: an apostrophe ends a value only if
        the next characters can follow a value (``internal.log.mining.sql.relaxed.quote.detection``)
    :raises UnreadableRedo: it is none of them, or is truncated
    """
    try:
        return _StatementParser(text).parse_statement()
    except UnreadableRedo:
        if not relaxed:
            raise
    return _StatementParser(text, relaxed=True).parse_statement()


class RedoCursor:
    """A position in a statement, with methods that parse the text after it.

    :ivar at: index of the next character
    :ivar ends: pattern that begins with the apostrophe at the end of a value, for relaxed parsing; ``None`` = apostrophes are doubled
    """

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends: re.Pattern[str] | None = None

    def skip_blanks(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def build_error(self, expected: str) -> UnreadableRedo:
        rest = self.text[self.at : self.at + 40]
        return UnreadableRedo(f"{expected} is expected at character {self.at}, where the text continues with {rest!r}")

    def is_at_end(self) -> bool:
        self.skip_blanks()
        return self.at >= len(self.text)

    def accept_sign(self, sign: str) -> bool:
        """Skip ``sign`` if it is next; returns whether it was."""
        self.skip_blanks()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def expect_sign(self, sign: str) -> None:
        if not self.accept_sign(sign):
            raise self.build_error(repr(sign))

    def accept_keywords(self, *words: str) -> bool:
        """Skip these words if they are next; returns whether they were."""
        start = self.at
        for word in words:
            self.skip_blanks()
            match = _WORD.match(self.text, self.at)
            if match is None or match[0].lower() != word:
                self.at = start
                return False
            self.at = match.end()
        return True

    def is_next(self, word: str) -> bool:
        """Check whether this word or sign is next."""
        start = self.at
        is_there = self.accept_keywords(word) if word.isalpha() else self.accept_sign(word)
        self.at = start
        return is_there

    def parse_identifier(self) -> str:
        self.skip_blanks()
        if self.text.startswith('"', self.at):
            end = self.text.find('"', self.at + 1)
            if end < 0:
                raise self.build_error("a name with its closing quote")
            name, self.at = self.text[self.at + 1 : end], end + 1
            return name
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.build_error("a name")
        self.at = match.end()
        return match[0].upper()

    def parse_column_name(self) -> str:
        """Parse a column's name, with or without an alias before it."""
        name = self.parse_identifier()
        return self.parse_identifier() if self.accept_sign(".") else name

    def parse_table_name(self) -> tuple[str | None, str]:
        name = self.parse_identifier()
        return (name, self.parse_identifier()) if self.accept_sign(".") else (None, name)

    def parse_quoted_text(self) -> str:
        """Parse a quoted text, after its opening apostrophe."""
        if self.ends is not None:
            return self._relaxed(self.ends)
        parts = []
        while True:
            end = self.text.find("'", self.at)
            if end < 0:
                raise self.build_error("a closing apostrophe")
            parts.append(self.text[self.at : end])
            self.at = end + 1
            if not self.text.startswith("'", self.at):
                return "".join(parts)
            parts.append("'")
            self.at += 1

    def _relaxed(self, ends: re.Pattern[str]) -> str:
        match = ends.search(self.text, self.at)
        if match is None:
            raise self.build_error("a closing apostrophe")
        raw, self.at = self.text[self.at : match.start()], match.start() + 1
        single = raw.replace("''", "")
        if "'" not in single:
            return raw.replace("''", "'")
        if "''" in raw:
            raise UnreadableRedo(f"the text {raw[:60]!r} has doubled and single apostrophes, so it is ambiguous")
        return raw

    def parse_value(self) -> ParsedLiteral:
        """Parse a value; texts concatenated with ``||`` are one value."""
        first = self._operand()
        if not self.accept_sign("||"):
            return first
        parts = [read_operand_text(first)]
        while True:
            parts.append(read_operand_text(self._operand()))
            if not self.accept_sign("||"):
                return ParsedLiteral(LiteralKind.TEXT, "".join(parts))

    def _operand(self) -> ParsedLiteral:
        self.skip_blanks()
        if self.accept_sign("'"):
            return ParsedLiteral(LiteralKind.TEXT, self.parse_quoted_text())
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            return ParsedLiteral(LiteralKind.NUMBER, match[0])
        if match := _BIND.match(self.text, self.at):
            self.at = match.end()
            return ParsedLiteral(LiteralKind.LATER, match[0])
        if self.accept_keywords("null"):
            return ParsedLiteral(LiteralKind.NULL)
        if self.accept_keywords("unsupported", "type") or self.accept_keywords("unsupported"):
            return ParsedLiteral(LiteralKind.UNSUPPORTED)
        if self.accept_keywords("lm_empty_string"):
            return ParsedLiteral(LiteralKind.TEXT)
        name = self.parse_identifier()
        if not self.accept_sign("("):
            raise self.build_error(f"a value instead of {name!r}")
        return self._call(name)

    def _call(self, name: str) -> ParsedLiteral:
        if self.accept_sign(")"):
            return ParsedLiteral(LiteralKind.CALL, "", name)
        ends, self.ends = self.ends, None
        arguments = [self.parse_value()]
        while self.accept_sign(","):
            arguments.append(self.parse_value())
        self.ends = ends
        self.expect_sign(")")
        if name == "XMLTYPE" and len(arguments) == 1:
            return arguments[0]
        if len(arguments) > 2 or any(a.kind is not LiteralKind.TEXT for a in arguments):
            raise UnreadableRedo(f"{name} with {', '.join(str(a) for a in arguments)} is not a known value")
        return ParsedLiteral(
            LiteralKind.CALL, arguments[0].text, name, arguments[1].text if len(arguments) > 1 else None
        )

    def parse_conditions(self) -> dict[str, ParsedLiteral]:
        """Parse ``"A" = '1' and "B" IS NULL``."""
        conditions: dict[str, ParsedLiteral] = {}
        while True:
            name = self.parse_column_name()
            if self.accept_keywords("is", "null"):
                add_column_value(conditions, name, ParsedLiteral(LiteralKind.NULL))
            else:
                self.expect_sign("=")
                add_column_value(conditions, name, self.parse_value())
            if not self.accept_keywords("and"):
                return conditions


def read_operand_text(literal: ParsedLiteral) -> str:
    """Return the text of an operand of ``||``."""
    if literal.kind is LiteralKind.NULL:
        return ""
    if literal.kind is LiteralKind.CALL and literal.name == "UNISTR":
        return decode_unistr(literal.text)
    if literal.kind is not LiteralKind.TEXT:
        raise UnreadableRedo(f"{literal} cannot be concatenated with ||")
    return literal.text


def add_column_value(values: dict[str, ParsedLiteral], name: str, value: ParsedLiteral) -> None:
    if name in values:
        raise UnreadableRedo(f"column {name} occurs twice")
    values[name] = value


class _StatementParser(RedoCursor):
    """Reads a whole statement."""

    def __init__(self, text: str, *, relaxed: bool = False) -> None:
        super().__init__(text)
        self.relaxed = relaxed

    def parse_statement(self) -> RedoStatement:
        code = next((code for verb, code in _VERBS.items() if self.accept_keywords(verb)), 0)
        if not code:
            raise self.build_error("insert, update or delete")
        if code != UPDATE:
            self.accept_keywords("into" if code == INSERT else "from")
        statement = RedoStatement(code, *self.parse_table_name())
        if self.relaxed:
            self.ends = _ENDS_ITEM if code == INSERT else _ENDS_CONDITION
        if code == INSERT:
            self._insert(statement)
        else:
            self._change(statement)
        self.accept_sign(";")
        if not self.is_at_end():
            raise self.build_error("the end of the statement")
        return statement

    def _insert(self, statement: RedoStatement) -> None:
        names = []
        self.expect_sign("(")
        while True:
            names.append(self.parse_column_name())
            if not self.accept_sign(","):
                break
        self.expect_sign(")")
        if not self.accept_keywords("values"):
            raise self.build_error("values")
        self.expect_sign("(")
        values = [self.parse_value()]
        while self.accept_sign(","):
            values.append(self.parse_value())
        self.expect_sign(")")
        if len(names) != len(values):
            raise UnreadableRedo(f"the statement has {len(names)} columns and {len(values)} values")
        for name, value in zip(names, values, strict=True):
            add_column_value(statement.new, name, value)

    def _change(self, statement: RedoStatement) -> None:
        """Parse an update or delete, with or without an alias."""
        for word in ("set", "where"):
            if self.is_next(word):
                break
        else:
            if not self.is_at_end() and not self.text.startswith(";", self.at):
                self.parse_identifier()
        if statement.code == UPDATE:
            if not self.accept_keywords("set"):
                raise self.build_error("set")
            while True:
                name = self.parse_column_name()
                self.expect_sign("=")
                add_column_value(statement.new, name, self.parse_value())
                if not self.accept_sign(","):
                    break
        if self.accept_keywords("where"):
            statement.where = self.parse_conditions()
