"""Routes: the rows of one source table in several tables, by what is in them. A row is in one table, whatever becomes of it and whichever process is killed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables
from tests.targets.lake.jobs.test_continuous_apply import RunningApply, wait_until
from tests.targets.lake.lake import Lake, Row
from tests.targets.lake.write.test_modes_crash import RunEnded, StoppedWrites

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "region": "string", "n": "int32"}
PLAIN = ("eu", "us", "EU")
ODD = ("it's `odd`", "${env:CDC_TEST_SECRET}", "{value}", "a.b", "a/b", "..", ".", "50%", "%2F", 'x"y', "ünï ☃", " ")
LEFT = ("", None)


def _rules(lake: Lake, **more: Any) -> TableRules:
    steps = [
        {"when": "n >= 90", "location": f"{lake.folder}/lake/large"},
        {"by": "region", "location": f"{lake.folder}/lake/of {{value}}"},
    ]
    return TableRules.parse([{"tables": r"s\.t", "route": steps, **more}])


def _expected_place(lake: Lake, row: Row, otherwise: str = "default") -> str | None:
    """Return the place where a row has to be."""
    if row["n"] is not None and row["n"] >= 90:
        return f"{lake.folder}/lake/large"
    if region := row["region"]:
        dots = {".": "%2E", "..": "%2E%2E"}.get(region)
        return f"{lake.folder}/lake/of {dots or region.replace('%', '%25').replace('/', '%2F')}"
    return lake.path("s.t") if otherwise == "default" else None


def _rows(lake: Lake, location: str) -> list[Row]:
    rows: list[Row] = load_format(lake.kind).open_target(lake.spark, location).read_rows().toArrow().to_pylist()
    return sorted(rows, key=repr)


def _entries(lake: Lake) -> dict[str, Any]:
    report = ApplyReports(lake.connector.changelog.storage, "test").read(lake.kind, lake.location)
    assert report is not None
    return {entry["location"]: entry for entry in report["table_states"].values() if "place" in entry}


def _check(lake: Lake, otherwise: str = "default") -> None:
    """Each row of the source is in its table, and in no other one."""
    expected: dict[str, list[Row]] = {location: [] for location in _entries(lake)}
    for row in lake.connector.database.copy_rows("s.t"):
        if place := _expected_place(lake, row, otherwise):
            expected.setdefault(place, []).append(row)
    names = list(COLUMNS)
    for location, rows in expected.items():
        found = [{name: row[name] for name in names} for row in _rows(lake, location)]
        assert found == sorted(({name: row[name] for name in names} for row in rows), key=repr), location


class RouteWork:
    """Random changes of ``s.t``, which has a key or none."""

    def __init__(
        self, lake: Lake, seed: int, *, key: tuple[str, ...] = ("id",), regions: tuple[Any, ...] = (*PLAIN, *ODD, *LEFT)
    ) -> None:
        self.db, self.random, self.regions, self.added = lake.connector.database, random.Random(seed), regions, 0
        self.db.create_table("s.t", COLUMNS, key=key)
        with self.db.transaction() as t:
            for i, region in enumerate(regions):
                t.insert("s.t", {"id": i, "region": region, "n": i})

    def go(self, transactions: int, *, truncates: float = 0.04, ddl: float = 0.04) -> None:
        for _ in range(transactions):
            what = self.random.random()
            if what < truncates:
                self.db.truncate_table("s.t")
            elif what < truncates + ddl:
                self.added += 1
                self.db.add_column("s.t", f"c{self.added}", "int32", self.added)
            else:
                self._rows()

    def _rows(self) -> None:
        with self.db.transaction() as t:
            for _ in range(self.random.randint(1, 4)):
                there = [row["id"] for row in self.db.copy_rows("s.t")]
                what, new = self.random.random(), self.random.randrange(25)
                values = {
                    "region": self.random.choice(self.regions),
                    "n": self.random.choice((None, self.random.randrange(110))),
                }
                if new not in there:
                    if what < 0.6 or not there:
                        t.insert("s.t", {"id": new, **values})
                    else:
                        t.update(
                            "s.t", {"id": self.random.choice(there)}, {"id": new, **(values if what < 0.8 else {})}
                        )
                elif what < 0.25:
                    t.delete("s.t", {"id": new})
                else:
                    t.update("s.t", {"id": new}, values)


@pytest.mark.parametrize(
    ("seed", "otherwise", "key"),
    [
        (1, "default", ("id",)),
        pytest.param(2, "drop", ("id",), marks=pytest.mark.long),
        pytest.param(3, "default", (), marks=pytest.mark.long),
    ],
)
def test_each_row_is_in_the_table_of_its_place_through_random_changes_and_ends(
    memory: Lake, seed: int, otherwise: str, key: tuple[str, ...]
) -> None:
    memory.tables, choose = _rules(memory, otherwise=otherwise), random.Random(seed)
    work = RouteWork(memory, seed, key=key, regions=(*choose.sample((*PLAIN, *ODD), 4), *LEFT))
    for _ in range(6):
        work.go(choose.randint(1, 5))
        memory.connector.capture()
        if choose.random() < 0.5:
            work.go(choose.randint(1, 4))
            memory.connector.capture()
        if choose.random() < 0.4:
            memory.hook = StoppedWrites(choose.randint(1, 2))
            try:
                memory.apply(threads=1)
            except RunEnded:
                pass
            memory.hook = None
        if choose.random() < 0.15:
            shutil.rmtree(Path(memory.connector.changelog.storage.root) / "test" / "applied", ignore_errors=True)
        memory.apply()
        _check(memory, otherwise)
    assert len(_entries(memory)) > 4
    assert memory.apply().tables == []


def test_a_column_that_the_route_looks_at_may_get_a_type_with_less_room(memory: Lake) -> None:
    db = memory.connector.database
    db.create_table("s.t", {**COLUMNS, "n": "int64"}, key=("id",))
    rules = _rules(memory)
    for i in (1, 2):
        with db.transaction() as t:
            t.insert("s.t", {"id": i, "n": 2**40})
        if i == 2:
            db.change_column("s.t", "n", "int32", lambda n: 91)
        memory.connector.capture()
        memory.apply(tables=rules)
    _check(memory)


def test_a_log_has_each_event_once_in_the_table_of_its_row(memory: Lake) -> None:
    memory.tables = _rules(memory, mode="log")
    work = RouteWork(memory, 7, regions=(*PLAIN, None))
    for _ in range(3):
        work.go(4, ddl=0, truncates=0.1)
        memory.connector.capture()
        memory.apply()
    found = {place: [(r["_seq"], r["_op"]) for r in _rows(memory, place)] for place in _entries(memory)}
    seqs = sorted(seq for rows in found.values() for seq, op in rows if op != "t")
    assert (
        len(seqs)
        == len(set(seqs))
        == sum(n for op, n in memory.connector.replay.advance().operations.items() if op != "t")
    )
    before = {place: sorted(rows) for place, rows in found.items()}
    STORED.clear()
    memory.apply()
    assert {place: sorted((r["_seq"], r["_op"]) for r in _rows(memory, place)) for place in before} == before


@pytest.mark.parametrize("mode", ["soft_delete", "history"])
def test_a_row_that_moves_ends_in_the_one_table_and_begins_in_the_other(memory: Lake, mode: str) -> None:
    memory.tables = _rules(memory, mode=mode)
    db = memory.connector.database
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "region": "eu", "n": 1})
    memory.follow()
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"region": "us"})
    memory.follow()
    eu, us = (_rows(memory, f"{memory.folder}/lake/of {region}") for region in ("eu", "us"))
    lives = (lambda row: not row["_is_deleted"]) if mode == "soft_delete" else (lambda row: row["_is_current"])
    assert [lives(row) for row in eu] == [False]
    assert [(row["id"], lives(row)) for row in us] == [(1, True)]


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_run_that_ends_between_the_commits_of_two_tables_is_caught_up(lake: Lake) -> None:
    lake.tables = _rules(lake)
    db, regions = lake.connector.database, ("eu", *ODD[:7])
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i, region in enumerate(regions):
            t.insert("s.t", {"id": i, "region": region, "n": i})
    lake.follow()
    _check(lake)
    with db.transaction() as t:
        t.update("s.t", {"id": 0}, {"region": "new"})
        t.update("s.t", {"id": 1}, {"region": "eu"})
    lake.connector.capture()
    done: list[str] = []

    def end_after_one(location: str, name: str, write: Callable[[], Any]) -> Any:
        if done:
            raise RunEnded
        done.append(location)
        return write()

    lake.hook = end_after_one
    with pytest.raises(RunEnded):
        lake.apply(threads=1)
    lake.hook = None
    report = lake.apply()
    assert done
    touched = {f"{lake.folder}/lake/of {region}" for region in ("eu", "new", regions[1])}
    assert {table.location for table in report.tables} == touched - set(done)
    _check(lake)
    assert lake.apply().tables == []


def test_tables_that_no_row_enters_or_leaves_are_not_touched(memory: Lake) -> None:
    memory.tables = _rules(memory)
    work = RouteWork(memory, 5, regions=PLAIN)
    work.go(10, truncates=0, ddl=0)
    memory.follow()
    with memory.connector.database.transaction() as t:
        t.insert("s.t", {"id": 100, "region": "eu", "n": 1})
    assert [table.location for table in memory.follow().tables] == [f"{memory.folder}/lake/of eu"]
    memory.connector.database.truncate_table("s.t")
    assert len(memory.follow().tables) == len(_entries(memory))
    _check(memory)


WRONG = [
    ({"by": "regoin", "location": "/l/{value}"}, "route: step 1: by names column 'regoin', which the table does not have; did you mean 'region'?"),
    ({"when": "n", "location": "/l/x"}, "route: step 1: when has the type int, but must be a condition"),
    ({"by": "rand()", "location": "/l/{value}"}, "has a different result each time"),
    ({"by": "array(region)", "location": "/l/{value}"}, "which cannot be used as text"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "text"), WRONG, ids=[text[:30] for _, text in WRONG])
def test_a_route_that_does_not_fit_is_refused_before_anything_is_written(
    memory: Lake, step: dict[str, str], text: str
) -> None:
    RouteWork(memory, 1)
    memory.connector.database.create_table("s.other", {"id": "int64!"}, key=("id",))
    memory.connector.capture()
    with pytest.raises(ConfigError) as error:
        memory.apply(tables=TableRules.parse([{"tables": r"s\.t", "route": step}]))
    assert text in str(error.value)
    assert not STORED


def test_rows_that_no_step_takes_are_an_error_where_that_is_asked_for_and_the_choice_may_be_changed(
    memory: Lake,
) -> None:
    db = memory.connector.database
    RouteWork(memory, 1, regions=("eu",))
    db.create_table("s.other", {"id": "int64!"}, key=("id",))
    memory.connector.capture()
    memory.apply(tables=_rules(memory, otherwise="error"))
    before = dict(STORED)
    with db.transaction() as t:
        t.insert("s.t", {"id": 100, "region": None, "n": 1})
        t.insert("s.t", {"id": 101, "region": "eu", "n": 1})
        t.insert("s.other", {"id": 1})
    memory.connector.capture()
    for _ in range(2):
        with pytest.raises(TargetError, match="match no step of the route, and otherwise is set to error"):
            memory.apply(tables=_rules(memory, otherwise="error"))
    assert {place for place in STORED if STORED[place] is not before.get(place)} == {memory.path("s.other")}
    memory.apply(tables=_rules(memory, otherwise="drop"))
    _check(memory, "drop")
    memory.apply(tables=_rules(memory, otherwise="default"))
    _check(memory)


def test_what_is_someone_elses_at_a_place_stays_and_the_other_places_are_written(memory: Lake) -> None:
    RouteWork(memory, 1, regions=PLAIN)
    STORED[f"{memory.folder}/lake/of us"] = "a folder of somebody"
    memory.connector.capture()
    with pytest.raises(TargetError, match="contains a folder of somebody"):
        memory.apply(tables=_rules(memory))
    assert STORED.pop(f"{memory.folder}/lake/of us") == "a folder of somebody"
    memory.apply(tables=_rules(memory))
    _check(memory)


def test_a_step_that_is_added_at_the_end_leaves_the_tables_of_the_others_and_one_before_them_does_not(
    memory: Lake,
) -> None:
    RouteWork(memory, 1, regions=PLAIN)
    memory.connector.capture()
    place = f"{memory.folder}/lake"
    by = {"by": "region", "location": f"{place}/of {{value}}"}
    memory.apply(tables=TableRules.parse([{"tables": ".*", "route": by, "otherwise": "drop"}]))
    before, large = dict(STORED), {"when": "n >= 90", "location": f"{place}/large"}
    memory.apply(tables=TableRules.parse([{"tables": ".*", "route": [by, large], "otherwise": "drop"}]))
    assert {at: STORED[at] for at in before} == before
    with pytest.raises(TargetError, match="to a table that has its rows of"):
        memory.apply(tables=TableRules.parse([{"tables": ".*", "route": [large, by], "otherwise": "drop"}]))


def test_a_route_to_too_many_tables_is_refused(memory: Lake) -> None:
    memory.connector.database.create_table("s.many", {"id": "int64!"}, key=("id",))
    with memory.connector.database.transaction() as t:
        for i in range(1001):
            t.insert("s.many", {"id": i})
    memory.connector.capture()
    with pytest.raises(TargetError, match="would create more than 1,000 tables"):
        memory.apply(tables=TableRules.parse([{"tables": ".*", "route": {"by": "id", "location": "/l/{value}"}}]))
    assert not STORED


def test_maintenance_knows_the_tables(memory: Lake) -> None:
    memory.tables = _rules(memory)
    RouteWork(memory, 1, regions=PLAIN)
    memory.follow()
    job = MaintainTables(memory.spark, memory.connector.changelog, "test", location=memory.location, target="memory")
    maintained = job.run()
    assert not maintained.has_failed
    assert {table.location for table in maintained.tables} == set(_entries(memory))


def test_an_apply_that_goes_on_finds_new_places_and_tries_again_what_has_failed(memory: Lake) -> None:
    memory.tables = _rules(memory)
    db = memory.connector.database
    RouteWork(memory, 1, regions=PLAIN)
    STORED[f"{memory.folder}/lake/of new"] = "a folder of somebody"
    memory.connector.capture()
    with RunningApply(memory) as running:
        wait_until(lambda: f"{memory.folder}/lake/of eu" in STORED, "the first round")
        with db.transaction() as t:
            t.insert("s.t", {"id": 100, "region": "new", "n": 1})
            t.insert("s.t", {"id": 101, "region": "newer", "n": 1})
        memory.connector.capture()
        wait_until(lambda: f"{memory.folder}/lake/of newer" in STORED, "the other new place")
        with db.transaction() as t:
            t.update("s.t", {"id": 101}, {"region": "new"})
        memory.connector.capture()
        del STORED[f"{memory.folder}/lake/of new"]
        wait_until(
            lambda: not isinstance(STORED.get(f"{memory.folder}/lake/of new", ""), str), "the table that had failed"
        )
        wait_until(lambda: len(_rows(memory, f"{memory.folder}/lake/of new")) == 2, "both rows")
    assert running.error is None
    _check(memory)


def test_two_values_that_would_have_one_table_are_refused_and_nothing_is_lost_silently(memory: Lake) -> None:
    """Make the memory target know no upper case, as some catalogs know none."""
    RouteWork(memory, 1, regions=("eu",))
    memory.connector.capture()
    memory.apply(tables=_rules(memory))
    with memory.connector.database.transaction() as t:
        t.insert("s.t", {"id": 100, "region": "EU", "n": 1})
    memory.connector.capture()
    job = memory.job(tables=_rules(memory))
    opened = job._open
    job._open = lambda location: opened(location.replace("of EU", "of eu"))  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="to a table that has its rows of") as error:
        job.run()
    assert '"value": "EU"' in str(error.value)
    memory.apply(tables=_rules(memory))
    _check(memory)


def test_a_place_is_not_made_of_a_change_log_that_has_lost_its_beginning(memory: Lake) -> None:
    memory.tables = _rules(memory)
    work = RouteWork(memory, 1, regions=PLAIN)
    memory.connector.capture()
    work.go(2)
    memory.connector.capture()
    changelog = memory.connector.changelog
    assert changelog.list_batches("test") == [1, 2]
    memory.apply()
    (first,) = [p for p in Path(changelog.storage.root).rglob("*") if p.is_file() and p.name.lstrip("0") == "1.json"]
    first.unlink()
    assert changelog.list_batches("test") == [2]
    with memory.connector.database.transaction() as t:
        t.insert("s.t", {"id": 100, "region": "new", "n": 1})
    memory.follow()  # the report knows that no row went there before
    _check(memory)
    STORED.clear()
    shutil.rmtree(Path(changelog.storage.root) / "test" / "applied")
    with pytest.raises(CdcError):
        memory.apply()
    assert not STORED


def test_a_table_with_all_rows_is_no_place_of_a_route_that_came_later(memory: Lake) -> None:
    work = RouteWork(memory, 1, regions=PLAIN)
    memory.follow()
    before = STORED[memory.path("s.t")]
    with memory.connector.database.transaction() as t:
        t.insert("s.t", {"id": 100, "region": None, "n": 1})
    memory.tables = _rules(memory)
    memory.connector.capture()
    with pytest.raises(TargetError, match="to a table that has all of its rows or the rows of an earlier rule"):
        memory.apply()
    assert STORED[memory.path("s.t")] is before
    assert len(_rows(memory, f"{memory.folder}/lake/of eu")) == 1
    del STORED[memory.path("s.t")]  # moved away
    work.go(2)
    memory.follow()
    _check(memory)
