"""Tables on a change log whose first batches were removed: each is what the source is, or says that it cannot be and what to do. None is ever a part of it."""

from __future__ import annotations

import logging
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.changelog.kept import Mark
from airflow_provider_cdc.changelog.retention import Limits, Plan, Retention
from airflow_provider_cdc.core.config.table_rules import TableRules
from airflow_provider_cdc.core.errors import BatchesRemoved, TargetError
from spark_jobs.rebuild_tables import RebuildTables
from spark_jobs.targets import load_format
from spark_jobs.targets.memory import STORED
from tests.spark.lake import Lake
from tests.support.signals import snapshot

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "region": "string"}
NAMES = ("a", "b", "c")


def _database(lake: Lake) -> Any:
    return lake.connector.database  # type: ignore[attr-defined]


def _put(lake: Lake, table: str, *ids: int, region: str = "eu") -> None:
    """Rows of a table, captured as a batch."""
    with _database(lake).transaction() as t:
        for i in ids:
            t.insert(f"s.{table}", {"id": i, "n": i, "region": region})
    lake.connector.capture()


def _create(lake: Lake, *names: str, key: tuple[str, ...] = ("id",)) -> None:
    for name in names:
        _database(lake).create_table(f"s.{name}", COLUMNS, key=key)


def _trim(lake: Lake) -> Plan:
    """Remove whatever no target needs."""
    return Retention(lake.connector.changelog, lake.connector.name, Limits(ms=0)).run()


def _filled(lake: Lake) -> None:
    """``s.a`` has rows in batches that are removed and in later ones, ``s.b`` only in removed ones, ``s.c`` begins after them."""
    _create(lake, "a", "b")
    _put(lake, "a", 1, 2)
    _put(lake, "b", 1)
    _put(lake, "a", 3)
    lake.apply()
    assert _trim(lake).batches >= 2
    _create(lake, "c")
    _put(lake, "c", 1)
    _put(lake, "a", 4)
    lake.apply()


def _elsewhere(lake: Lake, **more: Any) -> Lake:
    """Another target of the same connector."""
    return replace(lake, name="elsewhere", reports=[], **more)


def _failed(lake: Lake, **options: Any) -> dict[str, str]:
    """Topic → why its table could not be brought up to date; the others are."""
    job = lake.job(**options)
    with pytest.raises(TargetError):
        job.run()
    found = AppliedReports(lake.connector.changelog.storage, lake.connector.name).read(lake.kind, lake.location)
    assert found is not None
    return dict(found["failed"])


def _equal(lake: Lake, *names: str) -> None:
    """Tables have the rows of the source."""
    for name in names:
        rows = _database(lake).rows(f"s.{name}")
        assert lake.rows(f"s.{name}", *(rows[0] if rows else ())) == sorted(rows, key=repr), name


def _read_again(lake: Lake, *names: str) -> None:
    snapshot(lake.connector, *(f"s.{name}" for name in names), replace=True)
    lake.connector.capture()


