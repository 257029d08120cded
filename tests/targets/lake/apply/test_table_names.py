"""Tables that are dropped and renamed at the source: a table has no rows of another one that had its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.targets.lake.lake import Lake, new_lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32"}
MODES = ["current", "history", "soft_delete"]


def _lake(spark: SparkSession, folder: Path, mode: str = "current", **properties: Any) -> Lake:
    """Tables ``s.a`` with the rows 1 to 3, and ``s.b`` with 2 to 5, which are others."""
    STORED.clear()
    lake = new_lake(spark, folder, "memory", **properties)
    lake.tables = TableRules.parse([{"tables": ".*", "mode": mode}])
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.other", COLUMNS, key=("id",))
    lake.connector.capture()
    db.create_table("s.a", COLUMNS, key=("id",))
    db.create_table("s.b", {"id": "int64!", "n": "int32", "note": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(1, 4):
            t.insert("s.a", {"id": i, "n": i})
        for i in range(2, 6):
            t.insert("s.b", {"id": i, "n": -i, "note": "b"})
    lake.follow()
    return lake


def _living(lake: Lake, table: str) -> dict[int, int]:
    rows = lake.rows(table)
    return {r["id"]: r["n"] for r in rows if r.get("_is_current", True) and not r.get("_is_deleted", False)}


def _change(db: Any) -> None:
    with db.transaction() as t:
        t.update("s.b", {"id": 1}, {"n": 100})
        t.update("s.b", {"id": 2}, {"n": 200})
        t.delete("s.b", {"id": 3})
        t.insert("s.b", {"id": 7, "n": 700})


@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_takes_a_dropped_name_and_goes_before_it_is_read_leaves_no_mixture(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    lake = _lake(spark, tmp_path, mode)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.drop_table("s.b")
    db.rename_tables(("s.a", "s.b"))
    _change(db)
    db.drop_table("s.b")
    lake.follow()
    assert _living(lake, "s.b") == {1: 100, 2: 200, 7: 700}
    assert _living(lake, "s.a") == {1: 1, 2: 2, 3: 3}
    again = Lake(spark, tmp_path, lake.connector, "again", "memory", tables=lake.tables)
    again.apply()
    assert _living(again, "s.b") == {1: 100, 2: 200, 7: 700}


@pytest.mark.parametrize("steps", [1, 3], ids=["one apply", "three applies"])
def test_a_table_that_takes_a_dropped_name_and_is_never_read_has_what_the_log_says(
    spark: SparkSession, tmp_path: Path, steps: int
) -> None:
    lake = _lake(spark, tmp_path, snapshot_mode="no_data")
    db = lake.connector.database  # type: ignore[attr-defined]
    for step in (lambda: db.drop_table("s.b"), lambda: db.rename_tables(("s.a", "s.b")), lambda: _change(db)):
        step()
        lake.connector.capture()
        if steps > 1:
            lake.apply()
    lake.apply()
    assert _living(lake, "s.b") == {1: 100, 2: 200, 7: 700}


@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_takes_a_dropped_name_has_its_own_rows_when_it_is_read(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    lake = _lake(spark, tmp_path, mode)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.drop_table("s.b")
    db.rename_tables(("s.a", "s.b"))
    _change(db)
    lake.follow()
    assert _living(lake, "s.b") == {1: 100, 2: 200, 7: 700}
    _change(db)
    lake.follow()
    assert _living(lake, "s.b") == {1: 100, 2: 200, 7: 700}


def test_a_table_whose_name_another_one_takes_while_it_is_there_keeps_its_rows_until_that_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tools for changes of large tables do it so: a copy takes the name, and has the same rows."""
    lake = _lake(spark, tmp_path, snapshot_mode="no_data")
    db = lake.connector.database  # type: ignore[attr-defined]
    db.rename_tables(("s.b", "s.old"), ("s.a", "s.b"))
    with db.transaction() as t:
        t.update("s.b", {"id": 2}, {"n": 200})
    lake.follow()
    assert _living(lake, "s.b") == {2: 200, 3: -3, 4: -4, 5: -5}
