"""Building tables again from the change log: in their places with writers beside, or elsewhere as of any batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import BatchesRemoved, ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables, RebuiltTable
from airflow_provider_cdc.targets.lake.rebuild.rebuild_placement import InPlaceRebuild
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
ORDERS = "p.s.orders"
COLUMNS = {"id": "int64!", "n": "int8", "note": "string", "x": "double", "d": "decimal128(38, 10)", "raw": "binary"}


def _database(lake: Lake) -> Any:
    return lake.connector.database  # type: ignore[attr-defined]


def _job(lake: Lake, **options: Any) -> RebuildTables:
    given = {"location": lake.location, "target": lake.kind, **options}
    return RebuildTables(lake.spark, lake.connector.changelog, lake.connector.name, **given)


def _rebuild(lake: Lake, *topics: str, **options: Any) -> list[RebuiltTable]:
    return _job(lake, **options).run(topics or [ORDERS])


def _fill_tables(lake: Lake) -> None:
    db = _database(lake)
    db.create_table("s.orders", COLUMNS, key=("id",))
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    with db.transaction() as t:
        for i in range(20):
            t.insert("s.orders", {"id": i, "n": i, "note": None if i % 3 else "", "x": -0.0 if i % 2 else float("nan")})
            t.insert("s.bag", {"a": i % 4})
    lake.follow()
    with db.transaction() as t:
        t.update("s.orders", {"id": 3}, {"raw": b"\x00\xff"})
        t.delete("s.orders", {"id": 4})
        t.delete("s.bag", {"a": 3})
    lake.follow()


def _damage(lake: Lake) -> None:
    lake.sql("DELETE FROM {} WHERE id IN (1, 2)", "s.orders")
    lake.sql("UPDATE {} SET note = '' WHERE id = 5", "s.orders")
    lake.sql("INSERT INTO {} (id, note) VALUES (100, 'x'), (9, 'twice')", "s.orders")
    lake.sql("INSERT INTO {} VALUES (0, null)", "s.bag")


def _images(lake: Lake) -> list[str]:
    """All rows of both tables; as texts, in which NaN equals itself and -0.0 is not 0.0."""
    return [repr(lake.rows(table)) for table in ("s.orders", "s.bag")]


def _ids(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in lake.rows("s.orders", "id"))


def _marker(lake: Lake, table: str = "s.orders") -> int:
    target = lake.target(table)
    assert target.exists()
    return int(target.read_marker(lake.owner(f"p.{table}").application_name))


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_damaged_table_is_right_again_by_one_commit_and_the_apply_goes_on(lake: Lake) -> None:
    _fill_tables(lake)
    sound = _images(lake)
    _damage(lake)
    assert _images(lake) != sound
    before, version = _marker(lake), lake.version("s.orders")
    with _database(lake).transaction() as t:  # captured, and not applied yet
        t.insert("s.orders", {"id": 30, "n": 1})
    lake.connector.capture()
    done = _rebuild(lake, ORDERS, "p.s.bag")
    assert [(d.topic, d.batch) for d in done] == [(ORDERS, before), ("p.s.bag", before)]
    assert (_marker(lake), lake.version("s.orders")) == (before, version + 1)
    assert _images(lake) == sound
    lake.check("s.bag")
    lake.apply()
    assert _ids(lake) == [*range(4), *range(5, 20), 30]
    assert _marker(lake) == before + 1


@pytest.mark.every_kind
def test_an_apply_in_between_makes_it_begin_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill_tables(lake)
    _damage(lake)
    job, batch, db = _job(lake), _marker(lake), _database(lake)
    rows, calls = InPlaceRebuild._rows, list[int]()

    def apply_between(self: InPlaceRebuild, target: Any, pending: Any, marker: Any, shape: Any) -> Any:
        if not calls:
            with db.transaction() as t:
                t.insert("s.orders", {"id": 30, "n": 1})
            lake.follow()
        calls.append(pending.last)
        return rows(self, target, pending, marker, shape)

    monkeypatch.setattr(InPlaceRebuild, "_rows", apply_between)
    assert [d.batch for d in job.run([ORDERS])] == [batch + 1]
    assert calls == [batch, batch + 1]
    assert _ids(lake) == [*range(4), *range(5, 20), 30]


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_table_is_built_beside_as_of_any_batch(lake: Lake) -> None:
    _fill_tables(lake)
    now = lake.rows("s.orders", "id")
    to = f"{lake.folder}/beside/{{table}}"
    (done,) = _rebuild(lake, to=to, batch=1)
    beside = load_format(lake.kind).open_target(lake.spark, done.location)
    assert beside.exists()
    owner = lake.owner(ORDERS)
    assert (beside.read_owner(), beside.read_marker(owner.application_name)) == (owner, 1)
    assert sorted(r.id for r in beside.read_rows().select("id").collect()) == list(range(20))
    assert lake.rows("s.orders", "id") == now
    with pytest.raises(TargetError, match=r"a table as of batch 1 already exists(.|\n)*--batch 1 to continue"):
        _rebuild(lake, to=to)
    first, second = (
        datetime.fromisoformat(m.created_at) for m in lake.connector.changelog.read_manifests(lake.connector.name)
    )
    by_time = f"{lake.folder}/by_time/{{table}}"
    for at, batch in ((first, 1), (second - timedelta(microseconds=1), 1), (second, 2)):
        (done,) = _rebuild(lake, "p.s.bag", to=f"{by_time}/{batch}", time=at)
        assert done.batch == batch
    with pytest.raises(ConfigError, match=r"No batch of test was committed by .*: the first batch was committed at"):
        _rebuild(lake, to=to, time=first - timedelta(seconds=1))


def test_values_of_dropped_columns_are_not_thrown_away(lake: Lake) -> None:
    _fill_tables(lake)
    _database(lake).drop_column("s.orders", "note")
    lake.follow()
    before = _images(lake)
    with pytest.raises(TargetError, match="the change log no longer has a column note"):
        _rebuild(lake)
    assert _images(lake) == before


def test_what_cannot_be_built_is_refused_with_a_sentence(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="has no batch of connector"):
        _rebuild(lake)
    _fill_tables(lake)
    with pytest.raises(ConfigError, match=r"has no topic p\.s\.other"):
        _rebuild(lake, ORDERS, "p.s.other")
    with pytest.raises(ConfigError, match=r"Batch 99 does not exist: .* has batches 1 to 2"):
        _rebuild(lake, to=f"{lake.folder}/beside/{{table}}", batch=99)
    with pytest.raises(ConfigError, match="--to gives the same location"):
        _rebuild(lake, to=f"{lake.path('s.orders')}/")
    with pytest.raises(ConfigError, match="only at another location"):
        _rebuild(lake, batch=1)
    with pytest.raises(ConfigError, match=r"as of 2026-01-01 .* only at another location"):
        _rebuild(lake, time=datetime(2026, 1, 1))
    with pytest.raises(ConfigError, match="of a batch or as of a time"):
        _rebuild(lake, to="/elsewhere/{table}", batch=1, time=datetime.now(UTC))
    with pytest.raises(ConfigError, match="are both"):
        _rebuild(lake, to=lake.location)
    with pytest.raises(TargetError, match=r"The table of p\.s\.orders does not exist"):
        _rebuild(lake, location=f"{lake.folder}/nowhere/{{table}}")
    with pytest.raises(TargetError, match=r"belongs to connector test, topic p.s.bag, and not only to"):
        _rebuild(lake, location=lake.path("s.bag"))


def test_a_change_log_that_has_lost_its_beginning_is_refused(lake: Lake) -> None:
    _fill_tables(lake)
    root = Path(lake.connector.changelog.storage.root)
    first = min((root / lake.connector.name / "manifests").glob("*.json"))
    first.unlink()
    _damage(lake)
    before = _images(lake)
    with pytest.raises(
        BatchesRemoved, match=r"batches of the change log before 2 were removed .by a lifecycle rule of the store"
    ):
        _rebuild(lake)
    assert _images(lake) == before
