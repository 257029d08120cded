"""Select lists by column type, and conversions of the values that the driver gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from tests.support.sources.db2.db2_settings import column, config, schema_of


def read(type_: str, *values: Any, **properties: Any) -> list[Any]:
    one = column(type_, **properties)
    select = SelectList(schema_of(one), config(**properties))
    array = select.struct_from_rows([(v,) for v in values]).field(0)
    if str(array.type) == "timestamp[ns]":
        array = array.view("int64")
    return array.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("type_", "expression"),
    [
        ("INTEGER", 't."C"'), ("VARCHAR(9)", 't."C"'), ("DECIMAL(9,2)", 't."C"'), ("DATE", 't."C"'), ("BLOB(9)", 't."C"'),
        ("TIME", 'MIDNIGHT_SECONDS(t."C")'),
        ("TIMESTAMP", "VARCHAR_FORMAT(t.\"C\", 'YYYY-MM-DD HH24:MI:SS.FF6')"),
        ("TIMESTAMP(0)", "VARCHAR_FORMAT(t.\"C\", 'YYYY-MM-DD HH24:MI:SS')"),
        ("TIMESTAMP(9)", "VARCHAR_FORMAT(t.\"C\", 'YYYY-MM-DD HH24:MI:SS.FF9')"),
        ("TIMESTAMP(12)", "VARCHAR_FORMAT(t.\"C\", 'YYYY-MM-DD HH24:MI:SS.FF12')"),
        ("DECFLOAT", 'VARCHAR(t."C")'), ("XML", 'XMLSERIALIZE(t."C" AS CLOB(2G))'), ("ROWID", 'HEX(t."C")'),
        ("BOOLEAN", 'CASE WHEN t."C" THEN 1 WHEN NOT t."C" THEN 0 END'),
    ],
)  # fmt: skip
def test_what_is_selected(type_: str, expression: str) -> None:
    assert SelectList(schema_of(column(type_)), config()).expressions == [expression]


def test_a_distinct_type_is_cast_where_a_function_takes_it() -> None:
    one = column("TIME", distinct='"SHOP"."CLOCK"')
    assert SelectList(schema_of(one), config()).expressions == ['MIDNIGHT_SECONDS(CAST(t."C" AS TIME))']


def test_connect_mode_selects_no_more_digits_than_it_keeps() -> None:
    select = SelectList(schema_of(column("TIMESTAMP(12)", time_precision_mode="connect")), config())
    assert select.expressions == ["VARCHAR_FORMAT(t.\"C\", 'YYYY-MM-DD HH24:MI:SS.FF6')"]


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        ("SMALLINT", [-32768, None, 32767], [-32768, None, 32767]),
        ("BIGINT", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ("DECIMAL(31,5)", ["-12345678901234567890123456.78901", ".5", None, "1,25", " 7 "],
         [Decimal("-12345678901234567890123456.78901"), Decimal("0.50000"), None, Decimal("1.25000"), Decimal("7.00000")]),
        ("DECIMAL(5,2)", [Decimal("1E+1"), None], [Decimal("10.00"), None]),
        ("DECFLOAT", ["1.50", "1E+3", "-0", "0E-5", "1.5E-2", None], ["1.5", "1000", "0", "0", "0.015", None]),
        ("DOUBLE", [0.1, None], [0.1, None]), ("REAL", [0.5], [0.5]),
        ("CHAR(4)", ["ab  ", "žluť", None], ["ab  ", "žluť", None]),
        ("VARCHAR(9) FOR BIT DATA", [b"\0\xff", None, b""], [b"\0\xff", None, b""]),
        ("DATE", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None], [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        ("TIME", [0, 86_399, 86_400, None], [0, 86_399_000_000, 86_400_000_000, None]),
        ("BOOLEAN", [1, 0, None], [True, False, None]),
        ("TIMESTAMP", ["0001-01-01 00:00:00.000000", "2024-02-29 23:59:58.123456", "9999-12-31 23:59:59.999999", None],
         [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 58, 123456), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None]),
        ("TIMESTAMP", ["2024-02-28 24:00:00.000000", "2024-02-28 00:00:00.000000", None],
         [dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 28), None]),
        ("TIMESTAMP(9)", ["1970-01-01 00:00:00.000000001", "1969-12-31 24:00:00.000000000", None], [1, 0, None]),
        ("TIMESTAMP(12)", ["2024-02-29 01:02:03.123456789012", "2023-12-31 24:00:00.000000000000", None],
         ["2024-02-29T01:02:03.123456789012", "2024-01-01T00:00:00.000000000000", None]),
    ],
)  # fmt: skip
def test_values(type_: str, given: list[Any], expected: list[Any]) -> None:
    assert read(type_, *given) == expected


@pytest.mark.parametrize(
    ("mode", "type_", "given", "expected"),
    [
        ("string", "DECIMAL(9,2)", ["-.50", "1.00", None], ["-0.50", "1.00", None]),
        ("double", "DECIMAL(9,2)", ["-.50", None], [-0.5, None]),
        ("string", "DECFLOAT", ["NaN", "-Infinity", "1.50"], ["NaN", "-Infinity", "1.5"]),
        ("double", "DECFLOAT", ["Infinity", "-Infinity", "2E+3"], [float("inf"), float("-inf"), 2000.0]),
    ],
)
def test_numbers_in_other_modes(mode: str, type_: str, given: list[Any], expected: list[Any]) -> None:
    assert read(type_, *given, decimal_handling_mode=mode) == expected


def test_both_kinds_of_nan_are_nan() -> None:
    assert [v != v for v in read("DECFLOAT", "NaN", "sNaN", "-NaN", decimal_handling_mode="double")] == [True] * 3


@pytest.mark.parametrize("value", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_a_decimal_that_is_none_is_an_error_that_names_the_other_modes(value: str) -> None:
    with pytest.raises(UnreadableValue, match="not a decimal number") as caught:
        read("DECFLOAT", "1", value)
    assert caught.value.where == "SHOP.PARTS.C"
    assert "decimal.handling.mode=string" in str(caught.value.remedy)


def test_a_moment_beyond_nanoseconds_is_an_error() -> None:
    with pytest.raises(UnreadableValue, match="column C cannot be captured"):
        read("TIMESTAMP(9)", "3000-01-01 00:00:00.000000000")


def test_bytes_as_text() -> None:
    assert read("BINARY(2)", b"\x00\xff", None, binary_handling_mode="hex") == ["00ff", None]


def test_columns_that_the_table_of_the_query_lacks_are_unavailable() -> None:
    schema = schema_of(column("INTEGER", "A"), column("CLOB(9)", "B"), column("INTEGER", "C"))
    select = SelectList(schema, config(), absent=["B"])
    assert select.expressions == ['t."A"', 't."C"']
    assert select.struct_from_rows([(1, 2), (3, 4)]).to_pylist() == [
        {"A": 1, "B": None, "C": 2},
        {"A": 3, "B": None, "C": 4},
    ]
    mask = select.build_unavailable_mask(2)
    assert mask is not None
    assert mask.tolist() == [[False, False], [True, True], [False, False]]
    assert SelectList(schema, config()).build_unavailable_mask(2) is None


def test_columns_may_be_called_otherwise_in_the_query() -> None:
    select = SelectList(schema_of(column("INTEGER", "A")), config(), named=lambda name: f"X{name}")
    assert select.expressions == ['t."XA"']


def test_no_rows_and_no_columns() -> None:
    select = SelectList(schema_of(column('"APP"."POINT"')), config())
    assert select.expressions == ["1"]
    assert len(select.struct_from_rows([])) == 0
    assert select.struct_from_rows([(1,)]).to_pylist() == [{"C": None}]
