"""From events to rows: the last event of each key, values that events leave out, keys that may be NULL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.apply import batch_applier
from airflow_provider_cdc.targets.lake.apply.table_batch_writer import bring_up
from airflow_provider_cdc.targets.lake.formats.delta.column_changes import NTZ, WIDENING
from airflow_provider_cdc.targets.lake.rows import last_event_per_key
from airflow_provider_cdc.targets.lake.types.spark_types import can_hold_type, find_common_type
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
Row = dict[str, Any]


def _rows(frame: Any) -> list[Row]:
    return sorted(frame.toArrow().to_pylist(), key=repr)


@pytest.mark.parametrize("seed", range(6))
def test_of_each_key_the_event_with_the_highest_number_is_left(spark: SparkSession, seed: int) -> None:
    r = random.Random(seed)
    events: list[Row] = [
        {
            last_event_per_key.SEQ: seq, last_event_per_key.OP: r.choice("ccuuud"), "a": r.randrange(4), "b": r.choice("xyz"),
            "v": r.choice([None, r.randrange(100)]), "w": r.choice([None, "", "text"]),
        }
        for seq in r.sample(range(10_000), 300)
    ]  # fmt: skip
    final: dict[Any, Row] = {}
    for event in sorted(events, key=lambda e: e[last_event_per_key.SEQ]):
        final[event["a"], event["b"]] = {k: v for k, v in event.items() if k != last_event_per_key.SEQ}
    frame = spark.createDataFrame(pa.Table.from_pylist(events))
    assert _rows(last_event_per_key.last_per_key(frame, ("a", "b"))) == sorted(final.values(), key=repr)


class _Model:
    """Rows with names of their own, in a table and in events that leave values out: what reduced rows have to say."""

    COLUMNS = ("v", "w")

    def __init__(self, r: random.Random, *, moves: bool) -> None:
        self.r, self.moves = r, moves
        self.table = {k: {"k": k, "v": 1000 + k, "w": f"table {k}"} for k in range(1, 7)}
        self.rows = {k: dict(row) for k, row in self.table.items()}
        self.events: list[Row] = []
        self.touched: set[int] = set()

    def event(self, op: str, k: int, values: Row, told: Iterable[str], previous: int | None = None) -> None:
        lacking = [] if op == "d" else [c for c in self.COLUMNS if c not in told]
        shown = {c: values[c] if c in told else None for c in self.COLUMNS}
        from_ = None if previous is None else {"k": previous}
        seq = len(self.events) + 1
        self.events.append(
            {
                last_event_per_key.SEQ: seq,
                last_event_per_key.OP: op,
                "k": k,
                **shown,
                last_event_per_key.OMITTED: lacking,
                last_event_per_key.FROM: from_,
            }
        )
        self.touched.add(k)

    def step(self) -> None:
        r, kind = (
            self.r,
            self.r.choice(["insert", "update", "update", "update", "delete", "move", "move", "swap", "cross", "cross"]),
        )
        reported = [c for c in self.COLUMNS if r.random() < 0.5]
        values = {"v": r.choice([None, r.randrange(100)]), "w": r.choice([None, "", f"w{len(self.events)}"])}
        free = [k for k in range(1, 11) if k not in self.rows]
        if kind == "insert" and free:
            k = r.choice(free)
            self.event(r.choice("cr"), k, values, reported)
            self.rows[k] = {"k": k, **{c: values[c] if c in reported else None for c in self.COLUMNS}}
        elif kind == "update" and self.rows:
            k = r.choice(sorted(self.rows))
            self.event("u", k, values, reported)
            self.rows[k] |= {c: values[c] for c in reported}
        elif kind == "delete" and self.rows:
            k = r.choice(sorted(self.rows))
            self.event("d", k, {}, ())
            del self.rows[k]
        elif kind == "move" and self.moves and self.rows and free:
            self.move(r.choice(sorted(self.rows)), r.choice(free), values, reported)
        elif kind == "swap" and self.moves and len(self.rows) > 1:
            a, b = r.sample(sorted(self.rows), 2)
            for old, new in ((a, 99), (b, a), (99, b)):
                self.move(old, new, {}, ())
        elif kind == "cross" and self.moves and len(self.rows) > 1:
            self.cross()

    def cross(self) -> None:
        """Some rows exchange their keys by one statement: the creates come late."""
        some = self.r.sample(sorted(self.rows), min(len(self.rows), self.r.randrange(2, 5)))
        to = dict(zip(some, [*some[1:], some[0]], strict=True))
        for old in some:
            self.event("d", old, {}, ())
        for old, new in to.items():
            self.event("c", new, {}, (), previous=old)
        self.rows |= {new: self.rows[old] | {"k": new} for old, new in to.items()}

    def move(self, old: int, new: int, values: Row, told: Iterable[str]) -> None:
        # what the image before of a delete says does not count: here it says nothing at all
        self.event("d", old, {}, ())
        self.event("c", new, values, told, previous=old)
        self.rows[new] = self.rows.pop(old) | {"k": new} | {c: values[c] for c in told}

    def frame(self, spark: SparkSession) -> Any:
        schema = pa.schema(
            [(last_event_per_key.SEQ, pa.int64()), (last_event_per_key.OP, pa.string()), ("k", pa.int64()), ("v", pa.int64()), ("w", pa.string()),
             (last_event_per_key.OMITTED, pa.list_(pa.string())), (last_event_per_key.FROM, pa.struct([("k", pa.int64())]))]
        )  # fmt: skip
        shuffled = self.r.sample(self.events, len(self.events))
        frame = spark.createDataFrame(pa.Table.from_pylist(shuffled, schema=schema))
        return frame if self.moves else frame.drop(last_event_per_key.FROM)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_value_left_out_is_that_of_the_same_row_before(spark: SparkSession, seed: int, moves: bool) -> None:
    model = _Model(random.Random(seed), moves=moves)
    for _ in range(60):
        model.step()
    there = spark.createDataFrame(pa.Table.from_pylist(list(model.table.values())))
    rows = last_event_per_key.last_per_key(model.frame(spark), ("k",), model.COLUMNS)
    if moves:
        rows = last_event_per_key.inherit_values(rows, there, ("k",), model.COLUMNS)
    merged = {k: dict(row) for k, row in model.table.items()}
    found = _rows(rows)
    assert {row["k"] for row in found} == model.touched
    for row in found:
        old = merged.pop(row["k"], None)
        if row[last_event_per_key.OP] != "d":
            kept = {c: old[c] if old is not None else None for c in row[last_event_per_key.OMITTED]}
            merged[row["k"]] = {c: row[c] for c in ("k", *model.COLUMNS)} | kept
    assert merged == model.rows


def test_a_row_may_change_its_key_any_number_of_times(spark: SparkSession) -> None:
    model = _Model(random.Random(0), moves=True)
    for old in range(100, 140):
        model.move(1 if old == 100 else old, old + 1, {"v": 7}, ("v",) if old == 120 else ())
    rows = last_event_per_key.last_per_key(model.frame(spark), ("k",), model.COLUMNS)
    there = spark.createDataFrame(pa.Table.from_pylist(list(model.table.values())))
    (row,) = [
        r
        for r in _rows(last_event_per_key.inherit_values(rows, there, ("k",), model.COLUMNS))
        if r[last_event_per_key.OP] != "d"
    ]
    assert (row["k"], row["v"], row["w"], row[last_event_per_key.OMITTED]) == (140, 7, "table 1", [])


# -- through the whole job --------------------------------------------------------------------------------------------


def _create_large(lake: Lake, key: tuple[str, ...] = ("id",)) -> None:
    columns = {"id": "int64!", "n": "int32", "big": "string"}
    lake.connector.database.create_table("s.t", columns, key=key, sparse=("big",))
    with lake.connector.database.transaction() as t:
        for i in range(5):
            t.insert("s.t", {"id": i, "n": i, "big": "long " * i})
    lake.follow()


def _equal(lake: Lake) -> None:
    db = lake.connector.database
    names = db.read_consistent_view()[1].popitem()[1].column_names
    assert lake.rows("s.t", *names) == sorted(db.copy_rows("s.t"), key=repr)


def test_a_value_that_the_log_does_not_hold_is_kept(lake: Lake) -> None:
    _create_large(lake)
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})  # lacks it: the table's stays
        t.update("s.t", {"id": 2}, {"big": "new"})  # has the value
        t.update("s.t", {"id": 2}, {"n": 20})  # lacks it: the value stays
        t.update("s.t", {"id": 3}, {"big": None})  # NULL is a value
        t.update("s.t", {"id": 3}, {"n": 30})
        t.delete("s.t", {"id": 4})
        t.insert("s.t", {"id": 4})
        t.update("s.t", {"id": 4}, {"n": 40})
    lake.follow()
    _equal(lake)


def test_a_row_takes_the_value_that_the_log_does_not_hold_along_to_its_new_key(lake: Lake) -> None:
    _create_large(lake)
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 100})
        for old, new in ((2, -1), (3, 2), (-1, 3)):  # two rows exchange their keys
            t.update("s.t", {"id": old}, {"id": new})
        t.delete("s.t", {"id": 4})
        t.update("s.t", {"id": 0}, {"id": 4, "n": 44})  # to a key that another row had
        t.update("s.t", {"id": 4}, {"n": 45})
    lake.follow()
    _equal(lake)
    lake.check()


@pytest.mark.parametrize("writes", ["auto", pytest.param("merge", marks=pytest.mark.long)])
def test_a_row_takes_its_value_along_though_another_run_has_moved_it_meanwhile(
    lake: Lake, writes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began earlier, with fewer batches."""
    _create_large(lake)
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 100})
    lake.connector.capture()
    other = lake.job()
    view = other.read_backlog_state()
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": 100}, {"n": 101})
    lake.connector.capture()

    def after_the_other(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(batch_applier, "bring_up", bring_up)
        assert [table.last_batch for table in other.apply_topics(view, view.known_topics).tables] == [view.last]
        bring_up(*given, **named)

    monkeypatch.setattr(batch_applier, "bring_up", after_the_other)
    lake.apply(writes=writes)
    _equal(lake)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("other", ["renamed", "rewritten", "key renamed"])
def test_a_value_that_the_log_does_not_hold_is_kept_while_columns_change(lake: Lake, other: str) -> None:
    _create_large(lake)
    db = lake.connector.database
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})
        t.update("s.t", {"id": 3}, {"id": 300})
    if other == "renamed":
        db.rename_columns("s.t", big="bigger")
    elif other == "key renamed":
        db.rename_columns("s.t", id="number")
    else:
        db.drop_column("s.t", "n")
        db.add_column("s.t", "n", "string", "x")
    key = "number" if other == "key renamed" else "id"
    with db.transaction() as t:
        t.update("s.t", {key: 2}, {"n": "20" if other == "rewritten" else 20})
        t.update("s.t", {key: 300}, {key: 301})
    lake.follow()
    _equal(lake)


