"""Parses the log rows of values that have rows of their own: LOBs, XML documents, strings of more than 4,000 bytes.

A value begins with a statement that names its row and column (``SELECT_LOB_LOCATOR``, ``XML DOC BEGIN``, the ``Stmt`` of a long
string). Writes, trims and erasures follow, until another change or value begins. These functions parse one log row each; :mod:`.lob_assembler`
assembles the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import (
    LOB_CODES,
    LOB_ERASE,
    LOB_TRIM,
    LOB_WRITE,
    STRING_BEGIN,
    STRING_END,
    STRING_WRITE,
    UPDATE,
    XML_BEGIN,
    XML_END,
    XML_WRITE,
)
from airflow_provider_cdc.sources.oracle.redo.literal_converter import read_piece
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import LiteralKind, ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.statement_parser import RedoCursor, read_statement

_VARIABLES = {"LOC_C": "CLOB", "LOC_NC": "NCLOB", "LOC_B": "BLOB"}
_WHOLE = re.compile(r"\d{1,18}(?![\w.])")
_XML_BEGIN = re.compile(r"\s*XML DOC BEGIN:\s*", re.IGNORECASE)
_ASSIGNED = re.compile(r"\s*\w+\s*:=\s*")
_STATEMENT = re.compile(r"(?:\A|\s)Stmt\s*:=\s*", re.IGNORECASE)
_TEXT_LENGTH = re.compile(r":\s*(\d+)\s*;?\s*\Z")
_QUOTED_LENGTH = re.compile(r"\s*(?:amount\s*)?:\s*(\d+)\s*;?\s*\Z", re.IGNORECASE)
_APPEND = re.compile(r"\s*;\s*dbms_lob\.writeappend\s*\(\s*\w+\s*,\s*(\d+)\s*,\s*\w+\s*\)\s*;?\s*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ValueBegin:
    """The beginning of a value.

    :param kind: ``CLOB``, ``NCLOB``, ``BLOB``, ``XML`` or ``STRING``
    :param where: the condition that names the row: values of its columns other than LOBs
    """

    kind: str
    owner: str | None
    table: str
    column: str
    where: dict[str, ParsedLiteral]


@dataclass(frozen=True, slots=True)
class ValueWrite:
    """A piece of a value.

    :param data: characters of text, bytes of a BLOB or of binary XML; ``None`` for an XML document that is NULL
    :param offset: from 1, in characters or bytes; ``None`` = after the previous piece
    :param length: length in the log, in the same unit
    :param kind: ``CLOB``, ``NCLOB`` or ``BLOB``, if the statement says it
    """

    data: str | bytes | None
    offset: int | None = None
    length: int | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ValueTrim:
    """The value is truncated to ``length`` characters or bytes."""

    length: int
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ValueErase:
    """``length`` characters become blanks, or bytes zeros, from ``offset``, which counts from 1."""

    offset: int
    length: int
    kind: str | None = None


Piece = ValueBegin | ValueWrite | ValueTrim | ValueErase


def read_pieces(code: int, text: str) -> list[Piece]:
    """Parse the statement of a log row of a long value. The rows that only end a value give no piece.

    Some versions of Oracle write the locator and the writes into one statement, so there may be several pieces.

    :param code: ``OPERATION_CODE``
    :raises UnreadableRedo: the statement does not have the form of its operation
    """
    if code in (XML_END, STRING_END):
        return []
    if code in LOB_CODES:
        return _LobBlockParser(text).parse_pieces(code)
    readers: dict[int, Callable[[str], Piece]] = {
        XML_BEGIN: _xml_begin,
        XML_WRITE: _assigned,
        STRING_BEGIN: _string_begin,
        STRING_WRITE: _assigned,
    }
    if code not in readers:
        raise UnreadableRedo(f"operation code {code} has no pieces of values")
    return [readers[code](text)]


def read_begin(code: int, text: str) -> ValueBegin | None:
    """Parse the beginning of a value in a statement; ``None`` if it has none.

    The text after the beginning of a LOB may be cut off.

    :raises UnreadableRedo: it does not have the form of its operation
    """
    if code in LOB_CODES:
        return _LobBlockParser(text).parse_locator()
    if code not in (XML_BEGIN, STRING_BEGIN):
        return None
    return next(piece for piece in read_pieces(code, text) if isinstance(piece, ValueBegin))


class _LobBlockParser(RedoCursor):
    """Parses ``[DECLARE .. BEGIN] select .. for update; buf_c := ..; dbms_lob.write(..); [END;]``, or a part of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.variables: dict[str, ParsedLiteral] = {}

    def parse_pieces(self, code: int) -> list[Piece]:
        self._declarations()
        pieces: list[Piece] = []
        while not self.is_at_end() and not self.accept_keywords("end"):
            piece = self._locator() if self.accept_keywords("select") else self._statement()
            pieces += [piece] if piece is not None else []
        self.accept_sign(";")
        if not self.is_at_end():
            raise self.build_error("the end of the statement")
        if self.variables:
            raise UnreadableRedo(f"the statement sets {', '.join(self.variables).lower()}, but does not use it")
        piece_types: dict[int, tuple[type, ...]] = {
            LOB_TRIM: (ValueTrim, ValueBegin),
            LOB_WRITE: (ValueWrite,),
            LOB_ERASE: (ValueErase,),
        }
        if not any(isinstance(piece, piece_types.get(code, (ValueBegin,))) for piece in pieces):
            raise UnreadableRedo(f"the statement does not match its operation code {code}")
        return pieces

    def parse_locator(self) -> ValueBegin | None:
        """Parse the locator alone."""
        self._declarations()
        return self._locator() if self.accept_keywords("select") else None

    def _declarations(self) -> None:
        if self.accept_keywords("declare"):
            while not self.accept_keywords("begin"):
                self.parse_identifier()
                self.parse_identifier()
                if self.accept_sign("("):
                    self._whole()
                    self.expect_sign(")")
                self.expect_sign(";")
        else:
            self.accept_keywords("begin")

    def _whole(self) -> int:
        self.skip_blanks()
        match = _WHOLE.match(self.text, self.at)
        if match is None:
            raise self.build_error("a whole number")
        self.at = match.end()
        return int(match[0])

    def _locator(self) -> ValueBegin:
        column, variable = _selected(self)
        if variable not in _VARIABLES:
            raise UnreadableRedo(
                f"the LOB locator is selected into {variable!r}, which is not one of {', '.join(_VARIABLES).lower()}"
            )
        owner, table, where = _row(self)
        if not self.accept_keywords("for", "update"):
            raise self.build_error("for update")
        self.accept_sign(";")
        return ValueBegin(_VARIABLES[variable], owner, table, column, where)

    def _statement(self) -> Piece | None:
        """Parse an assignment, whose value is kept for a later call; or a call of ``DBMS_LOB``."""
        name = self.parse_identifier()
        if self.accept_sign(":="):
            self.variables[name] = self.parse_value()
            self.expect_sign(";")
            return None
        if name != "DBMS_LOB":
            raise self.build_error(f"an assignment to {name!r}, or a call of dbms_lob,")
        self.expect_sign(".")
        call = self.parse_identifier()
        self.expect_sign("(")
        locator = self.parse_identifier()
        self.expect_sign(",")
        if locator not in _VARIABLES:
            raise UnreadableRedo(f"{locator.lower()} is not a variable of a LOB")
        pieces: dict[str, Callable[[str], Piece]] = {"WRITE": self._write, "TRIM": self._trim, "ERASE": self._erase}
        if call not in pieces:
            raise UnreadableRedo(f"dbms_lob.{call.lower()} is unknown")
        piece = pieces[call](locator)
        self.expect_sign(")")
        self.expect_sign(";")
        return piece

    def _write(self, locator: str) -> ValueWrite:
        length = self._whole()
        self.expect_sign(",")
        offset = self._whole()
        self.expect_sign(",")
        buffer = self.parse_identifier()
        if buffer not in self.variables or buffer[4:] != locator[4:]:
            raise UnreadableRedo(f"dbms_lob.write takes {buffer.lower()}, which the statement does not set")
        data = _data(self.variables.pop(buffer))
        if offset < 1 or not _fits(data, length):
            raise UnreadableRedo(f"a LOB write of {length} from {offset} has {len(data)} characters or bytes")
        return ValueWrite(data, offset, length, _VARIABLES[locator])

    def _trim(self, locator: str) -> ValueTrim:
        return ValueTrim(self._whole(), _VARIABLES[locator])

    def _erase(self, locator: str) -> ValueErase:
        self.skip_blanks()
        if _WHOLE.match(self.text, self.at):
            length = self._whole()
        else:
            amount = self.variables.pop(self.parse_identifier(), None)
            if amount is None or not _WHOLE.fullmatch(amount.text):
                raise UnreadableRedo("dbms_lob.erase has no amount")
            length = int(amount.text)
        self.expect_sign(",")
        offset = self._whole()
        if offset < 1:
            raise UnreadableRedo("dbms_lob.erase starts before the value")
        return ValueErase(offset, length, _VARIABLES[locator])


