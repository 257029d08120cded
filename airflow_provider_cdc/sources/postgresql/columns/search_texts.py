"""Texts of the types of the full text search, from their binary forms."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_WEIGHTS: Final = ("", "C", "B", "A")
_QUERY_WEIGHTS: Final = ((8, "A"), (4, "B"), (2, "C"), (1, "D"))
_VALUE: Final = 1
_NOT, _AND, _OR, _PHRASE = 1, 2, 3, 4
_PRIORITIES: Final = {_OR: 1, _AND: 2, _PHRASE: 3, _NOT: 4}
_POSITION: Final = 0x3FFF


def vector_text(data: bytes) -> str:
    """Return the text of a ``tsvector``."""
    (count,) = struct.unpack_from("!i", data)
    p, texts = 4, []
    for _ in range(count):
        lexeme, p = _read_lexeme(data, p)
        (positions,) = struct.unpack_from("!H", data, p)
        places = struct.unpack_from(f"!{positions}H", data, p + 2)
        p += 2 + 2 * positions
        shown = ",".join(f"{place & _POSITION}{_WEIGHTS[place >> 14]}" for place in places)
        texts.append(f"{lexeme}:{shown}" if shown else lexeme)
    if p != len(data):
        raise ValueError(f"{len(data) - p} bytes more than a tsvector has")
    return " ".join(texts)


@dataclass(slots=True)
class _Query:
    data: bytes
    p: int = 4

    def read(self, outer: int, *, right_of_phrase: bool) -> str:
        """Read an operand, with its operands.

        :param outer: priority of the operator that it belongs to
        """
        kind = self.data[self.p]
        if kind == _VALUE:
            return self._read_value()
        operator = self.data[self.p + 1]
        self.p += 2
        priority = _PRIORITIES[operator]
        if operator == _NOT:
            text = "!" + self.read(priority, right_of_phrase=False)
            return f"( {text} )" if priority < outer else text
        sign = {_AND: "&", _OR: "|", _PHRASE: ""}[operator]
        if operator == _PHRASE:
            (distance,) = struct.unpack_from("!H", self.data, self.p)
            self.p += 2
            sign = "<->" if distance == 1 else f"<{distance}>"
        right = self.read(priority, right_of_phrase=operator == _PHRASE)
        left = self.read(priority, right_of_phrase=False)
        text = f"{left} {sign} {right}"
        return f"( {text} )" if priority < outer or (operator == _PHRASE and right_of_phrase) else text

    def _read_value(self) -> str:
        weight, prefix = self.data[self.p + 1], self.data[self.p + 2]
        lexeme, self.p = _read_lexeme(self.data, self.p + 3)
        marks = ("*" if prefix else "") + "".join(letter for bit, letter in _QUERY_WEIGHTS if weight & bit)
        return f"{lexeme}:{marks}" if marks else lexeme


def query_text(data: bytes) -> str:
    """Return the text of a ``tsquery``."""
    (count,) = struct.unpack_from("!i", data)
    if count == 0:
        return ""
    query = _Query(data)
    text = query.read(-1, right_of_phrase=False)
    if query.p != len(data):
        raise ValueError(f"{len(data) - query.p} bytes more than a tsquery has")
    return text


def _read_lexeme(data: bytes, p: int) -> tuple[str, int]:
    """Read a word that ends with a zero byte. Returns it in quotes, and the offset behind it."""
    end = data.index(b"\0", p)
    escaped = data[p:end].decode().replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'", end + 1
