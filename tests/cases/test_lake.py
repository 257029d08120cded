"""Lake tables whose partitions, keys and columns have the values at the edges of their types."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.events.event_operation_reader import _unsplit
from airflow_provider_cdc.targets.database.events.event_reader import TableEvents
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.delta import array_commit as delta_commit
from airflow_provider_cdc.targets.lake.formats.iceberg import copy_on_write
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker, ObservedProgress
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.write import write_strategy
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.signals import snapshot
from tests.targets.database.source_table import ID, Table, column
from tests.targets.lake.conftest import spark  # noqa: F401
from tests.targets.lake.lake import KINDS, Lake, new_lake

HIVE = "__HIVE_DEFAULT_PARTITION__"
US = 1_000_000
EDGES: dict[str, list[Any]] = {
    "string": ["", HIVE, " ", "a ", "A", "a/b=c%20é:#", "null", "NULL", ".", "..", "\n", "'\"`", "%", "x" * 60],
    "int32": [0, -1, 2**31 - 1, -(2**31)],
    "int64": [0, 1, 2**31, -(2**63), 2**63 - 1],
    "bool": [True, False],
    "decimal128(10, 2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")],
    # days and microseconds: the epoch, the years 1, 1582, 9999, and years that Python does not have
    "date32[day]": [0, -1, 1, -719_162, -141_428, -141_427, 2_932_896, 2_932_897, 6_675_000, -800_000],
    "timestamp[us]": [0, -1, 1, 600 * US, -600 * US, 2**31, 253_402_300_799_999_999, 576_560_160_000_000_000],
    "timestamp[us, tz=UTC]": [0, -1, 1, 600 * US, -600 * US, 2**31, 1_700_000_000_000_001],
}
"""Type → values."""
UNKEPT = ["", HIVE]
"""Texts that a partition of Delta does not keep."""


def _values(type_: str, rows: list[Any]) -> list[Any]:
    """Values in a form that knows no limits of Python's."""
    return [None if v is None else str(v) for v in rows]


def _plain_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = []
    for name in table.column_names:
        values = table[name]
        if pa.types.is_date(values.type):
            values = values.cast(pa.int32())
        elif pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        columns.append([None if v is None else str(v) for v in values.to_pylist()])
    return sorted(zip(*columns, strict=True), key=repr)


class RandomTable:
    """A random table at the source, and its changes.

    :param delta: its partition cannot be an empty text
    """

    def __init__(self, lake: Lake, number: int, r: Random, *, delta: bool) -> None:
        self.db, self.r, self.name = lake.connector.database, r, f"s.t{number}"  # type: ignore[attr-defined]
        self.type = r.choice(sorted(EDGES))
        self.way = r.choice(["partition", "key", "both", "beside", "keyless"])
        self.partitioned = self.way != "key"
        self.in_key = self.way in ("key", "both")
        self.nullable = not self.in_key
        found = [v for v in EDGES[self.type] if not (delta and self.partitioned and v in UNKEPT)]
        self.values = found + ([None] if self.nullable else [])
        key = {"keyless": (), "key": ("p", "id"), "both": ("p", "id")}.get(self.way, ("id",))
        if self.way == "key" and r.random() < 0.5:
            key = ("p",)
        self.key = key
        columns = {"id": "int32!", "p": self.type + ("" if self.nullable else "!"), "v": "string"}
        self.db.create_table(self.name, columns, key=key)

    def rule(self) -> dict[str, Any] | None:
        return {"tables": self.name.replace(".", r"\."), "partition_by": "p"} if self.partitioned else None

    def step(self, t: Any) -> None:
        """Some changes within a transaction."""
        r = self.r
        for _ in range(r.randint(3, 8)):
            there = self.db.copy_rows(self.name)
            what = r.random()
            if what < 0.5 or not there:
                row = {"id": r.randrange(6), "p": r.choice(self.values), "v": f"v{r.randrange(99)}"}
                if self.key and any(all(one[k] == row[k] for k in self.key) for one in there):
                    continue
                t.insert(self.name, row)
            elif what < 0.8:
                row = r.choice(there)
                new = {"v": f"u{r.randrange(99)}"}
                if "p" not in self.key and r.random() < 0.5:
                    new["p"] = r.choice(self.values)
                t.update(self.name, row, new, limit=1)
            else:
                t.delete(self.name, r.choice(there), limit=1)

    def wanted(self) -> list[tuple[Any, ...]]:
        rows = self.db.copy_rows(self.name)
        return sorted(
            ((str(row["id"]), *_values(self.type, [row["p"]]), row["v"]) for row in rows),
            key=repr,
        )


