"""Texts as JSON strings, escaped as the JSON writer of MongoDB's Java library escapes them, and checked for being UTF-8.

That writer looks at each UTF-16 unit: letters except modifiers, digits, blanks, punctuation and symbols stand for themselves, all others are
``\\uXXXX``; so are both halves of a character outside the Basic Multilingual Plane. The classes are those of Unicode 15, which Java 21 has.
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

import base64
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import U, read_u64
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import END, FINE, UTF8
from airflow_provider_cdc.sources.mongodb.kernels.json_escape_table import RUNS

_QUOTE: Final = 34
_BACKSLASH: Final = 92


def _plain() -> npt.NDArray[np.uint8]:
    """Return one bit for each character of the plane: whether it stands for itself."""
    runs = np.frombuffer(zlib.decompress(base64.b85decode(RUNS)), "<u2").astype(np.int64)
    bits = np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8)
    bits[[_QUOTE, _BACKSLASH]] = 0
    return bits


def _short_escapes() -> npt.NDArray[np.uint8]:
    escapes = np.zeros(128, np.uint8)
    for character, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True):
        escapes[ord(character)] = ord(letter)
    return escapes


_ONES, _SEVEN, _HIGHEST, _FROM_BLANK, _QUOTES, _BACKSLASHES = (
    np.uint64(0x0101010101010101 * byte) for byte in (1, 0x7F, 0x80, 0x60, _QUOTE, _BACKSLASH)
)
_NONE, _ONE, _LOWEST_BYTE = np.uint64(0), np.uint64(1), np.uint64(0xFF)
_SEVEN_BITS, _ONE_BYTE, _TWO_BYTES, _FOUR_BYTES = (np.uint64(bits) for bits in (7, 8, 16, 32))
_PLAIN = _plain()
_ASCII: npt.NDArray[np.bool_] = _PLAIN[:256].astype(np.bool_) & (np.arange(256) < 128)
_SHORT = _short_escapes()
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@jit
def _put_escape(unit: int, out: npt.NDArray[np.uint8], w: int) -> int:
    out[w] = _BACKSLASH
    if unit < 128 and _SHORT[unit]:
        out[w + 1] = _SHORT[unit]
        return w + 2
    out[w + 1] = 117
    out[w + 2] = HEX[unit >> 12]
    out[w + 3] = HEX[(unit >> 8) & 15]
    out[w + 4] = HEX[(unit >> 4) & 15]
    out[w + 5] = HEX[unit & 15]
    return w + 6


@jit
def decode_character(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int]:
    """Decode the character of several bytes that begins at ``p``, and how many bytes it has: 0 if they are not UTF-8."""
    c = np.int64(buf[p])
    size = 2 if 0xC2 <= c < 0xE0 else 3 if 0xE0 <= c < 0xF0 else 4 if 0xF0 <= c < 0xF5 else 0
    if size == 0 or p + size > end:
        return 0, 0
    point = c & (0x7F >> size)
    for i in range(p + 1, p + size):
        if buf[i] & 0xC0 != 0x80:
            return 0, 0
        point = (point << 6) | np.int64(buf[i] & 0x3F)
    if size == 3 and (point < 0x800 or 0xD800 <= point < 0xE000):
        return 0, 0
    if size == 4 and (point < 0x10000 or point > 0x10FFFF):
        return 0, 0
    return point, size


@jit
def _put_other(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], w: int) -> tuple[int, int]:
    """Write the character at ``p`` that is not a plain one of ASCII; returns where it ends, or a problem, and where its text ends."""
    if buf[p] < 128:
        return p + 1, _put_escape(np.int64(buf[p]), out, w)
    point, size = decode_character(buf, p, end)
    if size == 0:
        return UTF8, w
    if point >= 0x10000:
        w = _put_escape(0xD800 + ((point - 0x10000) >> 10), out, w)
        return p + size, _put_escape(0xDC00 + ((point - 0x10000) & 0x3FF), out, w)
    if not _PLAIN[point]:
        return p + size, _put_escape(point, out, w)
    for i in range(p, p + size):
        out[w] = buf[i]
        w += 1
    return p + size, w


@force_inline_helper
def _put_eight(buf: npt.NDArray[np.uint8], p: int, out: npt.NDArray[np.uint8], w: int) -> int:
    """Copy eight bytes; how many of them stand for themselves, up to the first that does not.

    All eight at once, as one number: in ``other`` the highest bit of each byte says whether it is something else. No sum goes from one byte into the next.
    """
    eight = read_u64(buf, p)
    v = U(w)
    for i in range(8):
        out[v + U(i)] = np.uint8((eight >> np.uint64(8 * i)) & _LOWEST_BYTE)
    low = eight & _SEVEN
    quote, backslash = (eight ^ _QUOTES) & _SEVEN, (eight ^ _BACKSLASHES) & _SEVEN
    not_alike = (quote + _SEVEN) & (backslash + _SEVEN) & (low + _FROM_BLANK)
    other = (~not_alike | eight | (low + _ONES)) & _HIGHEST
    if other == _NONE:
        return 8
    before = (
        ((other & (~other + _ONE)) - _ONE) & _HIGHEST
    ) >> _SEVEN_BITS  # a one in each byte before it; their sum is asked for
    before += before >> _FOUR_BYTES
    before += before >> _TWO_BYTES
    return np.int64((before + (before >> _ONE_BYTE)) & _LOWEST_BYTE)


@force_inline_helper
def put_text(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], w: int) -> tuple[int, int]:
    """Write the text from ``p`` to ``end`` in quotes; returns where it ends in ``out``, and a problem."""
    out[U(w)] = _QUOTE
    w += 1
    while p < end:
        if p + 8 <= end:
            size = _put_eight(buf, p, out, w)
            p += size
            w += size
            if size == 8:
                continue
        c = buf[U(p)]
        if _ASCII[U(c)]:
            out[U(w)] = c
            w += 1
            p += 1
        else:
            p, w = _put_other(buf, p, end, out, w)
            if p < 0:
                return w, p
    out[U(w)] = _QUOTE
    return w + 1, FINE


@force_inline_helper
def put_name(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.uint8], w: int) -> tuple[int, int]:
    """Write the text from ``p`` to the next zero byte in quotes; returns where it ends in ``out``, and the offset after the zero byte, or a problem."""
    out[U(w)] = _QUOTE
    w += 1
    while p < end:
        if p + 8 <= end:
            size = _put_eight(buf, p, out, w)
            p += size
            w += size
            if size == 8:
                continue
        c = buf[U(p)]
        if _ASCII[U(c)]:
            out[U(w)] = c
            w += 1
            p += 1
        elif c == 0:
            out[U(w)] = _QUOTE
            return w + 1, p + 1
        else:
            p, w = _put_other(buf, p, end, out, w)
            if p < 0:
                return w, p
    return w, END
