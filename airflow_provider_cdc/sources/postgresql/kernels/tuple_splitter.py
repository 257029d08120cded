"""Finds the values of rows in the images that pgoutput has of them ("TupleData")."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.core.model.log_items import DELETE
from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.postgresql.kernels.big_endian import read_int16, read_int32
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import (
    BINARY_VALUE,
    NO_IMAGE,
    NOT_LOGGED,
    NULL_VALUE,
    ROW_END,
    ROW_OPERATION,
    ROW_START,
    TEXT_VALUE,
    UNCHANGED_VALUE,
)

_NEW, _OLD, _KEY = ord("N"), ord("O"), ord("K")


@jit
def _split_image(
    buf: npt.NDArray[np.uint8],
    p: int,
    end: int,
    row: int,
    kinds: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
) -> int:
    """Split one image. Returns the offset behind it; -1 if it is not as the protocol has it."""
    columns = len(kinds)
    if end - p < 2 or read_int16(buf, p) != columns:
        return -1
    p += 2
    for column in range(columns):
        if p >= end:
            return -1
        kind = buf[p]
        p += 1
        kinds[column, row] = kind
        starts[column, row] = p
        lengths[column, row] = 0
        if kind == TEXT_VALUE or kind == BINARY_VALUE:
            if end - p < 4:
                return -1
            length = read_int32(buf, p)
            p += 4
            if length > end - p:
                return -1
            starts[column, row] = p
            lengths[column, row] = length
            p += length
        elif kind != NULL_VALUE and kind != UNCHANGED_VALUE:
            return -1
    return p


@jit
def split_rows(
    buf: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    in_key: npt.NDArray[np.bool_],
    kinds: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
) -> int:
    """Find the values of rows of one relation.

    :param rows: ``int64[n, ROW_FIELDS]``
    :param in_key: ``bool[columns]``, columns of the replica identity
    :param kinds: output, ``uint8[2, columns, n]``: of the image before and of the one after, how each value is sent
    :param starts: output, likewise: offset of each value
    :param lengths: output, likewise: its bytes
    :return: -1, or the row that is not as the protocol has it
    """
    columns = len(in_key)
    for row in range(len(rows)):
        p, end = rows[row, ROW_START], rows[row, ROW_END]
        for image in range(2):
            for column in range(columns):
                kinds[image, column, row] = NO_IMAGE
                starts[image, column, row] = 0
                lengths[image, column, row] = 0
        if p >= end:
            return row
        mark = buf[p]
        if mark == _OLD or mark == _KEY:
            p = _split_image(buf, p + 1, end, row, kinds[0], starts[0], lengths[0])
            if p < 0:
                return row
            if mark == _KEY:
                for column in range(columns):
                    if not in_key[column]:
                        kinds[0, column, row] = NOT_LOGGED
        if rows[row, ROW_OPERATION] != DELETE:
            if p >= end or buf[p] != _NEW:
                return row
            p = _split_image(buf, p + 1, end, row, kinds[1], starts[1], lengths[1])
        if p != end:
            return row
    return -1
