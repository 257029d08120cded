"""Random documents over every type of BSON, as bytes."""

import math
import struct
from collections.abc import Callable
from random import Random

NAMES = (
    "_id",
    "a",
    "b",
    "c",
    "",
    "0",
    "12",
    "x.y",
    "$d",
    "$date",
    "é",
    "a b",
    'q"\\',
    "\x01\x7f",
    "名前",
    "𝔘",
    "\u0301",
    "\u2028",
)
CLEAR_NAMES = tuple(name for name in NAMES if name != "$date")
PIECES = (
    "",
    "a",
    "text",
    '"',
    "\\",
    "/",
    "\b\f\n\r\t",
    "\0",
    "\x1b",
    "\x7f",
    "é",
    "e\u0301",
    "\u00ad",
    "ʰ",
    "€",
    "\u2028",
    "\ue000",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "𝄞",
    "😀",
    "x" * 70,
)
DOUBLES = (0.0, -0.0, 1.0, -1.5, 0.001, 0.0009999999999999999, 9999999.0, 1e7, 1e22, 1e23, 2e23, 5e-324, 1e-323, 2e-323, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308,
           123456789.125, 0.1, 1 / 3, 2.0**53, 2.0**63, 2.0**-1022, math.inf, -math.inf, math.nan)  # fmt: skip
WHOLES = (
    0,
    1,
    -1,
    7,
    -128,
    2**31 - 1,
    -(2**31),
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    1704067200000,
    253402300799999,
    253402300800000,
    -62135596800000,
    1500,
    951782400000,
)
KINDS = (
    0x01,
    0x02,
    0x05,
    0x06,
    0x07,
    0x08,
    0x09,
    0x0A,
    0x0B,
    0x0C,
    0x0D,
    0x0E,
    0x0F,
    0x10,
    0x11,
    0x12,
    0x13,
    0x7F,
    0xFF,
)


def document(random: Random, depth: int = 4, *, odd: bool = True) -> bytes:
    """The bytes of a document with a field ``v``, no name twice.

    :param odd: with what no text keeps: numbers that are not in the usual form of their encoding, fields that look like a type
    """
    names = NAMES if odd else CLEAR_NAMES
    fields = {random.choice(names): value(random, depth, odd=odd) for _ in range(random.randint(0, 5))}
    fields["v"] = value(random, depth, odd=odd)
    return encode_document(fields)


def value(random: Random, depth: int = 4, *, odd: bool = True) -> tuple[int, bytes]:
    """The type and the bytes of a value."""
    if depth and random.random() < 0.3:
        inside = [value(random, depth - 1, odd=odd) for _ in range(random.randint(0, 4))]
        if random.random() < 0.5:
            return 0x04, encode_document({str(i): v for i, v in enumerate(inside)})
        return 0x03, encode_document(
            dict(zip(random.sample(NAMES if odd else CLEAR_NAMES, len(inside)), inside, strict=True))
        )
    kind = random.choice(KINDS)
    if not odd and kind in (0x01, 0x13):
        return kind, _usual_double(random) if kind == 0x01 else usual_decimal(random)
    return kind, _WRITERS[kind](random) if kind in _WRITERS else b""


def encode_document(fields: dict[str, tuple[int, bytes]]) -> bytes:
    """The bytes of a document or array."""
    body = b"".join(bytes([kind]) + name.encode() + b"\0" + raw for name, (kind, raw) in fields.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def text(random: Random) -> str:
    """A text of pieces that are troublesome."""
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, 4)))


def decimal(random: Random) -> bytes:
    """A decimal of any exponent and of any number of digits, or one that is no number."""
    sign = random.getrandbits(1) << 127
    choice = random.randint(0, 9)
    if choice == 0:
        return (sign | random.choice((0x78, 0x7C, 0x7E)) << 120).to_bytes(16, "little")
    if choice == 1:  # a significand that is too large stands for zero
        return (sign | 0b11 << 125 | random.randint(0, 12287) << 111 | random.getrandbits(100)).to_bytes(16, "little")
    return usual_decimal(random)


def usual_decimal(random: Random) -> bytes:
    """A decimal that is a number."""
    exponent = random.choice((0, 1, 6144 - 33, -6176, -1, -6, -7, -40, random.randint(-6176, 6111))) + 6176
    most = random.randrange(10 ** random.randint(1, 34))
    digits = random.choice((0, 1, 10, 10**18, 2**64 - 1, 2**64, 10**34 - 1, most))
    return (random.getrandbits(1) << 127 | exponent << 113 | digits).to_bytes(16, "little")


def _string(content: str) -> bytes:
    raw = content.encode()
    return struct.pack("<i", len(raw) + 1) + raw + b"\0"


def _double(random: Random) -> bytes:
    if random.random() < 0.5:
        return struct.pack("<d", random.choice(DOUBLES))
    return random.getrandbits(64).to_bytes(8, "little")


def _usual_double(random: Random) -> bytes:
    raw = _double(random)
    return raw if struct.unpack("<d", raw)[0] == struct.unpack("<d", raw)[0] else struct.pack("<d", math.nan)


def _binary(random: Random) -> bytes:
    size, kind = random.randint(0, 20), random.choice((0, 1, 2, 3, 4, 5, 6, 0x80, 0xFF))
    content = random.randbytes(size)
    if kind in (3, 4):
        content = random.randbytes(16)
    if kind == 2:
        content = struct.pack("<i", size) + content
    return struct.pack("<iB", len(content), kind) + content


def _regex(random: Random) -> bytes:
    options = "".join(sorted(random.sample("imsux", random.randint(0, 5))))
    return text(random).replace("\0", "").encode() + b"\0" + options.encode() + b"\0"


def _encode_scoped_code(random: Random) -> bytes:
    body = _string(text(random)) + document(random, 1, odd=False)
    return struct.pack("<i", len(body) + 4) + body


_WRITERS: dict[int, Callable[[Random], bytes]] = {
    0x01: _double,
    0x02: lambda random: _string(text(random)),
    0x05: _binary,
    0x07: lambda random: random.randbytes(12),
    0x08: lambda random: bytes([random.getrandbits(1)]),
    0x09: lambda random: struct.pack("<q", _draw_integer(random, 64)),
    0x0B: _regex,
    0x0C: lambda random: _string(text(random)) + random.randbytes(12),
    0x0D: lambda random: _string(text(random)),
    0x0E: lambda random: _string(text(random)),
    0x0F: _encode_scoped_code,
    0x10: lambda random: struct.pack("<i", _draw_integer(random, 32)),
    0x11: lambda random: random.randbytes(8),
    0x12: lambda random: struct.pack("<q", _draw_integer(random, 64)),
    0x13: decimal,
}


def _draw_integer(random: Random, bits: int) -> int:
    limit = 2 ** (bits - 1)
    number = random.choice((*WHOLES, random.randrange(-limit, limit)))
    return number if -limit <= number < limit else random.randrange(-limit, limit)
