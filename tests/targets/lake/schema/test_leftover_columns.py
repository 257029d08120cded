"""Columns that the table has and the source has no more: what is in them does not depend on how events come in batches and applies."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Lake, Row, new_lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string", "big": "string"}
NEW_COLUMN: dict[str, Any] = {"type_changes": "new_column"}


def _rules(**rule: Any) -> TableRules:
    return TableRules.parse([{"tables": ".*", **rule}])


def _lake(lake: Lake, sparse: tuple[str, ...] = (), key: tuple[str, ...] = ("id",), **rule: Any) -> Lake:
    """Ten rows."""
    lake.tables = _rules(**rule)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", COLUMNS, key=key, sparse=sparse)
    with db.transaction() as t:
        for i in range(10):
            t.insert("s.t", {"id": i, "n": i, "note": f"was {i}", "big": f"big {i}"})
    lake.connector.capture()
    return lake


def _drop(*lakes: Lake) -> None:
    """The source drops the column ``note`` of tables that have it."""
    for lake in lakes:
        lake.apply()
    lakes[0].connector.database.drop_column("s.t", "note")  # type: ignore[attr-defined]
    lakes[0].connector.capture()
    for lake in lakes:
        lake.apply()
        assert "note" in lake.target("s.t").read_column_types()


def _write_transactions(lake: Lake, r: random.Random) -> None:
    """Rows come and go, and some come back under the key that they had, or another one's."""
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        for _ in range(r.randint(3, 9)):
            ids = [row["id"] for row in db.copy_rows("s.t")]
            free = [i for i in range(14) if i not in ids]
            kind = r.choice(["insert", "update", "delete", "again", "again", "move", "swap"])
            if kind == "insert" and free:
                t.insert("s.t", _row(db, r, r.choice(free)))
            elif kind == "update" and ids:
                t.update("s.t", {"id": r.choice(ids)}, _draw_value(db, r))
            elif kind in ("delete", "again") and ids:
                i = r.choice(ids)
                t.delete("s.t", {"id": i})
                if kind == "again":
                    t.insert("s.t", _row(db, r, i))
            elif kind == "move" and ids and free:
                t.update("s.t", {"id": r.choice(ids)}, {"id": r.choice(free)})
            elif kind == "swap" and len(ids) > 1:
                a, b = r.sample(ids, 2)
                for old, new in ((a, 99), (b, a), (99, b)):
                    t.update("s.t", {"id": old}, {"id": new})


def _row(db: Any, r: random.Random, i: int) -> Row:
    return {**_value(db, r.randrange(-3, 9)), "id": i, "big": r.choice(["x", "y"])}


def _draw_value(db: Any, r: random.Random) -> Row:
    return _value(db, r.randrange(-3, 9)) if r.random() < 0.7 else {"big": r.choice(["p", "q"])}


def _value(db: Any, n: int) -> Row:
    ((_, schema),) = db.read_consistent_view()[1].items()
    return {"n": str(n) if schema.get_column("n").type == "string" else n}


def _assert_equal_tables(once: Lake, each: Lake, *but: str) -> None:
    """Both have the same rows, with all their columns in any order.

    :param but: columns that are not looked at
    """
    a, b = (
        Counter(repr(sorted((c, v) for c, v in row.items() if c not in but)) for row in lake.rows("s.t"))
        for lake in (once, each)
    )
    assert (a - b, b - a) == (Counter(), Counter())


@pytest.mark.every_kind
@pytest.mark.parametrize("written", ["in place", "anew"])
def test_a_row_that_is_inserted_again_has_nothing_of_the_one_that_was_deleted(lake: Lake, written: str) -> None:
    lake = _lake(lake)
    _drop(lake)
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.insert("s.t", {"id": 1, "n": 100})
        t.update("s.t", {"id": 2}, {"n": 200})
        t.update("s.t", {"id": 3}, {"id": 99})
        t.update("s.t", {"id": 4}, {"id": 3})
        t.update("s.t", {"id": 99}, {"id": 4})
        t.delete("s.t", {"id": 5})
        t.update("s.t", {"id": 6}, {"id": 5})
        t.insert("s.t", {"id": 11, "n": 11})
    if written == "anew":
        db.rename_columns("s.t", n="m", big="n")
    lake.follow()
    found = {row["id"]: row["note"] for row in lake.rows("s.t")}
    assert found == {
        **{i: f"was {i}" for i in (0, 2, 7, 8, 9)}, **dict.fromkeys((1, 3, 4, 5, 11)),
    }  # fmt: skip
    lake.check()


RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter": "n >= 0"},
    "new_column": NEW_COLUMN,
    "soft_delete": {**NEW_COLUMN, "mode": "soft_delete"},
    "history": {**NEW_COLUMN, "mode": "history"},
}
CASES = [
    pytest.param(
        rule, sparse, again, marks=[] if name == "new_column" and sparse else [pytest.mark.long], id=f"{name}-{sparse}-{again}"
    )
    for name, rule in RULES.items()
    for sparse in (((),) if name == "filter" else ((), ("big",)))
    for again in ((False, True) if "type_changes" in rule else (False,))
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sparse", "read_again"), CASES)
def test_batches_applied_at_once_or_one_by_one_give_the_same(
    spark: SparkSession, tmp_path: Path, rule: dict[str, Any], sparse: tuple[str, ...], read_again: bool
) -> None:
    STORED.clear()
    rewrites = {} if read_again else {"schema_change_rewrite_mode": "ignore"}
    once = _lake(new_lake(spark, tmp_path, "memory", **rewrites), sparse, **rule)
    r, each = random.Random(len(repr(rule)) + len(sparse)), replace(once, name="each")
    db = once.connector.database  # type: ignore[attr-defined]
    _drop(once, each)
    for turn in range(3):
        for step in range(4):
            _write_transactions(once, r)
            if step == turn and rule.get("type_changes") == "new_column":
                old = db.read_consistent_view()[1].popitem()[1].get_column("n").type
                db.change_column("s.t", "n", *(("string", str) if old == "int32" else ("int32", int)))
            once.connector.capture()
            each.apply()
        once.apply()
        _assert_equal_tables(once, each)


@pytest.mark.parametrize("source", ["truncated", "deleted"])
def test_a_table_that_is_emptied_before_it_is_read_again_has_nothing_of_its_old_rows(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    STORED.clear()
    once = _lake(new_lake(spark, tmp_path, "memory"), **NEW_COLUMN)
    each, db = replace(once, name="each"), once.connector.database  # type: ignore[attr-defined]
    steps: list[Callable[[], Any]] = [
        lambda: (
            db.truncate_table("s.t")
            if source == "truncated"
            else _change_all(db, lambda t, i: t.delete("s.t", {"id": i}))
        ),
        lambda: _change_all(db, lambda t, i: t.insert("s.t", {"id": i, "n": i})),
        lambda: db.change_column("s.t", "n", "string", str),
        lambda: _change_all(db, lambda t, i: t.update("s.t", {"id": i}, {"n": "x"})),
    ]
    _drop(once, each)
    for step in steps:
        step()
        once.connector.capture()
        each.apply()
    once.apply()
    assert {(row["note"], row["n__v_string"]) for row in once.rows("s.t")} == {(None, "x")}
    _assert_equal_tables(once, each)


def _change_all(db: Any, what: Callable[[Any, int], Any]) -> None:
    with db.transaction() as t:
        for i in range(10):
            what(t, i)


# -- what events say before the source drops a column -----------------------------------------------------------------


@pytest.mark.every_kind
@pytest.mark.parametrize(("key", "writes"), [(("id",), "auto"), (("id",), "merge"), ((), "auto")])
def test_what_comes_before_a_drop_in_the_same_apply_is_in_the_column_that_stays(
    lake: Lake, key: tuple[str, ...], writes: str
) -> None:
    lake = _lake(lake, key=key)
    lake.apply()
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        for i in (1, 2, 4):
            t.update("s.t", {"id": i}, {"note": f"told {i}"})
        t.update("s.t", {"id": 2}, {"id": 22})
        t.delete("s.t", {"id": 3})
        t.insert("s.t", {"id": 3, "n": 3, "note": "again"})
        t.insert("s.t", {"id": 11, "n": 11, "note": "new"})
    db.add_column("s.t", "short", "int32", 7)  # it comes and goes within the apply
    with db.transaction() as t:
        t.update("s.t", {"id": 6}, {"short": 8})
    db.rename_column("s.t", "note", "memo")
    db.drop_column("s.t", "memo")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 100})
        t.delete("s.t", {"id": 4})
        t.insert("s.t", {"id": 4, "n": 4})
        t.update("s.t", {"id": 5}, {"id": 55})
        t.insert("s.t", {"id": 12, "n": 12})
    db.drop_column("s.t", "short")
    lake.connector.capture()
    lake.apply(writes=writes)
    lake.check()
    memo = {0: "was 0", 1: "told 1", 22: "told 2", 3: "again", 11: "new", **{i: f"was {i}" for i in (6, 7, 8, 9)}}
    followed = {} if key else {55: "was 5"}  # a row without a key is the same row after its id has changed
    found = {row["id"]: (row["memo"], row["short"]) for row in lake.rows("s.t")}
    assert found == {
        **{i: (text, 8 if i == 6 else 7) for i, text in (memo | followed).items()},
        **dict.fromkeys((4, 12), (None, None)),
        **({55: (None, 7)} if key else {}),
    }