def _draw(lake: Lake, seed: int, number: int) -> list[RandomTable]:
    r = Random(seed)
    return [RandomTable(lake, n, r, delta=lake.kind == "delta") for n in range(number)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", [("fast", "auto"), ("compatible", "auto"), ("fast", "merge")], ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
def test_values_at_the_edges_of_types_are_kept_in_partitions_keys_and_columns(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    kind: str,
    how: tuple[str, str],
    large: bool,
    monkeypatch: pytest.MonkeyPatch,
    sampled: CaseSample,
) -> None:
    """# R18 R19 B1 B5: random tables, each partitioned by, or keyed by, one type; equal to the source after each apply."""
    if large:  # as tables of gigabytes are written
        monkeypatch.setattr(copy_on_write, "MOST_BYTES", -1)
        monkeypatch.setattr(delta_commit, "MOST_BYTES", -1)
    lake = new_lake(spark, tmp_path, kind)
    seeds = [*range(6)] if sampled.all else sampled.random(f"{kind} {how} {large}").sample(range(10**6), 1)
    profile, writes = how
    for seed in seeds:
        lake = new_lake(spark, tmp_path / str(seed), kind)
        drawn = _draw(lake, seed, 10)
        lake.tables = TableRules.parse([rule for one in drawn if (rule := one.rule())])
        for _ in range(4):
            with lake.connector.database.transaction() as t:  # type: ignore[attr-defined]
                for one in drawn:
                    one.step(t)
            lake.connector.capture()
            lake.apply(profile=profile, writes=writes)
            for one in drawn:
                found = _plain_rows(lake.frame(one.name).select("id", "p", "v").toArrow())
                assert found == one.wanted(), (seed, one.name, one.type, one.way, one.key)


@pytest.mark.parametrize("value", UNKEPT, ids=["empty", "hive"])
def test_a_partition_of_delta_that_would_lose_its_value_is_refused_and_the_way_out_works(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    value: str,
) -> None:
    """# R18 R19: a table stops at its first row or a later one and names its column; others continue; the rule that the error names repairs it."""
    lake = new_lake(spark, tmp_path)
    db = lake.connector.database  # type: ignore[attr-defined]
    columns = {"region": "string!", "id": "int32!", "v": "int32"}
    tables = {"s.first": ("region", "id"), "s.later": ("id",), "s.keyless": (), "s.log": ("id",), "s.other": ("id",)}
    for table, key in tables.items():
        db.create_table(table, columns, key=key)
    partitioned = r"s\.(first|later|keyless|log)"
    lake.tables = TableRules.parse(
        [
            {"tables": r"s\.log", "mode": "log", "partition_by": "region"},
            {"tables": partitioned, "partition_by": "region"},
        ]
    )
    with db.transaction() as t:
        for table in tables:
            t.insert(table, {"region": value if table == "s.first" else "FR", "id": 1, "v": 1})
    lake.connector.capture()
    with pytest.raises(
        TargetError, match=r"1 of 5 tables[\s\S]*first[\s\S]*in region, a partition column of the table"
    ):
        lake.apply()
    with db.transaction() as t:
        for table in tables:
            t.update(table, {"id": 1}, {"v": 2})
            t.insert(table, {"region": value, "id": 2, "v": 1})
    lake.connector.capture()
    with pytest.raises(TargetError, match="4 of 5 tables") as refused:
        lake.apply()
    assert not Path(lake.path("s.first")).joinpath("_delta_log/00000000000000000000.json").exists()
    assert len(lake.rows("s.other")) == 2
    assert len(lake.rows("s.later")) == 1
    way_out = '{"columns": {"computed": {"region_part": "concat(\'=\', region)"}}, "partition_by": "region_part"}'
    assert way_out in str(refused.value)
    lake.tables = TableRules.parse(
        [{"tables": r"s\.log", "mode": "log", **json.loads(way_out)}, {"tables": partitioned, **json.loads(way_out)}]
    )
    for table in ("later", "keyless", "log"):
        Path(lake.path(f"s.{table}")).rename(tmp_path / table)
    lake.apply()
    for table in tables:
        if table != "s.log":
            assert lake.rows(table, *columns) == sorted(db.copy_rows(table), key=repr)
    assert len(lake.rows("s.log")) == 3
    with db.transaction() as t:
        for table in tables:
            t.delete(table, {"region": value})
    lake.follow()
    assert [len(lake.rows(table)) for table in tables] == [0, 1, 1, 4, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("columns", "added", "renamed"),
    [("ab", {"a": None}, {}), ("ab", {"b": "5"}, {}), ("ab", {}, {"a": "b", "b": "a"}), ("ba", {}, {"a": "b", "b": "a"})],
)  # fmt: skip
def test_a_column_that_is_made_again_in_its_place_has_new_values(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    kind: str,
    columns: str,
    added: dict[str, str | None],
    renamed: dict[str, str],
) -> None:
    """The structure is the one of before, and the rows that are there have other values."""
    table = Table(tmp_path, None, column("a", "int32"), column("b", "int32"))  # type: ignore[arg-type]
    lake = Lake(spark, tmp_path, table.connector, kind=kind)
    table.insert({"id": 1, "a": 1, "b": 10}, {"id": 2, "a": 2, "b": 20})
    lake.follow()
    table.alter(ID, *(column(name, "int32") for name in columns), added=added, renamed=renamed)
    table.insert({"id": 3, "a": 3, "b": 30})
    lake.follow()
    found = sorted(lake.rows("s.t"), key=lambda row: row["id"])
    assert found == sorted(table.source.copy_rows("s.t"), key=lambda row: row["id"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "renamed"), [("cb", {"c": "a"}), ("ab", {"a": "b", "b": "a"})])
def test_a_column_that_the_rule_leaves_out_and_that_is_renamed_stops_the_table(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    kind: str,
    columns: str,
    renamed: dict[str, str],
) -> None:
    table = Table(tmp_path, None, column("a", "int32"), column("b", "int32"))  # type: ignore[arg-type]
    rules = TableRules.parse([{"tables": ".*", "columns": {"drop": ["a"]}}])
    lake = Lake(spark, tmp_path, table.connector, kind=kind, tables=rules)
    table.insert({"id": 1, "a": 1, "b": 10}, {"id": 2, "a": 2, "b": 20})
    lake.follow()
    table.alter(ID, *(column(name, "int32") for name in columns), renamed=renamed)
    table.insert({"id": 3, columns[0]: 30})
    with pytest.raises(
        TargetError,
        match=r"Column a of s\.t, which the rule leaves out[\s\S]*`airflow cdc snapshot test s.t --replace`",
    ):
        lake.follow()
    snapshot(table.connector, "s.t", replace=True)
    lake.follow()
    rows = [{name: row[name] for name in row if name != "a"} for row in table.source.copy_rows("s.t")]
    assert sorted(lake.rows("s.t"), key=lambda row: row["id"]) == sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("mode", ["current", "log", "keyless"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_someone_has_taken_away_is_not_made_again_without_its_values(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    kind: str,
    mode: str,
) -> None:
    """D3: rows that do not change any more would have NULL; both ways out of the error work."""
    lake = new_lake(spark, tmp_path, kind)
    if mode == "log":
        lake.tables = TableRules.parse([{"tables": r"s\.t", "mode": "log"}])
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int32!", "v": "string"}, key=() if mode == "keyless" else ("id",))
    _insert(db, *({"id": n, "v": f"v{n}"} for n in range(3)))
    lake.follow()
    if kind == "delta":
        mapping = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
        lake.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({mapping})", "s.t")
    for number, (change, back) in enumerate([("RENAME COLUMN v TO w", "RENAME COLUMN w TO v"), ("DROP COLUMN v", "")]):
        lake.sql(f"ALTER TABLE {{}} {change}", "s.t")
        _insert(db, {"id": 10 + number, "v": "x"})
        with pytest.raises(TargetError, match="no longer has the column v"):
            lake.follow()
        if back:
            lake.sql(f"ALTER TABLE {{}} {back}", "s.t")
        else:
            Path(lake.path("s.t")).rename(tmp_path / "away")
        lake.apply()
        assert lake.rows("s.t", "id", "v") == sorted(db.copy_rows("s.t"), key=repr)


def _insert(db: Any, *rows: dict[str, Any]) -> None:
    with db.transaction() as t:
        for row in rows:
            t.insert("s.t", row)


@pytest.mark.parametrize("at", [0, 600 * US, -1, 2**31 - 1, 2**31])
def test_times_around_the_epoch_are_literals_of_iceberg(spark: SparkSession, at: int) -> None:  # noqa: F811
    """# B1: Java gets small numbers as ints; for a time Iceberg takes longs and texts."""
    from airflow_provider_cdc.targets.lake.formats.iceberg.array_commit import _literal
    from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG
    from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class

    types = load_jvm_class(spark, f"{ICEBERG}.types.Types$TimestampType")
    expressions = load_jvm_class(spark, f"{ICEBERG}.expressions.Expressions")
    for type_, java in ((pa.timestamp("us"), types.withoutZone()), (pa.timestamp("us", "UTC"), types.withZone())):
        literal = expressions.lit(_literal(pa.scalar(at, type_))).to(java)
        assert literal is not None
        assert literal.value() == at


def test_dates_that_python_does_not_have_have_no_bounds(tmp_path: Path) -> None:
    """# B5: a file with such a date has statistics of all its other columns."""
    from airflow_provider_cdc.targets.lake.formats.delta.data_file_writer import compute_statistics

    days = pa.array([0, 6_675_000, None], pa.date32())
    rows = pa.table(
        {
            "d": days,
            "early": pa.array([-800_000, 0, 0], pa.date32()),
            "fit": pa.array([0, 1, 2], pa.date32()),
            "n": [1, 2, 3],
        }
    )
    pq.write_table(rows, tmp_path / "t.parquet")
    found = compute_statistics(rows)
    assert found["minValues"] == {"fit": "1970-01-01", "n": 1}
    assert found["nullCount"] == {"d": 1, "early": 0, "fit": 0, "n": 0}


def test_events_that_another_run_has_begun_to_apply_do_not_come_twice(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    """# C1: batches 1 to 3 were joined for a table at batch 1; meanwhile another run has brought it to batch 2."""
    lake = new_lake(spark, tmp_path)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.log", {"id": "int32!"}, key=("id",))
    lake.tables = TableRules.parse([{"tables": r"s\.log", "mode": "log"}])
    for id_ in (1, 2):
        with db.transaction() as t:
            t.insert("s.log", {"id": id_})
        lake.follow()
    target = load_format(lake.kind).open_target(spark, lake.path("s.log"))
    assert target.exists()
    owner, rows = target.read_owner(), target.read_rows()
    target.stand = ObservedProgress(owner.application_name, 1, 0)
    with pytest.raises(WriteConflict):
        target.append(rows, Marker(owner, 3))
    assert len(lake.rows("s.log")) == 2
    target.stand = ObservedProgress(owner.application_name, 2, 0)
    target.append(rows, Marker(owner, 3))
    assert len(lake.rows("s.log")) == 4


def test_files_stay_as_long_as_they_are_kept_and_for_a_day_at_least(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """# C5: VACUUM does not tell a file that another run is writing from one that went out of use; without a setting, it keeps files for a week."""
    lake = new_lake(spark, tmp_path)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int32!"}, key=("id",))
    lake.follow()
    folder = Path(lake.path("s.t"))
    ages = {"writing.parquet": 3, "killed.parquet": 30, "long_ago.parquet": 24 * 8}
    for name, hours in ages.items():
        (folder / name).write_bytes(b"PAR1")
        at = time.time() - hours * 3600
        os.utime(folder / name, (at, at))
    for keep, kept in ((timedelta(days=30), list(ages)), (timedelta(hours=1), ["writing.parquet"])):
        done = lake.target("s.t").list_maintenance_steps(keep)["remove old files"]()
        assert [name for name in ages if (folder / name).exists()] == kept
        assert done.changed is (len(kept) < len(ages)), done


def test_more_events_than_the_driver_has_room_for_are_reduced_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """# B6: narrow rows take few bytes in the change log, and each key hundreds in the driver."""
    monkeypatch.setattr(write_strategy, "not_on_arrays", lambda pending: "")
    monkeypatch.setattr(write_strategy, "needs_spark", lambda shape, pending: "")
    shape = SimpleNamespace(mode="current", map_column_types=lambda schema: {"id": "int"}, map_flag_types=list)
    target = SimpleNamespace(read_column_names=lambda: ["id"])
    for events, why in (
        (write_strategy.MOST_EVENTS, ""),
        (80_000_000, "80000000 events are too many for the memory of the driver"),
    ):
        pending = SimpleNamespace(changes={}, file_bytes=900 << 20, event_count=events, schema=None)
        assert write_strategy.WriteStrategy(lambda pending: None).needs_spark(target, pending, shape) == why  # type: ignore[arg-type]


def test_a_delete_at_the_end_of_a_file_belongs_to_the_move_at_the_beginning_of_the_next() -> None:
    """# C4: the values that the move leaves out are those of the row, which the delete must not take away before."""

    def events(op: str, seq: int, moves: bool) -> TableEvents:
        left_out = np.array(["v" if moves else ""], object) if moves else None
        previous = pa.table({"p": [1]}) if moves else None
        return TableEvents(
            np.array([op]),
            np.array([seq]),
            pa.table({"id": [seq]}),
            left_out,
            previous,
            np.array([True]) if moves else None,
        )

    delete, other, move = events("d", 7, False), events("d", 3, False), events("c", 8, True)
    assert [(e.op[0], int(e.seq[0])) for e in _unsplit(iter([delete, move]))] == [("c", 8)]
    assert [(e.op[0], int(e.seq[0])) for e in _unsplit(iter([other, move]))] == [("d", 3), ("c", 8)]
