"""The servers' character sets: their texts in Unicode.

Python's codecs of the same names differ from them in thousands of characters, silently in some. So each set that is no form of Unicode is decoded by a
table that was read from a server, which MySQL and MariaDB have alike: ``python -m dev.charsets`` writes ``charsets.xz``, and a test compares it
with each server.
"""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns.supported_charsets import UNICODE, UTF8, is_known

_BY_BYTES: Final = {"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "ucs2": 2, "binary": 1}

Table = npt.NDArray[np.uint16]

__all__ = ["UTF8", "CodePoints", "code_points", "decode_all", "decode_text", "encode_text", "greatest_size", "is_known"]


@dataclass(frozen=True, slots=True)
class CodePoints:
    """The characters of a set that is no form of Unicode, see :func:`..kernels.charset_decoder.decode_texts`.

    :param ascii: bytes below 128 are those of ASCII, wherever they begin a character
    """

    one_byte: Table
    two_bytes: Table
    three_bytes: Table
    four_bytes: Table
    ascii: bool


def code_points(charset: str) -> CodePoints | None:
    """Return the characters of a set; ``None`` for a form of Unicode, which :func:`decode_text` knows."""
    return _tables().get(charset)


def greatest_size(charset: str) -> int | None:
    """Greatest number of bytes of a character; ``None`` if the set is not known."""
    if charset in _BY_BYTES:
        return _BY_BYTES[charset]
    table = code_points(charset)
    if table is None:
        return None
    return 4 if len(table.four_bytes) else 3 if len(table.three_bytes) else 2 if len(table.two_bytes) else 1


def decode_text(charset: str, data: bytes, errors: str = "strict") -> str:
    """Decode one text.

    :param errors: of a form of Unicode, as Python has it; in other sets the server gives ``?`` for bytes that are no character
    :raises ValueError: the bytes are no text of this form of Unicode
    :raises LookupError: the character set is not known
    """
    if charset in UTF8 or charset == "binary":
        return data.decode("utf-8", errors)
    if charset in UNICODE:
        text = data.decode(UNICODE[charset], errors)
        if charset == "ucs2" and errors == "strict" and len(text) != len(data) // 2:
            raise ValueError("half of a surrogate pair, which UCS-2 does not support")
        return text
    table = code_points(charset)
    if table is None:
        raise LookupError(f"the character set {charset} is unknown")
    buffer, offsets = np.frombuffer(data, np.uint8), np.array([0, len(data)], np.int32)
    out, ends = decode_all(table, buffer, offsets)
    return out[: int(ends[1])].tobytes().decode()


def decode_all(
    table: CodePoints, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Texts that lie one behind the other, as UTF-8.

    :param offsets: where each begins in ``data``, and where the last one ends
    :return: the same of the result
    """
    out = np.empty(k.LARGEST_GROWTH * len(data), np.uint8)
    ends = np.empty(len(offsets), np.int32)
    k.decode_texts(data, offsets, table.one_byte, table.two_bytes, table.three_bytes, table.four_bytes, out, ends)
    return out, ends


def encode_text(charset: str, text: str) -> bytes:
    """Return the bytes that a column has for a text.

    :raises ValueError: the set does not have a character, or has several for it
    :raises LookupError: the character set is not known
    """
    if charset in UTF8:
        return text.encode()
    if charset in UNICODE:
        data = text.encode(UNICODE[charset])
        if charset == "ucs2" and len(data) != 2 * len(text):
            raise ValueError("UCS-2 does not contain one of its characters")
        return data
    bytes_of_character = _bytes_of(charset)
    try:
        return b"".join(bytes_of_character[character] for character in text)
    except KeyError as e:
        raise ValueError(f"the character {e.args[0]!r} is missing in it, or occurs more than once") from None


@cache
def _bytes_of(charset: str) -> dict[str, bytes]:
    """Character → bytes, of those that only one sequence of bytes stands for. A question mark stands for all that is no character, too."""
    table = code_points(charset)
    if table is None:
        raise LookupError(f"the character set {charset} is unknown")
    by_character: dict[str, bytes] = {}
    twice = {"?"}
    for prefix, codes, size in ((b"", table.one_byte, 1), (b"", table.two_bytes, 2), (b"\x8f", table.three_bytes, 2)):
        for at in np.flatnonzero(codes != k.NO_CHARACTER).tolist():
            character = chr(int(codes[at]))
            twice |= {character} & by_character.keys()
            by_character[character] = prefix + int(at).to_bytes(size, "big")
    for at in np.flatnonzero(table.four_bytes != k.NO_CHARACTER).tolist():
        character = chr(int(table.four_bytes[at]))
        twice |= {character} & by_character.keys()
        by_character[character] = bytes(
            (0x81 + at // 12600, 0x30 + at // 1260 % 10, 0x81 + at // 10 % 126, 0x30 + at % 10)
        )
    return {character: data for character, data in by_character.items() if character not in twice}


@cache
def _tables() -> dict[str, CodePoints]:
    """Load the tables of the file.

    The file has arrays ``<set>.<number of bytes>`` of the differences between neighbors, which compress better.
    """
    packed = resources.files(__package__).joinpath("charsets.xz").read_bytes()
    arrays = np.load(io.BytesIO(lzma.decompress(packed)))
    none = np.empty(0, np.uint16)
    tables = {}
    for charset in {name.partition(".")[0] for name in arrays.files}:
        codes = [
            np.cumsum(arrays[name], dtype=np.uint16) if (name := f"{charset}.{size}") in arrays.files else none
            for size in (1, 2, 3, 4)
        ]
        one, two, three, four = codes
        plain = bool((one[:128] == np.arange(128)).all())
        tables[charset] = CodePoints(one, two, three, four, ascii=plain)
    return tables
