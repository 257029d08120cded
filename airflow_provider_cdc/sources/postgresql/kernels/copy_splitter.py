"""Finds the values of rows in the bytes of ``COPY … (FORMAT BINARY)``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.postgresql.kernels.big_endian import read_int16, read_int32
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import (
    BAD_MESSAGE,
    MESSAGES_FULL,
    NEED_BYTES,
    NULL_VALUE,
)

COPY_ENDED = 5
"""The mark behind the last row has come."""


@jit
def split_copied_rows(
    buf: npt.NDArray[np.uint8],
    start: int,
    end: int,
    forms: npt.NDArray[np.uint8],
    kinds: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
) -> tuple[int, int, int]:
    """Find the values of whole rows; a row that is cut is left for the next call.

    :param forms: ``uint8[columns]``: how the values of each column are sent, as ``BINARY_VALUE`` or ``TEXT_VALUE``
    :param kinds: output, ``uint8[columns, rows]``
    :param starts: output, likewise: offset of each value
    :param lengths: output, likewise: its bytes
    :return: number of rows, offset of the first unused byte, and why it stopped
    """
    columns = len(forms)
    p, rows = start, 0
    while rows < kinds.shape[1]:
        if end - p < 2:
            return rows, p, NEED_BYTES
        count = read_int16(buf, p)
        if count == 0xFFFF:
            return rows, p + 2, COPY_ENDED
        if count != columns:
            return rows, p, BAD_MESSAGE
        q = p + 2
        for column in range(columns):
            if end - q < 4:
                return rows, p, NEED_BYTES
            length = read_int32(buf, q)
            q += 4
            if length == 0xFFFFFFFF:
                kinds[column, rows] = NULL_VALUE
                starts[column, rows] = q
                lengths[column, rows] = 0
                continue
            if length > 0x7FFFFFFF:
                return rows, p, BAD_MESSAGE
            if length > end - q:
                return rows, p, NEED_BYTES
            kinds[column, rows] = forms[column]
            starts[column, rows] = q
            lengths[column, rows] = length
            q += length
        p = q
        rows += 1
    return rows, p, MESSAGES_FULL
