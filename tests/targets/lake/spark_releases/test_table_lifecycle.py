"""All jobs on tables of every format and profile, so that each release of Spark runs each of them once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Int64
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.delta import array_commit as delta_commit
from airflow_provider_cdc.targets.lake.formats.delta import maintenance as delta_maintenance
from airflow_provider_cdc.targets.lake.formats.format_descriptor import PROFILES
from airflow_provider_cdc.targets.lake.formats.iceberg import compaction, copy_on_write
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from airflow_provider_cdc.targets.lake.rules import projection_builder
from tests.support.sources.mongodb import mongodb_connectors
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.targets.lake.jobs.test_continuous_apply import RunningApply, short_waits
from tests.targets.lake.lake import Child, Lake
from tests.targets.lake.verify.test_verify_rules import verify

pytestmark = [pytest.mark.spark, pytest.mark.every_kind]
__all__ = ["short_waits"]
ORDERS = {
    "id": "int64!", "n": "int32", "price": "decimal128(9, 2)", "note": "string", "at": "timestamp[us, tz=UTC]", "rate": "float",
}  # fmt: skip
ROWS = 30


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every table as a large one, whose old rows go by deletion vectors or delete files."""
    monkeypatch.setattr(delta_commit, "MOST_BYTES", -1)
    monkeypatch.setattr(copy_on_write, "MOST_BYTES", -1)
    monkeypatch.setattr(compaction, "DELETES", 1000)
    monkeypatch.setattr(compaction, "SMALL", 1000)
    monkeypatch.setattr(delta_maintenance, "FEW", 1)
    monkeypatch.setattr(delta_maintenance, "YOUNGEST_ORPHAN", timedelta(0))


def _fill_tables(lake: Lake, profile: str) -> Any:
    """Create a table with a key and one without, from a snapshot."""
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.orders", ORDERS, key=("id",))
    db.create_table("s.bag", {"n": "int8", "note": "string"})
    with db.transaction() as t:
        for i in range(ROWS):
            t.insert("s.orders", {"id": i, "n": i, "price": Decimal("1.50"), "note": f"n{i}", "rate": i / 4})
            t.insert("s.bag", {"n": i % 4, "note": None})
    _follow(lake, profile)
    return db


def _follow(lake: Lake, profile: str, **options: Any) -> None:
    """Capture, apply, and compare with the change log."""
    lake.connector.capture()
    lake.apply(profile=profile, **options)
    lake.check()


def _change_rows(db: Any, first: int) -> None:
    """Insert, update and delete rows of both tables, and change a key."""
    with db.transaction() as t:
        t.insert("s.orders", {"id": first + 100, "n": None, "note": "new"})
        t.update("s.orders", {"id": first}, {"note": "it's `odd`"})
        t.update("s.orders", {"id": first + 1}, {"id": first + 200})
        t.delete("s.orders", {"id": first + 2})
        t.insert("s.bag", {"n": first, "note": "x"})
        t.update("s.bag", {"n": 1}, {"note": f"of {first}"})
        t.delete("s.bag", {"n": first, "note": "x"})


@pytest.mark.parametrize("profile", PROFILES)
def test_tables_follow_rows_columns_and_truncates(lake: Lake, profile: str, request: pytest.FixtureRequest) -> None:
    """By commits of arrays and by MERGE; with the profile ``fast`` as in large tables."""
    if profile == "fast":
        request.getfixturevalue("large")
    db = _fill_tables(lake, profile)
    for first, writes in ((0, "commit"), (5, "merge")):
        _change_rows(db, first)
        _follow(lake, profile, writes=writes)
    db.add_column("s.orders", "c", "string", "it's new")
    db.rename_columns("s.orders", note="text")
    db.change_column("s.orders", "n", "int64", int)
    db.change_column("s.orders", "price", "decimal128(12, 2)", lambda value: value)
    db.change_column("s.bag", "n", "int16", int)
    with db.transaction() as t:
        t.update("s.orders", {"id": 10}, {"n": 2**40, "text": "wider"})
        t.insert("s.bag", {"n": 1000})
    _follow(lake, profile)
    types = dict(lake.frame("s.orders").dtypes)
    assert (types["n"], types["price"], types["text"]) == ("bigint", "decimal(12,2)", "string")
    db.change_column("s.orders", "rate", "string", str)  # the table is read again
    db.drop_column("s.orders", "c")
    _follow(lake, profile)
    db.truncate_table("s.orders")
    db.truncate_table("s.bag")
    with db.transaction() as t:
        t.insert("s.orders", {"id": 3, "text": "after"})
        t.insert("s.bag", {"n": 3})
    _follow(lake, profile)
    assert [row["id"] for row in lake.rows("s.orders")] == [3]
    assert verify(lake).is_equal


