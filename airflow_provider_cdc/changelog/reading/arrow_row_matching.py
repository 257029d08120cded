"""Compares rows by some columns, on Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_MOST_COMBINATIONS = 1 << 62
"""Values of several columns are one number up to so many; beyond, the columns that follow are compared without those before."""


def match_keys(rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row, whether its key is one of ``keys``. NULL is equal to NULL.

    :param rows: with the columns of ``keys``, of the same types, in the same order
    """
    candidates, keys = _narrow(rows, keys)
    codes, key_codes = number_rows(rows.take(pa.array(candidates)), keys)
    is_key = np.zeros(max(codes.max(initial=0), key_codes.max(initial=0)) + 1, np.bool_)
    is_key[key_codes] = True
    matches = np.zeros(rows.num_rows, np.bool_)
    matches[candidates] = is_key[codes]
    return matches


def match_multiset(rows: pa.Table, gone: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row, whether it is one of those that go: as many of the same ones as ``gone`` has, the first ones. A zero is not the same with another sign.

    :param gone: with the columns of ``rows``, of the same types, in the same order

    >>> match_multiset(pa.table({"a": [1, 2, 1, 1]}), pa.table({"a": [1, 1, 3]}))
    array([ True, False,  True, False])
    """
    candidates, gone = _narrow(rows, gone)
    codes, gone_codes = number_rows(rows.take(pa.array(candidates)), gone, one_zero=False)
    number = np.bincount(gone_codes, minlength=max(codes.max(initial=0), gone_codes.max(initial=0)) + 1)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    nth = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    matches = np.zeros(rows.num_rows, np.bool_)
    matches[candidates[order[nth < number[ordered]]]] = True
    return matches


def _narrow(rows: pa.Table, others: pa.Table) -> tuple[Numbers, pa.Table]:
    """Leave out rows that no row of the other side can equal, on both sides.

    Values are looked up among those of the smaller side: numbering or hashing all keys of a commit for each row group would cost more than
    reading it.

    :return: the numbers of the rows, in order, and the other rows
    """
    sides = [rows.select(others.column_names), others]
    left: list[Numbers] = [np.arange(side.num_rows) for side in sides]
    codes: list[Numbers] = [np.zeros(side.num_rows, np.int64) for side in sides]  # of the columns so far, together
    combinations = 1
    for name in others.column_names:
        if pa.types.is_floating(others[name].type) or pa.types.is_nested(others[name].type):
            continue
        small, large = (0, 1) if len(left[0]) <= len(left[1]) else (1, 0)
        values = [_take(side[name], numbers) for side, numbers in zip(sides, left, strict=True)]
        known = pc.unique(values[small])
        combinations *= max(len(known), 1)
        if combinations > _MOST_COMBINATIONS:
            combinations, codes = max(len(known), 1), [np.zeros_like(code) for code in codes]
        for side in (0, 1):
            found = pc.index_in(values[side], value_set=known)
            valid = found.is_valid().to_numpy()
            left[side] = left[side][valid]
            codes[side] = codes[side][valid] * len(known) + found.drop_null().to_numpy()
        for narrowed, by in ((large, small), (small, large)):
            same = pc.is_in(pa.array(codes[narrowed]), value_set=pc.unique(pa.array(codes[by])))
            stays = same.to_numpy(zero_copy_only=False)
            left[narrowed], codes[narrowed] = left[narrowed][stays], codes[narrowed][stays]
    return left[0], others if len(left[1]) == others.num_rows else others.take(pa.array(left[1]))


def _take(column: pa.ChunkedArray, numbers: Numbers) -> pa.ChunkedArray:
    return column if len(numbers) == len(column) else column.take(pa.array(numbers))


def number_rows(*tables: pa.Table, one_zero: bool = True) -> list[Numbers]:
    """Assign numbers to the rows of some tables: equal rows have the same number. NULL is equal to NULL, and NaN to NaN.

    :param tables: with columns of the same types, in the same order
    :param one_zero: whether -0.0 is equal to 0.0, as in SQL

    >>> number_rows(pa.table({"a": [1, None, 1], "b": ["x", "x", "x"]}))
    [array([1, 0, 1])]
    """
    sizes = [table.num_rows for table in tables]
    codes = np.zeros(sum(sizes), np.int64)
    for columns in zip(*(table.columns for table in tables), strict=True):
        chunks = [chunk for column in columns for chunk in column.chunks]
        column_codes = _codes(pa.concat_arrays(chunks or [pa.array([], columns[0].type)]), one_zero=one_zero)
        # numbered again after each column, so that the product of the numbers of values cannot overflow
        _, codes = np.unique(codes * (column_codes.max(initial=0) + 1) + column_codes, return_inverse=True)
    return np.split(codes, np.cumsum(sizes)[:-1])


def _codes(values: pa.Array, *, one_zero: bool) -> Numbers:
    """Encode the values of a column as numbers from 0 on: equal ones have the same number."""
    if pa.types.is_floating(values.type):
        values = _bits(values, one_zero=one_zero)
    elif pa.types.is_struct(values.type):
        parts = [pc.struct_field(values, [at]) for at in range(values.type.num_fields)]
        whole = pa.table([values.is_null(), *parts], names=[str(at) for at in range(len(parts) + 1)])
        return number_rows(whole, one_zero=one_zero)[0]
    elif pa.types.is_nested(values.type):  # few tables have lists, and none has long ones
        values = pa.array([None if value is None else _shown(value, one_zero=one_zero) for value in values.to_pylist()])
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    numbers: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _bits(values: pa.Array, *, one_zero: bool) -> pa.Array:
    """Integers that are equal where the numbers are: there is more than one NaN, and Arrow takes the two zeros for different values."""
    floats = values.fill_null(0).to_numpy(zero_copy_only=False).copy()
    floats[np.isnan(floats)] = np.nan
    if one_zero:
        floats[floats == 0] = 0
    integers = {2: np.int16, 4: np.int32, 8: np.int64}[floats.dtype.itemsize]
    return pa.array(floats.view(integers), mask=values.is_null().to_numpy(zero_copy_only=False))


def _shown(value: Any, *, one_zero: bool) -> str:
    """Format a list as a text."""
    if one_zero and isinstance(value, list):
        value = [0.0 if isinstance(item, float) and item == 0 else item for item in value]
    return repr(value)
