"""Applying a change log to tables: every kind of change, for every kind of target, in a real session."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.session import unique_key_check
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
ORDERS = {"id": "int64!", "n": "int32", "note": "string"}


def _orders(lake: Lake, count: int = 4) -> None:
    db = lake.connector.database
    db.create_table("s.orders", ORDERS, key=("id",))
    with db.transaction() as t:
        for i in range(count):
            t.insert("s.orders", {"id": i, "n": i, "note": f"n{i}"})


def test_a_snapshot_becomes_the_table_in_one_commit(lake: Lake) -> None:
    _orders(lake)
    report = lake.follow()
    lake.check()
    assert lake.version("s.orders") == 0
    assert [t.rows for t in report.tables] == [{"r": 4}]
    assert lake.rows("s.orders") == lake.connector.database.copy_rows("s.orders")


@pytest.mark.parametrize("large", [False, True])
def test_a_row_that_is_read_again_before_its_table_is_made_is_there_once(
    lake: Lake, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a snapshot in chunks, which empties nothing."""
    if large:
        monkeypatch.setattr(unique_key_check, "PARTITION_BYTES", 0)
    db = lake.connector.database
    for name in ("s.orders", "s.once"):
        db.create_table(name, ORDERS, key=("id",))
        with db.transaction() as t:
            for i in range(3):
                t.insert(name, {"id": i, "n": i})
    lake.connector.capture()
    number = snapshot(lake.connector, "s.orders")
    lake.connector.capture()
    assert signal_state(lake.connector, number) == ("done", "")
    lake.apply()
    lake.check()


def test_of_many_changes_of_a_key_the_last_one_counts(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 9, "n": 1})
        t.update("s.orders", {"id": 9}, {"n": 2, "note": None})
        t.delete("s.orders", {"id": 0})
        t.insert("s.orders", {"id": 0, "n": 7})
        t.update("s.orders", {"id": 1}, {"id": 100})  # a key change
        for old, new in ((2, -1), (3, 2), (-1, 3)):  # two rows exchange their keys
            t.update("s.orders", {"id": old}, {"id": new})
    with lake.connector.database.transaction() as t:
        t.delete("s.orders", {"id": 9})
    lake.follow()
    lake.check()
    assert [(r["id"], r["n"]) for r in lake.rows("s.orders")] == [(0, 7), (100, 1), (2, 3), (3, 2)]


def test_a_repeated_run_changes_nothing(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": 5})
    lake.follow()
    at = lake.version("s.orders")
    assert lake.follow().tables == []
    for report in (Path(lake.connector.changelog.storage.root) / "test/applied").iterdir():
        report.unlink()  # the shortcut is lost
    assert lake.apply().tables == []
    assert lake.version("s.orders") == at
    lake.check()


def test_batches_without_events_of_a_table_leave_it_alone(lake: Lake) -> None:
    _orders(lake)
    lake.connector.database.create_table("s.other", ORDERS, key=("id",))
    lake.follow()
    at = lake.version("s.orders")
    with lake.connector.database.transaction() as t:
        t.insert("s.other", {"id": 1})
    report = lake.follow()
    assert [t.topic for t in report.tables] == ["p.s.other"]
    assert lake.version("s.orders") == at


def test_an_empty_table_is_created_and_filled_later(lake: Lake) -> None:
    lake.connector.database.create_table("s.orders", ORDERS, key=("id",))
    lake.follow()
    assert lake.rows("s.orders") == []
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 1, "n": 2})
    lake.follow()
    lake.check()


def test_an_emptied_table_holds_what_came_after(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 50})
    lake.connector.database.truncate_table("s.orders")
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 3, "n": 33})
        t.update("s.orders", {"id": 3}, {"note": "late"})
    lake.follow()
    assert lake.rows("s.orders") == [{"id": 3, "n": 33, "note": "late"}]
    lake.connector.database.truncate_table("s.orders")
    lake.follow()
    assert lake.rows("s.orders") == []


def test_equal_rows_without_a_key_come_and_go_by_number(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    with db.transaction() as t:
        for row in ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 2, "b": "x"}):
            t.insert("s.bag", row)
    lake.follow()
    with db.transaction() as t:
        t.insert("s.bag", {"a": 2, "b": "x"})
    lake.follow()  # only inserts: an append
    with db.transaction() as t:
        t.update("s.bag", {"a": 2}, {"b": None})
        t.delete("s.bag", {"a": 1})
        t.insert("s.bag", {"a": 1})
        t.insert("s.bag", {"a": 1})
    lake.follow()
    lake.check()
    assert [r["a"] for r in lake.rows("s.bag")] == [1, 1, 2, 2]


def test_several_batches_of_a_table_without_a_key_are_each_a_commit(lake: Lake) -> None:
    """Adding a row is the one write that is wrong when done twice; so the marker moves with every batch."""
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int32"})
    lake.follow()
    for i in range(3):
        with db.transaction() as t:
            t.insert("s.bag", {"a": i})
        lake.connector.capture()
    assert [(t.first_batch, t.last_batch) for t in lake.apply().tables] == [(2, 2), (3, 3), (4, 4)]
    lake.check()


