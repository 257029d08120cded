"""Tables by rules are committed where they can be: the tables are those that a MERGE makes, and the log says which way was taken."""

from __future__ import annotations

import datetime as dt
import logging
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type
from airflow_provider_cdc.targets.lake.write.arrow_rule_projection import _arrow, _exact
from airflow_provider_cdc.targets.lake.write.driver_collected_changes import collect_changes
from tests.support.signals import signal_ended, snapshot
from tests.targets.lake.formats.test_targets import VALUES
from tests.targets.lake.lake import Lake, Row, new_lake

pytestmark = pytest.mark.spark
ODD = "it's `odd` ${env:HOME}"
COLUMNS = {
    "id": "int32!", "b": "string!", "n": "int32", "price": "decimal128(9, 2)", ODD: "string", "at": "timestamp[us, tz=UTC]",
    "exact": "timestamp[ns]", "vector": "list<item: float>", "doc": "string",
}  # fmt: skip
KEY = ("id", "b")
ARRAYS, SPARK = "arrays", "computed by Spark"
TABLES: dict[str, tuple[dict[str, Any], str]] = {
    "columns": (
        {
            "columns": {
                "drop": ["n"], "rename": {"ID": "the key", ODD: "$even"}, "cast": {"id": "bigint", "price": "decimal(20,4)"},
                "constant": {"origin": "{connector}.{table}"},
                "metadata": ["seq", "op", "commit_ts", "captured_ts", "transaction_id", "snapshot", "connector", "database"],
            }
        },
        ARRAYS,
    ),
    "marked": ({"mode": "soft_delete", "columns": {"rename": {"n": "m"}, "metadata": ["op", "seq"]}}, ARRAYS),
    "shard": ({"shard": {"region": "${{env:HOME}} {table}"}}, ARRAYS),
    "filtered": ({"filter": "n % 3 <> 1", "columns": {"computed": {"twice": "n * 2"}, "metadata": ["source"]}}, SPARK),
    "marked_filtered": ({"mode": "soft_delete", "filter": "n % 3 <> 1"}, SPARK),
    "history": ({"mode": "history", "columns": {"drop": ["doc"]}}, SPARK),
    "sparse": ({"columns": {"metadata": ["op"]}}, SPARK),
    "marked_sparse": ({"mode": "soft_delete"}, SPARK),
    "logged": ({"mode": "log", "columns": {"rename": {"n": "m"}, "drop": ["exact"]}}, SPARK),
}  # fmt: skip
"""Table → its rule, and who makes its rows where nothing else is in the way."""
RULES = TableRules.parse([{"tables": rf"s\.{name}", **rule} for name, (rule, _) in TABLES.items()])
SPARSE = ("sparse", "marked_sparse", "logged")
SHORT = ("columns", "marked", "filtered", "sparse")
"""Tables that are tried without ``--long``, with fewer changes."""
WAYS = [("delta", "vectors"), ("iceberg", "keys"), ("delta", "files"), ("iceberg", "files"), ("iceberg", "positions")]


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake")


def _list_write_reports(caplog: pytest.LogCaptureFixture) -> dict[str, list[str]]:
    """Table → what was said about how it was written."""
    found: dict[str, list[str]] = {}
    for record in caplog.records:
        table, _, text = record.getMessage().removeprefix("p.s.").partition(" is ")
        if record.name in (
            "airflow_provider_cdc.targets.lake.apply.table_batch_writer",
            "airflow_provider_cdc.targets.lake.write.table_write",
        ) and record.getMessage().startswith("p.s."):
            found.setdefault(table, []).append(text)
    caplog.clear()
    return found


