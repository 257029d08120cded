"""Keys of several columns, compared on arrays."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.keys import among

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1, None]),
    "small": (pa.int8(), [-128, 0, 127, None]),
    "texts": (pa.string(), ["", "a", "A", "ä", "a ", "\0", None]),
    "bytes": (pa.binary(), [b"", b"\0", b"a", None]),
    "flags": (pa.bool_(), [True, False, None]),
    "prices": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.50"), None]),
    "days": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "times": (pa.timestamp("us"), [dt.datetime(1500, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1), None]),
}


@given(st.data())
def test_a_row_is_found_by_all_columns_of_its_key(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    one = st.tuples(*[st.sampled_from(VALUES[name][1]) for name in names])
    rows, keys = data.draw(st.lists(one, max_size=12)), data.draw(st.lists(one, max_size=12))

    def table(found: list[tuple[Any, ...]]) -> pa.Table:
        columns = [pa.array([row[i] for row in found], VALUES[name][0]) for i, name in enumerate(names)]
        return pa.table(columns, names=[f"k{i}" for i in range(len(names))])

    half = len(rows) // 2
    chunked = pa.concat_tables([table(rows[:half]), table(rows[half:])])
    assert list(among(chunked, table(keys))) == [row in keys for row in rows]


@pytest.mark.parametrize("number", [1, 4])
def test_numbers_of_many_values_do_not_overflow(number: int) -> None:
    columns = [pa.array(range(i, 100_000 + i)) for i in range(number)]
    rows = pa.table(columns, names=[f"k{i}" for i in range(number)])
    assert among(rows, rows.slice(0, 10)).nonzero()[0].tolist() == list(range(10))
