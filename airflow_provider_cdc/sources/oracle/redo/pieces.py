"""Values that come in rows of their own: LOBs, XML documents, strings of more than 4,000 bytes.

A value begins with a statement that names its row and column (``SELECT_LOB_LOCATOR``, ``XML DOC BEGIN``, the ``Stmt`` of a long
string), and goes on with writes, trims and erasures until something else begins. These functions read one text each; putting the
pieces together, which may come out of order and may overlap, is the transaction's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_cdc.sources.oracle.redo.literals import Kind, Literal, Unreadable
from airflow_provider_cdc.sources.oracle.redo.plain import UPDATE, Cursor, read_statement
from airflow_provider_cdc.sources.oracle.redo.values import read_piece

SELECT_LOB_LOCATOR, LOB_WRITE, LOB_TRIM, LOB_ERASE = 9, 10, 11, 29
XML_BEGIN, XML_WRITE, XML_END = 68, 70, 71
STRING_BEGIN, STRING_WRITE, STRING_END = 91, 92, 93
"""``OPERATION_CODE`` of the texts that are read here."""

_LOCATOR = re.compile(r"\bBEGIN\s+(?=select\s)", re.IGNORECASE)
_VARIABLES = {"LOC_C": "CLOB", "LOC_NC": "NCLOB", "LOC_B": "BLOB"}
_WRITE = re.compile(r"\s*dbms_lob\.write\s*\(\s*loc_\w+\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*buf_\w+\s*\)", re.IGNORECASE)
_TRIM = re.compile(r"dbms_lob\.trim\s*\(\s*loc_\w+\s*,\s*(\d+)\s*\)", re.IGNORECASE)
_ERASE = re.compile(r"dbms_lob\.erase\s*\(\s*loc_\w+\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", re.IGNORECASE)
_BUFFER = re.compile(r"\bbuf_\w+\s*:=", re.IGNORECASE)
_XML_BEGIN = re.compile(r"\s*XML DOC BEGIN:\s*", re.IGNORECASE)
_ASSIGNED = re.compile(r"\s*\w+\s*:=\s*")
_HEX = re.compile(r"HEXTORAW\('([0-9A-Fa-f]*)'\)\s*(?::\s*(\d+))?\s*;?\s*", re.IGNORECASE)
_TEXT_LENGTH = re.compile(r":\s*(\d+)\s*;?\s*\Z")


@dataclass(frozen=True, slots=True)
class Begin:
    """A value begins.

    :param kind: ``CLOB``, ``NCLOB``, ``BLOB``, ``XML`` or ``STRING``
    :param where: the row, as the columns before the change; LOBs are not among them
    """

    kind: str
    owner: str | None
    table: str
    column: str
    where: dict[str, Literal]


@dataclass(frozen=True, slots=True)
class Write:
    """Some of a value.

    :param data: characters of a text, bytes of a BLOB or of binary XML, ``None`` for an XML document that is NULL
    :param offset: from 1, in characters or bytes; ``None`` = after the piece before
    :param length: in the same unit, as the log says
    """

    data: str | bytes | None
    offset: int | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Trim:
    """The value ends after ``length`` characters or bytes."""

    length: int


@dataclass(frozen=True, slots=True)
class Erase:
    """``length`` characters become blanks, or bytes zeros, from ``offset``, which counts from 1."""

    offset: int
    length: int


Piece = Begin | Write | Trim | Erase


def read_piece_text(code: int, text: str) -> Piece | None:
    """What a redo text of one of the operations above says; ``None`` for the ones that only end a value.

    :raises Unreadable: it is not what the operation's texts are
    """
    if code in (XML_END, STRING_END):
        return None
    readers: dict[int, Callable[[str], Piece]] = {
        SELECT_LOB_LOCATOR: _locator,
        LOB_WRITE: _lob_write,
        LOB_TRIM: _lob_trim,
        LOB_ERASE: _lob_erase,
        XML_BEGIN: _xml_begin,
        XML_WRITE: _assigned,
        STRING_BEGIN: _string_begin,
        STRING_WRITE: _assigned,
    }
    if code not in readers:
        raise Unreadable(f"operation code {code} has no pieces of values")
    return readers[code](text)


def _selected(cursor: Cursor) -> tuple[str, str]:
    """``select "C" [into loc_c]``: the column, and the variable."""
    if not cursor.keyword("select"):
        raise cursor.fail("select")
    column = cursor.column()
    variable = cursor.identifier() if cursor.keyword("into") else ""
    if not cursor.keyword("from"):
        raise cursor.fail("from")
    return column, variable


def _row(cursor: Cursor) -> tuple[str | None, str, dict[str, Literal]]:
    """``"O"."T" [alias] where ..``."""
    owner, table = cursor.table()
    if not cursor.keyword("where"):
        cursor.identifier()
        if not cursor.keyword("where"):
            raise cursor.fail("where")
    return owner, table, cursor.conditions()


def _locator(text: str) -> Begin:
    found = _LOCATOR.search(text)
    if found is None:
        raise Unreadable("a LOB locator is expected, with BEGIN select")
    cursor = Cursor(text)
    cursor.at = found.end()
    column, variable = _selected(cursor)
    if variable not in _VARIABLES:
        raise Unreadable(f"the LOB locator is put in {variable!r}, which is none of {', '.join(_VARIABLES).lower()}")
    owner, table, where = _row(cursor)
    if not cursor.keyword("for", "update"):
        raise cursor.fail("for update")
    return Begin(_VARIABLES[variable], owner, table, column, where)


def _lob_write(text: str) -> Write:
    found = _BUFFER.search(text)
    if found is None:
        raise Unreadable("a LOB write is expected, with buf_.. := ..")
    cursor = Cursor(text)
    cursor.at = found.end()
    data = read_piece(cursor.value())
    cursor.expect(";")
    call = _WRITE.match(text, cursor.at)
    if call is None:
        raise cursor.fail("dbms_lob.write(..)")
    length, offset = int(call[1]), int(call[2])
    # characters beyond the basic plane count as two where the database keeps UTF-16
    units = len(data.encode("utf-16-le")) // 2 if isinstance(data, str) else len(data)
    if offset < 1 or length not in (len(data), units):
        raise Unreadable(f"a LOB write of {length} from {offset} has {len(data)} characters or bytes")
    return Write(data, offset, length)


def _lob_trim(text: str) -> Trim:
    found = _TRIM.search(text)
    if found is None:
        raise Unreadable("dbms_lob.trim(..) is expected")
    return Trim(int(found[1]))


def _lob_erase(text: str) -> Erase:
    found = _ERASE.search(text)
    if found is None or int(found[2]) < 1:
        raise Unreadable("dbms_lob.erase(..) is expected")
    return Erase(int(found[2]), int(found[1]))


def _xml_begin(text: str) -> Begin:
    """Binary XML begins with a select, XML that is kept as text with an update."""
    found = _XML_BEGIN.match(text)
    start = found.end() if found else 0
    cursor = Cursor(text)
    cursor.at = start
    if not cursor.keyword("select"):
        return _updated("XML", text[start:])
    cursor.at = start
    column, _ = _selected(cursor)
    owner, table, where = _row(cursor)
    cursor.sign(";")
    if not cursor.done():
        raise cursor.fail("the end of the statement")
    return Begin("XML", owner, table, column, where)


def _updated(kind: str, text: str) -> Begin:
    statement = read_statement(text)
    later = [name for name, literal in statement.new.items() if literal.kind is Kind.LATER]
    if statement.code != UPDATE or len(later) != 1:
        raise Unreadable("an update of one column is expected whose value comes in later rows")
    return Begin(kind, statement.owner, statement.table, later[0], statement.where)


def _string_begin(text: str) -> Begin:
    found = _ASSIGNED.match(text)
    cursor = Cursor(text)
    cursor.at = found.end() if found else 0
    if found is None or not cursor.sign("'"):
        raise cursor.fail("Stmt := '..'")
    return _updated("STRING", cursor.quoted())


def _assigned(text: str) -> Write:
    """``XML_REDO := HEXTORAW('..'):len``, the text itself, or NULL."""
    found = _ASSIGNED.match(text)
    if found is None:
        raise Unreadable("an assignment with := is expected")
    rest = text[found.end() :]
    if rest.strip().rstrip(";").upper() == "NULL":
        return Write(None)
    if binary := _HEX.fullmatch(rest):
        if len(binary[1]) % 2:
            raise Unreadable("a piece has an odd number of hexadecimal digits")
        return Write(bytes.fromhex(binary[1]), None, int(binary[2]) if binary[2] else None)
    if rest.startswith("'"):
        cursor = Cursor(rest)
        data = read_piece(cursor.value())
        length = _TEXT_LENGTH.match(rest, cursor.at)
        if length is None and rest[cursor.at :].strip(" ;\n"):
            raise cursor.fail("the end of the piece")
        return Write(data, None, int(length[1]) if length else None)
    length = _TEXT_LENGTH.search(rest)
    if length is not None and int(length[1]) in (length.start(), len(rest[: length.start()].encode())):
        return Write(rest[: length.start()], None, int(length[1]))
    return Write(rest)
