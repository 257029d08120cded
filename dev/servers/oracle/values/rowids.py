"""Row ids: object, file, block and slot, inside as ten bytes that sort like Oracle's, outside as 18 characters."""

import struct

from dev.servers.oracle.errors import OraError

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
FILE = 7
ROWS_IN_BLOCK = 256
FIRST_BLOCK = 128
EMPTY = "AAAAAAAAAAAAAAAAAA"
"""The row id of redo rows that belong to no row, among them the parts of a LOB."""


def make(object_id: int, row: int) -> bytes:
    """The row id of the n-th row that was ever put into a table."""
    block, slot = divmod(row, ROWS_IN_BLOCK)
    return struct.pack(">IHIH", object_id, FILE, block + FIRST_BLOCK, slot)


def number(row_id: bytes) -> int:
    """Return the number of the row in its table: the reverse of :func:`make`."""
    _, _, block, slot = struct.unpack(">IHIH", row_id)
    return int((block - FIRST_BLOCK) * ROWS_IN_BLOCK + slot)


def parts(value: bytes | str) -> tuple[int, int, int, int]:
    """Object, file, block and slot."""
    return struct.unpack(">IHIH", value if isinstance(value, bytes) else from_text(value))


def to_text(row_id: bytes) -> str:
    """The 18 characters."""
    object_id, file, block, slot = struct.unpack(">IHIH", row_id)
    return _base64(object_id, 6) + _base64(file, 3) + _base64(block, 6) + _base64(slot, 3)


def from_text(text: str) -> bytes:
    """The bytes of 18 characters; ORA-01410 for anything else."""
    if len(text) != 18 or any(character not in _VALUES for character in text):
        raise OraError(1410)
    values = [_number(text[start:end]) for start, end in ((0, 6), (6, 9), (9, 15), (15, 18))]
    return struct.pack(">IHIH", *values)


def _base64(value: int, size: int) -> str:
    return "".join(ALPHABET[value >> (6 * place) & 63] for place in reversed(range(size)))


def _number(text: str) -> int:
    value = 0
    for character in text:
        value = value << 6 | _VALUES[character]
    return value
