"""Updates that change nothing: what counts as a change of a captured column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.model.log_items import UPDATE, RowBlock
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.core.writing.row_block_transforms import SelectedColumns, changed_rows

POINT = {"wkb": b"\1", "srid": None}


def find_changed(type_: str, pairs: list[tuple[Any, Any]], **lacking: list[bool]) -> list[bool]:
    """Check whether each pair of values of one column is a change; ``lacking``: which of them the log does not have."""
    columns = (Column(name="id", type="int64"), Column(name="v", type=type_))
    schema = TableSchema(id=TableId(namespace="db", name="t"), columns=columns, key=("id",))
    kind = row_struct(schema)
    n = len(pairs)
    images = [pa.array([{"id": 1, "v": pair[side]} for pair in pairs], kind) for side in (0, 1)]
    masks = {name: np.array([[False] * n, absent]) for name, absent in lacking.items()}
    block = RowBlock(
        schema, np.full(n, UPDATE, np.int8), *images, np.arange(n), None, np.zeros(n, np.int64), {}, **masks
    )  # fmt: skip
    selected = SelectedColumns("t", schema, None, np.array(schema.column_names), (0,), kind, None)
    return changed_rows(block, selected).tolist()


@pytest.mark.parametrize(
    ("type_", "same", "other"),
    [
        ("int32", 1, 2), ("string", "a", "A"), ("bool", True, False), ("double", 0.0, -0.0), ("float", math.nan, 1.0),
        ("binary", b"", b"\0"), ("list<item: float>", [1.0], [1.0, 2.0]), (GEOMETRY, POINT, {"wkb": b"\1", "srid": 1}),
    ],
)  # fmt: skip
def test_another_value_or_null_is_a_change(type_: str, same: Any, other: Any) -> None:
    pairs = [(same, same), (same, other), (same, None), (None, same), (None, None)]
    assert find_changed(type_, pairs) == [False, True, True, True, False]


def test_a_value_that_the_log_does_not_have_is_one_that_stayed_and_a_new_one_is_a_change() -> None:
    pairs = [(None, None), ("old", None), (None, "new"), (None, None)]
    found = find_changed(
        "string", pairs, unavailable_before=[True, False, True, True], unavailable_after=[True, True, False, False]
    )
    assert found == [False, False, True, True]


def test_columns_that_are_not_captured_do_not_count() -> None:
    columns = (Column(name="id", type="int64"), Column(name="v", type="int64"), Column(name="x", type="null"))
    schema = TableSchema(id=TableId(namespace="db", name="t"), columns=columns, key=("id",))
    before = pa.array([{"id": 1, "v": 1, "x": None}, {"id": 1, "v": 1, "x": None}], row_struct(schema))
    after = pa.array([{"id": 1, "v": 2, "x": None}, {"id": 2, "v": 1, "x": None}], row_struct(schema))
    block = RowBlock(schema, np.full(2, UPDATE, np.int8), before, after, np.arange(2), None, np.zeros(2, np.int64), {})
    images = SelectedColumns("t", schema, (2,), np.array(["x"]), (0,), row_struct(schema), None)
    assert changed_rows(block, images).tolist() == [False, True]
