"""``dropped_columns: drop``: a column that the source drops goes from the table, too."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.targets.lake.lake import Lake, new_lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string"}
ODD = "it's `a.b` ${env:CDC_TEST_SECRET} é"


def _rules(**more: Any) -> TableRules:
    return TableRules.parse([{"tables": ".*", "dropped_columns": "drop", **more}])


def _lake(lake: Lake, key: tuple[str, ...] = ("id",), made: dict[str, str] = COLUMNS, **rule: Any) -> Lake:
    """A table of three rows."""
    lake.tables = _rules(**rule)
    lake.connector.database.create_table("s.t", made, key=key)
    with lake.connector.database.transaction() as t:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": 10 * i, **{c: f"{c}{i}" for c in made if c not in ("id", "n")}})
    lake.follow()
    return lake


def _change(lake: Lake, i: int, **values: Any) -> None:
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": i}, values)


def _assert_equal_rows(lake: Lake, *more: str) -> None:
    """The table has the source's rows and columns, in any order."""
    source = lake.connector.database.copy_rows("s.t")
    names = list(source[0])
    assert sorted(lake.target("s.t").read_column_types()) == sorted([*names, *more])
    assert lake.rows("s.t", *names) == sorted(source, key=repr)


@pytest.mark.every_kind
def test_columns_go_in_place_or_with_the_table_written_again(lake: Lake) -> None:
    columns = {**COLUMNS, "a b": "string", ODD: "string", "Last": "string"}
    lake = _lake(lake, made=columns)  # odd names: a Delta table drops columns in place
    db = lake.connector.database
    db.drop_column("s.t", ODD)
    lake.follow()  # without a row event, and with nothing of the columns before in its batch
    _assert_equal_rows(lake)
    if lake.kind == "delta":
        done = lake.spark.sql(f"DESCRIBE HISTORY delta.`{lake.path('s.t')}`").select("operation").collect()
        assert "DROP COLUMNS" in {row[0] for row in done}
    _change(lake, 1, n=11)
    db.drop_column("s.t", "a b")
    db.rename_column("s.t", "Last", "a b")
    db.drop_column("s.t", "note")
    db.add_column("s.t", "note", "int32", 5)
    _change(lake, 2, n=12)
    lake.follow()
    _assert_equal_rows(lake)
    db.rename_column("s.t", "note", "gone")
    db.drop_column("s.t", "gone")
    lake.follow()
    _assert_equal_rows(lake)


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "no key"])
def test_tables_that_all_users_read_stay_readable(lake: Lake, key: tuple[str, ...]) -> None:
    lake = _lake(lake, key)
    lake.connector.database.drop_column("s.t", "note")
    _change(lake, 1, n=11)
    lake.follow()
    _assert_equal_rows(lake)
    if lake.kind == "delta":
        detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.path('s.t')}`").head()
        assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)


def test_random_work_leaves_the_columns_of_the_source(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Drops, adds and renames between applies and within one, on a table of each kind and on one in memory."""
    STORED.clear()
    lake = _lake(new_lake(spark, tmp_path, kind, schema_change_rewrite_mode="ignore"), type_changes="new_column")
    memory = Lake(spark, tmp_path, lake.connector, "memory", "memory", tables=lake.tables)
    db, chance, columns = lake.connector.database, random.Random(5), ["n", "note"]
    for _ in range(3):
        for _ in range(chance.randint(2, 6)):
            what, free = chance.random(), [c for c in ("n", "note", "a", "b", ODD) if c not in columns]
            name = chance.choice(columns)
            if what < 0.35 and len(columns) > 1:
                columns.remove(name)
                db.drop_column("s.t", name)
            elif what < 0.6 and free:
                columns.append(chance.choice(free))
                db.add_column("s.t", columns[-1], chance.choice(["int32", "string"]), None)
            elif what < 0.8 and free:
                columns[columns.index(name)] = new = chance.choice(free)
                db.rename_column("s.t", name, new)
            else:
                _change(lake, chance.randrange(3), id=chance.randrange(3, 99))
        lake.connector.capture()
        for one in (lake, memory):
            one.apply()
            _assert_equal_rows(one)


@pytest.mark.parametrize("mode", ["current", "soft_delete"])
def test_only_what_is_dropped_from_now_on_goes(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    STORED.clear()
    lake = _lake(new_lake(spark, tmp_path, "memory"), mode=mode, dropped_columns="keep")
    lake.connector.database.drop_column("s.t", "note")
    lake.follow()
    lake.tables = _rules(mode=mode)  # may be said of a table that is there
    lake.connector.database.drop_column("s.t", "n")
    _change(lake, 1, id=7)
    lake.follow()
    assert sorted(row["note"] or "" for row in lake.rows("s.t") if not row.get("_is_deleted"))[-2:] == [
        "note0",
        "note2",
    ]
    assert "n" not in lake.target("s.t").read_column_types()


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"columns": {"computed": {"m": "upper(note)"}}}, "columns.computed.m names column 'note'"),
        ({"filter": "note > ''"}, "filter names column 'note'"),
        (
            {"partition_by": ["note"]},
            r"partitions or clusters the table by this column: partition_by: note[\s\S]*dropped_columns: keep",
        ),
    ],
    ids=["computed", "filter", "partition_by"],
)
def test_a_column_that_the_rule_needs_stops_the_apply(
    spark: SparkSession, tmp_path: Path, rule: dict[str, Any], says: str
) -> None:
    STORED.clear()
    lake = _lake(new_lake(spark, tmp_path, "memory"), **rule)
    before = lake.rows("s.t")
    lake.connector.database.drop_column("s.t", "note")
    with pytest.raises(TargetError, match=says):
        lake.follow()
    assert lake.rows("s.t") == before


def test_a_kill_between_any_two_commits_loses_no_other_column(make_lake: Callable[..., Lake], tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    lake = _lake(make_lake(tmp_path), made={**COLUMNS, "a b": "string"})
    db, left = lake.connector.database, [0]
    db.drop_column("s.t", "note")
    db.rename_column("s.t", "a b", "text")
    db.add_column("s.t", "x", "int32", 3)
    _change(lake, 1, n=11)
    lake.connector.capture()

    def hook(location: str, name: str, write: Callable[[], Any]) -> Any:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return write()

    lake.hook, kills = hook, 0
    for allowed in (0, 1, 2, 1, 3, 99):
        left[0] = allowed
        try:
            lake.apply()
        except (Killed, TargetError):
            kills += 1
    assert kills >= 2
    _assert_equal_rows(lake)


@pytest.mark.parametrize("stays", ["drop", "keep"])
@pytest.mark.parametrize("type_changes", ["rewrite", "new_column"])
def test_a_table_that_is_dropped_and_made_again_has_no_column_of_the_dropped_one_but_where_they_are_kept(
    lake: Lake, stays: str, type_changes: str
) -> None:
    """No statement names the columns that go with a table."""
    lake = _lake(lake, made={**COLUMNS, ODD: "string"}, dropped_columns=stays, type_changes=type_changes)
    _change(lake, 1, n=11)
    lake.connector.database.drop_table("s.t")
    lake.connector.database.create_table("s.t", {"id": "int64!", "n": "string", "new": "int32"}, key=("id",))
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": 1, "n": "eleven", "new": 7})
    lake.follow()
    names = set(lake.target("s.t").read_column_types())
    gone_on = {"n", "n__v_string"} if type_changes == "new_column" else {"n"}
    kept = {"note", ODD} if (stays, type_changes) == ("keep", "new_column") else set()
    assert names == {"id", "new", *gone_on, *kept}
    last = max(gone_on, key=len)
    assert lake.rows("s.t", "id", last, "new") == [{"id": 1, last: "eleven", "new": 7}]
