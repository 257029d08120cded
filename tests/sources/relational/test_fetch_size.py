"""The number of rows of the next fetch, from the size of the rows before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.relational.fetch_size import FetchSize
from airflow_provider_cdc.sources.relational.snapshot_row_blocks import read_block

TABLE = TableSchema(id=TableId(namespace="SHOP", name="T"), columns=(Column(name="A", type="string"),), key=())


def block(rows: int, width: int) -> RowBlock:
    texts = pa.array(["x" * width] * rows)
    return read_block(TABLE, pa.StructArray.from_arrays([texts], ["A"]), ts_us=0, source={})


def test_a_fetch_grows_eightfold_until_its_rows_take_the_bytes() -> None:
    size = FetchSize(10_000, lobs=False)
    found = [size.rows]
    for _ in range(3):
        size.adapt_size(block(size.rows, 50), 1_000_000)
        found.append(size.rows)
    assert found[:3] == [256, 2048, 10_000]
    size.adapt_size(block(100, 90_000), 1_000_000)
    assert size.rows == 11


@pytest.mark.parametrize(
    ("most", "lobs", "first", "later"), [(50, False, 50, 50), (1000, True, 2, 200), (100, True, 2, 100)]
)
def test_a_fetch_has_no_more_rows_than_the_most(most: int, first: int, later: int, *, lobs: bool) -> None:
    size = FetchSize(most, lobs=lobs)
    assert size.rows == first
    for _ in range(4):
        size.adapt_size(block(1, 1), 1_000_000)
    assert size.rows == later


def test_a_query_is_limited_only_while_the_width_of_rows_is_unknown() -> None:
    size = FetchSize(10_000, lobs=False)
    assert size.worth_asking == 256
    size.adapt_size(block(256, 1), 1_000_000)
    assert size.worth_asking == 2048
    size.adapt_size(block(2048, 10_000), 1_000_000)
    assert size.worth_asking > 1 << 40
