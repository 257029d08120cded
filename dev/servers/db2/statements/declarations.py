"""Column declarations that Derby words otherwise: missing types, units of strings, hidden columns, distinct types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dev.servers.db2.statements.dialect import LONGEST_LOB, length_of

UNICODE, BITS = 1208, 0
"""Code pages of characters and of bytes."""


@dataclass
class ColumnDeclaration:
    """The type that a column was declared with, where Derby has another word for it."""

    type: str
    length: int
    scale: int = 0
    units: str | None = None
    code_page: int = UNICODE
    hidden: bool = False
    schema: str = "SYSIBM"
    """Another one of a distinct type, whose length and scale are those of its source."""


_DECLARATION = re.compile(
    r'^\s*(?:ADD\s+(?:COLUMN\s+)?)?("(?:[^"]|"")+"|[\w#@$]+)\s+'
    r"(TIMESTAMP|DECFLOAT|VARGRAPHIC|GRAPHIC|DBCLOB|XML|VARBINARY|BINARY|VARCHAR|CHARACTER|CHAR|CLOB|BLOB)\b"
    r"(?:\s*\(\s*(\d+)\s*([KMG]?)\s*(OCTETS|CODEUNITS16|CODEUNITS32)?\s*\))?(.*)$",
    re.IGNORECASE | re.DOTALL,
)


def declarations(sql: str, types: Iterable[tuple[str, str]] = (), schema: str = "") -> dict[str, ColumnDeclaration]:
    """Columns of a CREATE TABLE or ALTER TABLE whose types Derby does not have.

    :param types: distinct types
    :param schema: that of those without one
    """
    if re.match(r"\s*CREATE\b", sql, re.IGNORECASE):
        inside = sql[sql.find("(") + 1 : sql.rfind(")")]
        pieces = _split(inside)
    else:
        pieces = re.split(r"(?=\bADD\s)", sql, flags=re.IGNORECASE)[1:]
    found = {}
    for piece in pieces:
        if (distinct := _DISTINCT.match(piece)) and (
            type_ := ((distinct.group(2) or schema).upper(), distinct.group(3).upper())
        ) in types:
            found[_name(distinct.group(1))] = ColumnDeclaration(type_[1], 0, schema=type_[0])
            continue
        match = _DECLARATION.match(piece)
        if match and (declared := _parse_declaration(match)) is not None:
            found[_name(match.group(1))] = declared
    return found


_DISTINCT = re.compile(
    r'^\s*(?:ADD\s+(?:COLUMN\s+)?)?("(?:[^"]|"")+"|[\w#@$]+)\s+(?:([\w#@$]+)\s*\.\s*)?([\w#@$]+)', re.IGNORECASE
)


def _name(written: str) -> str:
    return written[1:-1].replace('""', '"') if written.startswith('"') else written.upper()


def _split(inside: str) -> list[str]:
    pieces, depth = [""], 0
    for letter in inside:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def _parse_declaration(match: re.Match[str]) -> ColumnDeclaration | None:
    kind, number, power, units, rest = (
        match.group(2).upper(),
        match.group(3),
        match.group(4),
        match.group(5),
        match.group(6),
    )
    length = length_of(number or "0", power)
    hidden = bool(re.search(r"\bIMPLICITLY\s+HIDDEN\b", rest, re.IGNORECASE))
    if kind == "TIMESTAMP":
        scale = length if number else 6
        return ColumnDeclaration(kind, 7 + (scale + 1) // 2, scale, None, BITS, hidden) if number or hidden else None
    if kind == "DECFLOAT":
        return ColumnDeclaration(kind, 16 if length in (0, 34) else 8, 0, None, BITS, hidden)
    if kind in ("GRAPHIC", "VARGRAPHIC", "DBCLOB"):
        return ColumnDeclaration(kind, length or 1, 0, (units or "CODEUNITS16").upper(), 1200, hidden)
    if kind in ("BINARY", "VARBINARY"):
        return ColumnDeclaration(kind, length or 1, 0, None, BITS, hidden)
    if kind == "XML":
        return ColumnDeclaration(kind, 0, 0, None, BITS, hidden)
    if kind == "BLOB" and (length > LONGEST_LOB or hidden):
        return ColumnDeclaration(kind, length, 0, None, BITS, hidden)
    if kind == "BLOB":
        return None
    if units or hidden or length > LONGEST_LOB:
        width = {"CODEUNITS32": 4, "CODEUNITS16": 2}.get((units or "").upper(), 1)
        bits = bool(re.search(r"\bFOR\s+BIT\s+DATA\b", rest, re.IGNORECASE))
        name = {"CHAR": "CHARACTER"}.get(kind, kind)
        return ColumnDeclaration(
            name, length * width, 0, None if bits else (units or "OCTETS").upper(), BITS if bits else UNICODE, hidden
        )
    return None
