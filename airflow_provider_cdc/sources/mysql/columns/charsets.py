"""MySQL's character sets as Python codecs."""

from __future__ import annotations

import codecs
from typing import Any

CODECS = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii", "latin1": "mysql-latin1",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "gbk": "gbk",
    "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "euc_kr", "koi8r": "koi8-r", "koi8u": "koi8-u", "latin2": "iso8859-2",
    "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7", "hebrew": "iso8859-8", "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "tis620": "tis-620", "hp8": "hp-roman8", "macroman": "mac-roman", "macce": "mac-latin2", "binary": "binary",
}  # fmt: skip
"""Character set → codec. ``dec8``, ``swe7``, ``keybcs2``, ``armscii8`` and ``geostd8`` have none in Python."""


def is_utf8(codec: str) -> bool:
    """Whether text in this codec is UTF-8 already."""
    return codec in ("utf-8", "ascii")


def _latin1_decode(data: Any, errors: str = "strict") -> tuple[str, int]:
    """MySQL's latin1 is Windows-1252; its five undefined bytes are the control characters of the same number."""
    data = bytes(data)
    try:
        return data.decode("cp1252"), len(data)
    except UnicodeDecodeError:
        gaps = b"\x81\x8d\x8f\x90\x9d"
        return "".join(chr(c) if c in gaps else bytes((c,)).decode("cp1252", errors) for c in data), len(data)


def _latin1_encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return b"".join(bytes((ord(c),)) if c in "\x81\x8d\x8f\x90\x9d" else c.encode("cp1252", errors) for c in text), len(
        text
    )


def _search(name: str) -> codecs.CodecInfo | None:
    return (
        codecs.CodecInfo(_latin1_encode, _latin1_decode, name=name)
        if name in ("mysql-latin1", "mysql_latin1")
        else None
    )


codecs.register(_search)
