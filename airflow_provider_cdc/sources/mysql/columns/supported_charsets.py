"""The names of the servers' character sets, without their tables: checks need no more."""

from __future__ import annotations

from typing import Final

UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8"})
UNICODE: Final = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
"""Other forms of Unicode, each with its codec in Python."""
BY_TABLE: Final = frozenset({
    "armscii8", "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "dec8", "eucjpms", "euckr",
    "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7",
    "macce", "macroman", "sjis", "swe7", "tis620", "ujis",
})  # fmt: skip
"""Sets that are no form of Unicode."""


def is_known(charset: str) -> bool:
    """Check whether texts in this character set can be decoded."""
    return charset in UTF8 or charset in UNICODE or charset in BY_TABLE or charset == "binary"
