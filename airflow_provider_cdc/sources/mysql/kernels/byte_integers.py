"""Numbers in bytes; used by all kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit


@jit
def read_uint32(buf: npt.NDArray[np.uint8], p: int) -> int:
    return np.int64(buf[p]) | np.int64(buf[p + 1]) << 8 | np.int64(buf[p + 2]) << 16 | np.int64(buf[p + 3]) << 24


@jit
def read_little_endian(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    v = np.int64(0)
    for i in range(width):
        v |= np.int64(buf[p + i]) << np.int64(8 * i)
    return v


@jit
def read_big_endian(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    v = np.int64(0)
    for i in range(width):
        v = (v << np.int64(8)) | np.int64(buf[p + i])
    return v


@jit
def read_microseconds(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    """Read a fraction of 1, 2 or 3 bytes, in microseconds."""
    f = read_big_endian(buf, p, width)
    if width == 1:
        return f * 10000
    if width == 2:
        return f * 100
    return f
