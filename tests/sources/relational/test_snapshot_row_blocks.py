"""Rows of a query as READ rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import READ
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.sources.relational.snapshot_row_blocks import read_block

TABLE = TableSchema(
    id=TableId(namespace="shop", name="orders"), columns=(Column(name="id", type="int64"),), key=("id",)
)
ROWS = pa.array([{"id": 7}, {"id": 8}, {"id": 9}], row_struct(TABLE))


def test_rows_are_read_rows_of_one_moment_with_numbers_from_the_first_on() -> None:
    lacking = np.array([[True, False, False]])
    block = read_block(TABLE, ROWS, ts_us=5, source={}, first=10, unavailable=lacking)
    assert (block.table, block.before, block.after, block.transaction) == (TABLE, None, ROWS, None)
    assert block.op.tolist() == [READ] * 3
    assert (block.order.tolist(), block.ts_us.tolist()) == ([10, 11, 12], [5, 5, 5])
    assert block.unavailable_after is lacking
    assert (block.op.dtype, block.order.dtype, block.ts_us.dtype) == (np.int8, np.int64, np.int64)


def test_the_source_block_has_the_same_values_for_all_rows_in_the_width_of_their_fields() -> None:
    block = read_block(TABLE, ROWS, ts_us=5, source={"file": "log.1", "pos": np.int64(4), "row": np.int32(0)})
    assert {name: values.to_pylist() for name, values in block.source.items()} == {
        "file": ["log.1"] * 3, "pos": [4] * 3, "row": [0] * 3,
    }  # fmt: skip
    assert [values.type for values in block.source.values()] == [
        pa.dictionary(pa.int32(), pa.string()), pa.int64(), pa.int32(),
    ]  # fmt: skip
    assert len(block.source["file"].dictionary) == 1


def test_no_rows_make_an_empty_block() -> None:
    block = read_block(TABLE, ROWS[:0], ts_us=5, source={"file": "log.1"})
    assert (len(block), len(block.source["file"])) == (0, 0)