def test_a_new_column_that_updates_leave_out_has_its_default(lake: Lake) -> None:
    _create_large(lake)
    db = lake.connector.database
    db.add_column("s.t", "more", "string", "default")
    db.make_sparse("s.t", "more")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 10})
        t.update("s.t", {"id": 2}, {"id": 200})
    lake.follow()
    _equal(lake)


def test_a_row_that_begins_without_a_value_inherits_none(lake: Lake) -> None:
    _create_large(lake)
    db = lake.connector.database
    with db.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.insert("s.t", {"id": 1, "n": 1, "big": "not in the log"}, logged=("id", "n"))
    lake.follow()
    assert lake.rows("s.t")[1] == {"id": 1, "n": 1, "big": None}


@pytest.mark.parametrize("change", ["update", "delete"])
def test_values_left_out_of_a_table_without_a_key_are_an_error(lake: Lake, change: str) -> None:
    _create_large(lake, key=())
    before = lake.rows("s.t")
    with lake.connector.database.transaction() as t:
        if change == "update":
            t.update("s.t", {"id": 1}, {"n": 10})
        else:
            t.delete("s.t", {"id": 1})
    lake.connector.capture()
    with pytest.raises(TargetError, match=r"lack values of columns \(big\)[\s\S]*message\.key\.columns"):
        lake.apply()
    assert lake.rows("s.t") == before