class RandomTables:
    """Tables with the same random changes."""

    def __init__(self, lake: Lake, seed: int, tables: tuple[str, ...] = tuple(TABLES)) -> None:
        self.db, self.random, self.tables = lake.connector.database, Random(seed), [f"s.{name}" for name in tables]  # type: ignore[attr-defined]
        for name in tables:
            self.db.create_table(f"s.{name}", COLUMNS, key=KEY, sparse=("doc",) if name in SPARSE else ())
        rows = [self._row(i) for i in range(12)]
        with self.db.transaction() as t:
            for table in self.tables:
                for row in rows:
                    t.insert(table, row)

    def _row(self, i: int) -> Row:
        some = self.random.random() < 0.7
        return {
            "id": i, "b": "ä${x}"[: i % 3], "n": self.random.randrange(9), "price": Decimal("-1.50") if some else None, ODD: "x" if some else None,
            "at": dt.datetime(2024, 2, 29, 12, 0, 0, i, dt.UTC), "exact": 10**18 + i if some else None, "vector": [0.5, None] if some else None,
            "doc": f"doc{self.random.random()}",
        }  # fmt: skip

    def go(self, transactions: int) -> None:
        """Inserts, updates, deletes, changes of keys, and keys that come back."""
        for _ in range(transactions):
            r = self.random
            steps = [(r.random(), self._row(r.randrange(20)), r.random()) for _ in range(r.randint(1, 4))]
            with self.db.transaction() as t:
                for table in self.tables:
                    for what, row, which in steps:
                        self._change(t, table, what, row, which)

    def _change(self, t: Any, table: str, what: float, row: Row, which: float) -> None:
        there = sorted(found["id"] for found in self.db.copy_rows(table))
        old = there[int(which * len(there))] if there else 99
        if what < 0.35 and row["id"] not in there:
            t.insert(table, row)
        elif what < 0.5:
            t.delete(table, {"id": old})
        elif what < 0.65 and row["id"] not in there:
            t.update(table, {"id": old}, {"id": row["id"], "b": row["b"]})
        else:
            values = {name: row[name] for name in ("n", "price", "exact", *(["doc"] if what > 0.9 else []))}
            t.update(table, {"id": old}, values)


def _prepare_second_lake(lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, str]:
    """A second lake that follows the same connector; and the profile of tables, so that rows go as ``way`` says."""
    if way != "files":
        module = {"delta": "delta.array_commit", "iceberg": "iceberg.copy_on_write"}[lake.kind]
        monkeypatch.setattr(f"airflow_provider_cdc.targets.lake.formats.{module}.MOST_BYTES", -1)
    merged = Lake(lake.spark, lake.folder, lake.connector, name="merged", kind=lake.kind, tables=lake.tables)
    return merged, "fast" if way in ("vectors", "keys") else "compatible"


def _assert_equal_lakes(lake: Lake, merged: Lake, *names: str) -> None:
    for name in names:
        found, expected = lake.rows(f"s.{name}"), merged.rows(f"s.{name}")
        assert found == expected, name
        assert len(found) > 0, name


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind_", "way", "tables"),
    [
        *((*way, SHORT) for way in WAYS[:2]),
        *(pytest.param(*way, tuple(TABLES), marks=pytest.mark.long, id=f"{'-'.join(way)}-all") for way in WAYS),
    ],
)
def test_tables_by_rules_that_are_committed_are_those_that_a_merge_makes(
    spark: SparkSession, tmp_path: Any, kind_: str, way: str, tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    lake = new_lake(spark, tmp_path, kind_, provide_transaction_metadata=True)
    lake.tables = RULES
    merged, profile = _prepare_second_lake(lake, way, monkeypatch)
    world = RandomTables(lake, 3, tables)

    def apply_transactions(transactions: int) -> dict[str, list[str]]:
        world.go(transactions)
        lake.connector.capture()
        merged.apply(writes="merge")
        _list_write_reports(caplog)
        lake.apply(profile=profile)
        _assert_equal_lakes(lake, merged, *tables)
        return _list_write_reports(caplog)

    lake.connector.capture()
    merged.apply(profile=profile)
    lake.apply(profile=profile)
    for transactions in (8, 8) if tables != SHORT else (8,):
        text = apply_transactions(transactions)
        assert {name: [text.split(":")[0] for text in texts] for name, texts in text.items()} == {
            name: ["committed"] for name in tables
        }
        assert {n for n, (text,) in text.items() if SPARK in text} == {n for n in tables if TABLES[n][1] == SPARK}
    if tables != SHORT:  # columns change in place, and tables are emptied
        for name in ("columns", "marked"):
            world.db.rename_columns(f"s.{name}", at="since")
            world.db.add_column(f"s.{name}", "more", "string")
        world.go(2)
        for name in ("history", "marked_filtered", "logged"):
            world.db.truncate_table(f"s.{name}")
        text = apply_transactions(3)
        assert text["columns"][0].endswith("computed by Spark: the table's columns change.")
        assert text["marked_filtered"] == text["history"] == ["merged: the table is truncated in between."]
    # rows are read again beside the stream
    number = snapshot(lake.connector, *world.tables)
    properties = {"read.only": True, "signal.poll.interval.ms": 50}
    lake.connector.capture(properties, run_for_s=20, until=signal_ended(lake.connector, number))
    text = apply_transactions(3)
    assert {text.split(":")[0] for texts in text.values() for text in texts} == {"committed"}
    assert lake.apply().tables == []


@pytest.fixture
def memory(spark: SparkSession, tmp_path: Any) -> Lake:
    STORED.clear()
    return new_lake(spark, tmp_path, "memory")


def _prepare_changed_table(lake: Lake, rules: TableRules, change: Any, **columns: str) -> None:
    """A table ``s.t`` with three rows, and a batch after them."""
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int32!", "n": "int32", "note": "string", **columns}, key=("id",))
    with db.transaction() as t:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": i, "note": "x"})
    lake.connector.capture()
    lake.apply(tables=rules)
    change(db)
    lake.connector.capture()


def _update(db: Any) -> None:
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 7})


