"""Numbers of 64 bits for rows of Arrow arrays: equal values have equal ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(columns: Iterable[pa.Array], n: int) -> Hashes:
    """Compute a number for each row of some columns.

    :param columns: arrays of length ``n``; the order matters
    """
    hashes: Hashes = np.zeros(n, np.uint64)
    for column in columns:
        hashes = mix_hashes(mix_hashes(hashes) ^ _column(column))
    return hashes


def mix_hashes(values: Hashes) -> Hashes:
    """Numbers whose bits all depend on all bits (the finalizer of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _column(values: pa.Array) -> Hashes:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    type_, n = values.type, len(values)
    if pa.types.is_null(type_) or n == 0:
        return np.full(n, _NULL, np.uint64)
    if pa.types.is_nested(type_):
        values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.large_string())
    elif pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        values = values.cast(pa.large_binary())
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        hashes = _texts(values.cast(pa.large_binary()))
    else:
        hashes = _numbers(values)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashes) if values.null_count else hashes


def _numbers(values: pa.Array) -> Hashes:
    """Hash values of a fixed width, by their bytes."""
    n, width = len(values), values.type.bit_width // 8
    data: Any = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width : (values.offset + n) * width]
    words = np.zeros((n, -(-width // 8) * 8), np.uint8)
    words[:, :width] = data.reshape(n, width)
    hashes: Hashes = np.zeros(n, np.uint64)
    for word in words.view(np.uint64).T:
        hashes = mix_hashes(hashes ^ word)
    return hashes


def _texts(values: pa.Array) -> Hashes:
    """Sum the bytes, each times an odd number that belongs to its place."""
    n = len(values)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64, n + 1, values.offset * 8)
    first, last = int(ends[0]), int(ends[-1])
    text: Any = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    places = np.arange(last - first) - np.repeat(ends[:-1] - first, lengths)
    factors = mix_hashes(np.arange(lengths.max(initial=0), dtype=np.uint64)) | np.uint64(1)
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * factors[places], out=sums[1:])
    return mix_hashes(sums[ends[1:] - first] - sums[ends[:-1] - first] + lengths.astype(np.uint64))