def test_nanoseconds_are_exact_texts_in_the_order_of_time(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"at": "timestamp[ns]!", "utc": "timestamp[ns, tz=UTC]"}, key=("at",))
    nanos = [0, -1, 999, 1_709_208_000_123_456_789, -9_223_372_036_854_775_807, 9_223_372_036_854_775_807]
    with db.transaction() as t:
        for n in nanos:
            t.insert("s.t", {"at": _nanos(n), "utc": _nanos(n, "UTC")})
    lake.follow()
    db.add_column("s.t", "then", "timestamp[ns]", _nanos(1_709_208_000_500_000_000), text="2024-02-29 12:00:00.5")
    with db.transaction() as t:
        t.update("s.t", {"at": _nanos(0)}, {"utc": None})
        t.update("s.t", {"at": _nanos(999)}, {"at": _nanos(1000)})
    lake.follow()
    rows = lake.frame("s.t").orderBy("at").toArrow().to_pylist()
    assert [row["at"] for row in rows] == [
        "1677-09-21 00:12:43.145224193", "1969-12-31 23:59:59.999999999", "1970-01-01 00:00:00.000000000",
        "1970-01-01 00:00:00.000001000", "2024-02-29 12:00:00.123456789", "2262-04-11 23:47:16.854775807",
    ]  # fmt: skip
    assert [row["utc"] for row in rows[1:5]] == [
        "1969-12-31 23:59:59.999999999Z", None, "1970-01-01 00:00:00.000000999Z", "2024-02-29 12:00:00.123456789Z",
    ]  # fmt: skip
    assert {row["then"] for row in rows} == {"2024-02-29 12:00:00.500000000"}


