"""Routes and shared tables on a change log whose first batches were removed, and tables that are built again from what is left."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import BatchesRemoved
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from tests.targets.lake.lake import Lake
from tests.targets.lake.trimmed import (
    create,
    database,
    equal,
    fill_tables,
    list_failures,
    other_target,
    put_rows,
    read_again,
    trim,
)

pytestmark = pytest.mark.spark


def _by_region(lake: Lake, *more: dict[str, Any]) -> TableRules:
    return TableRules.parse(
        [{"tables": r"s\.a", "route": [{"by": "region", "location": f"{lake.folder}/{lake.name}/of {{value}}"}]}, *more]
    )


def _of_region(lake: Lake, region: str) -> list[int]:
    target = load_format("memory").open_target(lake.spark, f"{lake.folder}/{lake.name}/of {region}")
    return sorted(row["id"] for row in target.read_rows().collect()) if target.exists() else []


def _prepare_routes(lake: Lake) -> None:
    lake.tables = _by_region(lake)
    create(lake, "a", "b")
    put_rows(lake, "a", 1, 2)
    put_rows(lake, "a", 3, region="us")
    put_rows(lake, "b", 1)
    lake.apply()
    assert trim(lake).removed_batches > 1


def test_places_of_a_route_are_found_from_where_the_table_was_emptied(memory: Lake) -> None:
    _prepare_routes(memory)
    other = other_target(memory)
    other.tables = _by_region(other)
    failed = list_failures(other)
    assert "airflow cdc snapshot test s.a --replace" in failed["p.s.a"]
    put_rows(memory, "a", 4, region="new")
    assert list_failures(other).keys() == failed.keys()
    read_again(memory, "a", "b")
    put_rows(memory, "a", 5, region="newer")
    for lake in (memory, other):
        lake.apply()
        assert [_of_region(lake, r) for r in ("eu", "us", "new", "newer")] == [[1, 2], [3], [4], [5]]


def test_places_stay_known_when_rules_of_others_change(memory: Lake) -> None:
    """The places that there are cannot be found again: the rows that went there are in batches that are gone."""
    _prepare_routes(memory)
    memory.tables = _by_region(memory, {"tables": r"s\.b", "mode": "current", "columns": {"drop": ["region"]}})
    del STORED[memory.path("s.b")]
    read_again(memory, "b")
    with database(memory).transaction() as t:
        t.update("s.a", {"id": 3}, {"region": "eu"})
        t.delete("s.a", {"id": 1})
    put_rows(memory, "a", 6, region="asia")
    memory.apply()
    assert [_of_region(memory, r) for r in ("eu", "us", "asia")] == [[2, 3], [], [6]]
    database(memory).truncate_table("s.a")
    put_rows(memory, "a", 9, region="us")
    memory.apply()
    assert [_of_region(memory, r) for r in ("eu", "us", "asia")] == [[], [9], []]


def test_a_place_that_could_not_be_made_at_first_is_made_later(memory: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepare_routes(memory)
    put_rows(memory, "a", 7, region="asia")
    target = type(load_format("memory").open_target(memory.spark, memory.path("s.a")))
    with monkeypatch.context() as patch:
        patch.setattr(target, "create", _refuse_write)
        assert list_failures(memory).keys() == {f"p.s.a → {memory.folder}/lake/of asia"}
    put_rows(memory, "b", 2)
    memory.apply()
    assert _of_region(memory, "asia") == [7]


def _refuse_write(*_: Any, **__: Any) -> None:
    raise OSError("no room")


def _rebuild(lake: Lake, *names: str, **options: Any) -> Any:
    given = {"location": lake.location, "target": lake.kind, **options}
    return RebuildTables(lake.spark, lake.connector.changelog, lake.connector.name, **given).run(names)


def test_tables_are_built_again_from_what_is_left_or_not_at_all(memory: Lake) -> None:
    fill_tables(memory)
    to = f"{memory.folder}/built/{{table}}"
    for name in ("s.a", "p.s.b"):
        with pytest.raises(BatchesRemoved, match=f"The table of p.s.{name[-1]} cannot be built"):
            _rebuild(memory, name)
        with pytest.raises(BatchesRemoved, match=r"airflow cdc snapshot test s\.. --replace"):
            _rebuild(memory, name, to=to)
    with pytest.raises(BatchesRemoved, match="Batches 1 to"):
        _rebuild(memory, "s.c", to=to, batch=1)
    _rebuild(memory, "s.c")
    equal(memory, "c")
    read_again(memory, "a")
    put_rows(memory, "a", 9)
    memory.apply()
    STORED[memory.path("s.a")] = replace(STORED[memory.path("s.a")], rows=STORED[memory.path("s.a")].rows.slice(0, 1))
    _rebuild(memory, "s.a", "s.c")
    equal(memory, "a", "c")
    _rebuild(memory, "s.a", to=to)
    assert _ids(memory, f"{memory.folder}/built/a") == [1, 2, 3, 4, 9]


def _ids(lake: Lake, location: str) -> list[int]:
    return sorted(row["id"] for row in load_format(lake.kind).open_target(lake.spark, location).read_rows().collect())


def test_a_history_is_not_lost_by_building_a_table_again(memory: Lake) -> None:
    memory.tables = TableRules.parse([{"tables": r"s\.a", "mode": "history"}])
    fill_tables(memory)
    read_again(memory, "a")
    memory.apply()
    with pytest.raises(BatchesRemoved, match="mode history and would lose earlier states of its rows"):
        _rebuild(memory, "s.a")
    _rebuild(memory, "s.a", to=f"{memory.folder}/built/{{table}}")


def test_tables_in_files_begin_where_they_were_emptied_too(lake: Lake) -> None:
    fill_tables(lake)
    for name in ("a", "b", "c"):
        shutil.rmtree(lake.path(f"s.{name}"))
    assert list_failures(lake).keys() == {"p.s.a", "p.s.b"}
    equal(lake, "c")
    read_again(lake, "a")
    put_rows(lake, "a", 8)
    other = other_target(lake)
    assert list_failures(other).keys() == list_failures(lake).keys() == {"p.s.b"}
    for target in (lake, other):
        equal(target, "a", "c")
