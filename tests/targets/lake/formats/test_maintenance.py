"""Maintenance of tables: what small commits leave is taken together, what is old goes, and rows and markers stay what they are."""

from __future__ import annotations

import os
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.changelog.reports.table_maintenance_report import MaintenanceReports
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.delta import copy_on_write as delta_copy_on_write
from airflow_provider_cdc.targets.lake.formats.delta import maintenance as delta_upkeep
from airflow_provider_cdc.targets.lake.formats.format_descriptor import known_keep
from airflow_provider_cdc.targets.lake.formats.iceberg import compaction, copy_on_write
from airflow_provider_cdc.targets.lake.formats.table_values import MaintenanceStepResult
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables, MaintenanceRunResult
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
COMPACT = "compact"


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Create a table in which each batch leaves files, and Iceberg's deletes, as in a large one."""
    monkeypatch.setattr(copy_on_write, "MOST_BYTES", -1)
    monkeypatch.setattr(delta_copy_on_write, "GATHERED", 1000)
    monkeypatch.setattr(delta_upkeep, "FEW", 1)
    monkeypatch.setattr(delta_upkeep, "YOUNGEST_ORPHAN", timedelta(0))
    monkeypatch.setattr(compaction, "DELETES", 1000)
    monkeypatch.setattr(compaction, "SMALL", 1000)
    lake.connector.database.create_table("s.t", {"id": "int64!", "n": "int32", "note": "string"}, key=("id",))
    with lake.connector.database.transaction() as t:
        for i in range(40):
            t.insert("s.t", {"id": i, "n": i, "note": "x"})
    lake.connector.capture()
    lake.apply(profile="fast")
    return lake


def _change(lake: Lake, r: Random) -> None:
    """New rows; changes of others each time, or, where these would put all files of a small table together, at times."""
    changed = 4 if lake.kind == "iceberg" or r.random() < 0.2 else 0
    with lake.connector.database.transaction() as t:
        for i in r.sample(range(60), changed):
            if t.update("s.t", {"id": i}, {"n": r.randrange(10**6)}) == 0:
                t.insert("s.t", {"id": i, "n": i})
            elif r.random() < 0.2:
                t.delete("s.t", {"id": i})
        t.insert("s.t", {"id": r.randrange(1000, 10**9), "n": 0})
    lake.connector.capture()


def _maintain(lake: Lake, **more: object) -> MaintenanceRunResult:
    given = {"location": lake.location, "target": lake.kind, "keep": timedelta(0), **more}
    return MaintainTables(lake.spark, lake.connector.changelog, lake.connector.name, **given).run()  # type: ignore[arg-type]


def _steps(done: MaintenanceRunResult) -> dict[str, MaintenanceStepResult]:
    (table,) = done.tables
    assert table.problem == ""
    return table.steps


