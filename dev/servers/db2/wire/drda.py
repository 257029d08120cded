"""The frames of DRDA, as far as the shim reads and writes them: data stream structures (DSS), and objects with code points."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# requests
SECCHK, ACCRDB = 0x106E, 0x2001
CLSQRY, CNTQRY, DSCSQLSTT, EXCSQLIMM, EXCSQLSTT, OPNQRY, PRPSQLSTT, RDBCMM, RDBRLLBCK = (
    0x2005, 0x2006, 0x2008, 0x200A, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F,
)  # fmt: skip
# objects and replies
SQLSTT, SQLDTA, SQLCARD, FDODSC, FDODTA = 0x2414, 0x2412, 0x2408, 0x0010, 0x147A
SECCHKRM, ENDUOWRM, OPNQFLRM = 0x1219, 0x220C, 0x2212
VARGRAPHIC, NULLABLE = 0x38, 1
"""The type of an argument in double bytes, and the bit of types that have an indicator of NULL."""
# parameters
USRID, PASSWORD, SECCHKCD, SVRCOD = 0x11A0, 0x11A1, 0x11A4, 0x1149
PRCNAM, PRDID, TRGDFTRT, QRYINSID, PKGNAMCSN, UOWDSP = (
    0x2138, 0x112E, 0x213B, 0x215B, 0x2113, 0x2115,
)  # fmt: skip

MAGIC, CHAINED, SAME_CORRELATOR, REQUEST, REPLY, OBJECT = 0xD0, 0x40, 0x10, 1, 2, 3
LONGEST_SEGMENT = 0x7FFF


class NotDrda(ValueError):
    """Bytes that are no DSS: the driver's arrays of parameters, which are malformed at this level of the protocol."""


@dataclass(slots=True)
class Frame:
    """A DSS (a message of DRDA): its format byte, its correlator, and the bytes of its object."""

    format: int
    correlator: int
    payload: bytes

    @property
    def chained(self) -> bool:
        """True if another DSS of the same request or reply follows."""
        return bool(self.format & CHAINED)

    @property
    def code(self) -> int:
        """The code point of the object; 0 where there is none."""
        return struct.unpack_from(">H", self.payload, 2)[0] if len(self.payload) >= 4 else 0

    @property
    def body(self) -> bytes:
        """The object without its length and code point."""
        return self.payload[4 + _extended_length(self.payload) :]

    def replaced(self, body: bytes) -> Frame:
        """The same DSS with another body."""
        return Frame(self.format, self.correlator, wrap_object(self.code, body))

    def encoded(self) -> bytes:
        """The bytes, in several segments where it is long."""
        head = struct.pack(">BBH", MAGIC, self.format, self.correlator)
        if len(self.payload) + 6 <= LONGEST_SEGMENT:
            return struct.pack(">H", len(self.payload) + 6) + head + self.payload
        first = LONGEST_SEGMENT - 6
        parts = [struct.pack(">H", 0xFFFF), head, self.payload[:first]]
        for start in range(first, len(self.payload), LONGEST_SEGMENT - 2):
            part = self.payload[start : start + LONGEST_SEGMENT - 2]
            more = start + len(part) < len(self.payload)
            parts += [struct.pack(">H", (len(part) + 2) | (0x8000 if more else 0)), part]
        return b"".join(parts)


def wrap_object(code: int, body: bytes) -> bytes:
    """An object: length, code point, body."""
    if len(body) + 4 <= LONGEST_SEGMENT:
        return struct.pack(">HH", len(body) + 4, code) + body
    return struct.pack(">HHI", 0x8008, code, len(body)) + body


def _extended_length(payload: bytes) -> int:
    """Return the number of bytes of extended length behind the code point."""
    length = int(struct.unpack_from(">H", payload)[0])
    return (length & 0x7FFF) - 4 if length & 0x8000 else 0


