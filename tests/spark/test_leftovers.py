"""Columns that the table has and the source has no more: what is in them does not depend on how events come in batches and applies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.table_rules import TableRules
from spark_jobs.targets.memory import STORED
from tests.spark.lake import Lake, Row, new_lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string", "big": "string"}
NEW_COLUMN = {"type_changes": "new_column"}


def _rules(**rule: Any) -> TableRules:
    return TableRules.parse([{"tables": ".*", **rule}])


def _lake(lake: Lake, sparse: tuple[str, ...] = (), **rule: Any) -> Lake:
    """Ten rows."""
    lake.tables = _rules(**rule)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", COLUMNS, key=("id",), sparse=sparse)
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
        assert "note" in lake.target("s.t").columns()


def _work(lake: Lake, r: random.Random) -> None:
    """Rows come and go, and some come back under the key that they had, or another one's."""
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        for _ in range(r.randint(3, 9)):
            ids = [row["id"] for row in db.rows("s.t")]
            free = [i for i in range(14) if i not in ids]
            kind = r.choice(["insert", "update", "delete", "again", "again", "move", "swap"])
            if kind == "insert" and free:
                t.insert("s.t", _row(db, r, r.choice(free)))
            elif kind == "update" and ids:
                t.update("s.t", {"id": r.choice(ids)}, _some(db, r))
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


def _some(db: Any, r: random.Random) -> Row:
    return _value(db, r.randrange(-3, 9)) if r.random() < 0.7 else {"big": r.choice(["p", "q"])}


def _value(db: Any, n: int) -> Row:
    ((_, schema),) = db.view()[1].items()
    return {"n": str(n) if schema.column("n").type == "string" else n}


def _same(once: Lake, each: Lake) -> None:
    """Both have the same rows, with all their columns in any order."""
    a, b = ({repr(sorted(row.items())) for row in lake.rows("s.t")} for lake in (once, each))
    assert (a - b, b - a) == (set(), set())


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
            _work(once, r)
            if step == turn and rule.get("type_changes") == "new_column":
                old = db.view()[1].popitem()[1].column("n").type
                db.change_column("s.t", "n", *(("string", str) if old == "int32" else ("int32", int)))
            once.connector.capture()
            each.apply()
        once.apply()
        _same(once, each)


@pytest.mark.parametrize("source", ["truncated", "deleted"])
def test_a_table_that_is_emptied_before_it_is_read_again_has_nothing_of_its_old_rows(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    STORED.clear()
    once = _lake(new_lake(spark, tmp_path, "memory"), **NEW_COLUMN)
    each, db = replace(once, name="each"), once.connector.database  # type: ignore[attr-defined]
    steps: list[Callable[[], Any]] = [
        lambda: db.truncate("s.t") if source == "truncated" else _all(db, lambda t, i: t.delete("s.t", {"id": i})),
        lambda: _all(db, lambda t, i: t.insert("s.t", {"id": i, "n": i})),
        lambda: db.change_column("s.t", "n", "string", str),
        lambda: _all(db, lambda t, i: t.update("s.t", {"id": i}, {"n": "x"})),
    ]
    _drop(once, each)
    for step in steps:
        step()
        once.connector.capture()
        each.apply()
    once.apply()
    assert {(row["note"], row["n__v_string"]) for row in once.rows("s.t")} == {(None, "x")}
    _same(once, each)


def _all(db: Any, what: Callable[[Any, int], Any]) -> None:
    with db.transaction() as t:
        for i in range(10):
            what(t, i)