def test_a_target_is_known_before_anything_is_read_for_it(memory: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _create(memory, "a")
    _put(memory, "a", 1)
    reports = AppliedReports(memory.connector.changelog.storage, "test")

    def fails(*_: Any, **__: Any) -> Any:
        found = reports.read(memory.kind, memory.location)
        assert found is not None
        assert (found["last_batch"], found["stands"]) == (0, {})
        raise RuntimeError("nothing can be read")

    changelog = memory.connector.changelog
    with monkeypatch.context() as patch:
        for name in ("first", "beginning", "manifest", "manifests", "has", "batches", "last"):
            patch.setattr(type(changelog), name, fails)
        with pytest.raises(RuntimeError, match="nothing can be read"):
            memory.apply()
    assert _trim(memory).batches == 0
    memory.apply()
    _equal(memory, "a")


def test_a_new_target_has_what_began_later_and_says_what_it_cannot_have(memory: Lake) -> None:
    _filled(memory)
    other = _elsewhere(memory)
    failed = _failed(other)
    assert failed.keys() == {"p.s.a", "p.s.b"}
    for name in ("a", "b"):
        assert f"The table of p.s.{name} cannot be built: batches of the change log before" in failed[f"p.s.{name}"]
        assert "had had them for changelog.retention.ms=0" in failed[f"p.s.{name}"]
        assert f"airflow cdc snapshot test s.{name} --replace" in failed[f"p.s.{name}"]
        assert not other.target(f"s.{name}").exists()
    _equal(other, "c")
    assert _failed(other).keys() == {"p.s.a", "p.s.b"}  # nor by trying again
    _read_again(memory, "a")
    _put(memory, "a", 5)
    assert _failed(other).keys() == {"p.s.b"}
    _equal(other, "a", "c")
    _read_again(memory, "b")
    other.apply()
    _equal(other, *NAMES)
    memory.apply()
    _equal(memory, *NAMES)


def test_what_a_target_needs_to_begin_with_is_not_removed_before_it_has_it(memory: Lake) -> None:
    _filled(memory)
    other = _elsewhere(memory)
    _failed(other)
    _read_again(memory, "a", "b")
    _put(memory, "a", 6)
    memory.apply()
    assert _trim(memory).batches == 0
    other.apply()
    _equal(other, *NAMES)
    assert _trim(memory).batches > 0


def test_a_table_that_is_lost_is_built_again_from_where_it_was_emptied(memory: Lake) -> None:
    _filled(memory)
    STORED.pop(memory.path("s.a"))
    STORED.pop(memory.path("s.c"))
    failed = _failed(memory)
    assert failed.keys() == {"p.s.a"}
    _equal(memory, "c")
    _database(memory).truncate("s.a")
    _put(memory, "a", 7, 8)
    memory.apply()
    assert [row["id"] for row in memory.rows("s.a")] == [7, 8]
    _equal(memory, *NAMES)


def test_changes_go_on_while_all_rows_are_read_again(memory: Lake) -> None:
    memory.connector.properties |= {"incremental.snapshot.chunk.size": 3, "batch.max.rows": 5}
    _create(memory, "a")
    _put(memory, "a", *range(1, 30))
    memory.apply()
    _put(memory, "a", 100)
    memory.apply()
    _trim(memory)
    db, changes = _database(memory), random.Random(4)
    snapshot(memory.connector, "s.a", replace=True)
    with db.transaction() as t:
        t.update("s.a", {"id": 3}, {"n": -3})
        t.delete("s.a", {"id": 4})
    read, number = type(db).rows, 0

    def changed(self: Any, table: str) -> Any:
        nonlocal number
        found = read(self, table)
        number += 1
        if number < 12:
            with self.transaction() as t:
                t.insert("s.a", {"id": 1000 + number, "n": 1, "region": "us"})
                t.update("s.a", {"id": changes.choice([5, 9, 20])}, {"n": number})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(db), "rows", changed)
        memory.connector.capture()
    memory.connector.capture()
    other = _elsewhere(memory)
    other.apply()
    memory.apply()
    _equal(other, "a")
    _equal(memory, "a")


def test_rows_that_were_read_again_on_a_condition_are_nothing_to_begin_with(memory: Lake) -> None:
    _filled(memory)
    condition = [{"data-collection": "s.a", "filter": "n > 2"}]
    snapshot(memory.connector, "s.a", additional_conditions=condition)
    memory.connector.capture()
    snapshot(memory.connector, "s.b", id_="whole")  # and these are not emptied: a row that is gone would stay
    memory.connector.capture()
    assert _failed(_elsewhere(memory)).keys() == {"p.s.a", "p.s.b"}


def test_a_table_of_a_backup_says_that_it_cannot_go_on(memory: Lake) -> None:
    _create(memory, "a", "b")
    _put(memory, "b", 1)
    _put(memory, "a", 1)
    memory.apply()
    backup = {name: STORED[memory.path(f"s.{name}")] for name in ("a", "b")}
    _put(memory, "a", 2)
    _put(memory, "a", 3)
    memory.apply()
    _trim(memory)
    STORED.update({memory.path(f"s.{name}"): stored for name, stored in backup.items()})
    failed = _failed(memory)
    assert failed.keys() == {"p.s.a"}  # of s.b nothing is gone that the backup lacks
    assert (
        "The table of p.s.a stands at batch 2, and cannot go on: batches of the change log before 4" in failed["p.s.a"]
    )
    assert (
        "move the table away and run the apply: before that, airflow cdc snapshot test s.a --replace" in failed["p.s.a"]
    )
    _read_again(memory, "a")
    failed = _failed(memory)
    assert re.search(r"it is built again from batch \d+ on", failed["p.s.a"])
    del STORED[memory.path("s.a")]
    memory.apply()
    _equal(memory, "a", "b")


@pytest.mark.parametrize("forget", [True, False])
def test_a_target_whose_report_is_lost_or_of_other_rules_finds_its_tables_again(memory: Lake, *, forget: bool) -> None:
    """Quiet tables, too, of which the log that is left has nothing."""
    _filled(memory)
    if forget:
        AppliedReports(memory.connector.changelog.storage, "test").forget(memory.kind, memory.location)
    else:
        memory.tables = TableRules.parse([{"tables": r"s\.other", "mode": "log"}])
    _put(memory, "c", 2)
    memory.apply()
    _equal(memory, *NAMES)
    assert memory.reports[-1].failed == {}


