"""Parsed SQL literals; :mod:`.literal_converter` converts them to values of a column's type."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class LiteralKind(enum.Enum):
    NULL = "NULL"
    TEXT = "a text"
    NUMBER = "a number"
    CALL = "a function"
    LATER = "a value that follows in later rows"
    UNSUPPORTED = "a value that LogMiner cannot return"


@dataclass(frozen=True, slots=True)
class ParsedLiteral:
    """A value as it is written in the statement.

    :param text: the text, the digits, or the first argument of a function
    :param name: name of a function, in upper case
    :param format: second argument of a function
    """

    kind: LiteralKind
    text: str = ""
    name: str = ""
    format: str | None = None

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 40 else self.text[:40] + "…"
        if self.kind is LiteralKind.CALL:
            return f"{self.name}('{shown}')" if self.text else f"{self.name}()"
        return f"'{shown}'" if self.kind is LiteralKind.TEXT else shown or self.kind.value


class UnreadableRedo(Exception):
    """A statement or a value cannot be read; the text says why."""


_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{4})|(\\))|\\")


def decode_unistr(text: str) -> str:
    """Return the text that Oracle's ``UNISTR`` returns for an argument.

    >>> decode_unistr("\\\\00e9t\\\\00e9")
    'été'
    """

    def unit(m: re.Match[str]) -> str:
        if m[0] == "\\":
            raise UnreadableRedo(f"UNISTR has a backslash without four hexadecimal digits after it: {text[:60]!r}")
        return "\\" if m[2] else chr(int(m[1], 16))

    decoded = _ESCAPE.sub(unit, text)
    try:
        return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as e:
        raise UnreadableRedo(f"UNISTR contains only half of a character: {text[:60]!r}") from e
