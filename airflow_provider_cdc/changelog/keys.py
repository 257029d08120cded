"""Compares keys of several columns, on Arrow arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def among(rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row, whether its key is one of ``keys``. NULL is equal to NULL.

    :param rows: with the columns of ``keys``, of the same types, in the same order
    """
    codes, wanted = np.zeros(rows.num_rows, np.int64), np.zeros(keys.num_rows, np.int64)
    for there, given in zip(rows.columns, keys.columns, strict=True):
        mine, others = _codes(there, given)
        # numbered again after each column, so that the product of the numbers of values cannot overflow
        together = np.concatenate([codes, wanted]) * (max(mine.max(initial=0), others.max(initial=0)) + 1)
        _, numbered = np.unique(together + np.concatenate([mine, others]), return_inverse=True)
        codes, wanted = numbered[: len(mine)], numbered[len(mine) :]
    found = np.zeros(max(codes.max(initial=0), wanted.max(initial=0)) + 1, np.bool_)
    found[wanted] = True
    return found[codes]


def _codes(*columns: pa.ChunkedArray) -> list[npt.NDArray[np.int64]]:
    """The values of some columns as numbers: equal ones have the same number in all of them."""
    whole = pa.concat_arrays(
        [chunk for column in columns for chunk in column.chunks] or [pa.array([], columns[0].type)]
    )
    numbers = pc.dictionary_encode(whole, null_encoding="encode").indices.to_numpy().astype(np.int64)
    return np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])