def test_tables_that_the_source_has_dropped_or_renamed_are_not_missed(memory: Lake) -> None:
    _create(memory, *NAMES, "kept")
    for name in (*NAMES, "kept"):
        _put(memory, name, 1)
    db = _database(memory)
    db.drop_table("s.a")
    memory.connector.capture()
    _put(memory, "kept", 2)
    memory.apply()
    _trim(memory)
    db.drop_table("s.b")
    memory.connector.capture()
    _read_again(memory, "kept", "c")
    other = _elsewhere(memory)
    other.apply()
    _equal(other, "c", "kept")
    assert not other.target("s.a").exists()
    assert not other.target("s.b").exists()


def test_a_table_made_by_a_rename_is_built_and_the_name_that_it_gave_up_is_not_missed(memory: Lake) -> None:
    _create(memory, "a", "b")
    _put(memory, "a", 1)
    _put(memory, "b", 1)
    _put(memory, "b", 2)
    memory.apply()
    _trim(memory)
    _database(memory).rename_tables(("s.a", "s.z"))
    _put(memory, "z", 2)
    _read_again(memory, "b")
    other = _elsewhere(memory)
    other.apply()
    _equal(other, "b", "z")
    assert not other.target("s.a").exists()


@pytest.mark.parametrize("mode", ["log", "history", "soft_delete"])
def test_a_mode_that_keeps_what_was_says_where_it_begins(
    memory: Lake, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    _filled(memory)
    _read_again(memory, "a", "b")
    other = _elsewhere(memory, tables=TableRules.parse([{"tables": r"s\.a", "mode": mode}]))
    with caplog.at_level(logging.WARNING):
        other.apply()
    said = [r.getMessage() for r in caplog.records if "what its rows were before that is lost" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"The table of p.s.a (mode {mode}) begins with batch")
    assert {row["id"] for row in other.rows("s.a", "id")} == {1, 2, 3, 4} | ({None} if mode == "log" else set())
    _equal(other, "b", "c")


def test_a_table_that_several_share_gets_the_rows_of_each_or_names_it(memory: Lake) -> None:
    rule = {"tables": r"s\.[ab]", "location": f"{memory.folder}/all", "shard": {"of": "{table}"}}
    memory.tables = TableRules.parse([rule])
    _filled(memory)
    other = _elsewhere(memory, tables=TableRules.parse([{**rule, "location": f"{memory.folder}/others"}]))
    _read_again(memory, "a")
    assert _failed(other).keys() == {"p.s.b"}
    _read_again(memory, "b")
    other.apply()
    memory.apply()
    for location in ("all", "others"):
        rows = load_format("memory").open(memory.spark, f"{memory.folder}/{location}").rows().collect()
        assert sorted((row["of"], row["id"]) for row in rows) == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1)]


# routes


def _by_region(lake: Lake, *more: dict[str, Any]) -> TableRules:
    return TableRules.parse(
        [{"tables": r"s\.a", "route": [{"by": "region", "location": f"{lake.folder}/{lake.name}/of {{value}}"}]}, *more]
    )


def _of_region(lake: Lake, region: str) -> list[int]:
    target = load_format("memory").open(lake.spark, f"{lake.folder}/{lake.name}/of {region}")
    return sorted(row["id"] for row in target.rows().collect()) if target.exists() else []


def _routed(lake: Lake) -> None:
    lake.tables = _by_region(lake)
    _create(lake, "a", "b")
    _put(lake, "a", 1, 2)
    _put(lake, "a", 3, region="us")
    _put(lake, "b", 1)
    lake.apply()
    assert _trim(lake).batches > 1


def test_places_of_a_route_are_found_from_where_the_table_was_emptied(memory: Lake) -> None:
    _routed(memory)
    other = _elsewhere(memory)
    other.tables = _by_region(other)
    failed = _failed(other)
    assert "airflow cdc snapshot test s.a --replace" in failed["p.s.a"]
    _put(memory, "a", 4, region="new")
    assert _failed(other).keys() == failed.keys()
    _read_again(memory, "a", "b")
    _put(memory, "a", 5, region="newer")
    for lake in (memory, other):
        lake.apply()
        assert [_of_region(lake, r) for r in ("eu", "us", "new", "newer")] == [[1, 2], [3], [4], [5]]


