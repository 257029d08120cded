"""Tables without a key: rows are taken where they are, or the whole table is written again; and keep the columns that the source has dropped."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.delta.array_commit import DeltaClasses
from airflow_provider_cdc.targets.lake.formats.iceberg import copy_on_write as of_iceberg
from airflow_provider_cdc.targets.lake.formats.iceberg.table import IcebergTarget
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.rows.keyless_row_locator import may_be_among
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import SEQ
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER, follow_images
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.lake.lake import Lake, new_lake

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
            at = self.r.randrange(len(self.rows)) if self.rows else None
            row = None if at is None or kind == "insert" else self.rows.pop(at)
            if row is not None:
                self.changes.append((*row[:2], -1, seq))
            if kind != "delete":
                image = self.image()
                self.rows.append((*image, row[2] if kind == "update" and row is not None else None))
                self.changes.append((*image, 1, seq))


def _rows_after(spark: SparkSession, model: _Model) -> tuple[list[tuple[Any, ...]], int]:
    both = [T.StructField("a", T.IntegerType()), T.StructField("b", T.DoubleType())]
    there = spark.createDataFrame(model.table, T.StructType([*both, T.StructField("gone", T.StringType())]))
    numbers = [T.StructField(NUMBER, T.IntegerType()), T.StructField(SEQ, T.LongType())]
    changes = spark.createDataFrame(model.r.sample(model.changes, len(model.changes)), T.StructType([*both, *numbers]))
    rows, lacks = follow_images(there, changes, NAMES)
    return [tuple(row) for row in rows.collect()], lacks.count()


def _count_rows(rows: Any, columns: int) -> Counter[str]:
    return Counter(repr(row[:columns]) for row in rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_differ_are_followed_from_image_to_image(spark: SparkSession, seed: int) -> None:
    model = _Model(seed, 1_000_000)
    model.run(120)
    rows, lacks = _rows_after(spark, model)
    assert lacks == 0
    assert _count_rows(rows, 3) == _count_rows(model.rows, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_equal_rows_each_is_followed_once(spark: SparkSession, seed: int) -> None:
    model = _Model(seed, 2)
    model.run(150)
    rows, lacks = _rows_after(spark, model)
    assert lacks == 0
    assert _count_rows(rows, 2) == _count_rows(model.rows, 2)
    was = Counter(row[2] for row in rows if row[2] is not None)
    assert set(was.values()) <= {1}
    assert set(was) <= {row[2] for row in model.table}


def test_a_row_that_goes_though_it_is_not_there_is_found(spark: SparkSession) -> None:
    model = _Model(0, 2)
    model.changes = [(7, None, -1, 1), (7, None, 1, 2), (7, None, -1, 3)]
    assert _rows_after(spark, model)[1] == 1


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_time_before_the_first_year_is_looked_for(spark: SparkSession) -> None:
    """Oracle has such times; Python has none."""
    images = pa.table({"at": pa.array([-(10**17)], pa.timestamp("us"))})
    rows = spark.createDataFrame(images, build_struct_type({"at": "timestamp_ntz"}))
    assert rows.where(may_be_among(images)).count() == 1


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


# -- rows are taken where they are ------------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "n": ("int64", [1, 2**40]),
    "x": ("double", [0.0, -0.0, float("nan"), 1.5]),
    "price`": ("decimal128(12, 2)", [Decimal("-1.50"), Decimal("0.00")]),
    "${user.home}": ("string", ["", "it's \\ 'ä'", "x" * 50]),
    "raw.1": ("binary", [b"", b"\0\xff"]),
    "day": ("date32[day]", [dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    "at": ("timestamp[us, tz=UTC]", [dt.datetime(2024, 2, 29, 12, 0, 0, 1, dt.UTC), dt.datetime(1999, 1, 1, tzinfo=dt.UTC)]),
    "local": ("timestamp[us]", [dt.datetime(1500, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "v": ("list<item: float>", [[0.5, None], []]),
    "i8": ("int8", [-128, 7]),
}  # fmt: skip
WAYS = {"delta": ("vectors", "files", "files by Spark"), "iceberg": ("positions", "files")}


def _seed() -> int:
    """Another one in each run; ``PYTHONHASHSEED=…`` repeats one."""
    given = os.environ.get("PYTHONHASHSEED", "random")
    seed = int(given) if given.isdecimal() else random.SystemRandom().randrange(2**32)
    print("PYTHONHASHSEED =", seed)
    return seed


def _make_tables_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as a large one."""
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.formats.delta.keyless_commit.MOST_BYTES", -1)
    monkeypatch.setattr(of_iceberg, "MOST_BYTES", -1)


