"""Tables without a key keep the columns that the source has dropped, row by row."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from airflow_provider_cdc.core.errors import TargetError
from spark_jobs.bags import NUMBER, followed
from spark_jobs.last import SEQ
from tests.spark.lake import Lake

pytestmark = pytest.mark.spark
NAMES = ("a", "b")
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
"""More than a hundred changes of a dozen rows meet every kind of case with each seed; nothing was ever mended for one of them alone."""


class _Model:
    """Rows of ``a`` and ``b`` with a column that only the table has, changed one after the other."""

    def __init__(self, seed: int, values: int) -> None:
        self.r, self.values = random.Random(seed), values
        self.table = [(*self.image(), f"was {i}") for i in range(12)]
        self.rows: list[tuple[Any, ...]] = list(self.table)
        self.changes: list[tuple[Any, ...]] = []

    def image(self) -> tuple[Any, ...]:
        return self.r.choice([None, *range(self.values)]), self.r.choice([None, 0.0, -0.0, float("nan")])

    def run(self, steps: int) -> None:
        for seq in range(1, steps + 1):
            kind = self.r.choice(["insert", "update", "update", "update", "delete"])
            row = self.r.choice(self.rows) if self.rows else None
            if kind != "insert" and row is not None:
                self.rows.remove(row)
                self.changes.append((*row[:2], -1, seq))
            if kind != "delete":
                image = self.image()
                self.rows.append((*image, row[2] if kind == "update" and row is not None else None))
                self.changes.append((*image, 1, seq))


def _after(spark: SparkSession, model: _Model) -> tuple[list[tuple[Any, ...]], int]:
    both = [T.StructField("a", T.IntegerType()), T.StructField("b", T.DoubleType())]
    there = spark.createDataFrame(model.table, T.StructType([*both, T.StructField("gone", T.StringType())]))
    numbers = [T.StructField(NUMBER, T.IntegerType()), T.StructField(SEQ, T.LongType())]
    changes = spark.createDataFrame(model.r.sample(model.changes, len(model.changes)), T.StructType([*both, *numbers]))
    rows, lacks = followed(there, changes, NAMES)
    return [tuple(row) for row in rows.collect()], lacks.count()


def _bag(rows: Any, columns: int) -> Counter[str]:
    # Spark has one zero
    return Counter(repr(row[:columns]).replace("-0.0", "0.0") for row in rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_differ_are_followed_from_image_to_image(spark: SparkSession, seed: int) -> None:
    model = _Model(seed, 1_000_000)
    model.run(120)
    rows, lacks = _after(spark, model)
    assert lacks == 0
    assert _bag(rows, 3) == _bag(model.rows, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_equal_rows_each_is_followed_once(spark: SparkSession, seed: int) -> None:
    model = _Model(seed, 2)
    model.run(150)
    rows, lacks = _after(spark, model)
    assert lacks == 0
    assert _bag(rows, 2) == _bag(model.rows, 2)
    was = Counter(row[2] for row in rows if row[2] is not None)
    assert set(was.values()) <= {1}
    assert set(was) <= {row[2] for row in model.table}


def test_a_row_that_goes_though_it_is_not_there_is_found(spark: SparkSession) -> None:
    model = _Model(0, 2)
    model.changes = [(7, None, -1, 1), (7, None, 1, 2), (7, None, -1, 3)]
    assert _after(spark, model)[1] == 1


@pytest.mark.every_kind
def test_a_table_without_a_key_keeps_a_column_that_was_dropped(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int32", "note": "string", "b": "string"})
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.bag", {"a": i, "note": f"n{i}"})
    lake.follow()
    db.drop_column("s.bag", "note")
    with db.transaction() as t:
        t.update("s.bag", {"a": 1}, {"a": 10})
        t.update("s.bag", {"a": 10}, {"a": 11})
        t.delete("s.bag", {"a": 2})
    lake.follow()
    lake.check()
    assert {row["a"]: row["note"] for row in lake.rows("s.bag")} == {0: "n0", 3: "n3", 11: "n1"}
    with db.transaction() as t:
        t.insert("s.bag", {"a": 5})
    lake.follow()  # an append
    with db.transaction() as t:
        t.update("s.bag", {"a": 3}, {"b": "x"})
        t.update("s.bag", {"a": 5}, {"a": 6})
    db.rename_columns("s.bag", a="c")
    lake.follow()
    lake.check()
    assert {row["c"]: row["note"] for row in lake.rows("s.bag")} == {0: "n0", 3: "n3", 6: None, 11: "n1"}
    lake.sql("DELETE FROM {} WHERE c = 0", "s.bag")
    with db.transaction() as t:
        t.delete("s.bag", {"c": 0})
    lake.connector.capture()
    with pytest.raises(TargetError, match="removes a row that the table does not have"):
        lake.apply()
