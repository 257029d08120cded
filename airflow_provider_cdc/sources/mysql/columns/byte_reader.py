"""A reader of the protocol's integers, from bytes."""

from __future__ import annotations


class ByteReader:
    """Reads little-endian and length-encoded integers one after the other.

    All methods raise ``ValueError`` when the bytes end too early.
    """

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data, self.pos = data, pos

    def take(self, n: int) -> bytes:
        if n < 0 or self.pos + n > len(self.data):
            raise ValueError(f"event ends at byte {len(self.data)}, byte {self.pos + n} was asked for")
        part = self.data[self.pos : self.pos + n]
        self.pos += n
        return part

    def uint(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def lenenc(self) -> int:
        first = self.uint(1)
        if first in (0xFB, 0xFF):
            raise ValueError(f"a length begins with {first:#x}, which is not a length")
        return first if first < 0xFB else self.uint({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.pos)

    @property
    def more(self) -> bool:
        return self.pos < len(self.data)