def parameters(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Code point and value of each parameter of a command."""
    at = 0
    while at + 4 <= len(body):
        length, code = struct.unpack_from(">HH", body, at)
        if length < 4:
            raise NotDrda(f"a parameter of length {length}")
        yield code, body[at + 4 : at + length]
        at += length


def encode_parameters(values: list[tuple[int, bytes]]) -> bytes:
    """The parameters of a command, as bytes."""
    return b"".join(wrap_object(code, value) for code, value in values)


class Reader:
    """Cuts a stream of bytes into DSS; gives each with its bytes as they came."""

    def __init__(self) -> None:
        self._bytes = b""

    @property
    def empty(self) -> bool:
        """True if no part of a DSS waits for its rest."""
        return not self._bytes

    def feed(self, data: bytes) -> Iterator[tuple[bytes, Frame | None]]:
        """Yield the messages that are complete now; a long one that is never edited comes as bytes without a frame."""
        self._bytes += data
        at = 0
        while len(self._bytes) - at >= 6:
            end = self._end(at)
            if not end:
                break
            yield self._bytes[at:end], self._frame(at, end)
            at = end
        self._bytes = self._bytes[at:]

    def _end(self, at: int) -> int:
        """Find the end of the DSS at this place, with its further segments; 0 if it is not complete."""
        (length,) = struct.unpack_from(">H", self._bytes, at)
        if self._bytes[at + 2] != MAGIC or length & 0x7FFF < 6:
            raise NotDrda(f"no DSS: {self._bytes[at : at + 16].hex()}")
        end = at + (length & 0x7FFF)
        while length & 0x8000:
            if len(self._bytes) < end + 2:
                return 0
            (length,) = struct.unpack_from(">H", self._bytes, end)
            end += length & 0x7FFF
        return end if len(self._bytes) >= end else 0

    def _frame(self, at: int, end: int) -> Frame:
        (length,) = struct.unpack_from(">H", self._bytes, at)
        kind, correlator = self._bytes[at + 3], struct.unpack_from(">H", self._bytes, at + 4)[0]
        last = at + (length & 0x7FFF)
        parts = [self._bytes[at + 6 : last]]
        while last < end:
            (length,) = struct.unpack_from(">H", self._bytes, last)
            parts.append(self._bytes[last + 2 : last + (length & 0x7FFF)])
            last += length & 0x7FFF
        return Frame(kind, correlator, b"".join(parts))


def statement(body: bytes) -> str:
    """The text of an SQLSTT. Where the driver has cut it inside a character, that one is another: the statement fails, and not the connection."""
    if body[:1] != b"\0":
        raise NotDrda("a statement without text")
    (length,) = struct.unpack_from(">I", body, 1)
    return body[5 : 5 + length].decode("utf-8", "replace")


def with_statement(body: bytes, text: str) -> bytes:
    """An SQLSTT with another text."""
    (length,) = struct.unpack_from(">I", body, 1)
    encoded = text.encode("utf-8")
    return b"\0" + struct.pack(">I", len(encoded)) + encoded + body[5 + length :]


def immediate(package: bytes, text: str) -> bytes:
    """A request of our own: execute this statement."""
    encoded = text.encode("utf-8")
    command = Frame(CHAINED | SAME_CORRELATOR | REQUEST, 1, wrap_object(EXCSQLIMM, wrap_object(PKGNAMCSN, package)))
    text_ = Frame(OBJECT, 1, wrap_object(SQLSTT, b"\0" + struct.pack(">I", len(encoded)) + encoded + b"\xff"))
    return command.encoded() + text_.encoded()


def strings(body: bytes) -> list[str | None]:
    """Read the arguments of a procedure, all of them strings, from an SQLDTA.

    A literal whose characters have two bytes each, as a word in Cyrillic, the driver takes for double bytes of the machine's own order: it counts
    pairs, and swaps the bytes of each. What a real Db2 makes of them is not known.
    """
    values = dict(parameters(body))
    described, data = values.get(FDODSC, b""), values.get(FDODTA, b"")
    # a group of the descriptor: length, 0x76, 0xD0, and three bytes for each argument: its type and its length
    types = [described[at] for at in range(3, 3 + (described[0] - 3) // 3 * 3, 3)] if described else []
    found: list[str | None] = []
    at = 1  # the row itself may be null, too
    for kind in types:
        if kind & NULLABLE:
            at += 1
            if data[at - 1] == 0xFF:
                found.append(None)
                continue
        (length,) = struct.unpack_from(">H", data, at)
        pairs = kind & ~NULLABLE == VARGRAPHIC
        value = data[at + 2 : at + 2 + length * (2 if pairs else 1)]
        at += 2 + len(value)
        found.append((_swap_bytes(value) if pairs else value).decode("utf-8"))
    return found


def _swap_bytes(value: bytes) -> bytes:
    """Swap the bytes of each pair."""
    swapped = bytearray(value)
    swapped[::2], swapped[1::2] = value[1::2], value[::2]
    return bytes(swapped)


@dataclass(slots=True)
class Card:
    """An SQLCARD that is not null: what became of a statement."""

    code: int
    state: str
    head: bytes
    """Counters, warnings and name of the database, as they came."""
    tokens: bytes
    rest: bytes

    @classmethod
    def read(cls, body: bytes) -> Card | None:
        """The card; None where it says that all is well."""
        if body[:1] != b"\0":
            return None
        (code,) = struct.unpack_from(">i", body, 1)
        at = 10 + 8 + 1 + 24 + 11  # code, state, procedure, indicator, SQLERRD, SQLWARN
        at += 2 + struct.unpack_from(">H", body, at)[0]
        (length,) = struct.unpack_from(">H", body, at)
        tokens = body[at + 2 : at + 2 + length]
        return cls(code, body[5:10].decode("ascii"), body[10:at], tokens, body[at + 2 + length :])

    def encoded(self) -> bytes:
        """The body of the SQLCARD."""
        head = b"\0" + struct.pack(">i", self.code) + self.state.encode("ascii") + self.head
        return head + struct.pack(">H", len(self.tokens)) + self.tokens + self.rest
