"""Reads from a MySQL server what the texts of its character sets are in Unicode, and writes it down: ``python -m dev.charsets``.

Each sequence of bytes of one to four is put into a column of the character set; those that the column keeps as they are, are characters of it. The
forms of Unicode are left out.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from airflow_provider_cdc.sources.mysql import columns
from airflow_provider_cdc.sources.mysql.columns.supported_charsets import UNICODE, UTF8
from dev.servers import MySql

FILE: Final = Path(columns.__file__).with_name("charsets.xz")
_OTHERS: Final = {*UTF8, *UNICODE, "binary"}
_HAS_THREE: Final = {"ujis", "eucjpms"}
_NONE: Final = 0xFFFF


def character_sets(connection: Any) -> dict[str, int]:
    """The sets of a server that are no form of Unicode, each with the greatest number of bytes of a character."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT character_set_name, maxlen FROM information_schema.character_sets")
        found = {(name.decode() if isinstance(name, bytes) else name): int(size) for name, size in cursor.fetchall()}
    return {name: found[name] for name in sorted(found) if name not in _OTHERS}


def sequences(charset: str, size: int, *, whole: bool = True) -> Iterator[bytes]:
    """Every sequence of bytes that may be a character: one byte, two, and three or four where the set has them.

    :param size: greatest number of bytes of a character
    :param whole: all of four bytes up to U+FFFF, and not only the first of them
    """
    for a in range(256):
        yield bytes((a,))
    if size == 1:
        return
    for a in range(0x80, 256):
        for b in range(256):
            yield bytes((a, b))
    if charset in _HAS_THREE:
        yield from (bytes((0x8F, a, b)) for a in range(256) for b in range(256))
    if charset == "gb18030":
        for a in range(0x81, 0x85 if whole else 0x82):
            yield from (
                bytes((a, b, c, d))
                for b in range(0x30, 0x3A if whole else 0x31)
                for c in range(0x81, 0xFF)
                for d in range(0x30, 0x3A)
            )


def characters(connection: Any, charset: str, size: int, *, whole: bool = True) -> dict[bytes, bytes]:
    """The sequences that a column of the set keeps as they are, each with the UTF-8 that a query gives for it.

    :param connection: in a separate database, with ``use_unicode=False`` and ``utf8mb4``
    """
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("DROP TABLE IF EXISTS sweep")
        cursor.execute(f"CREATE TABLE sweep (b VARBINARY(4), v VARCHAR(4) CHARACTER SET {charset})")
        rows = [f"(x'{s.hex()}', x'{s.hex()}')" for s in sequences(charset, size, whole=whole)]
        for at in range(0, len(rows), 40_000):
            cursor.execute(f"INSERT IGNORE INTO sweep VALUES {', '.join(rows[at : at + 40_000])}")
        cursor.execute("SELECT b, v FROM sweep WHERE CAST(v AS BINARY) = b")
        return {bytes(b): bytes(v) for b, v in cursor.fetchall()}


def tables(sequences: dict[bytes, bytes]) -> dict[int, Any]:
    """Number of bytes → code points of the sequences with so many, without those that are several characters."""
    made = {1: np.full(256, _NONE, np.uint16)}
    singles = {sequence[0] for sequence in sequences if len(sequence) == 1}
    for sequence, utf8 in sequences.items():
        size, text = len(sequence), utf8.decode()
        if (size > 1 and sequence[0] in singles) or len(text) != 1:
            continue
        if size == 4:
            a, b, c, d = sequence
            at = ((a - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30
            if at >= 39_420:
                continue
        else:
            at = int.from_bytes(sequence[-2:] if size == 3 else sequence, "big")
        made.setdefault(size, np.full({2: 65_536, 3: 65_536, 4: 39_420}.get(size, 256), _NONE, np.uint16))[at] = ord(
            text
        )
    return made


def write(connection: Any) -> None:
    """Write the file."""
    arrays = {}
    for charset, greatest in character_sets(connection).items():
        for size, codes in tables(characters(connection, charset, greatest)).items():
            arrays[f"{charset}.{size}"] = np.diff(codes, prepend=np.uint16(0))
        print(charset)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    FILE.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


def main() -> None:
    with MySql(edition="9.7") as server:
        server.sql("CREATE DATABASE charsets")
        write(server.connect(database="charsets", autocommit=True, use_unicode=False))


if __name__ == "__main__":
    main()
