"""Zeros keep their signs: SQL takes -0.0 and 0.0 for equal, and Spark leaves any one of equal values where it groups rows by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.targets.lake.lake import Lake, new_lake

pytestmark = pytest.mark.spark
BAG = {"a": "int32", "x": "double", "y.`z`": "float", "v": "list<item: float>"}


def _image(a: int | None, x: float | None, y: float | None = -0.0, v: Any = (0.0, -0.0, None)) -> dict[str, Any]:
    return {"a": a, "x": x, "y.`z`": y, "v": None if v is None else list(v)}


def _assert_same_rows(lake: Lake, table: str) -> None:
    """By texts, in which -0.0 is not 0.0."""
    source = lake.connector.database.copy_rows(table)  # type: ignore[attr-defined]
    assert list(map(repr, lake.rows(table, *source[0]))) == sorted(map(repr, source))


@pytest.fixture
def memory(spark: SparkSession, tmp_path: Path) -> Callable[..., Lake]:
    STORED.clear()
    return lambda **properties: new_lake(spark, tmp_path, "memory", **properties)


@pytest.mark.parametrize("dropped", [False, True], ids=["", "with a dropped column"])
def test_a_table_without_a_key_that_is_written_again(memory: Callable[..., Lake], dropped: bool) -> None:
    lake = memory()
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.bag", {**BAG, **({"gone": "string"} if dropped else {})})
    rows = [_image(1, 0.0), *[_image(1, -0.0)] * 3, *[_image(1, 0.0, v=(-0.0, 0.0, None))] * 2]
    rows += [_image(2, float("nan")), _image(None, None, None, None), _image(3, 1.5), _image(-4, -0.0, 0.0, ())]
    with db.transaction() as t:
        for row in rows:
            t.insert("s.bag", row)
    lake.follow()
    if dropped:
        db.drop_column("s.bag", "gone")
        lake.follow()
    with db.transaction() as t:
        t.update("s.bag", {"a": 3}, {"x": -0.0})
        t.update("s.bag", {"a": -4}, {"x": 0.0})
        t.insert("s.bag", _image(5, -0.0))
        t.insert("s.bag", _image(5, 0.0))
        # of equal rows those go that are the same to the sign of each zero
        t.delete("s.bag", _image(1, -0.0, v=(0.0, -0.0, None)), limit=2)
    lake.connector.capture()
    lake.apply(writes="merge")
    _assert_same_rows(lake, "s.bag")


def test_a_row_goes_though_the_table_has_it_with_another_zero(memory: Callable[..., Lake]) -> None:
    lake = memory()
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.bag", {"a": "int32", "x": "double"})
    with db.transaction() as t:
        for x in (0.0, -0.0):
            t.insert("s.bag", {"a": 1, "x": x})
    lake.follow()
    target = lake.target("s.bag")
    stored = STORED[target.location]
    STORED[target.location] = stored.__class__(  # as a statement that groups rows leaves them
        stored.rows.set_column(1, "x", pa.array([0.0, 0.0])), stored.types, stored.owner, stored.markers
    )
    with db.transaction() as t:
        t.delete("s.bag", {"a": 1}, limit=1)
        t.delete("s.bag", {"a": 1}, limit=1)
        t.insert("s.bag", {"a": 2, "x": -0.0})
    lake.connector.capture()
    lake.apply(writes="merge")
    _assert_same_rows(lake, "s.bag")


@pytest.mark.parametrize(
    "rule", [{}, {"mode": "soft_delete"}, {"mode": "soft_delete", "filter": "n >= 0"}], ids=["", "soft", "filtered"]
)
def test_keys_of_rows_that_change(memory: Callable[..., Lake], rule: dict[str, str]) -> None:
    lake = memory()
    lake.tables = TableRules.parse([{"tables": ".*", **rule}])
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table(
        "s.t", {"x": "double!", "n": "int32", "big": "string"}, key=("x",), sparse=() if "filter" in rule else ("big",)
    )
    with db.transaction() as t:
        t.insert("s.t", {"x": -0.0, "n": 1, "big": "b"})
        t.insert("s.t", {"x": 1.0, "n": 1, "big": "b"})
    lake.follow()
    with db.transaction() as t:
        t.update("s.t", {"x": 0.0}, {"n": 2})
        t.update("s.t", {"x": 1.0}, {"x": 2.0})
    lake.follow()
    assert "-0.0" in [repr(row["x"]) for row in lake.rows("s.t")]


@pytest.mark.every_kind
def test_a_key_that_changes(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "n": "int64!", "x": "double"}, key=("id",))
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.t", {"id": i, "n": i, "x": -0.0 if i % 2 else 0.0})
    lake.follow()
    db.change_key("s.t", "n")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 11})
        t.update("s.t", {"id": 2}, {"x": -0.0})
    lake.connector.capture()
    lake.apply(writes="merge")
    _assert_same_rows(lake, "s.t")
