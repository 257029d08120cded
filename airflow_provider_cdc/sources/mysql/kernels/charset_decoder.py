"""Decodes texts of the servers' character sets, by tables."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.relational.utf8_kernel import store_utf8

NO_CHARACTER: Final = 0xFFFF
"""In a table: these bytes are no character of the set, or only the beginning of one."""
LARGEST_GROWTH: Final = 3
"""UTF-8 has at most so many bytes for each byte of a text in another character set."""

_UNKNOWN: Final = 0x3F  # ?
_FOUR_PLANES: Final = 189_000  # number of the four bytes 90 30 81 30 in GB 18030, which are U+10000

Bytes = npt.NDArray[np.uint8]
Table = npt.NDArray[np.uint16]


@jit
def decode_texts(
    data: Bytes, offsets: npt.NDArray[np.int32], one_byte: Table, two_bytes: Table, three_bytes: Table, four_bytes: Table, out: Bytes,
    out_offsets: npt.NDArray[np.int32],
) -> int:  # fmt: skip
    """Decode texts into UTF-8. As on the server, bytes that are no character become a question mark.

    :param offsets: where each text begins in ``data``, and where the last one ends
    :param one_byte: code point of each byte, :data:`NO_CHARACTER` for the first of several
    :param two_bytes: of two bytes; empty if the set has no characters of two bytes
    :param three_bytes: of the two bytes behind 8F; empty if the set has no characters of three bytes
    :param four_bytes: of four bytes in the order of GB 18030, up to U+FFFF; empty if the set has none of four bytes
    :param out: room for the result, :data:`LARGEST_GROWTH` times as large as the texts
    :param out_offsets: output: the same as ``offsets`` for ``out``
    :return: number of bytes written
    """
    w = 0
    out_offsets[0] = 0
    for row in range(len(offsets) - 1):
        p, end = offsets[row], offsets[row + 1]
        while p < end:
            first = np.int64(data[p])
            code, size = np.int64(one_byte[first]), 1
            if code == NO_CHARACTER:
                if len(two_bytes) and p + 1 < end:
                    code, size = np.int64(two_bytes[first << 8 | np.int64(data[p + 1])]), 2
                if code == NO_CHARACTER and len(three_bytes) and first == 0x8F and p + 2 < end:
                    code, size = np.int64(three_bytes[np.int64(data[p + 1]) << 8 | np.int64(data[p + 2])]), 3
                if code == NO_CHARACTER and len(four_bytes) and p + 3 < end:
                    b, c, d = np.int64(data[p + 1]), np.int64(data[p + 2]), np.int64(data[p + 3])
                    if 0x30 <= b <= 0x39 and 0x81 <= c <= 0xFE and 0x30 <= d <= 0x39 and 0x81 <= first <= 0xFE:
                        number = ((first - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30
                        size = 4
                        if number < len(four_bytes):
                            code = np.int64(four_bytes[number])
                        elif _FOUR_PLANES <= number < _FOUR_PLANES + 0x100000:
                            code = number - _FOUR_PLANES + 0x10000
                        else:
                            code = _UNKNOWN
                if code == NO_CHARACTER:
                    code, size = _UNKNOWN, 1
            w = store_utf8(out, w, code)
            p += size
        out_offsets[row + 1] = w
    return w
