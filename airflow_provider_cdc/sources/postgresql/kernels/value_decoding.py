"""Values of columns in the binary form, from the bytes of many rows to arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.postgresql.kernels.big_endian import read_int16, read_int32, read_int64
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import BINARY_VALUE, TEXT_VALUE
from airflow_provider_cdc.sources.relational.date_decimal_kernels import store_decimal

_NEGATIVE = 0x4000
_INT64_DIGITS = 18
_LIMB = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_BYTES, _UUID_SIGNS = 16, 36


@jit
def find_values(kinds: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> int:
    """Find the rows that have a value. Returns how many of them are texts."""
    texts = 0
    for row in range(len(kinds)):
        kind = kinds[row]
        valid[row] = kind == BINARY_VALUE or kind == TEXT_VALUE
        if kind == TEXT_VALUE:
            texts += 1
    return texts


@jit
def decode_integers(
    buf: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    width: int,
    out: npt.NDArray[np.int64],
) -> int:
    """Decode numbers of 1, 2, 4 or 8 bytes without a sign; those of eight have one. Returns -1, or the row with other bytes."""
    for row in range(len(valid)):
        out[row] = 0
        if not valid[row]:
            continue
        p = starts[row]
        if lengths[row] != width:
            return row
        if width == 8:
            out[row] = read_int64(buf, p)
        elif width == 4:
            out[row] = read_int32(buf, p)
        elif width == 2:
            out[row] = read_int16(buf, p)
        else:
            out[row] = buf[p]
    return -1


@jit
def convert_moments(
    values: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    past: int,
    future: int,
    shift: int,
    first: int,
    last: int,
) -> int:
    """Count days or microseconds from 1970 instead of 2000. Returns -1, or the row that is outside.

    :param past: stands for ``-infinity``, which becomes ``first``
    :param future: stands for ``infinity``, which becomes ``last``
    """
    for row in range(len(values)):
        if not valid[row]:
            continue
        value = values[row]
        if value == past:
            values[row] = first
        elif value == future:
            values[row] = last
        elif value < first - shift or value > last - shift:
            return row
        else:
            values[row] = value + shift
    return -1


@jit
def sum_lengths(
    valid: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int32], skipped: int, offsets: npt.NDArray[np.int64]
) -> int:
    """Add lengths up to offsets. Returns -1, or the row with fewer bytes than are to be skipped."""
    total = 0
    offsets[0] = 0
    for row in range(len(valid)):
        if valid[row]:
            if lengths[row] < skipped:
                return row
            total += lengths[row] - skipped
        offsets[row + 1] = total
    return -1


@jit
def copy_bytes(
    buf: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    skipped: int,
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> None:
    """Copy the bytes of values behind one another."""
    for row in range(len(starts)):
        begin, end = offsets[row], offsets[row + 1]
        p = starts[row] + skipped
        for i in range(end - begin):
            out[begin + i] = buf[p + i]


@jit
def write_uuids(
    buf: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> int:
    """Write UUIDs as texts. Returns -1, or the row with other bytes."""
    at = 0
    offsets[0] = 0
    for row in range(len(valid)):
        if valid[row]:
            if lengths[row] != _UUID_BYTES:
                return row
            p = starts[row]
            for i in range(_UUID_BYTES):
                if i == 4 or i == 6 or i == 8 or i == 10:
                    out[at] = 45
                    at += 1
                out[at] = _HEX[buf[p + i] >> 4]
                out[at + 1] = _HEX[buf[p + i] & 15]
                at += 2
        offsets[row + 1] = at
    return -1


@jit
def _multiply_add(limbs: npt.NDArray[np.uint64], factor: int, digit: int) -> bool:
    """Multiply a number of four limbs of 32 bits, and add a digit. Returns whether it is less than 2 to the power of 127."""
    carry = np.uint64(digit)
    for i in range(4):
        product = limbs[i] * np.uint64(factor) + carry
        limbs[i] = product & _LIMB
        carry = product >> _SHIFT
    return carry == np.uint64(0) and limbs[3] < np.uint64(0x80000000)


@jit
def _power_of_ten(exponent: int) -> int:
    power = 1
    for _ in range(exponent):
        power *= 10
    return power


@jit
def decode_numerics(
    buf: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    scale: int,
    out: npt.NDArray[np.int64],
) -> int:
    """Decode ``numeric`` values to decimals of 128 bits with a scale.

    :param out: output, ``int64[n, 2]``, the low half first
    :return: -1, or the row whose value is no number, does not fit, or has more digits behind the point
    """
    limbs = np.zeros(4, np.uint64)
    for row in range(len(valid)):
        out[row, 0] = 0
        out[row, 1] = 0
        if not valid[row]:
            continue
        p = starts[row]
        if lengths[row] < 8:
            return row
        count = read_int16(buf, p)
        weight = read_int16(buf, p + 2)
        if weight >= 0x8000:
            weight -= 0x10000
        sign = read_int16(buf, p + 4)
        if lengths[row] != 8 + 2 * count or (sign != 0 and sign != _NEGATIVE):
            return row
        if count == 0:
            continue
        # the last digit of base 10,000 stands for itself times ten to this power
        exponent = 4 * (weight - count + 1) + scale
        # that digit may have up to three zeros behind the scale
        if exponent < -3 or 4 * (weight + 1) + scale > 40 + 3:
            return row
        divisor = _power_of_ten(-exponent) if exponent < 0 else 1
        last = read_int16(buf, p + 8 + 2 * (count - 1))
        if last % divisor:
            return row
        if 4 * (weight + 1) + scale <= _INT64_DIGITS:
            small = 0
            for i in range(count - 1):
                small = small * 10_000 + read_int16(buf, p + 8 + 2 * i)
            small = small * (10_000 // divisor) + last // divisor
            if exponent > 0:
                small *= _power_of_ten(exponent)
            if sign == _NEGATIVE:
                small = -small
            out[row, 0] = small
            out[row, 1] = small >> 63
            continue
        limbs[:] = 0
        fits = True
        for i in range(count - 1):
            fits = fits and _multiply_add(limbs, 10_000, read_int16(buf, p + 8 + 2 * i))
        fits = fits and _multiply_add(limbs, 10_000 // divisor, last // divisor)
        for _ in range(exponent):
            fits = fits and _multiply_add(limbs, 10, 0)
        if not fits:
            return row
        store_decimal(limbs[0], limbs[1], limbs[2], limbs[3], sign == _NEGATIVE, out[row])
    return -1
