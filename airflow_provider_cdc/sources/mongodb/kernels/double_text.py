"""Floating point numbers as the shortest text that reads back as the same number, in Java's form.

The form is that of ``Double.toString`` in Java 19 and later: plain from 0.001 to 10,000,000, else with an exponent. The digits are found as
there, by Raffaello Giulietti's Schubfach: "The Schubfach way to render doubles" (2021); names of variables are the paper's.
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit

_K_MIN: Final = -324
_K_MAX: Final = 292
_Q_MIN: Final = -1074
_POINT: Final = 46
_ZERO: Final = 48
_SCRATCH: Final = 40
"""Where digits are made, behind the place of the text."""


def _powers() -> npt.NDArray[np.uint64]:
    """For each k the number g: 10^-k scaled to 126 bits and rounded up, as two words of 63 bits."""
    words = []
    for k in range(_K_MIN, _K_MAX + 1):
        r = (-k * 913_124_641_741 >> 38) - 125
        up, down = (10**-k, 1) if k <= 0 else (1, 10**k)
        g = ((up << -r) // down if r < 0 else (up >> r) // down) + 1
        words.append((g >> 63, g & (1 << 63) - 1))
    return np.array(words, np.uint64)


_G = _powers()
_LOW = np.uint64(0xFFFFFFFF)
_LOW_63 = np.uint64((1 << 63) - 1)
_U0, _U1, _U2, _U4, _U10 = (np.uint64(i) for i in (0, 1, 2, 4, 10))
_U100 = np.uint64(100)
_POWERS_OF_TEN = np.array([10**i for i in range(20)], np.uint64)
_PAIRS = np.frombuffer("".join(f"{i:02}" for i in range(100)).encode(), np.uint8)
_U32, _U63 = np.uint64(32), np.uint64(63)
_C_MIN = np.uint64(1 << 52)


@jit
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Compute the 128 bits of a product, the high word first."""
    a0, a1 = a & _LOW, a >> _U32
    b0, b1 = b & _LOW, b >> _U32
    low, one, other = a0 * b0, a0 * b1, a1 * b0
    middle = (low >> _U32) + (one & _LOW) + (other & _LOW)
    high = a1 * b1 + (one >> _U32) + (other >> _U32) + (middle >> _U32)
    return high, ((middle & _LOW) << _U32) | (low & _LOW)


@jit
def _rounded_to_odd(g1: np.uint64, g0: np.uint64, cp: np.uint64) -> np.uint64:
    x1, _ = _product(g0, cp)
    y1, y0 = _product(g1, cp)
    z = (y0 >> _U1) + x1
    w = y1 + (z >> _U63)
    return w | ((z & _LOW_63) + _LOW_63) >> _U63


@jit
def _shortest(q: int, c: np.uint64, dk: int) -> tuple[np.uint64, int]:
    """Find the shortest decimal that rounds to c·2^q, the closest one of them: its digits and exponent."""
    out = c & _U1
    cb = c << _U2
    cbr = cb + _U2
    if c != _C_MIN or q == _Q_MIN:
        cbl = cb - _U2
        k = q * 661_971_961_083 >> 41
    else:
        cbl = cb - _U1
        k = q * 661_971_961_083 - 274_743_187_321 >> 41
    h = np.uint64(q + (-k * 913_124_641_741 >> 38) + 2)
    g1, g0 = _G[k - _K_MIN, 0], _G[k - _K_MIN, 1]
    vb = _rounded_to_odd(g1, g0, cb << h)
    vbl = _rounded_to_odd(g1, g0, cbl << h) + out
    vbr = _rounded_to_odd(g1, g0, cbr << h)
    s = vb >> _U2
    if s >= np.uint64(100):
        sp10 = s // _U10 * _U10
        tp10 = sp10 + _U10
        upin = vbl <= sp10 << _U2
        wpin = (tp10 << _U2) + out <= vbr
        if upin != wpin:
            return (sp10 if upin else tp10), k
    t = s + _U1
    uin = vbl <= s << _U2
    win = (t << _U2) + out <= vbr
    if uin != win:
        return (s if uin else t), k + dk
    between = (s + t) << _U1
    return (s if vb < between or (vb == between and s & _U1 == _U0) else t), k + dk


@force_inline_helper
def put_digits(number: np.uint64, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write the digits of a number; returns where they end."""
    count = 1
    while count < 20 and number >= _POWERS_OF_TEN[np.uintp(count)]:
        count += 1
    p = w + count
    while p >= w + 2:
        p -= 2
        rest = number // _U100
        pair = (number - rest * _U100) * _U2
        out[np.uintp(p)] = _PAIRS[pair]
        out[np.uintp(p + 1)] = _PAIRS[pair + _U1]
        number = rest
    if p > w:
        out[np.uintp(w)] = np.uint8(number) + np.uint8(_ZERO)
    return w + count


@force_inline_helper
def put_small(number: int, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write a whole number with its sign."""
    if number < 0:
        out[w] = 45
        return put_digits(np.uint64(-(number + 1)) + _U1, out, w + 1)
    return put_digits(np.uint64(number), out, w)


@jit
def _put_plain(out: npt.NDArray[np.uint8], w: int, first: int, count: int, whole: int) -> int:
    """Digits with a point after the first ``whole`` of them, filled up with zeros; ``whole`` may be below zero."""
    if whole <= 0:
        out[w] = _ZERO
        out[w + 1] = _POINT
        w += 2
        for _ in range(-whole):
            out[w] = _ZERO
            w += 1
        for i in range(count):
            out[w + i] = out[first + i]
        return w + count
    for i in range(whole):
        out[np.uintp(w + i)] = out[np.uintp(first + i)] if i < count else _ZERO
    w += whole
    out[w] = _POINT
    w += 1
    if count <= whole:
        out[w] = _ZERO
        return w + 1
    for i in range(whole, count):
        out[np.uintp(w)] = out[np.uintp(first + i)]
        w += 1
    return w


@jit
def put_double(bits: np.uint64, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write a number that is neither infinite nor NaN, given by its bits; needs 80 bytes. Returns where the text ends."""
    if bits >> _U63:
        out[w] = 45
        w += 1
    t = bits & np.uint64((1 << 52) - 1)
    exponent = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    digits, e = _U0, 0
    if exponent > 0:
        mq = 1075 - exponent
        c = _C_MIN | t
        if 0 < mq < 53 and (c >> np.uint64(mq)) << np.uint64(mq) == c:
            digits = c >> np.uint64(mq)
        else:
            digits, e = _shortest(-mq, c, 0)
    elif t < np.uint64(3):
        digits, e = _shortest(_Q_MIN, _U10 * t, -1) if t > _U0 else (_U0, 0)
    else:
        digits, e = _shortest(_Q_MIN, t, 0)
    first = w + _SCRATCH
    end = put_digits(digits, out, first)
    whole = end - first + e
    while end > first + 1 and out[end - 1] == _ZERO:
        end -= 1
    if digits == _U0:
        return _put_plain(out, w, first, 1, 1)
    if -3 < whole <= 7:
        return _put_plain(out, w, first, end - first, whole)
    w = _put_plain(out, w, first, end - first, 1)
    out[w] = 69
    return put_small(whole - 1, out, w + 1)
