"""A reader of the protocol's integers, from bytes."""

from __future__ import annotations


class ByteReader:
    """Reads little-endian and length-encoded integers one after the other.

    All methods raise ``ValueError`` when the bytes end too early.
    """

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data, self.pos = data, pos

    def read_bytes(self, n: int) -> bytes:
        if n < 0 or self.pos + n > len(self.data):
            raise ValueError(f"the event ends at byte {len(self.data)}, but byte {self.pos + n} is needed")
        part = self.data[self.pos : self.pos + n]
        self.pos += n
        return part

    def read_uint(self, n: int) -> int:
        return int.from_bytes(self.read_bytes(n), "little")

    def read_lenenc(self) -> int:
        first = self.read_uint(1)
        if first in (0xFB, 0xFF):
            raise ValueError(f"a length begins with {first:#x}, which is invalid")
        return first if first < 0xFB else self.read_uint({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])

    def read_rest(self) -> bytes:
        return self.read_bytes(len(self.data) - self.pos)

    @property
    def has_more(self) -> bool:
        return self.pos < len(self.data)
