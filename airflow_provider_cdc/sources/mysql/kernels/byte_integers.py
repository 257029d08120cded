"""Numbers in bytes; used by all kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit


@force_inline_helper
def read_uint32(buf: npt.NDArray[np.uint8], p: int) -> int:
    q = np.uint64(p)  # without a sign: of a signed offset, each access checks whether it counts from the end
    return (
        np.int64(buf[q])
        | np.int64(buf[q + np.uint64(1)]) << 8
        | np.int64(buf[q + np.uint64(2)]) << 16
        | np.int64(buf[q + np.uint64(3)]) << 24
    )


@force_inline_helper
def read_little_endian(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    if width == 8:
        return read_uint32(buf, p) | read_uint32(buf, p + 4) << np.int64(32)
    if width == 4:
        return read_uint32(buf, p)
    v = np.int64(0)
    for i in range(width):
        v |= np.int64(buf[np.uint64(p + i)]) << np.int64(8 * i)
    return v


@force_inline_helper
def read_big_endian(buf: npt.NDArray[np.uint8], p: int, width: int) -> int:
    v = np.int64(0)
    for i in range(width):
        v = (v << np.int64(8)) | np.int64(buf[np.uint64(p + i)])
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