def _nanos(n: int, zone: str | None = None) -> pa.Scalar:
    return pa.scalar(n, pa.int64()).cast(pa.timestamp("ns", tz=zone))


def test_a_column_that_cannot_be_captured_is_in_no_table(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "photo": "null", "note": "string"}, key=("id",), sparse=("photo",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "note": "a"})
    lake.follow()
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 2})
        t.insert("s.t", {"id": 3})
        t.delete("s.t", {"id": 3})
    lake.follow()
    assert lake.rows("s.t") == [{"id": 2, "note": "a"}]


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
    assert can_hold_type(wide, narrow) is fits
    if fits:
        assert find_common_type(wide, narrow) == find_common_type(narrow, wide) == wide


@pytest.mark.parametrize("wide", ["bigint", "decimal(20,0)", "decimal(14,4)", "double", "timestamp_ntz"])
def test_what_is_said_to_hold_is_what_delta_widens(spark: SparkSession, tmp_path: Path, wide: str) -> None:
    narrow = {"decimal(14,4)": "decimal(10,2)", "double": "float", "timestamp_ntz": "date"}.get(wide, "int")
    assert can_hold_type(wide, narrow)
    table = f"delta.`{tmp_path}/t`"
    properties = ", ".join(f"'{k}' = '{v}'" for k, v in {**NTZ, **WIDENING}.items())
    spark.sql(f"CREATE TABLE {table} (c {narrow}) USING DELTA TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN c TYPE {wide}")
    assert spark.table(table).dtypes == [("c", wide)]
