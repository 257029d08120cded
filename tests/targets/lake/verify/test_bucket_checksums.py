"""Checksums of rows: values that are equal have equal ones, others do not, in whatever order rows come."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type
from airflow_provider_cdc.targets.lake.verify import bucket_checksums
from airflow_provider_cdc.targets.lake.verify.bucket_checksums import (
    BUCKET,
    assign_buckets,
    compare_checksums,
    select_buckets,
)

pytestmark = pytest.mark.spark
GEOMETRY = "struct<wkb:binary,srid:int>"
VALUES: dict[str, list[Any]] = {
    "int": [None, 0, 1, -1],
    "bigint": [None, 0, 2**62],
    "string": [None, "", " ", "a", "A", "\0"],
    "binary": [None, b"", b"\0", b"\xff"],
    "double": [None, 0.0, 1.5, float("nan"), float("inf"), -float("inf")],
    "float": [None, 0.0, 1.5, float("nan")],
    "boolean": [None, True, False],
    "decimal(38,10)": [None, Decimal(0), Decimal("-1.5"), Decimal(10) ** 27],
    "decimal(10,2)": [None, Decimal(0), Decimal("1.50")],
    "date": [None, date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [None, datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)],
    "timestamp_ntz": [None, datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)],
    "array<float>": [None, [], [0.0], [1.5], [1.5, 1.5], [float("nan")]],
    GEOMETRY: [None, (None, None), (b"", None), (None, 0), (b"x", 0), (b"x", None)],
}
"""Spark type → values that all differ."""


def _frame(spark: SparkSession, types: dict[str, str], rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, build_struct_type(types))


def _both_sides(
    spark: SparkSession, types: dict[str, str], a: list[Any], b: list[Any], key: tuple[str, ...] = ()
) -> Any:
    frames = [assign_buckets(_frame(spark, types, rows), key or tuple(types), 16) for rows in (a, b)]
    return compare_checksums(*frames, list(types))


def test_each_value_differs_from_each_other_one_and_from_none_of_its_own(spark: SparkSession) -> None:
    types = {f"c {i}.`x": type_ for i, type_ in enumerate(VALUES)}
    nothing = (None,) * len(types)
    rows = []  # one column has a value, all others none
    for i, values in enumerate(VALUES.values()):
        rows += [(*nothing[:i], value, *nothing[i + 1 :]) for value in values[1:]]
    rows.append(nothing)
    hashes = bucket_checksums._hashed(
        assign_buckets(_frame(spark, types, rows), tuple(types), 16), list(types), 1
    ).collect()
    for name in ("h1", "h2"):
        assert len({row[name] for row in hashes}) == len(rows)
    assert all(row["h1"] != row["h2"] for row in hashes)
    sides = _both_sides(spark, types, rows, rows[::-1])
    assert (sides.source, sides.target, sides.wrong) == (len(rows), len(rows), ())


def test_zero_is_minus_zero_and_nan_is_nan_wherever_they_are(spark: SparkSession) -> None:
    types = {"id": "int", "d": "double", "f": "float", "a": "array<float>"}
    other = -float("nan")
    a = [(1, 0.0, -0.0, [0.0, float("nan")]), (2, float("nan"), 1.0, None)]
    b = [(2, other, 1.0, None), (1, -0.0, 0.0, [-0.0, other])]
    assert not _both_sides(spark, types, a, b).wrong
    assert not _both_sides(spark, types, a, b, ("d",)).wrong  # keys, too


def test_values_that_change_places_are_seen(spark: SparkSession) -> None:
    types = {"a": "int", "b": "int", "c": "string"}
    rows = [(1, None, "x"), (None, 1, "x"), (1, 1, "x"), (1, 1, None)]
    for one, two in itertools.permutations(rows, 2):
        assert _both_sides(spark, types, [one], [two], ("c",)).wrong, (one, two)


def test_rows_that_are_there_twice_are_counted(spark: SparkSession) -> None:
    types = {"a": "int", "k": "int"}
    assert _both_sides(spark, types, [(1, 0), (1, 0), (2, 0)], [(1, 0), (2, 0), (2, 0)], ("k",)).wrong
    assert _both_sides(spark, types, [(1, 0), (1, 0)], [(2, 0), (2, 0)], ("k",)).wrong
    assert not _both_sides(spark, types, [(1, 0), (1, 0)], [(1, 0), (1, 0)], ("k",)).wrong


def test_only_the_rows_of_some_buckets_are_left(spark: SparkSession) -> None:
    rows = assign_buckets(_frame(spark, {"a": "int"}, [(i,) for i in range(100)]), ("a",), 16)
    all_of = {row["a"]: row[BUCKET] for row in rows.collect()}
    assert set(all_of.values()) <= set(range(16))
    left = {row["a"] for row in select_buckets(rows, [3, 7], 16).collect()}
    assert left == {a for a, bucket in all_of.items() if bucket in (3, 7)}
    assert 0 < len(left) < 100
    assert select_buckets(rows, range(16), 16).count() == 100
