"""Changes of columns at the source and their effect on a table, case by case, beyond test_apply.py; and rules about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.every_kind]
COLUMNS = {"id": "int64!", "n": "int32", "note": "string"}


def _lake(make_lake: Callable[..., Lake], folder: Path, key: tuple[str, ...] = ("id",), **rule: Any) -> Lake:
    """A table of three rows, kept by a rule. It is not read again after a change of type."""
    lake = make_lake(folder, schema_change_rewrite_mode="ignore")
    lake.tables = TableRules.parse([{"tables": r"s\..*", **rule}])
    lake.connector.database.create_table("s.t", COLUMNS, key=key)
    with lake.connector.database.transaction() as t:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": 10 * i, "note": f"n{i}"})
    lake.follow()
    return lake


def _equal(lake: Lake) -> None:
    ((_, schema),) = lake.connector.database.read_consistent_view()[1].items()
    assert lake.rows("s.t", *schema.column_names) == sorted(lake.connector.database.copy_rows("s.t"), key=repr)


def _change(lake: Lake, i: int, **values: Any) -> None:
    with lake.connector.database.transaction() as t:
        t.update("s.t", {"id": i}, values)


def test_another_order_and_nullability_change_nothing_in_the_table(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = _lake(make_lake, tmp_path)
    lake.connector.database.arrange_columns("s.t", "note", "id", "n", nullable=False)
    _change(lake, 1, n=11)
    lake.follow()
    lake.connector.database.arrange_columns("s.t", "n", "note", "id")
    _change(lake, 2, n=None, note=None)
    lake.follow()
    lake.check()
    assert lake.frame("s.t").columns == ["id", "n", "note"]


def test_a_column_that_the_table_is_partitioned_by_may_be_dropped(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = _lake(make_lake, tmp_path, partition_by=["note"])
    lake.connector.database.drop_column("s.t", "note")
    _change(lake, 1, n=11)
    lake.follow()
    lake.check()
    assert [row["note"] for row in lake.rows("s.t")] == ["n0", "n1", "n2"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", [("id",), ()])
def test_values_become_equal_ones_of_another_type_or_the_apply_stops(
    make_lake: Callable[..., Lake], tmp_path: Path, key: tuple[str, ...]
) -> None:
    lake = _lake(make_lake, tmp_path, key)
    db = lake.connector.database
    db.change_column("s.t", "n", "string", str)
    _change(lake, 1, n="011")
    lake.follow()
    _equal(lake)
    assert dict(lake.frame("s.t").dtypes)["n"] == "string"
    before = lake.rows("s.t")
    db.change_column("s.t", "n", "int64", int)
    _change(lake, 2, note="x")
    with pytest.raises(
        TargetError,
        match="n has the type string in the table and needs the type bigint, but 1 values have no equal value",
    ):
        lake.follow()
    assert lake.rows("s.t") == before


@pytest.mark.sampled(2)
def test_other_types_stop_the_apply_if_the_rule_says_so(make_lake: Callable[..., Lake], tmp_path: Path) -> None:
    lake = _lake(make_lake, tmp_path, type_changes="stop")
    db = lake.connector.database
    db.change_column("s.t", "n", "int64", int)  # that one holds all values
    lake.follow()
    before = lake.rows("s.t")
    db.change_column("s.t", "n", "string", str)
    db.truncate_table("s.t")
    with pytest.raises(
        TargetError, match=r"n has the type bigint in the table and needs the type string[\s\S]*type_changes: rewrite"
    ):
        lake.follow()
    assert lake.rows("s.t") == before
    lake.tables = TableRules.parse(
        [{"tables": r"s\..*", "type_changes": "rewrite"}]
    )  # may be said of a table that is there
    lake.apply()
    lake.check()
    assert lake.rows("s.t") == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["log", "history"])
def test_what_was_is_reported_with_the_new_type_too(make_lake: Callable[..., Lake], tmp_path: Path, mode: str) -> None:
    lake = _lake(make_lake, tmp_path, mode=mode)
    lake.connector.database.change_column("s.t", "n", "string", str)
    _change(lake, 1, n="eleven")
    lake.follow()
    assert [row["n"] for row in sorted(lake.rows("s.t"), key=lambda row: row["_seq"])] == ["0", "10", "20", "eleven"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mode", ["log", "history", "soft_delete"])
@pytest.mark.parametrize("batches", [1, 2, 3], ids=["all at once", "after the first", "one by one"])
def test_what_was_before_a_column_got_a_type_with_less_room_keeps_its_value(
    make_lake: Callable[..., Lake], tmp_path: Path, mode: str, batches: int
) -> None:
    lake = make_lake(tmp_path)
    lake.tables = TableRules.parse([{"tables": r"s\..*", "mode": mode}])
    db = lake.connector.database
    columns = {"id": "int64!", "n": "int64", "d": "decimal128(10, 4)", "at": "timestamp[us]", "other": "int32"}
    db.create_table("s.t", columns, key=("id",))
    row = {"n": 2**40, "d": Decimal("1.2345"), "at": datetime(2024, 2, 29, 12), "other": 1}
    with db.transaction() as t:
        for i in (1, 2):
            t.insert("s.t", {"id": i, **row})
    lake.connector.capture()
    if batches > 1:
        lake.apply()
    with db.transaction() as t:
        t.delete("s.t", {"id": 1})
    db.change_column("s.t", "n", "int32", lambda n: 40)
    db.change_column("s.t", "d", "decimal128(8, 2)", lambda d: Decimal("1.23"))
    db.change_column("s.t", "at", "date32[day]", lambda at: at.date())
    lake.connector.capture()
    if batches > 2:
        lake.apply()
    db.change_column("s.t", "other", "string", str)  # the table is written again
    lake.follow()
    gone = [found for found in lake.rows("s.t") if found["id"] == 1]
    assert len(gone) == {"log": 2, "history": 1, "soft_delete": 1}[mode]
    assert [{name: found[name] for name in row} for found in gone] == [{**row, "other": "1"}] * len(gone)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["log", "history"])
def test_an_event_with_a_value_that_another_type_does_not_have_stops_the_apply(
    make_lake: Callable[..., Lake], tmp_path: Path, mode: str
) -> None:
    lake = _lake(make_lake, tmp_path, mode=mode)
    db = lake.connector.database
    db.add_column("s.t", "x", "double")
    lake.follow()
    before = lake.rows("s.t")
    _change(lake, 1, x=1.25)
    db.change_column("s.t", "x", "decimal128(9, 1)", lambda x: Decimal("1.3"))
    _change(lake, 1, x=Decimal("7.0"))
    with pytest.raises(
        TargetError, match=r"x has the type double in the table and needs the type decimal\(9,1\), but 1 "
    ):
        lake.follow()
    assert lake.rows("s.t") == before


def test_a_log_does_not_lose_values_of_a_column_that_is_made_again_with_another_type(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = _lake(make_lake, tmp_path, mode="log")
    before = lake.rows("s.t")
    lake.connector.database.drop_column("s.t", "n")
    lake.connector.database.add_column("s.t", "n", "string")
    with pytest.raises(TargetError, match="n has the type int in the table and needs the type string"):
        lake.follow()
    assert lake.rows("s.t") == before


def test_names_that_differ_in_upper_and_lower_case_only_are_refused_before_anything_is_written(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.new", {"id": "int64!", "Name": "string", "name": "string"}, key=("id",))
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1})
        t.insert("s.new", {"id": 1, "Name": "a", "name": "b"})
    refused = r"differ only in upper and lower case[\s\S]*s\.new: Name, name[\s\S]*column\.exclude\.list"
    with pytest.raises(TargetError, match=refused):
        lake.follow()
    lake.check("s.t")
    assert not Path(lake.path("s.new")).exists()
    before = lake.version("s.t")
    db.add_column("s.t", "NOTE", "string", "x")
    with pytest.raises(TargetError, match=re.escape("s.t: note, NOTE")):
        lake.follow()
    assert lake.version("s.t") == before


def test_a_table_that_is_dropped_and_created_again_has_the_rows_of_the_new_one(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 1})
    lake.follow()
    db.drop_table("s.t")
    db.create_table("s.t", {"id": "int64!", "n": "string"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 2, "n": "two"})
    lake.follow()
    assert [row["id"] for row in lake.rows("s.t")] == [2]


def test_a_table_that_is_renamed_goes_on_in_a_table_of_its_new_name(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 1})
    lake.follow()
    db.rename_tables(("s.t", "s.u"))
    with db.transaction() as t:
        t.insert("s.u", {"id": 2, "n": 2})
    lake.follow()
    assert [row["id"] for row in lake.rows("s.u")] == [1, 2]
    assert [row["id"] for row in lake.rows("s.t")] == [1]
