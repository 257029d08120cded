"""Reads GTID_TAGGED events (MySQL 8.3 and newer), in the format of MySQL's serialization library.

A message is its format version, its size, the number of the last mandatory field, and fields, each after its number. Integers take 1 to
9 bytes: one more than the first byte has ones at its low end.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mysql.kernels.byte_integers import read_little_endian

GTID_SOURCE: Final = 0  # MySQL's UUID in two halves; MariaDB's domain and server
GTID_NUMBER: Final = 2  # of the transaction
GTID_TAG: Final = 3  # up to 32 characters in four numbers, padded with zeros
GTID_FIELDS: Final = 7

NO_GTID: Final = -1
BAD_GTID: Final = -2

_UUID: Final = 16
_LONGEST_TAG: Final = 32


@jit
def read_varlen(buf: npt.NDArray[np.uint8], p: int, end: int) -> tuple[int, int]:
    """Read an integer; return it and the offset after it, ``-1`` if it extends past the end."""
    if p < 0 or p >= end:
        return 0, -1
    first = np.int64(buf[p])
    more = 0
    while more < 8 and first >> np.int64(more) & 1:
        more += 1
    if p + 1 + more > end:
        return 0, -1
    rest = read_little_endian(buf, p + 1, more)
    if more == 8:
        return rest, p + 9
    return rest << np.int64(7 - more) | first >> np.int64(more + 1), p + 1 + more


@jit
def read_tagged(buf: npt.NDArray[np.uint8], p: int, end: int, out: npt.NDArray[np.int64], n: int) -> bool:
    """Fill row ``n`` of ``out`` from the body of an event; returns whether its format is known."""
    form, p = read_varlen(buf, p, end)
    _, p = read_varlen(buf, p, end)  # size
    _, p = read_varlen(buf, p, end)
    flags, p = read_varlen(buf, p, end)
    if p < 0 or form != 1 or flags != 0:
        return False
    _, p = read_varlen(buf, p, end)
    source, p = read_varlen(buf, p, end)
    if p < 0 or source != 1:
        return False
    for i in range(_UUID):
        byte, p = read_varlen(buf, p, end)
        if p < 0 or byte > 255:
            return False
        out[n, i >> 3] = out[n, i >> 3] << np.int64(8) | byte
    name, p = read_varlen(buf, p, end)
    number, p = read_varlen(buf, p, end)
    if p < 0 or name != 2 or number & 1:
        return False
    out[n, GTID_NUMBER] = number >> np.int64(1) & np.int64(0x7FFFFFFFFFFFFFFF)  # the lowest bit is the sign
    name, p = read_varlen(buf, p, end)
    length, p = read_varlen(buf, p, end)
    if p < 0 or name != 3 or length < 1 or length > _LONGEST_TAG or p + length > end:
        return False
    for i in range(length):
        out[n, GTID_TAG + (i >> 3)] |= np.int64(buf[p + i]) << np.int64(8 * (i & 7))
    return True
