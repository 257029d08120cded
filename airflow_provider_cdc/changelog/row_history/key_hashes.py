"""Hashes of the keys of rows, for the index that finds the batches of a row (:mod:`.key_index`).

A hash stands for a table and a key. Different keys may have the same one, which costs a look into a file; equal keys never have different ones.
"""

from __future__ import annotations

import datetime as dt
import zlib
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

BITS: Final = 44
"""Of a hash. In an index of a billion entries, one key in seventeen thousand finds an entry of another one."""
_ROWS = 16_384
"""Rows whose texts are taken apart at once."""
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_EMPTIED: Final = np.uint64(0xD1B54A32D192ED03)


def key_hashes(table: str, keys: pa.Table) -> Hashes:
    """Compute the hash of each key.

    :param table: full name of the table at that time
    :param keys: its key columns, in their order
    :return: ``uint64[n]``, each of :data:`BITS` bits
    """
    hashes: Hashes = np.full(keys.num_rows, _seed(table), np.uint64)
    for column in keys.columns:
        hashes = _mixed(_mixed(hashes) ^ _column(column))
    return hashes >> np.uint64(64 - BITS)


def emptied_hash(table: str) -> int:
    """Compute the hash that stands for *all rows of the table are gone*, which concerns every key."""
    return int(_mixed(np.array([_seed(table)]) ^ _EMPTIED)[0] >> np.uint64(64 - BITS))


@lru_cache(maxsize=1)
def compute_hash_version() -> int:
    """Compute a number that distinguishes ways to make hashes.

    An index that was made in another way, as Arrow writes values otherwise now, is not used.
    """
    moment = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
    samples = {
        "a": pa.array([-7, 2**62]), "b": pa.array(["", "x é"]), "c": pa.array([True, False]), "d": pa.array([1.5, -0.0]),
        "e": pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(9, 2)), "f": pa.array([dt.date(2024, 2, 29), None]),
        "g": pa.array([b"\0", b"\xff"]), "h": pa.array([1e300, 0.1], pa.float64()), "i": pa.array([0.1, 3.0], pa.float32()),
        **{f"t{n}": pa.array([moment, None], type_) for n, type_ in enumerate((pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC")))},
    }  # fmt: skip
    return zlib.crc32(key_hashes("form 1", pa.table(samples)).tobytes())


def _seed(table: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(table.encode(), digest_size=8).digest(), "little"))


def _column(values: pa.ChunkedArray) -> Hashes:
    pieces = [_texts(_binary(values.slice(at, _ROWS))) for at in range(0, len(values), _ROWS)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _binary(values: pa.ChunkedArray) -> pa.Array:
    """Each value as bytes: equal values have equal ones."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # the two zeros are equal
    if pa.types.is_nested(values.type):  # no caller can give such a key: any number will do
        return pa.array([b""] * len(values), pa.large_binary())
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.large_string())
    return pa.concat_arrays(values.cast(pa.large_binary()).chunks or [pa.array([], pa.large_binary())])


def _texts(values: pa.Array) -> Hashes:
    """Compute a number for each text: the sum of its bytes, each times an odd number that belongs to its place."""
    n = len(values)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64, n + 1, values.offset * 8) if n else np.zeros(1, np.int64)
    first, last = int(ends[0]), int(ends[-1])
    text: Any = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    places = np.arange(last - first) - np.repeat(ends[:-1] - first, lengths)
    factors = _mixed(np.arange(lengths.max(initial=0), dtype=np.uint64)) | np.uint64(1)
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * factors[places], out=sums[1:])
    hashes = _mixed(sums[ends[1:] - first] - sums[ends[:-1] - first] + lengths.astype(np.uint64))
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)


def _mixed(values: Hashes) -> Hashes:
    """Numbers whose bits all depend on all bits (the finalizer of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