DROPS: dict[str, dict[str, Any]] = {
    **RULES, "log": {"mode": "log"}, "soft_delete, filter": {"mode": "soft_delete", "filter": "n >= 0"},
    "routed": {"route": [{"when": "n >= 0", "location": "HERE"}], "otherwise": "drop"}, "shared": {"shard": {"shard": "it's one"}},
    "other key": {}, "no key": {}, "no key, filter": {"filter": "n >= 0"},
}  # fmt: skip


OF_THE_SNAPSHOT = ("_seq", "_seq_to", "_commit_ts", "_valid_from")
"""Two snapshots read rows in other orders, at other times."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("read_again", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", DROPS)
def test_columns_that_stay_do_not_depend_on_how_events_come_in_batches_and_applies(
    spark: SparkSession, tmp_path: Path, name: str, read_again: bool
) -> None:
    STORED.clear()
    rewrites = {} if read_again else {"schema_change_rewrite_mode": "ignore"}
    once = _lake(new_lake(spark, tmp_path, "memory", **rewrites), key=() if name.startswith("no key") else ("id",))
    db = once.connector.database  # type: ignore[attr-defined]
    few = memory_connector(db, tmp_path / "few", topic_prefix="p", **rewrites)
    few.capture()
    each, whole = replace(once, name="each"), replace(once, name="whole", connector=few)
    for lake in (once, each, whole):
        lake.tables = TableRules.parse(json.dumps([{"tables": ".*", **DROPS[name]}]).replace("HERE", lake.path("s.t")))
        lake.apply()
    r = random.Random(name)
    for turn in range(2):
        for step in range(4):
            if step == turn:
                db.add_column("s.t", f"memo{turn}", "string", "default")
            _write_transactions(once, r)
            with db.transaction() as t:
                there = db.copy_rows("s.t")
                for column in [c for c in (there or [{}])[0] if c.startswith("memo")]:
                    t.update("s.t", {"id": r.choice(there)["id"]}, {column: f"told {turn} {step}"})
            if step == turn + 1 and name != "shared":  # there a renamed column is another one, for its rows
                db.rename_columns("s.t", **{f"memo{turn}": f"memory{turn}"})
            if step == 1 and name == "other key":
                db.change_key("s.t", *(("id", "big"), ("id",))[turn])
            if step == turn + 2:
                if read_again:
                    db.truncate_table("s.t")
                    _write_transactions(once, r)
                db.drop_column("s.t", f"memo{turn}" if name == "shared" else f"memory{turn}")
            _write_transactions(once, r)
            once.connector.capture()
            each.apply()
        few.capture()
        for lake in (once, whole):
            lake.apply()
            _assert_equal_tables(lake, each, *OF_THE_SNAPSHOT)


def test_a_table_without_a_key_that_is_written_again_stops_where_its_rule_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    STORED.clear()
    lake = _lake(new_lake(spark, tmp_path, "memory", schema_change_rewrite_mode="ignore"), key=(), type_changes="stop")
    lake.apply()
    before = lake.rows("s.t")
    lake.connector.database.change_column("s.t", "n", "string", str)  # type: ignore[attr-defined]
    lake.connector.capture()
    with pytest.raises(TargetError, match="n has the type int in the table and needs the type string"):
        lake.apply(writes="merge")
    assert lake.rows("s.t") == before
