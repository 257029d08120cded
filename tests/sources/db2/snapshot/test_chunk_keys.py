"""Keys that bound chunks: their JSON form, and the conditions with them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.snapshot.chunk_keys import (
    Db2KeyColumn,
    SqlFragment,
    build_after_conditions,
    build_comparison,
    build_in_condition,
    combine_conditions,
    key_columns,
)
from airflow_provider_cdc.sources.db2.snapshot.event_to_chunk_key import event_key
from airflow_provider_cdc.sources.db2.snapshot.key_partitions import build_range_conditions
from airflow_provider_cdc.sources.relational.event_key_decoder import IrreversibleKey
from tests.support.sources.db2.db2_settings import column, config, schema_of

A, B = (Db2KeyColumn(name, "INTEGER", name, name) for name in "AB")


@pytest.mark.parametrize(
    ("base", "value", "json", "parameter"),
    [
        ("INTEGER", 7, 7, 7), ("BIGINT", 2**60, str(2**60), 2**60), ("DECIMAL", " 1,50 ", "1.50", "1.50"),
        ("DECIMAL", Decimal("1E+2"), "100", "100"), ("DOUBLE", 0.1, "0.1", 0.1), ("VARCHAR", "ab  ", "ab  ", "ab  "),
        ("VARCHAR FOR BIT DATA", b"\0\xff", "AP8=", b"\0\xff"), ("DATE", dt.date(2024, 2, 29), "2024-02-29", "2024-02-29"),
        ("TIME", 86_400, 86_400, "24:00:00"), ("TIME", 3_661, 3_661, "01:01:01"),
        ("TIMESTAMP", "2024-02-29 01:02:03.000004", "2024-02-29 01:02:03.000004", "2024-02-29 01:02:03.000004"),
    ],
)  # fmt: skip
def test_a_value_in_json_and_back(base: str, value: Any, json: Any, parameter: Any) -> None:
    key = Db2KeyColumn("C", base, "C", "C")
    assert key.to_json(value) == json
    assert key.to_parameter(json) == parameter


def test_the_rows_behind_a_key_are_ranges_of_its_index() -> None:
    assert [part for part, _ in build_after_conditions([A, B], [1, 2])] == [
        SqlFragment("A = ? AND B > ?", (1, 2)),
        SqlFragment("A > ?", (1,)),
    ]
    assert [[c.name for c in ordered] for _, ordered in build_after_conditions([A, B], [1, 2])] == [["B"], ["A", "B"]]


def test_one_condition_for_a_bound() -> None:
    assert build_comparison([A], [5], "<=") == SqlFragment("A <= ?", (5,))
    assert build_comparison([A, B], [1, 2], "<=") == SqlFragment(
        "A <= ? AND (A < ? OR (A = ? AND B <= ?))", (1, 1, 1, 2)
    )


def test_one_of_some_keys() -> None:
    assert build_in_condition([A, B], [[1], [2]]) == SqlFragment("A IN (?, ?)", (1, 2))
    assert build_in_condition([A, B], [[1, 2], [3, 4]]) == SqlFragment(
        "((A = ? AND B = ?) OR (A = ? AND B = ?))", (1, 2, 3, 4)
    )


def test_conditions_together() -> None:
    assert combine_conditions(
        [SqlFragment(""), SqlFragment("X = ?", (1,)), SqlFragment("Y"), SqlFragment("Z = ?", (2,))]
    ) == SqlFragment("X = ? AND Y AND Z = ?", (1, 2))


@pytest.mark.parametrize("type_", ["CLOB(9)", "BLOB(9)", "XML", "LONG VARCHAR", '"APP"."POINT"'])
def test_a_type_that_has_no_order_is_refused(type_: str) -> None:
    schema = schema_of(column(type_))
    with pytest.raises(QueryRejected, match="cannot be ordered by C"):
        key_columns(schema, ["C"], SelectList(schema, config()), "t")


def test_a_column_that_is_not_there_is_refused() -> None:
    schema = schema_of(column("INTEGER"))
    with pytest.raises(QueryRejected, match="the column does not exist"):
        key_columns(schema, ["D"], SelectList(schema, config()), "t")


@pytest.mark.parametrize(
    ("type_", "value", "expected", "properties"),
    [
        ("INTEGER", 7, 7, {}), ("DECIMAL(9,2)", "1.50", "1.50", {}), ("DECIMAL(9,2)", 1.5, "1.50", {"decimal_handling_mode": "double"}),
        ("TIME", 3_661_000_000, 3_661, {}), ("TIMESTAMP", "2024-02-29T01:02:03.000004", "2024-02-29 01:02:03.000004", {}),
        ("BINARY(2)", "AP8=", "AP8=", {}), ("BINARY(2)", "00ff", "AP8=", {"binary_handling_mode": "hex"}), ("DOUBLE", 0.1, "0.1", {}),
        ("VARCHAR(9)", "x", "x", {}),
    ],
)  # fmt: skip
def test_the_key_of_an_event(type_: str, value: Any, expected: Any, properties: dict[str, Any]) -> None:
    assert event_key(column(type_, **properties), value, config(**properties)) == expected


@pytest.mark.parametrize(
    ("type_", "value", "properties"),
    [
        ("DECIMAL(31,2)", 1.5, {"decimal_handling_mode": "double"}), ("DECFLOAT", 1.5, {"decimal_handling_mode": "double"}),
        ("TIMESTAMP(9)", "2024-02-29T01:02:03", {"time_precision_mode": "connect"}), ("TIME", 1, {}), ("DECIMAL(9,2)", "x", {}),
        ("BINARY(2)", "zz", {"binary_handling_mode": "hex"}),
    ],
)  # fmt: skip
def test_a_key_that_may_be_that_of_several_rows_is_refused(type_: str, value: Any, properties: dict[str, Any]) -> None:
    with pytest.raises(IrreversibleKey):
        event_key(column(type_, **properties), value, config(**properties))


def test_parts_between_cuts_have_each_row_once() -> None:
    assert build_range_conditions("C", [10]) == ["C < 10", "C >= 10"]
    assert build_range_conditions("C", []) == [None]