def test_places_stay_known_when_rules_of_others_change(memory: Lake) -> None:
    """Which places there are cannot be found again: the rows that went there are in batches that are gone."""
    _routed(memory)
    memory.tables = _by_region(memory, {"tables": r"s\.b", "mode": "current", "columns": {"drop": ["region"]}})
    del STORED[memory.path("s.b")]
    _read_again(memory, "b")
    with _database(memory).transaction() as t:
        t.update("s.a", {"id": 3}, {"region": "eu"})
        t.delete("s.a", {"id": 1})
    _put(memory, "a", 6, region="asia")
    memory.apply()
    assert [_of_region(memory, r) for r in ("eu", "us", "asia")] == [[2, 3], [], [6]]
    _database(memory).truncate("s.a")
    _put(memory, "a", 9, region="us")
    memory.apply()
    assert [_of_region(memory, r) for r in ("eu", "us", "asia")] == [[], [9], []]


def test_a_place_that_could_not_be_made_at_first_is_made_later(memory: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _routed(memory)
    _put(memory, "a", 7, region="asia")
    target = type(load_format("memory").open(memory.spark, memory.path("s.a")))
    with monkeypatch.context() as patch:
        patch.setattr(target, "create", _refused)
        assert _failed(memory).keys() == {f"p.s.a → {memory.folder}/lake/of asia"}
    _put(memory, "b", 2)
    memory.apply()
    assert _of_region(memory, "asia") == [7]


def _refused(*_: Any, **__: Any) -> None:
    raise OSError("no room")


# nobody knows what is gone


def _cut(lake: Lake, batches: int) -> None:
    """As a rule of the store does it."""
    changelog = lake.connector.changelog
    for number in range(1, batches + 1):
        changelog.storage.delete(changelog.path_of("test", number))
        changelog.storage.delete_folder(changelog.storage.path("test", "data", f"{number:012d}"))


def test_tables_go_on_and_new_ones_begin_after_a_rule_of_the_store_has_removed_batches(memory: Lake) -> None:
    _create(memory, "a")
    _put(memory, "a", 1)
    _put(memory, "a", 2)
    memory.apply()
    _cut(memory, 1)
    assert memory.connector.changelog.beginning("test") == Mark(2)
    _create(memory, "c")
    _put(memory, "c", 1)
    _put(memory, "a", 3)
    memory.apply()
    _equal(memory, "a", "c")
    failed = _failed(_elsewhere(memory))
    assert failed.keys() == {"p.s.a", "p.s.c"}
    assert "by a rule of the store, or by a person" in failed["p.s.c"]
    assert "nobody knows whether any of them had changes of it" in failed["p.s.c"]


# building again


def _rebuild(lake: Lake, *names: str, **options: Any) -> Any:
    given = {"location": lake.location, "target": lake.kind, **options}
    return RebuildTables(lake.spark, lake.connector.changelog, lake.connector.name, **given).run(names)


def test_tables_are_built_again_from_what_is_left_or_not_at_all(memory: Lake) -> None:
    _filled(memory)
    to = f"{memory.folder}/built/{{table}}"
    for name in ("s.a", "p.s.b"):
        with pytest.raises(BatchesRemoved, match=f"The table of p.s.{name[-1]} cannot be built"):
            _rebuild(memory, name)
        with pytest.raises(BatchesRemoved, match=r"airflow cdc snapshot test s\.. --replace"):
            _rebuild(memory, name, to=to)
    with pytest.raises(BatchesRemoved, match="Batches 1 to"):
        _rebuild(memory, "s.c", to=to, batch=1)
    _rebuild(memory, "s.c")
    _equal(memory, "c")
    _read_again(memory, "a")
    _put(memory, "a", 9)
    memory.apply()
    STORED[memory.path("s.a")] = replace(STORED[memory.path("s.a")], rows=STORED[memory.path("s.a")].rows.slice(0, 1))
    _rebuild(memory, "s.a", "s.c")
    _equal(memory, "a", "c")
    _rebuild(memory, "s.a", to=to)
    assert _ids(memory, f"{memory.folder}/built/a") == [1, 2, 3, 4, 9]


def _ids(lake: Lake, location: str) -> list[int]:
    return sorted(row["id"] for row in load_format(lake.kind).open(lake.spark, location).rows().collect())


def test_a_history_is_not_lost_by_building_a_table_again(memory: Lake) -> None:
    memory.tables = TableRules.parse([{"tables": r"s\.a", "mode": "history"}])
    _filled(memory)
    _read_again(memory, "a")
    memory.apply()
    with pytest.raises(BatchesRemoved, match="mode history, and would lose what its rows were before"):
        _rebuild(memory, "s.a")
    _rebuild(memory, "s.a", to=f"{memory.folder}/built/{{table}}")
