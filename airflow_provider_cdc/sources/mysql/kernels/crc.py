"""CRC-32, sixteen bytes at a time."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit

_CRC_TABLES: Final = 16


def _make_crc_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((_CRC_TABLES, 256), np.uint32)
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, i] = crc
    for i in range(256):
        crc = int(tables[0, i])
        for k in range(1, _CRC_TABLES):
            crc = (crc >> 8) ^ int(tables[0, crc & 0xFF])
            tables[k, i] = crc
    return tables


_CRC = _make_crc_tables()


_1 = np.uint64(1)
_16 = np.uint64(16)


@jit
def compute_crc32(buf: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """CRC-32 as zlib's, sixteen bytes at a time."""
    crc = np.uint32(0xFFFFFFFF)
    # offsets without a sign: of a signed one, each access checks whether it counts from the end
    p, stop = np.uint64(start), np.uint64(end)
    while p + _16 <= stop:
        a = crc ^ (
            np.uint32(buf[p])
            | np.uint32(buf[p + np.uint64(1)]) << np.uint32(8)
            | np.uint32(buf[p + np.uint64(2)]) << np.uint32(16)
            | np.uint32(buf[p + np.uint64(3)]) << np.uint32(24)
        )
        crc = (
            _CRC[15, a & np.uint32(0xFF)]
            ^ _CRC[14, (a >> np.uint32(8)) & np.uint32(0xFF)]
            ^ _CRC[13, (a >> np.uint32(16)) & np.uint32(0xFF)]
            ^ _CRC[12, a >> np.uint32(24)]
            ^ _CRC[11, buf[p + np.uint64(4)]]
            ^ _CRC[10, buf[p + np.uint64(5)]]
            ^ _CRC[9, buf[p + np.uint64(6)]]
            ^ _CRC[8, buf[p + np.uint64(7)]]
            ^ _CRC[7, buf[p + np.uint64(8)]]
            ^ _CRC[6, buf[p + np.uint64(9)]]
            ^ _CRC[5, buf[p + np.uint64(10)]]
            ^ _CRC[4, buf[p + np.uint64(11)]]
            ^ _CRC[3, buf[p + np.uint64(12)]]
            ^ _CRC[2, buf[p + np.uint64(13)]]
            ^ _CRC[1, buf[p + np.uint64(14)]]
            ^ _CRC[0, buf[p + np.uint64(15)]]
        )
        p += _16
    while p < stop:
        crc = _CRC[0, (crc ^ np.uint32(buf[p])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        p += _1
    return int(crc ^ np.uint32(0xFFFFFFFF))