# -- columns ----------------------------------------------------------------------------------------------------------


def test_a_new_column_has_its_default_in_rows_that_were_there(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    db = lake.connector.database
    db.add_column("s.orders", "c", "string", "it's \\ new")
    db.add_column("s.orders", "d", "int64")
    with db.transaction() as t:
        t.update("s.orders", {"id": 1}, {"c": "changed", "d": 5})
        t.insert("s.orders", {"id": 70, "c": "own"})
    lake.follow()
    lake.check()
    assert {r["c"] for r in lake.rows("s.orders")} == {"it's \\ new", "changed", "own"}


def test_a_new_column_is_filled_though_no_row_changes(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    lake.connector.database.add_column("s.orders", "c", "int32", 7)
    lake.follow()
    lake.check()


def test_a_column_that_was_dropped_stays_with_its_values(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    lake.connector.database.drop_column("s.orders", "note")
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": 8})
        t.insert("s.orders", {"id": 60, "n": 6})
    lake.follow()
    lake.check()
    assert {r["id"]: r["note"] for r in lake.rows("s.orders")} == {0: "n0", 1: "n1", 2: "n2", 3: "n3", 60: None}


def test_a_wider_type_keeps_the_values(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    lake.connector.database.change_column("s.orders", "n", "int64", int)
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 60, "n": 2**40})
    lake.follow()
    lake.check()
    assert dict(lake.frame("s.orders").dtypes)["n"] == "bigint"


def test_new_columns_may_have_types_that_the_table_did_not_have(lake: Lake) -> None:
    _orders(lake, 1)
    lake.follow()
    types = (
        "timestamp[us]",
        "timestamp[us, tz=UTC]",
        "decimal128(20, 5)",
        "binary",
        "date32[day]",
        "list<item: float>",
    )
    for i, type_ in enumerate(types):
        lake.connector.database.add_column("s.orders", f"c {i}", type_)
    lake.follow()
    lake.check()
    lake.connector.database.drop_column("s.orders", "note")
    lake.connector.database.add_column("s.orders", "note", "timestamp[us]")  # the table is written again
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 5})
    lake.follow()
    lake.check()


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("key", [("id",), ()])
def test_another_type_reads_the_table_again(lake: Lake, key: tuple[str, ...]) -> None:
    lake.connector.database.create_table("s.t", ORDERS, key=key)
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 2})
    lake.follow()
    lake.connector.database.change_column("s.t", "n", "string", str)
    lake.follow()
    lake.check()
    assert dict(lake.frame("s.t").dtypes)["n"] == "string"


def test_another_type_of_a_table_that_is_empty(lake: Lake) -> None:
    lake.connector.database.create_table("s.t", ORDERS, key=("id",))
    lake.follow()
    lake.connector.database.change_column("s.t", "n", "string", str)
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": 1, "n": "two"})
    lake.follow()
    lake.check()


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("key", [("id",), ()])
def test_renamed_columns_keep_their_values(lake: Lake, key: tuple[str, ...]) -> None:
    db = lake.connector.database
    db.create_table("s.t", ORDERS, key=key)
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 2, "note": "a"})
        t.insert("s.t", {"id": 2, "n": 3, "note": "b"})
    lake.follow()
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 4})
    db.rename_columns("s.t", n="m", id="ident")
    with db.transaction() as t:
        t.update("s.t", {"ident": 1}, {"note": "c"})
    db.rename_columns("s.t", m="number")
    lake.follow()
    lake.check()
    assert lake.rows("s.t", "ident", "number", "note") == [
        {"ident": 1, "number": 4, "note": "c"},
        {"ident": 2, "number": 3, "note": "b"},
    ]
    assert not {"n", "m", "id"} & set(lake.frame("s.t").columns)


def test_columns_that_exchange_names_exchange_values(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "a": "int32", "b": "int32"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "a": 10, "b": 20})
        t.insert("s.t", {"id": 2, "a": 11, "b": 21})
    lake.follow()
    db.rename_columns("s.t", a="b", b="a")
    with db.transaction() as t:
        t.update("s.t", {"id": 2}, {"a": 0})
        t.insert("s.t", {"id": 3, "a": 5})
        t.delete("s.t", {"id": 3})
    lake.follow()
    lake.check()