@pytest.mark.parametrize("profile", PROFILES)
def test_tables_are_verified_repaired_rebuilt_and_maintained(lake: Lake, profile: str, large: None) -> None:
    db = _fill_tables(lake, profile)
    _change_rows(db, 0)
    _follow(lake, profile)
    lake.sql("DELETE FROM {} WHERE id IN (20, 21)", "s.orders")
    lake.sql("UPDATE {} SET note = 'other' WHERE id = 22", "s.orders")
    lake.sql("INSERT INTO {} VALUES (1000, 1, 1.5, 'x', null, null)", "s.orders")
    (orders,) = (t for t in verify(lake, repair=True).tables if t.topic == "p.s.orders")
    assert (orders.missing, orders.surplus, orders.different) == (2, 1, 1)
    _follow(lake, profile)
    assert verify(lake).is_equal

    lake.sql("DELETE FROM {} WHERE n = 2", "s.bag")
    given: dict[str, Any] = {"location": lake.location, "target": lake.kind}
    RebuildTables(lake.spark, lake.connector.changelog, lake.connector.name, **given).run(["p.s.orders", "p.s.bag"])
    lake.check()

    for first in (5, 10):
        _change_rows(db, first)
        _follow(lake, profile)
    done = MaintainTables(lake.spark, lake.connector.changelog, lake.connector.name, keep=timedelta(0), **given).run()
    assert not done.has_failed, done
    steps = {name: step.changed for name, step in done.tables[0].steps.items()}
    needed = {"remove old files"} if lake.kind == "delta" else {"compact", "expire snapshots"}
    if profile == "fast":
        needed |= {"compact"}  # the other tables of Delta have one file
    assert all(steps[name] for name in needed), done
    _change_rows(db, 15)
    _follow(lake, profile)
    assert verify(lake).is_equal


def test_a_continuous_apply_follows_rows_and_columns(lake: Lake) -> None:
    db = _fill_tables(lake, PROFILES[0])
    with RunningApply(lake) as running:
        for first in (0, 5):
            _change_rows(db, first)
            lake.connector.capture()
            running.reached()
        db.add_column("s.orders", "c", "int64", 7)
        db.truncate_table("s.bag")
        lake.connector.capture()
        running.reached()
        running.stop()
    lake.check()


@pytest.mark.crash
@pytest.mark.slow
def test_a_killed_apply_is_finished_by_the_next_one(lake: Lake, child: Callable[[], Child]) -> None:
    db = _fill_tables(lake, PROFILES[0])
    _change_rows(db, 0)
    db.add_column("s.orders", "c", "string", "new")
    _change_rows(db, 5)
    lake.connector.capture()
    process = child()
    process.begin(lake, "during", 2)
    assert process.answer() == ""
    assert process.wait() == -signal.SIGKILL, process.said()
    lake.apply()
    lake.check()


def test_documents_are_texts_where_spark_has_no_variants(
    spark: SparkSession, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection_builder, "VARIANT_TYPE", None)
    with mongodb_connectors.deployment() as uri, pymongo.MongoClient[Any](uri) as client:
        name = f"lake_{kind}_{tmp_path.name}"[:38]
        connector = mongodb_connector(uri, tmp_path, database_include_list=name, document_variant_list=".*")
        lake, letters = Lake(spark, tmp_path, connector, "lake", kind), client[name].letters
        letters.insert_many([{"_id": i, "n": Int64(i), "list": [i / 4, None]} for i in range(8)])
        lake.follow()
        letters.update_one({"_id": 3}, {"$set": {"n": "three"}})
        letters.delete_one({"_id": 4})
        lake.follow()
        assert lake.target(f"{name}.letters").read_column_types() == {"_id": "string", "document": "string"}
        assert len(lake.rows(f"{name}.letters")) == 7
        lake.check()
        assert verify(lake, connector.capture).is_equal
