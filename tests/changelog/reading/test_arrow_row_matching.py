"""Keys of several columns, compared on arrays."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.reading.arrow_row_matching import match_keys, match_multiset, number_rows

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1, None]),
    "small": (pa.int8(), [-128, 0, 127, None]),
    "texts": (pa.string(), ["", "a", "A", "ä", "a ", "\0", None]),
    "bytes": (pa.binary(), [b"", b"\0", b"a", None]),
    "flags": (pa.bool_(), [True, False, None]),
    "prices": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.50"), None]),
    "days": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "floats": (pa.float64(), [-1.5, 0.0, float("nan"), float("inf"), 5e-324, None]),
    "shapes": (
        pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]),
        [{"wkb": b"x", "srid": 1}, {"wkb": b"x", "srid": None}, {"wkb": None, "srid": None}, None],
    ),
    "vectors": (pa.list_(pa.float32()), [[], [0.5], [0.5, None], [None, 0.5], [float("nan")], None]),
    "times": (pa.timestamp("us"), [dt.datetime(1500, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1), None]),
}


def _table(names: list[str], found: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([row[i] for row in found], VALUES[name][0]) for i, name in enumerate(names)]
    return pa.table(columns, names=[f"k{i}" for i in range(len(names))])


@given(st.data())
def test_a_row_is_found_by_all_columns_of_its_key(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    one = st.tuples(*[st.sampled_from(VALUES[name][1]) for name in names])
    rows, keys = data.draw(st.lists(one, max_size=12)), data.draw(st.lists(one, max_size=12))

    half = len(rows) // 2
    chunked = pa.concat_tables([_table(names, rows[:half]), _table(names, rows[half:])])
    known = {repr(key) for key in keys}  # by their texts, NaN is equal to itself
    assert list(match_keys(chunked, _table(names, keys))) == [repr(row) in known for row in rows]


@given(st.data())
def test_of_equal_rows_the_first_ones_go_as_many_as_are_wanted(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    one = st.tuples(*[st.sampled_from(VALUES[name][1][:2]) for name in names])
    rows, gone = data.draw(st.lists(one, max_size=15)), data.draw(st.lists(one, max_size=8))
    expected, left = [], Counter(map(repr, gone))
    for row in map(repr, rows):
        expected.append(left[row] > 0)
        left[row] -= 1
    assert match_multiset(_table(names, rows), _table(names, gone)).tolist() == expected


@pytest.mark.parametrize("number", [1, 4])
def test_numbers_of_many_values_do_not_overflow(number: int) -> None:
    columns = [pa.array(range(i, 100_000 + i)) for i in range(number)]
    rows = pa.table(columns, names=[f"k{i}" for i in range(number)])
    assert match_keys(rows, rows.slice(0, 10)).nonzero()[0].tolist() == list(range(10))


@pytest.mark.parametrize(
    "type_", [pa.float32(), pa.float64(), pa.struct([("x", pa.float64())]), pa.list_(pa.float32())]
)
def test_the_two_zeros_are_equal_if_it_is_asked_for_and_all_nan_always_are(type_: pa.DataType) -> None:
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64)
    values = pa.array([0.0, -0.0, None, *bits.view(np.float64), 1.0])
    if pa.types.is_struct(type_):
        values = pa.StructArray.from_arrays([values], names=["x"])
    elif pa.types.is_list(type_):
        values = pa.array([[v.as_py()] for v in values], type_)
    else:
        values = values.cast(type_, safe=False)
    rows = pa.table({"a": values})
    plus, minus, nothing, *nans, one = number_rows(rows)[0].tolist()
    assert plus == minus
    assert len({plus, nothing, nans[0], one}) == 4
    assert len(set(nans)) == 1
    plus, minus, nothing, *nans, one = number_rows(rows, one_zero=False)[0].tolist()
    assert len({plus, minus, nothing, nans[0], one}) == 5
    assert len(set(nans)) == 1