def test_a_column_takes_the_name_of_one_that_was_dropped(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    db = lake.connector.database
    db.drop_column("s.orders", "note")
    lake.follow()
    db.rename_columns("s.orders", n="note")
    with db.transaction() as t:
        t.update("s.orders", {"id": 1}, {"note": 100})
    lake.follow()
    lake.check()


@pytest.mark.parametrize("value", [None, "x"])
def test_a_column_dropped_and_added_again_with_another_type(lake: Lake, value: str | None) -> None:
    _orders(lake)
    lake.follow()
    db = lake.connector.database
    db.drop_column("s.orders", "n")
    db.add_column("s.orders", "n", "string", value)
    with db.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": "one"})
        t.delete("s.orders", {"id": 2})
    lake.follow()
    lake.check()
    assert dict(lake.frame("s.orders").dtypes)["n"] == "string"


def test_a_column_dropped_and_added_again_has_none_of_its_old_values(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    lake.connector.database.drop_column("s.orders", "n")
    lake.follow()
    lake.connector.database.add_column("s.orders", "n", "int32")
    lake.follow()
    lake.check()
    assert {r["n"] for r in lake.rows("s.orders")} == {None}


def test_a_key_that_changes_between_events(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "code": "int64!", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.t", {"id": i, "code": i + 10, "n": i})

    def equal() -> None:
        assert lake.rows("s.t") == sorted(db.copy_rows("s.t"), key=repr)

    lake.follow()
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"code": 50})  # under the old key this row is the same one
    db.change_key("s.t", "code")
    with db.transaction() as t:
        t.update("s.t", {"code": 12}, {"id": 70})
    db.change_key("s.t")
    lake.follow()
    equal()
    with db.transaction() as t:
        t.delete("s.t", {"id": 0})
    lake.follow()
    equal()
    db.change_key("s.t", "id")
    with db.transaction() as t:
        t.update("s.t", {"id": 3}, {"n": 30})
    lake.follow()
    equal()


def test_a_type_that_a_table_cannot_hold_beside_the_old_one_is_an_error_and_changes_nothing(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, schema_change_rewrite_mode="ignore")
    _orders(lake)
    lake.follow()
    lake.connector.database.change_column("s.orders", "note", "int64", len)
    before = lake.rows("s.orders")
    with pytest.raises(TargetError, match=r"note has the type string in the table.*needs the type bigint"):
        lake.follow()
    assert lake.rows("s.orders") == before


# -- several tables ---------------------------------------------------------------------------------------------------


def test_many_tables_are_applied_side_by_side(lake: Lake) -> None:
    db = lake.connector.database
    for i in range(4):
        db.create_table(f"s.t{i}", ORDERS, key=("id",))
        with db.transaction() as t:
            t.insert(f"s.t{i}", {"id": i, "n": 1})
    assert len(lake.follow().tables) == 4
    with db.transaction() as t:
        for i in range(4):
            t.update(f"s.t{i}", {"id": i}, {"n": 2})
    lake.connector.capture()
    lake.apply(threads=3)
    lake.check()


def test_a_table_that_fails_is_caught_up_by_the_next_run(lake: Lake) -> None:
    _orders(lake)
    lake.connector.database.create_table("s.other", ORDERS, key=("id",))
    lake.follow()
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": 5})
        t.insert("s.other", {"id": 1})
    log = lake.log("s.orders")
    log.rename(log.with_name("hidden"))
    log.write_text("in the way")
    with pytest.raises(TargetError, match=r"1 of 2 tables[\s\S]*p\.s\.orders"):
        lake.follow()
    lake.check("s.other")
    at = lake.version("s.other")
    log.unlink()
    log.with_name("hidden").rename(log)
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 88})
    lake.follow()
    lake.check()
    assert lake.version("s.other") == at


def test_a_table_that_was_removed_is_built_again(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    Path(lake.path("s.orders")).rename(lake.folder / "gone")
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": 5})
    lake.follow()
    lake.check()


def test_a_second_place_gets_everything_too(lake: Lake) -> None:
    _orders(lake)
    lake.follow()
    second = replace(lake, name="second")
    second.apply()
    second.check()


def test_two_tables_in_one_place_are_refused(lake: Lake) -> None:
    _orders(lake)
    lake.connector.database.create_table("s.other", ORDERS, key=("id",))
    lake.connector.capture()
    with pytest.raises(ConfigError, match="would both be at"):
        lake.apply(location=f"{lake.folder}/all")
    with pytest.raises(ConfigError, match="Valid names are: connector, topic, database, table"):
        lake.apply(location=f"{lake.folder}/{{tabel}}")


# -- random -----------------------------------------------------------------------------------------------------------


@pytest.mark.every_kind
@pytest.mark.parametrize(
    ("seed", "sparse"),
    [
        # rows that the log has whole are what spark/test_random.py writes on a real server
        *(pytest.param(seed, (), marks=pytest.mark.long) for seed in (0, 1)),
        pytest.param(2, ("note",), marks=pytest.mark.long),
        (3, ("note", "n")),
    ],
)
def test_random_work_ends_equal(lake: Lake, seed: int, sparse: tuple[str, ...]) -> None:
    r = random.Random(seed)
    work = Workload(lake.connector.database, sparse=sparse)
    for _ in range(4):
        for _ in range(r.choice((5, 40, 80))):
            work.step(r)
        lake.connector.capture()
        if r.random() < 0.7:
            lake.apply()
            lake.check(*work.tables)
    lake.follow()
    lake.check(*work.tables)
    for table in work.tables:
        names = lake.connector.replay.tables[f"p.{table}"].schema.column_names
        rows = [{n: row[n] for n in names} for row in lake.connector.database.copy_rows(table)]
        assert lake.rows(table, *names) == sorted(rows, key=repr)