def _write_transactions(lake: Lake, r: random.Random) -> None:
    """Some transactions, in which rows come that are there already."""
    db = lake.connector.database
    for _ in range(5):
        with db.transaction() as t:
            for _ in range(r.randrange(1, 7)):
                image = {n: r.choice([None, v[0], *v]) if r.random() < 0.5 else v[0] for n, (_, v) in COLUMNS.items()}
                there = db.copy_rows("s.bag")
                image = dict(r.choice(there)) if there and r.random() < 0.4 else image
                where = dict(r.choice(there)) if there else image
                kind = r.choice("iuud") if there else "i"
                if kind == "i":
                    t.insert("s.bag", image)
                elif kind == "u":
                    t.update("s.bag", where, image, limit=r.choice([1, 1, None]))
                else:
                    t.delete("s.bag", where, limit=r.choice([1, 1, None]))


def _assert_equal_rows(lake: Lake) -> None:
    """By the columns that the source has."""
    ((_, schema),) = lake.connector.database.read_consistent_view()[1].items()
    assert _format_rows(lake.rows("s.bag", *schema.column_names)) == _format_rows(
        lake.connector.database.copy_rows("s.bag")
    )


def _format_rows(rows: list[dict[str, Any]]) -> list[str]:
    shown = [[v.astimezone(dt.UTC) if n == "at" and v else v for n, v in row.items()] for row in rows]
    return sorted(map(repr, shown))