def _data(literal: ParsedLiteral) -> str | bytes:
    if literal.kind is LiteralKind.CALL and literal.name == "HEXTORAW" and len(literal.text) % 2:
        raise UnreadableRedo("a piece has an odd number of hexadecimal digits")
    return read_piece(literal)


def _fits(data: str | bytes, length: int) -> bool:
    """Check whether a piece has the logged length, in bytes or characters.

    A character beyond the basic plane may count as two, since databases mostly store CLOBs in UTF-16.
    """
    return length == len(data) or (isinstance(data, str) and length == len(data.encode("utf-16-le")) // 2)


def _selected(cursor: RedoCursor) -> tuple[str, str]:
    """Parse ``"C" [into loc_c] from`` after ``select``: the column and the variable."""
    column = cursor.parse_column_name()
    variable = cursor.parse_identifier() if cursor.accept_keywords("into") else ""
    if not cursor.accept_keywords("from"):
        raise cursor.build_error("from")
    return column, variable


def _row(cursor: RedoCursor) -> tuple[str | None, str, dict[str, ParsedLiteral]]:
    """Parse ``"O"."T" [alias] [where ..]``."""
    owner, table = cursor.parse_table_name()
    if not cursor.is_next("where") and not cursor.is_next("for") and not cursor.is_at_end() and not cursor.is_next(";"):
        cursor.parse_identifier()
    return owner, table, cursor.parse_conditions() if cursor.accept_keywords("where") else {}


def _xml_begin(text: str) -> ValueBegin:
    """Parse the beginning of an XML document: a select for binary XML, an update for XML stored as text."""
    match = _XML_BEGIN.match(text)
    start = match.end() if match else 0
    cursor = RedoCursor(text)
    cursor.at = start
    if not cursor.accept_keywords("select"):
        return _updated("XML", text[start:])
    column, _ = _selected(cursor)
    owner, table, where = _row(cursor)
    cursor.accept_sign(";")
    if not cursor.is_at_end():
        raise cursor.build_error("the end of the statement")
    return ValueBegin("XML", owner, table, column, where)


def _updated(kind: str, text: str) -> ValueBegin:
    statement = read_statement(text)
    later = [name for name, literal in statement.new.items() if literal.kind is LiteralKind.LATER]
    if statement.code != UPDATE or len(later) != 1:
        raise UnreadableRedo("an update of one column with a bind variable as its value is expected")
    return ValueBegin(kind, statement.owner, statement.table, later[0], statement.where)


def _string_begin(text: str) -> ValueBegin:
    match = _STATEMENT.search(text)
    cursor = RedoCursor(text)
    cursor.at = match.end() if match else 0
    if match is None or not cursor.accept_sign("'"):
        raise cursor.build_error("Stmt := '..'")
    statement = cursor.parse_quoted_text()
    cursor.accept_sign(";")
    if not cursor.is_at_end():
        raise cursor.build_error("the end of the statement")
    return _updated("STRING", statement)


def _assigned(text: str) -> ValueWrite:
    """Parse ``XML_REDO := HEXTORAW('..'):len``, plain text, NULL, or ``buf_c := '..'; DBMS_LOB.WriteAppend(TempLob, len, buf_c);``."""
    match = _ASSIGNED.match(text)
    if match is None:
        raise UnreadableRedo("an assignment with := is expected")
    rest = text[match.end() :]
    if rest.strip().rstrip(";").upper() == "NULL":
        return ValueWrite(None)
    if not rest.startswith("'") and not rest.upper().startswith(("HEXTORAW", "UNISTR", "NULL")):
        length = _TEXT_LENGTH.search(rest)
        if length is not None and int(length[1]) in (length.start(), len(rest[: length.start()].encode())):
            return ValueWrite(rest[: length.start()], None, int(length[1]))
        return ValueWrite(rest)
    cursor = RedoCursor(rest)
    data = _data(cursor.parse_value())
    after = _APPEND.match(rest, cursor.at) or _QUOTED_LENGTH.match(rest, cursor.at)
    if after is None and rest[cursor.at :].strip(" ;\n"):
        raise cursor.build_error("the end of the piece")
    return _sized(data, after[1] if after else None)


def _sized(data: str | bytes, length: str | None) -> ValueWrite:
    if length is None:
        return ValueWrite(data)
    if not _fits(data, int(length)) and (isinstance(data, bytes) or int(length) != len(data.encode())):
        raise UnreadableRedo(f"a piece of {length} has {len(data)} characters or bytes")
    return ValueWrite(data, None, int(length))
