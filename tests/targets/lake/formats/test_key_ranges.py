"""Deletes of keys that were looked up and have no row: they have only the key, and every mode and kind of target takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.change_log.rendered import of_table, records
from tests.support.signals import signal_state, snapshot
from tests.targets.lake.lake import Lake, Row, new_lake

pytestmark = pytest.mark.spark
TABLE = "s.t"


def lake_with_rows(spark: SparkSession, folder: Path, kind: str) -> Lake:
    STORED.clear()
    lake = new_lake(spark, folder, kind)
    db = lake.connector.database
    db.create_table(TABLE, {"id": "int64!", "n": "int32", "note": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(6):
            t.insert(TABLE, {"id": i, "n": i, "note": "kept" if i % 2 else "other"})
    lake.connector.capture()
    return lake


def lose_at_source(lake: Lake, *ids: int) -> None:
    """Rows disappear from the source without a trace in its log."""
    db = lake.connector.database
    with db.lock:
        db._rows[db.resolve_table_id(TABLE)] = [
            row for row in db._rows[db.resolve_table_id(TABLE)] if row["id"] not in ids
        ]


def repair(lake: Lake, *absent: int, beside: bool = True) -> None:
    """Look keys up, and capture, with an event of another row in the same batch."""
    ranges = [{"data-collection": TABLE, "from": {"id": 4}, "absent": [{"id": i} for i in absent if i >= 4]}]
    ranges.append({"data-collection": TABLE, "to": {"id": 1}, "absent": [{"id": i} for i in absent if i < 4]})
    number = snapshot(lake.connector, TABLE, key_ranges=ranges)
    if beside:
        with lake.connector.database.transaction() as t:
            t.update(TABLE, {"id": 3}, {"n": 33})
            t.delete(TABLE, {"id": 2})
    lake.connector.capture()
    assert signal_state(lake.connector, number) == ("done", "")


def list_ids(rows: list[Row]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_rows_without_a_source_are_deleted(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lake = lake_with_rows(spark, tmp_path, kind)
    lake.apply()
    lose_at_source(lake, 1, 4)
    repair(lake, 1, 4, 5, 99)
    lake.apply()
    assert lake.rows(TABLE) == lake.connector.database.copy_rows(TABLE)
    reported = of_table(records(lake.connector), TABLE)
    (lost,) = [r["value"] for r in reported if r["key"]["id"] == 99 and r["value"] is not None]
    assert (lost["op"], lost["source"]["snapshot"], lost["after"]) == ("d", "incremental", None)
    assert lost["before"] == {"id": 99, "n": None, "note": "__debezium_unavailable_value"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "more",
    [{}, {"filter": "note = 'kept'"}, {"columns": {"computed": {"twice": "n * 2"}}}],
    ids=["plain", "filter", "computed"],
)
@pytest.mark.parametrize("mode", ["current", "soft_delete", "history", "log"])
def test_every_mode_needs_only_the_key(spark: SparkSession, tmp_path: Path, mode: str, more: dict[str, Any]) -> None:
    lake = lake_with_rows(spark, tmp_path, "memory")
    rules = TableRules.parse([{"tables": ".*", "mode": mode, **more}])
    lake.apply(tables=rules)
    lose_at_source(lake, 1, 5)
    repair(lake, 1, 5)
    lake.apply(tables=rules)
    rows = lake.rows(TABLE)
    passing = {0, 3, 4} if "filter" not in more else {3}
    if mode == "current":
        assert {*list_ids(rows)} == passing
    elif mode == "history":
        assert {*list_ids([row for row in rows if row["_is_current"]])} == passing
        ended = {row["id"]: row for row in rows if row["id"] in (1, 5)}
        assert {i: (row["n"], row["note"]) for i, row in ended.items()} == {1: (1, "kept"), 5: (5, "kept")}
        assert all(row["_valid_to"] is not None for row in ended.values())
    elif mode == "soft_delete":
        assert {*list_ids([row for row in rows if not row["_is_deleted"]])} == passing
        gone = {row["id"]: row for row in rows if row["id"] in (1, 5)}
        assert {i: (row["n"], row["note"], row["_is_deleted"]) for i, row in gone.items()} == {
            1: (1, "kept", True), 5: (5, "kept", True),
        }  # fmt: skip
    else:
        deletes = [row for row in rows if row["_op"] == "d"]
        assert {row["id"] for row in deletes} == ({1, 2, 5} if "filter" not in more else {1, 5})
        assert all(row["note"] is None for row in deletes if row["id"] != 2)


@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "in two batches"])
@pytest.mark.parametrize("more", [{}, {"filter": "note = 'kept'"}], ids=["plain", "filter"])
def test_a_row_that_is_deleted_already_stays_deleted_since_then(
    spark: SparkSession, tmp_path: Path, batches: int, more: dict[str, Any]
) -> None:
    lake = lake_with_rows(spark, tmp_path, "memory")
    db, rules = lake.connector.database, TableRules.parse([{"tables": ".*", "mode": "soft_delete", **more}])
    lake.apply(tables=rules)
    first = 1_700_000_000_000_000

    def set_clock(second: int) -> None:
        db.clock = lambda: first + second * 1_000_000

    set_clock(1)
    with db.transaction() as t:
        t.delete(TABLE, {"id": 1})
        t.update(TABLE, {"id": 5}, {"note": "gone"})  # it does not pass the filter any more
    lake.connector.capture()
    if batches == 2:
        lake.apply(tables=rules)
    set_clock(5)
    with db.transaction() as t:
        t.update(TABLE, {"id": 5}, {"n": 7})
        t.delete(TABLE, {"id": 3})
        t.insert(TABLE, {"id": 3, "note": "kept"})
    set_clock(9)
    with db.transaction() as t:
        t.delete(TABLE, {"id": 3})
    lake.connector.capture()
    repair(lake, 1, 5, beside=False)
    if batches == 2:
        lake.apply(tables=rules)
    set_clock(20)
    repair(lake, 1, beside=False)
    lake.apply(tables=rules)
    ended = {row["id"]: (row["_deleted_at"].timestamp() if row["_is_deleted"] else None) for row in lake.rows(TABLE)}
    seconds = {id_: None if when is None else when - first / 1_000_000 for id_, when in ended.items()}
    assert {id_: seconds[id_] for id_ in (1, 3)} == {1: 1, 3: 9}
    assert seconds[5] == (1 if more else None)


def test_deletes_alone_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_with_rows(spark, tmp_path, "memory")
    rules = TableRules.parse([{"tables": ".*", "filter": "note = 'kept'"}])
    lake.apply(tables=rules)
    lose_at_source(lake, 0, 1, 4, 5)
    repair(lake, 0, 1, 4, 5, beside=False)
    lake.apply(tables=rules)
    assert list_ids(lake.rows(TABLE)) == [3]


def test_a_row_that_comes_back_has_its_own_values(spark: SparkSession, tmp_path: Path) -> None:
    """Its create is in the same file as the delete, which has none."""
    lake = lake_with_rows(spark, tmp_path, "memory")
    lake.apply()
    lose_at_source(lake, 5)
    repair(lake, 5, beside=False)
    with lake.connector.database.transaction() as t:
        t.insert(TABLE, {"id": 5, "n": None, "note": "again"})
    lake.connector.capture()
    lake.apply()
    assert lake.rows(TABLE) == lake.connector.database.copy_rows(TABLE)
