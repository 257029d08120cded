"""From events to rows: the last event of each key, values that events leave out, keys that may be NULL."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.connector import Capture
from airflow_provider_cdc.core.envelope import EventBatch
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.seams import BatchWriter
from airflow_provider_cdc.runtime import open_source, parse_config
from spark_jobs import reduce
from spark_jobs.datatypes import common, holds
from spark_jobs.targets.delta import _PROPERTIES
from tests.spark.lake import Lake

pytestmark = pytest.mark.spark
Row = dict[str, Any]


def _rows(frame: Any) -> list[Row]:
    return sorted(frame.toArrow().to_pylist(), key=repr)


@pytest.mark.parametrize("seed", range(6))
def test_of_each_key_the_event_with_the_highest_number_is_left(spark: SparkSession, seed: int) -> None:
    r = random.Random(seed)
    events: list[Row] = [
        {
            "seq": seq, "__op": r.choice("ccuuud"), "a": r.randrange(4), "b": r.choice("xyz"),
            "v": r.choice([None, r.randrange(100)]), "w": r.choice([None, "", "text"]),
        }
        for seq in r.sample(range(10_000), 300)
    ]  # fmt: skip
    last: dict[Any, Row] = {}
    for event in sorted(events, key=lambda e: e["seq"]):
        last[event["a"], event["b"]] = {k: v for k, v in event.items() if k != "seq"}
    frame = spark.createDataFrame(pa.Table.from_pylist(events))
    assert _rows(reduce.last_per_key(frame, ("a", "b"))) == sorted(last.values(), key=repr)


@pytest.mark.parametrize("seed", range(6))
def test_a_value_left_out_is_the_last_one_told_or_stays_the_tables(spark: SparkSession, seed: int) -> None:
    r, columns = random.Random(seed), ("v", "w")
    schema = pa.schema(
        [("seq", pa.int64()), ("__op", pa.string()), ("k", pa.int64()), ("v", pa.int64()), ("w", pa.string())]
    ).append(pa.field("__kept", pa.list_(pa.string())))
    events = []
    for seq in range(1, 200):
        op = r.choice("cuuuuud")
        kept = [c for c in columns if op == "u" and r.random() < 0.6]
        values = {"v": r.choice([None, seq]), "w": r.choice([None, f"w{seq}"])}
        event = {"seq": seq, "__op": op, "k": r.randrange(12), **values, "__kept": kept}
        events.append(event | dict.fromkeys(kept))
    expected: dict[int, Row] = {}
    for event in events:
        told = {c: event[c] for c in columns if c not in event["__kept"]}
        row = expected.setdefault(event["k"], {"k": event["k"], "told": {}})
        row["told"] |= told
        row["__op"] = event["__op"]
    wanted = [
        {"__op": e["__op"], "k": k, **{c: e["told"].get(c) for c in columns},
         "__kept": [c for c in columns if c not in e["told"]]}
        for k, e in expected.items()
    ]  # fmt: skip
    r.shuffle(events)
    frame = spark.createDataFrame(pa.Table.from_pylist(events, schema=schema))
    assert _rows(reduce.last_per_key(frame, ("k",))) == sorted(wanted, key=repr)


# -- through the whole job --------------------------------------------------------------------------------------------


class _LeavesOut:
    """Writes events as a source does whose log lacks what an update did not touch: such values are absent, and named."""

    def __init__(self, writer: BatchWriter, column: str) -> None:
        self._writer, self._column = writer, column

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def write(self, batch: EventBatch) -> None:
        events, before = batch.events, batch.events["before"]
        after = events["after"]
        if self._column in after.type.names:
            same = pc.equal(pc.struct_field(before, self._column), pc.struct_field(after, self._column))
            lacking = pc.and_(pc.equal(events["op"].cast(pa.string()), "u"), pc.coalesce(same, pa.scalar(False)))
            names = pa.array([[self._column] if x else None for x in lacking.to_pylist()], pa.list_(pa.string()))
            events = events.set_column(events.schema.names.index("after"), "after", self._without(after, lacking))
            batch.events = events.set_column(events.schema.names.index("unavailable"), "unavailable", names)
        self._writer.write(batch)

    def _without(self, image: pa.StructArray, lacking: pa.Array) -> pa.StructArray:
        fields = [
            pc.if_else(lacking, pa.scalar(None, f.type), image.field(i)) if f.name == self._column else image.field(i)
            for i, f in enumerate(image.type)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(image.type), mask=image.is_null())


class _Log(ChangeLog):
    column = "big"

    def writer(self, *arguments: Any) -> Any:
        return _LeavesOut(super().writer(*arguments), self.column)


def _capture(lake: Lake) -> None:
    connector = lake.connector
    definition = connector.definition()
    config = parse_config(definition)
    with open_source(definition) as source:
        log = _Log(definition.changelog)
        Capture(connector.name, source, config, Filters(config), connector.store, log).run()


def _big(lake: Lake, key: tuple[str, ...] = ("id",)) -> None:
    lake.connector.database.create_table("s.t", {"id": "int64!", "n": "int32", "big": "string"}, key=key)
    with lake.connector.database.transaction() as t:
        for i in range(5):
            t.insert("s.t", {"id": i, "n": i, "big": "long " * i})
    _capture(lake)
    lake.apply()


def test_a_value_that_the_log_does_not_hold_is_kept(lake: Lake) -> None:
    _big(lake)
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})  # lacks it: the table's stays
        t.update("s.t", {"id": 2}, {"big": "new"})  # tells it
        t.update("s.t", {"id": 2}, {"n": 20})  # lacks it: what was told stays
        t.update("s.t", {"id": 3}, {"big": None})  # NULL is a value
        t.update("s.t", {"id": 3}, {"n": 30})
        t.delete("s.t", {"id": 4})
        t.insert("s.t", {"id": 4})
        t.update("s.t", {"id": 4}, {"n": 40})
    _capture(lake)
    lake.apply()
    assert lake.rows("s.t") == sorted(lake.connector.database.rows("s.t"), key=repr)


@pytest.mark.parametrize("other", ["renamed", "rewritten"])
def test_a_value_that_the_log_does_not_hold_is_kept_while_columns_change(lake: Lake, other: str) -> None:
    _big(lake)
    db = lake.connector.database
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})
    if other == "renamed":
        db.rename_columns("s.t", big="bigger")
    else:
        db.drop_column("s.t", "n")
        db.add_column("s.t", "n", "string", "x")
    with db.transaction() as t:
        t.update("s.t", {"id": 2}, {"n": 20 if other == "renamed" else "20"})
    _capture(lake)
    lake.apply()
    names = db.view()[1].popitem()[1].names
    assert lake.rows("s.t", *names) == sorted(db.rows("s.t"), key=repr)


def test_values_left_out_of_a_table_without_a_key_are_an_error(lake: Lake) -> None:
    _big(lake, key=())
    before = lake.rows("s.t")
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})
    _capture(lake)
    with pytest.raises(TargetError, match=r"lack values of columns[\s\S]*message\.key\.columns"):
        lake.apply()
    assert lake.rows("s.t") == before


def test_a_key_that_may_be_null_is_one_key(make_lake: Callable[..., Lake], tmp_path: Path) -> None:
    lake = make_lake(tmp_path, message_key_columns="s.t:code")
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "code": "string"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "code": None})
        t.insert("s.t", {"id": 2, "code": "x"})
    lake.follow()
    with db.transaction() as t:
        t.update("s.t", {"code": None}, {"id": 10})
        t.update("s.t", {"code": "x"}, {"id": 20})
    lake.follow()
    assert lake.rows("s.t") == [{"id": 10, "code": None}, {"id": 20, "code": "x"}]


@pytest.mark.parametrize(
    ("wide", "narrow", "fits"),
    [
        ("bigint", "int", True), ("int", "bigint", False), ("string", "int", False), ("decimal(20,0)", "bigint", True),
        ("decimal(14,4)", "decimal(10,2)", True), ("decimal(14,4)", "decimal(12,2)", True),
        ("decimal(11,4)", "decimal(10,2)", False), ("double", "float", True), ("double", "bigint", False),
        ("decimal(10,0)", "string", False), ("timestamp_ntz", "date", True),
    ],
)  # fmt: skip
def test_a_type_holds_another_when_no_value_is_lost(wide: str, narrow: str, fits: bool) -> None:
    assert holds(wide, narrow) is fits
    if fits:
        assert common(wide, narrow) == common(narrow, wide) == wide


@pytest.mark.parametrize("wide", ["bigint", "decimal(20,0)", "decimal(14,4)", "double", "timestamp_ntz"])
def test_what_is_said_to_hold_is_what_delta_widens(spark: SparkSession, tmp_path: Path, wide: str) -> None:
    narrow = {"decimal(14,4)": "decimal(10,2)", "double": "float", "timestamp_ntz": "date"}.get(wide, "int")
    assert holds(wide, narrow)
    table = f"delta.`{tmp_path}/t`"
    properties = ", ".join(f"'{k}' = '{v}'" for k, v in _PROPERTIES.items())
    spark.sql(f"CREATE TABLE {table} (c {narrow}) USING DELTA TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN c TYPE {wide}")
    assert spark.table(table).dtypes == [("c", wide)]
