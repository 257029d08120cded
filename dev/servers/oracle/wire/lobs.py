"""LOB locators: what the client holds instead of a long value, and the calls that read and write through them."""

import secrets
from collections import OrderedDict
from typing import Any

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.wire.packets import Reader, encode_sized, ub

LOCATOR_SIZE = 40
MOST_LOCATORS = 50_000
CHUNK_SIZE = 8060
GET_LENGTH, READ, TRIM, WRITE, GET_CHUNK_SIZE = 1, 2, 0x20, 0x40, 0x4000
CREATE_TEMPORARY, FREE_TEMPORARY, OPEN, CLOSE, IS_OPEN = 0x110, 0x111, 0x8000, 0x10000, 0x11000
BLOB_TYPE = 113
NATIONAL_FORM = 2


class Lobs:
    """The long values that one session has handed out or created; the oldest are forgotten."""

    def __init__(self) -> None:
        self._values: OrderedDict[bytes, tuple[str | bytes, bool]] = OrderedDict()

    def give(self, value: str | bytes, *, national: bool = False) -> bytes:
        """A new locator for a value."""
        fresh = secrets.token_bytes(LOCATOR_SIZE)
        locator = fresh[:4] + bytes(4) + fresh[8:]
        self._values[locator] = (value, national)
        while len(self._values) > MOST_LOCATORS:
            self._values.popitem(last=False)
        return locator

    def value(self, locator: bytes) -> str | bytes:
        """The value behind a locator."""
        return self._entry(locator)[0]

    def _entry(self, locator: bytes) -> tuple[str | bytes, bool]:
        try:
            return self._values[bytes(locator)]
        except KeyError:
            raise OraError(22275) from None

    def column(self, value: str | bytes, *, national: bool) -> bytes:
        """A LOB column of a row: sizes and locator."""
        locator = self.give(value, national=national)
        return ub(LOCATOR_SIZE) + ub(len(value)) + ub(CHUNK_SIZE) + encode_sized(locator)

    def call(self, reader: Reader) -> bytes:
        """Answer one LOB call, without the message that ends it."""
        reader.u8()
        size = reader.ub()
        reader.u8()
        kind = reader.ub()
        reader.ub()
        reader.ub()
        charset, _, with_null = reader.u8(), reader.u8(), reader.u8()
        operation = reader.ub()
        reader.u8()
        reader.u8()
        offset = reader.ub()
        reader.ub()
        with_amount = reader.u8()
        reader.raw(6)
        locator = reader.raw(size)
        if charset:
            reader.ub()
        data = None
        if operation == WRITE:
            if reader.u8() != 14:
                raise OraError(22275)
            data = reader.sized() or b""
        amount = reader.ub() if with_amount else 0
        if operation == CREATE_TEMPORARY:
            empty: str | bytes = b"" if kind == BLOB_TYPE else ""
            national = offset == NATIONAL_FORM
            return b"\x08" + self.give(empty, national=national) + ub(0) + b"\0"
        return self._answer(operation, locator, offset, amount, data) + (b"\0" if with_null else b"")

    def _answer(self, operation: int, locator: bytes, offset: int, amount: int, data: bytes | None) -> bytes:
        if operation in (OPEN, CLOSE, IS_OPEN, FREE_TEMPORARY):
            return b"\x08" + locator
        value, national = self._entry(locator)
        if operation == READ:
            part: Any = value[offset - 1 : offset - 1 + amount]
            return b"\x0e" + _lob_data(_bytes(part, national)) + b"\x08" + locator + ub(len(part))
        if operation == GET_LENGTH:
            return b"\x08" + locator + ub(len(value))
        if operation == GET_CHUNK_SIZE:
            return b"\x08" + locator + ub(CHUNK_SIZE)
        if operation == TRIM:
            self._values[locator] = (value[:amount], national)
            return b"\x08" + locator + ub(amount)
        if operation == WRITE and data is not None:
            added: Any = data if isinstance(value, bytes) else data.decode("utf-16-be" if national else "utf-8")
            old: Any = value
            start = max(offset - 1, 0)
            self._values[locator] = (old[:start] + added + old[start + len(added) :], national)
            return b"\x08" + locator + ub(len(added))
        raise OraError(900, f"LOB operation {operation:#x}")


def _bytes(part: str | bytes, national: bool) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode("utf-16-be" if national else "utf-8")


def _lob_data(data: bytes) -> bytes:
    return encode_sized(data)
