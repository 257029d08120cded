"""Numbers as PostgreSQL sends them: the most significant byte first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import inline_helper


@inline_helper
def read_int16(buf: npt.NDArray[np.uint8], p: int) -> np.int64:
    """Read two bytes as a number without a sign."""
    return np.int64(buf[p]) << 8 | np.int64(buf[p + 1])


@inline_helper
def read_int32(buf: npt.NDArray[np.uint8], p: int) -> np.int64:
    """Read four bytes as a number without a sign, such as an OID."""
    return np.int64(buf[p]) << 24 | np.int64(buf[p + 1]) << 16 | np.int64(buf[p + 2]) << 8 | np.int64(buf[p + 3])


@inline_helper
def read_int64(buf: npt.NDArray[np.uint8], p: int) -> np.int64:
    """Read eight bytes."""
    return read_int32(buf, p) << 32 | read_int32(buf, p + 4)
