"""Decimals of 128 bits (IEEE 754, binary integer significand) as text, in the form of MongoDB's specification "Decimal128"."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mongodb.kernels.double_text import put_digits, put_small
from airflow_provider_cdc.sources.mongodb.kernels.json_fragments import INFINITY, NAN, write_fragment

_POINT: Final = 46
_ZERO: Final = 48
_SCRATCH: Final = 64
_U32 = np.uint64(32)
_NINE_DIGITS = np.uint64(1_000_000_000)
_LOW = np.uint64(0xFFFFFFFF)


@jit
def _put_wide(high: np.uint64, low: np.uint64, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write the digits of a number of 128 bits: nine at a time, from the last."""
    a, b, c, d = high >> _U32, high & _LOW, low >> _U32, low & _LOW
    p = w + 40
    for _ in range(4):
        q = a // _NINE_DIGITS
        t = ((a - q * _NINE_DIGITS) << _U32) | b
        a, q = q, t // _NINE_DIGITS
        t = ((t - q * _NINE_DIGITS) << _U32) | c
        b, q = q, t // _NINE_DIGITS
        t = ((t - q * _NINE_DIGITS) << _U32) | d
        c, q = q, t // _NINE_DIGITS
        d, rest = q, t - q * _NINE_DIGITS
        for _ in range(9):
            p -= 1
            tenth = rest // np.uint64(10)
            out[p] = np.uint8(rest - tenth * np.uint64(10)) + np.uint8(_ZERO)
            rest = tenth
    while p < w + 39 and out[p] == _ZERO:
        p += 1
    count = w + 40 - p
    for i in range(count):
        out[w + i] = out[p + i]
    return w + count


@jit
def put_decimal(low: np.uint64, high: np.uint64, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write a decimal given by its two words; needs 192 bytes. Returns where the text ends."""
    top = np.int64(high >> np.uint64(58)) & 0x1F
    if top == 0x1F:
        return write_fragment(NAN, out, w)
    if high >> np.uint64(63):
        out[w] = 45
        w += 1
    if top == 0x1E:
        return write_fragment(INFINITY, out, w)
    first = w + _SCRATCH
    if top >= 0x18:
        # such a significand is greater than any of 34 digits, which stands for zero
        exponent = (np.int64(high >> np.uint64(47)) & 0x3FFF) - 6176
        end = put_digits(np.uint64(0), out, first)
    else:
        exponent = (np.int64(high >> np.uint64(49)) & 0x3FFF) - 6176
        high &= np.uint64((1 << 49) - 1)
        end = put_digits(low, out, first) if high == np.uint64(0) else _put_wide(high, low, out, first)
    return _put_number(out, w, first, end - first, exponent)


@jit
def _put_number(out: npt.NDArray[np.uint8], w: int, first: int, count: int, exponent: int) -> int:
    """Digits with their exponent, without one if it is none or the number has at most six zeros after the point."""
    adjusted = exponent + count - 1
    if exponent > 0 or adjusted < -6:
        whole = 1
    elif exponent + count > 0:
        whole = exponent + count
    else:
        out[w] = _ZERO
        out[w + 1] = _POINT
        w += 2
        for _ in range(-exponent - count):
            out[w] = _ZERO
            w += 1
        whole = count
    for i in range(count):
        if i == whole:
            out[w] = _POINT
            w += 1
        out[w] = out[first + i]
        w += 1
    if exponent <= 0 and adjusted >= -6:
        return w
    out[w] = 69
    w += 1
    if adjusted > 0:
        out[w] = 43
        w += 1
    return put_small(adjusted, out, w)