REASONS = [
    ({"filter": "n > 0"}, "its rule has a filter"),
    ({"columns": {"computed": {"m": "n + 1"}}}, "its rule computes m"),
    ({"columns": {"cast": {"n": "string", "note": "string", "id": "bigint"}}}, "its rule casts n"),
    ({"columns": {"metadata": ["source", "op"]}}, "its rule requests source"),
    ({"mode": "history"}, "its mode is history"),
    ({"route": {"by": "note", "location": "{there}/{{value}}"}}, "its rule has a route"),
]


@pytest.mark.parametrize(("rule", "why"), REASONS, ids=[why for _, why in REASONS])
def test_the_log_says_why_spark_makes_the_rows_of_a_commit(
    memory: Lake, rule: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    if "route" in rule:
        rule = {"route": {**rule["route"], "location": f"{memory.folder}/there/{{value}}"}}
    rules = TableRules.parse([{"tables": ".*", **rule}])
    _prepare_changed_table(memory, rules, _update)
    caplog.clear()
    memory.apply(tables=rules)
    ((said,),) = _list_write_reports(caplog).values()
    assert said.startswith("committed: ")
    assert said.endswith(f"computed by Spark: {why}.")


def test_what_is_too_much_for_the_driver_is_merged(
    memory: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = TableRules.parse([{"tables": ".*", "filter": "n > 0"}])
    _prepare_changed_table(memory, rules, _update)
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.write.write_strategy.MOST_CHANGES", 0)
    caplog.clear()
    memory.apply(tables=rules)
    assert "merged: 1 events in 0 MB of change log are too many" in _list_write_reports(caplog)["t"][0]


def test_what_spark_does_not_let_through_to_the_driver_is_merged(
    memory: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = TableRules.parse([{"tables": ".*", "filter": "n > 0"}])
    _prepare_changed_table(memory, rules, _update)
    conf = memory.spark.sparkContext._jsc.sc().conf()

    def collect_limited(*args: Any, **given: Any) -> Any:
        conf.set("spark.driver.maxResultSize", "100b")
        try:
            return collect_changes(*args, **given)
        finally:
            conf.remove("spark.driver.maxResultSize")

    monkeypatch.setattr("airflow_provider_cdc.targets.lake.write.table_write.collect_changes", collect_limited)
    caplog.clear()
    memory.apply(tables=rules)
    assert "merged: its rows are larger than spark.driver.maxResultSize allows" in _list_write_reports(caplog)["t"][0]
    assert {row["id"]: row["n"] for row in memory.rows("s.t")} == {1: 7, 2: 2}


@pytest.mark.only_kind("delta", "iceberg")
@pytest.mark.every_kind
def test_a_column_that_the_source_has_dropped_keeps_its_values_in_a_commit(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    _prepare_changed_table(lake, RULES, lambda db: db.drop_column("s.t", "note"))
    lake.apply()
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 7})
        t.update("s.t", {"id": 0}, {"id": 5})
        t.delete("s.t", {"id": 2})
        t.insert("s.t", {"id": 8, "n": 8})
    lake.connector.capture()
    caplog.clear()
    lake.apply()
    ((said,),) = _list_write_reports(caplog).values()
    assert said == "committed: 5 keys, 3 rows, computed by Spark: its columns differ from the source columns: note."
    assert {row["id"]: (row["n"], row["note"]) for row in lake.rows("s.t")} == {1: (7, "x"), 5: (0, None), 8: (8, None)}


@pytest.mark.only_kind("delta", "iceberg")
@pytest.mark.every_kind
def test_rows_that_were_made_from_a_state_of_the_table_are_not_committed_to_another_one(lake: Lake) -> None:
    """Someone else changes a value of the table while rows are made that keep it."""
    rules = TableRules.parse([{"tables": ".*", "columns": {"drop": ["n"]}}])
    _prepare_changed_table(lake, rules, _update, doc="string")
    lake.apply(tables=rules)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.make_sparse("s.t", "doc")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"note": "changed"})
    lake.connector.capture()
    caught: list[str] = []

    def hook(location: str, name: str, write: Any) -> Any:
        if name == "upsert_arrays" and not caught:
            caught.append(name)
            lake.sql("UPDATE {} SET doc = 'theirs' WHERE id = 1", "s.t")
        try:
            return write()
        except WriteConflict as e:
            caught.append(str(e))
            raise

    lake.hook = hook
    lake.apply(tables=rules)
    assert len(caught) == 2
    assert {row["id"]: (row["note"], row["doc"]) for row in lake.rows("s.t")}[1] == ("changed", "theirs")


INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ARROW_OF = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}


def test_casts_on_arrays_give_what_spark_gives(spark: SparkSession) -> None:
    """For each pair of types that is cast on arrays: the ends of the range, and random values in it."""
    r, pairs = Random(7), [(a, b) for a in VALUES for b in VALUES if a != b and _exact(a, b)]
    assert len(pairs) > 20
    for narrow in dict.fromkeys(a for a, _ in pairs):
        values = [None, *_draw_values_of(narrow, r)]
        frame = spark.createDataFrame([(value,) for value in values], build_struct_type({"v": narrow})).coalesce(1)
        wider = [b for a, b in pairs if a == narrow]
        found = frame.select("v", *[F.col("v").cast(type_).alias(type_) for type_ in wider]).toArrow()
        for type_ in wider:
            ours, theirs = found["v"].cast(_arrow(type_)), found[type_]
            assert repr(ours.to_pylist()) == repr(theirs.to_pylist()), (narrow, type_)  # NaN is not equal to itself
            assert found[type_].type == _arrow(type_)


def _draw_values_of(type_: str, r: Random) -> list[Any]:
    if bits := INTEGERS.get(type_):
        most = 2 ** (bits - 1)
        return [0, -1, most - 1, -most, *(r.randrange(-most, most) for _ in range(500))]
    if type_.startswith("decimal"):
        digits, scale = map(int, type_.removeprefix("decimal(").removesuffix(")").split(","))
        most = 10**digits - 1
        return [Decimal(n).scaleb(-scale) for n in (0, most, -most, *(r.randrange(-most, most) for _ in range(500)))]
    if type_ == "date":
        return [
            dt.date.min,
            dt.date.max,
            dt.date(1582, 10, 10),
            *(dt.date.fromordinal(r.randrange(1, 3_652_059)) for _ in range(500)),
        ]
    assert type_ == "float", type_
    return (
        pa.array([0.0, -0.0, float("inf"), float("nan"), 1e-45, 3.4e38, *(r.uniform(-1e9, 1e9) for _ in range(500))])
        .cast(pa.float32())
        .to_pylist()
    )
