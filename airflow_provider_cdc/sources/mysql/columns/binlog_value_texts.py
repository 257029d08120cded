"""Text of values that the log stores in a special binary form, equal to the text that a SELECT gives."""

from __future__ import annotations

import struct
import zlib

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def long_decimal_text(data: bytes, precision: int, scale: int) -> str:
    """Format a ``DECIMAL`` of any length.

    >>> long_decimal_text(bytes.fromhex("800000010a"), 10, 2)
    '1.10'
    """
    negative = not data[0] & 0x80
    flipped = bytes((data[0] ^ 0x80, *data[1:]))
    if negative:
        flipped = bytes(byte ^ 0xFF for byte in flipped)
    whole_digits, pos, parts = precision - scale, 0, []
    odd = [whole_digits % 9] if whole_digits % 9 else []
    groups = [*odd, *[9] * (whole_digits // 9)]
    fraction = [*[9] * (scale // 9), *([scale % 9] if scale % 9 else [])]
    for digits in (groups, fraction):
        text = ""
        for count in digits:
            width = _DIGIT_BYTES[count]
            text += str(int.from_bytes(flipped[pos : pos + width], "big")).zfill(count)
            pos += width
        parts.append(text)
    whole = parts[0].lstrip("0") or "0"
    text = f"{whole}.{parts[1]}" if scale else whole
    return f"-{text}" if negative and text.strip("0.") else text


def uuid_text(data: bytes) -> str:
    """MariaDB's ``UUID``. Versions 1 to 5 are stored with their parts in reverse order, to sort by time."""
    swapped = bool(data[6] & 0x80) and 0 < data[8] <= 0x5F
    if swapped:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[0:6]
    h = data.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def inet6_text(data: bytes) -> str:
    """MariaDB's ``INET6``. Unlike RFC 5952 has it, the server shortens a lone group of zeros, too.

    >>> inet6_text(bytes.fromhex("20010db8000000010002000300040005"))
    '2001:db8::1:2:3:4:5'
    """
    groups = struct.unpack(">8H", data)
    gap_at, gap = -1, 0
    for first in range(8):
        zeros = next((n for n, group in enumerate(groups[first:]) if group), 8 - first)
        if zeros > gap:
            gap_at, gap = first, zeros
    if gap_at == 0 and (gap == 6 or (gap == 5 and groups[5] == 0xFFFF)):
        return f"::{'ffff:' if gap == 5 else ''}{inet4_text(data[12:])}"
    texts = [f"{group:x}" for group in groups]
    if not gap:
        return ":".join(texts)
    return f"{':'.join(texts[:gap_at])}::{':'.join(texts[gap_at + gap :])}"


def inet4_text(data: bytes) -> str:
    """MariaDB's ``INET4``."""
    return ".".join(map(str, data))


def uncompress_column(value: bytes) -> bytes:
    """Decompress a value of a ``COMPRESSED`` column of MariaDB: a header byte, the length, a zlib stream; or 0 and plain bytes.

    :raises ValueError: the header byte is not known
    """
    if not value or value[0] == 0:
        return value[1:]
    header = value[0]
    if header & 0xF0 != 0x80:
        raise ValueError(f"a compressed value begins with the unknown header {header:#04x}")
    raw_stream = bool(header & 0x08)
    return zlib.decompress(value[1 + (header & 0x07) :], -15 if raw_stream else 15)
