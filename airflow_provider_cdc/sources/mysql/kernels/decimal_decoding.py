"""Decimals: those of the binary log, packed in groups of nine digits, and those of result sets, which are text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import inline_helper, jit
from airflow_provider_cdc.sources.relational.date_decimal_kernels import store_decimal

_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_POWERS = np.array([10**i for i in range(19)], np.int64)


@jit
def decimal_wide(buf: npt.NDArray[np.uint8], p: int, precision: int, scale: int, out: npt.NDArray[np.int64]) -> None:
    """Decode an unscaled decimal of up to 38 digits as 128 bits in two's complement.

    The result is in ``out[0]`` (low) and ``out[1]`` (high).

    Stored as groups of nine digits in four bytes, odd digits in fewer, before and after the point; the first bit is
    inverted, and all bits are if the number is negative.
    """
    negative = (buf[p] & 0x80) == 0
    flip = np.uint8(0xFF) if negative else np.uint8(0)
    # four limbs of 32 bits, so that multiplying by up to 10^9 stays within 64 bits
    w0 = np.uint64(0)
    w1 = np.uint64(0)
    w2 = np.uint64(0)
    w3 = np.uint64(0)
    whole = precision - scale
    first = True
    for part in range(2):
        digits = whole if part == 0 else scale
        odd = digits % 9
        groups = digits // 9
        for g in range(groups + 1):
            # before the point the odd digits come first, after it last
            is_odd = (g == 0) if part == 0 else (g == groups)
            count = odd if is_odd else 9
            if count == 0:
                continue
            width = _DIGIT_BYTES[count]
            x = np.uint64(0)
            for i in range(width):
                byte = buf[p + i] ^ flip
                if first:
                    byte = byte ^ np.uint8(0x80)
                    first = False
                x = (x << np.uint64(8)) | np.uint64(byte)
            p += width
            factor = np.uint64(_POWERS[count])
            mask = np.uint64(0xFFFFFFFF)
            t = w0 * factor + x
            w0 = t & mask
            t = w1 * factor + (t >> np.uint64(32))
            w1 = t & mask
            t = w2 * factor + (t >> np.uint64(32))
            w2 = t & mask
            t = w3 * factor + (t >> np.uint64(32))
            w3 = t & mask
    store_decimal(w0, w1, w2, w3, negative, out)


@jit
def decimal_small(buf: npt.NDArray[np.uint8], p: int, precision: int, scale: int) -> int:
    """Decode an unscaled decimal of up to 18 digits."""
    negative = (buf[p] & 0x80) == 0
    flip = np.int64(0xFF) if negative else np.int64(0)
    value = np.int64(0)
    whole = precision - scale
    first = np.int64(0x80)
    for part in range(2):
        digits = whole if part == 0 else scale
        odd = digits % 9
        groups = digits // 9
        for g in range(groups + 1):
            is_odd = (g == 0) if part == 0 else (g == groups)
            count = odd if is_odd else 9
            if count == 0:
                continue
            width = _DIGIT_BYTES[count]
            x = np.int64(0)
            for i in range(width):
                x = (x << 8) | (np.int64(buf[np.uint64(p + i)]) ^ flip ^ first)
                first = np.int64(0)
            p += width
            value = value * _POWERS[count] + x
    return -value if negative else value


@jit
def decimal_text(buf: npt.NDArray[np.uint8], p: int, end: int, scale: int, out: npt.NDArray[np.int64]) -> None:
    """Parse a decimal's text as an unscaled 128-bit number: ``out[0]`` low, ``out[1]`` high."""
    negative = False
    mask = np.uint64(0xFFFFFFFF)
    w0 = np.uint64(0)
    w1 = np.uint64(0)
    w2 = np.uint64(0)
    w3 = np.uint64(0)
    decimals = -1
    i = p
    while True:
        digit = np.uint64(0)
        if i < end:
            c = buf[i]
            i += 1
            if c == 45:
                negative = True
                continue
            if c == 46:
                decimals = 0
                continue
            digit = np.uint64(c - 48)
            if decimals >= 0:
                decimals += 1
        else:
            # fewer digits after the point than the column has: pad with zeros
            if decimals < 0:
                decimals = 0
            if decimals >= scale:
                break
            decimals += 1
        t = w0 * np.uint64(10) + digit
        w0 = t & mask
        t = w1 * np.uint64(10) + (t >> np.uint64(32))
        w1 = t & mask
        t = w2 * np.uint64(10) + (t >> np.uint64(32))
        w2 = t & mask
        w3 = (w3 * np.uint64(10) + (t >> np.uint64(32))) & mask
    store_decimal(w0, w1, w2, w3, negative, out)


@inline_helper
def decimal_text_small(buf: npt.NDArray[np.uint8], p: int, end: int, scale: int) -> int:
    """Parse a decimal's text of up to 18 digits as an unscaled number."""
    v = np.int64(0)
    decimals = -1
    negative = False
    for i in range(p, end):
        if buf[i] == 45:
            negative = True
        elif buf[i] == 46:
            decimals = 0
        else:
            v = v * 10 + np.int64(buf[i]) - 48
            if decimals >= 0:
                decimals += 1
    for _ in range(scale - (decimals if decimals > 0 else 0)):
        v *= 10
    return -v if negative else v