def _data(lake: Lake) -> set[Path]:
    return {path for path in Path(lake.path("s.t")).rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("rounds", [12, pytest.param(50, marks=pytest.mark.long)])
def test_many_applies_with_maintenance_in_between_leave_few_files_and_every_row(table: Lake, rounds: int) -> None:
    r, first = Random(5), _data(table)
    for round_ in range(1, rounds + 1):
        _change(table, r)
        report = table.apply()
        assert len(report.tables) == 1, "each batch is applied once"
        if round_ % (rounds // 2) == 0:
            at, rows, before = table.target("s.t"), table.rows("s.t"), len(_data(table))
            assert at.exists()
            markers = at.read_markers()
            steps = _steps(_maintain(table))
            assert steps[COMPACT].changed, steps
            after = table.target("s.t")
            assert after.exists()
            assert (after.read_markers(), after.read_owner(), table.rows("s.t")) == (markers, at.read_owner(), rows)
            assert all(after.set_back(app) == "" for app in markers)
            assert len(_data(table)) <= before / 4
            assert table.apply().tables == []
    table.check()
    assert not first & _data(table)
    assert set(table.target("s.t").read_markers().values()) == {table.connector.changelog.list_batches("test")[-1]}


def test_a_second_maintenance_says_why_there_is_nothing_to_do(table: Lake) -> None:
    r = Random(6)
    for _ in range(8):
        _change(table, r)
        table.apply()
    assert any(step.changed for step in _steps(_maintain(table)).values())
    steps = _steps(done := _maintain(table))
    assert not any(step.changed for step in steps.values()), steps
    assert all(step.said for step in steps.values())
    assert "(nothing to do)" in done.tables[0].format_result()
    report = MaintenanceReports(table.connector.changelog.storage, "test").read(table.kind, table.location)
    assert report is not None
    assert report["tables"][0]["steps"][COMPACT] == {"changed": False, "said": steps[COMPACT].said}
    table.check()


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_what_is_younger_than_is_kept_stays(table: Lake) -> None:
    """Readers that have begun have their files."""
    r = Random(7)
    for _ in range(8):
        _change(table, r)
        table.apply()
    files = _data(table)
    steps = _steps(_maintain(table, keep=timedelta(hours=1)))
    assert steps[COMPACT].changed
    assert files <= _data(table)
    table.check()


def test_files_of_killed_writers_go_when_they_are_old_enough(table: Lake) -> None:
    folder = next(iter(_data(table))).parent
    old, young = folder / "00000-killed.parquet", folder / "00001-writing.parquet"
    for file in (old, young):
        file.write_bytes(b"PAR1")
    week = time.time() - 7 * 86400
    os.utime(old, (week, week))
    _maintain(table, keep=timedelta(days=2))
    assert (old.exists(), young.exists()) == (False, True)
    table.check()


def test_applies_go_on_beside_a_maintenance(table: Lake) -> None:
    r, over = Random(8), threading.Event()
    done: list[MaintenanceRunResult] = []

    def maintain() -> None:
        while not over.is_set():
            done.append(_maintain(table, keep=timedelta(hours=1)))

    beside = threading.Thread(target=maintain)
    beside.start()
    try:
        for _ in range(6):
            _change(table, r)
            assert len(table.apply().tables) == 1
    finally:
        over.set()
        beside.join()
    table.check()
    assert done
    assert [
        problem for one in done for t in one.tables if (problem := t.problem) and "other writers" not in problem
    ] == []


def test_a_table_of_someone_else_and_one_that_is_gone_are_left_alone(table: Lake) -> None:
    changelog, location = table.connector.changelog, table.location
    with pytest.raises(ConfigError, match="Nothing to maintain"):
        MaintainTables(table.spark, changelog, "other", location=location, target=table.kind).run()
    target = table.target("s.t")
    assert target.exists()
    target.record_owner(type(target.read_owner())("other", "p.s.t"))
    version = table.version("s.t")
    done = _maintain(table)
    assert done.has_failed
    assert "belongs to connector other" in done.tables[0].problem
    assert table.version("s.t") == version


def test_a_table_that_is_gone_is_reported_and_if_all_are_that_is_no_success(table: Lake) -> None:
    table.connector.database.create_table("s.u", {"id": "int64!"}, key=("id",))
    with table.connector.database.transaction() as t:
        t.insert("s.u", {"id": 1})
    table.follow()
    shutil.rmtree(table.path("s.u"))
    done = _maintain(table)
    assert not done.has_failed
    assert [one.steps["look"].said for one in done.tables if one.topic == "p.s.u"] == ["the table no longer exists"]
    shutil.rmtree(table.path("s.t"))  # as if the folder of all tables were not mounted
    done = _maintain(table)
    assert [one.problem[:23] for one in done.tables] == ["no table of this target"] * 2


def test_a_table_with_another_one_below_it_is_left_alone(table: Lake) -> None:
    """Its files would look as if no one had them."""
    reports = ApplyReports(table.connector.changelog.storage, "test")
    report = reports.read(table.kind, table.location)
    assert report is not None
    reports.write(
        {
            **report,
            "table_states": {**report["table_states"], "p.s.b": {"location": f"{table.path('s.t')}/b", "batch": 1}},
        }
    )
    version = table.version("s.t")
    done = _maintain(table)
    assert {t.topic: "contains the table at" in t.problem for t in done.tables} == {"p.s.t": True, "p.s.b": False}
    assert table.version("s.t") == version


def test_another_table_below_is_found_whatever_its_location_is_called(table: Lake) -> None:
    storage = table.connector.changelog.storage
    report = ApplyReports(storage, "test").read(table.kind, table.location)
    assert report is not None
    below = f"file://{table.path('s.t')}/b".replace("/s/", "/s//")
    more = {"target": table.kind, "location": "another", "table_states": {"p.x": {"location": below, "batch": 1}}}
    ApplyReports(storage, "other").write({**report, **more})
    (done,) = _maintain(table).tables
    assert "contains the table at" in done.problem
    ApplyReports(storage, "other").write(
        {**report, **more, "table_states": {"p.x": {"location": "cat.s.x", "batch": 1}}}
    )
    assert _maintain(table).tables[0].problem == ""
    origins = {"target": table.kind, "location": "another", "tables": {"p.x": {"path": below}}}
    ColumnOrigins(storage, "other").write(origins)  # one with a name is in a folder, too
    assert "contains the table at" in _maintain(table).tables[0].problem


@pytest.mark.only_kind("delta")
@pytest.mark.parametrize("hours", [0.0, -1.0, 0.5, float("nan")])
def test_what_readers_still_need_cannot_be_removed(hours: float) -> None:
    with pytest.raises(ConfigError, match="1 hour or longer"):
        known_keep(hours)
    assert known_keep(168) == timedelta(days=7)