def _list_write_ways(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log's messages about the way in which the table was written, and clear them."""
    messages = [
        r.message for r in caplog.records if r.name == "airflow_provider_cdc.targets.lake.apply.table_batch_writer"
    ]
    caplog.clear()
    return [text.removeprefix("p.s.bag is ").removesuffix(".") for text in messages]


@pytest.fixture
def multiset_lake(lake: Lake, caplog: pytest.LogCaptureFixture) -> Lake:
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake.apply.table_batch_writer")
    lake.connector.database.create_table("s.bag", {name: type_ for name, (type_, _) in COLUMNS.items()})
    return lake


@pytest.mark.sampled(3)
@pytest.mark.every_kind
@pytest.mark.parametrize("number", range(3))
def test_random_work_on_equal_rows_ends_equal_in_each_way(
    multiset_lake: Lake,
    number: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    sampled: CaseSample,
) -> None:
    ways = WAYS[multiset_lake.kind]
    if number >= len(ways) or not sampled.of(number, every=len(ways)):
        pytest.skip("another way is tried in this run")
    way, seed = ways[number], _seed()
    if way != "files":
        _make_tables_large(monkeypatch)
    r, anew = random.Random(seed), replace(multiset_lake, name="anew")
    _write_transactions(multiset_lake, r)
    multiset_lake.connector.capture()
    multiset_lake.apply(profile="fast" if way == "vectors" else "compatible")
    anew.apply()
    for step in range(4):
        if step == 2:
            multiset_lake.connector.database.add_column("s.bag", "more", "int32")
            multiset_lake.connector.database.rename_columns("s.bag", x="y")
            multiset_lake.connector.database.rename_columns("s.bag", y="x")
        elif step == 3:
            multiset_lake.connector.database.drop_column("s.bag", "more")
        _write_transactions(multiset_lake, r)
        multiset_lake.connector.capture()
        caplog.clear()
        multiset_lake.apply()
        assert [text.split(":")[0] for text in _list_write_ways(caplog)] == ["committed"], seed
        _assert_equal_rows(multiset_lake)
        anew.apply(writes="merge")
        assert _list_write_ways(caplog) == ["rewritten: writes=merge is set"]
        _assert_equal_rows(anew)


@pytest.mark.every_kind
def test_a_change_of_a_large_table_writes_what_it_changes(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_tables_large(monkeypatch)
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake.apply.table_batch_writer")
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int64", "b": "string"})
    with db.transaction() as t:
        for i in range(3000):
            t.insert("s.bag", {"a": i % 1000, "b": f"{i % 1000} {i * i}"[:9]})
    lake.connector.capture()
    lake.apply(profile="fast")
    there = _files(lake)
    with db.transaction() as t:
        t.update("s.bag", {"a": 17}, {"b": "changed"})
        t.delete("s.bag", {"a": 18}, limit=1)
        t.insert("s.bag", {"a": 5000})
    lake.follow()
    lake.check()
    assert _list_write_ways(caplog) == ["committed: 4 rows removed, 4 rows added"]
    new = {path: size for path, size in _files(lake).items() if path not in there}
    assert 0 < sum(new.values()) < max(there.values()) / 4
    with db.transaction() as t:
        t.insert("s.bag", {"a": 1})
    lake.follow()
    assert _list_write_ways(caplog) == []  # an append
    lake.check()


def _files(lake: Lake) -> dict[str, int]:
    """Files of rows and of deletes, with their bytes."""
    found = Path(lake.path("s.bag")).rglob("*.*")
    return {str(f): f.stat().st_size for f in found if f.suffix in (".parquet", ".bin") and f.name[0] != "."}


class RunEnded(BaseException):
    """No one catches it, as no one catches a kill."""


@pytest.mark.every_kind
@pytest.mark.parametrize("error", [RunEnded(), WriteConflict("somebody else")])
def test_what_ends_between_the_files_and_the_commit_leaves_files_and_nothing_else(
    multiset_lake: Lake, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = {"delta": (DeltaClasses, "commit_actions"), "iceberg": (IcebergTarget, "_publish")}[
        multiset_lake.kind
    ]
    r = random.Random(_seed())
    _write_transactions(multiset_lake, r)
    multiset_lake.follow()
    _write_transactions(multiset_lake, r)
    with multiset_lake.connector.database.transaction() as t:  # one seed of twenty leaves no row, and so writes no file
        t.insert("s.bag", {**{name: values[0] for name, (_, values) in COLUMNS.items()}, "n": 77})
    multiset_lake.connector.capture()
    before, version, written = (
        _format_rows(multiset_lake.rows("s.bag")),
        multiset_lake.version("s.bag"),
        len(_files(multiset_lake)),
    )
    commit, times = getattr(owner, name), []

    def fail_between(*given: Any) -> Any:
        times.append(len(_files(multiset_lake)))
        if len(times) == 1:
            raise error
        return commit(*given)

    monkeypatch.setattr(owner, name, fail_between)
    if isinstance(error, RunEnded):
        with pytest.raises(RunEnded):
            multiset_lake.apply(threads=1)
        assert (_format_rows(multiset_lake.rows("s.bag")), multiset_lake.version("s.bag")) == (before, version)
    multiset_lake.apply()
    assert len(times) == 2
    assert times[0] > written, "there were new files when it ended"
    _assert_equal_rows(multiset_lake)
    multiset_lake.apply()
    _assert_equal_rows(multiset_lake)


@pytest.mark.only_kind("delta")
def test_what_cannot_be_taken_is_written_again_and_the_log_says_why(
    multiset_lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, r = multiset_lake.connector.database, random.Random(_seed())
    _write_transactions(multiset_lake, r)
    multiset_lake.follow()
    db.add_column("s.bag", "more", "int32", 7)
    with db.transaction() as t:
        t.insert("s.bag", {"n": 4})
        t.delete("s.bag", {"n": 4})
    multiset_lake.follow()
    assert _list_write_ways(caplog) == ["rewritten: its columns cannot be changed in place"]
    _assert_equal_rows(multiset_lake)
    with db.transaction() as t:
        t.insert("s.bag", {"i8": 1})
        t.insert("s.bag", {"n": 5})
    multiset_lake.follow()
    with db.transaction() as t:
        t.delete("s.bag", {"i8": 1})
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.write.write_strategy.LARGE_BAG", 0)
    multiset_lake.follow()
    assert "are too many for the memory of the driver" in _list_write_ways(caplog)[-1]
    _assert_equal_rows(multiset_lake)
    monkeypatch.undo()
    multiset_lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", "s.bag")
    db.rename_columns("s.bag", more="renamed")  # in place, before it turns out that rows cannot be taken
    with db.transaction() as t:
        t.update("s.bag", {"n": 5}, {"renamed": 8})
    multiset_lake.follow()
    assert _list_write_ways(caplog)[-1].startswith("rewritten: it has changeDataFeed")
    _assert_equal_rows(multiset_lake)


def test_a_round_that_does_not_look_again_knows_the_last_batch_of_a_table_that_is_written_batch_by_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A report says of a table that everything up to its own last batch is there, and nothing came since."""
    STORED.clear()
    lake = new_lake(spark, tmp_path, "memory")
    db = lake.connector.database
    for table in ("bag", "other"):
        db.create_table(f"s.{table}", {"a": "int32"})
    lake.follow()
    for table in ("bag", "other"):
        with db.transaction() as t:
            t.insert(f"s.{table}", {"a": 1})
        lake.connector.capture()
    job = lake.job()
    report = job.apply_topics(job.read_backlog_state(), {"p.s.bag", "p.s.other"}, settle=False)
    markers = {t: lake.target(f"s.{t}").read_marker(lake.owner(f"p.s.{t}").application_name) for t in ("bag", "other")}
    assert markers == {"bag": 2, "other": 3}
    assert {t: report.table_states[f"p.s.{t}"]["batch"] for t in markers} == markers
