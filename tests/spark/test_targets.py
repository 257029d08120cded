"""One suite for every kind of target: owner, marker, and what each write promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.core.errors import TargetError
from spark_jobs.datatypes import structure
from spark_jobs.last import KEPT, OP
from spark_jobs.ownership import applied_batch
from spark_jobs.session import own_session
from spark_jobs.targets import TARGETS, load_format
from spark_jobs.targets.base import NEVER, Conflict, Evolution, Marker, Merge, Owner, Target
from spark_jobs.targets.memory import STORED
from tests.spark.lake import Lake

pytestmark = pytest.mark.spark
TYPES = {"id": "bigint", "n": "int", "note": "string"}
OURS, OTHERS = Owner("shop", "shop.a.orders"), Owner("billing", "shop.a.orders")


@pytest.fixture(params=sorted(TARGETS))
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Target:
    format_ = load_format(request.param)
    return format_.open(own_session(spark, format_), f"{tmp_path}/orders")


def _frame(target: Target, rows: list[tuple[Any, ...]], types: dict[str, str] = TYPES) -> DataFrame:
    return target.spark.createDataFrame(rows, structure(types))


def _rows(target: Target) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in target.rows().collect()), key=repr)


def _merge(target: Target, *rows: tuple[Any, ...], **more: Any) -> Merge:
    return Merge(_frame(target, list(rows), {OP: "string", **TYPES}), ("id",), frozenset(), TYPES, **more)


def _made(target: Target) -> Target:
    target.create(_frame(target, [(1, 10, "a"), (2, 20, "b")]), Marker(OURS, 3))
    return target


def test_a_new_table_has_rows_owner_and_marker(target: Target) -> None:
    assert not target.exists()
    assert applied_batch(target, OURS) is None
    _made(target)
    assert target.exists()
    assert target.owner() == OURS
    assert target.markers() == {OURS.app: 3}
    assert (target.marker(OURS.app), target.marker(OTHERS.app)) == (3, NEVER)
    assert target.columns() == TYPES
    assert _rows(target) == [(1, 10, "a"), (2, 20, "b")]
    assert applied_batch(target, OURS) == 3
    assert target.set_back(OURS.app) == ""
    with pytest.raises(Conflict):
        target.create(_frame(target, []), Marker(OURS, 4))


def test_each_write_moves_the_marker_and_an_older_one_is_nothing(target: Target) -> None:
    _made(target)
    target.merge(
        _merge(target, ("u", 1, 11, "x"), ("d", 2, None, None), ("c", 5, 50, "e"), ("d", 9, None, None)),
        Marker(OURS, 4),
    )
    assert _rows(target) == [(1, 11, "x"), (5, 50, "e")]
    for batch in (3, 4):
        target.merge(_merge(target, ("d", 1, None, None)), Marker(OURS, batch))
        target.append(_frame(target, [(7, 7, "g")]), Marker(OURS, batch))
        target.replace(_frame(target, []), Marker(OURS, batch))
    assert _rows(target) == [(1, 11, "x"), (5, 50, "e")]
    target.append(_frame(target, [(7, 7, "g")]), Marker(OURS, 5))
    assert (len(_rows(target)), target.marker(OURS.app)) == (3, 5)
    target.replace(_frame(target, [(8, 8, "h")]), Marker(OURS, 6))
    assert (_rows(target), target.marker(OURS.app), target.owner()) == ([(8, 8, "h")], 6, OURS)


def test_columns_are_renamed_added_and_widened_before_a_merge(target: Target) -> None:
    _made(target)
    types = {"id": "bigint", "m": "bigint", "note": "string", "more": "string"}
    evolution = Evolution(OURS.app, 2, types, (("n", "m"),), {"more": "it's ${env:HOME} \\ `x`"})
    assert target.can_evolve(evolution)
    fills = target.evolve(evolution)
    assert target.evolve(evolution) == fills  # after it was killed
    assert target.version(OURS.app) == 2
    frame = target.spark.createDataFrame(
        [("u", 1, 2**40, None, "own", ["note"])], structure({OP: "string", **types, KEPT: "array<string>"})
    )
    target.merge(Merge(frame, ("id",), frozenset(), types, fills), Marker(OURS, 4))
    assert target.columns() == types
    assert _rows(target) == [(1, 2**40, "a", "own"), (2, 20, "b", "it's ${env:HOME} \\ `x`")]


def test_a_table_of_somebody_else_is_taken_only_by_name(target: Target) -> None:
    _made(target)
    with pytest.raises(TargetError, match="belongs to connector shop"):
        applied_batch(target, OTHERS)
    assert applied_batch(target, OTHERS, adopt=True) == NEVER
    assert target.owner() == OTHERS
    with pytest.raises(TargetError, match="belongs to connector billing"):
        applied_batch(target, OURS)
    with pytest.raises(TargetError, match="of others before"):  # its number of batches is not that of its rows
        applied_batch(target, OURS, adopt=True)


def test_what_is_no_table_is_never_taken(target: Target, tmp_path: Path) -> None:
    STORED[target.location] = "a pile of files"
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a pile of files").touch()
    for adopt in (False, True):
        with pytest.raises(TargetError, match="there is a pile of files"):
            applied_batch(target, OURS, adopt=adopt)


def test_the_whole_job_works_on_tables_in_memory(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for i in range(3):
            t.insert("s.t", {"id": i, "n": i})
    lake.connector.capture()
    lake.apply(target="memory")
    db.add_column("s.t", "c", "string", "x")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 5})
        t.delete("s.t", {"id": 2})
    lake.connector.capture()
    lake.apply(target="memory")
    stored = STORED[lake.path("s.t")]
    assert not isinstance(stored, str)
    assert sorted(stored.rows.to_pylist(), key=repr) == sorted(db.rows("s.t"), key=repr)
