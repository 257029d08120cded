"""Routes under kills, with two applies at once, and with one that continues: each row ends in its table, in no other one, and once."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import TargetError
from tests.targets.lake.jobs.test_continuous_apply import RunningApply, wait_until
from tests.targets.lake.lake import Child, Lake
from tests.targets.lake.placement.test_routes import COLUMNS, ODD, RouteWork, _check, _entries, _rules
from tests.targets.lake.with_catalog import apply

pytestmark = [pytest.mark.spark, pytest.mark.crash]
REGIONS = ("eu", "us", ODD[0], None)


@pytest.fixture
def prepared_lake(lake: Lake) -> Lake:
    """Tables that are applied, and batches after them: rows that move between tables, into new ones and out of all, and a new column."""
    lake.tables, db = _rules(lake, otherwise="drop"), lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i in range(12):
            t.insert("s.t", {"id": i, "region": REGIONS[i % 4], "n": i})
    lake.follow()
    for folder in (lake.folder / lake.name, _reports(lake)):
        shutil.copytree(folder, lake.folder / "saved" / folder.name)
    with db.transaction() as t:
        t.update("s.t", {"id": 0}, {"region": "us"})
        t.update("s.t", {"id": 1}, {"region": "new"})
        t.update("s.t", {"id": 2}, {"region": None})
        t.update("s.t", {"id": 3}, {"region": "eu"})
        t.update("s.t", {"id": 4}, {"n": 95})
        t.update("s.t", {"id": 5}, {"id": 50, "region": "eu"})
        t.delete("s.t", {"id": 6})
    lake.connector.capture()
    db.add_column("s.t", "c", "int32", 5)
    with db.transaction() as t:
        t.update("s.t", {"id": 0}, {"region": "eu"})
        t.update("s.t", {"id": 4}, {"n": 4})
        t.insert("s.t", {"id": 60, "region": "new", "n": 1, "c": 6})
    lake.connector.capture()
    return lake


def _reports(lake: Lake) -> Path:
    return Path(lake.connector.changelog.storage.root) / "test" / "applied"


def _restore(lake: Lake, *, reports: bool) -> None:
    """Make the tables what they were. Without its reports, an apply finds them again in all batches."""
    for folder in (lake.folder / lake.name, _reports(lake)):
        shutil.rmtree(folder, ignore_errors=True)
        if reports or folder != _reports(lake):
            shutil.copytree(lake.folder / "saved" / folder.name, folder)


def _caught_up(lake: Lake) -> None:
    lake.apply()
    _check(lake, "drop")
    assert lake.apply().tables == []


def _is_killed(child: Child, lake: Lake, *point: str | int) -> bool:
    """Check whether it came to the point at which it dies."""
    child.begin(lake, *point)
    if child.answer() == "done":
        return False
    assert child.wait() == -signal.SIGKILL, child.said()
    return True


@pytest.mark.slow
def test_after_kill_9_between_the_commits_of_two_tables_each_row_is_in_one(
    prepared_lake: Lake, child: Callable[[], Child]
) -> None:
    assert _is_killed(child(), prepared_lake, "after", 3)
    _caught_up(prepared_lake)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.every_kind
def test_after_kill_9_at_any_commit_each_row_is_in_one_table(prepared_lake: Lake, child: Callable[[], Child]) -> None:
    running, died = child(), 0
    for number in range(1, 100):
        point = ("before", "during", "after")[number % 3]
        _restore(prepared_lake, reports=number % 2 == 0)
        if not running.alive:
            running = child()
        if not _is_killed(running, prepared_lake, point, number):
            break
        died += 1
        _caught_up(prepared_lake)
    assert died >= 6  # a commit of each of the tables that rows leave or enter, at least


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.every_kind
def test_two_processes_at_once_bring_each_row_to_its_table(prepared_lake: Lake, child: Callable[[], Child]) -> None:
    both = child(), child()
    for _ in range(3):
        _restore(prepared_lake, reports=False)
        for each in both:
            each.begin(prepared_lake)
        for each in both:
            assert each.answer() == "done", each.said()
        _check(prepared_lake, "drop")
    _caught_up(prepared_lake)


@pytest.mark.every_kind
@pytest.mark.parametrize("key", [(), pytest.param(("id",), marks=pytest.mark.long)], ids=["bag", "keyed"])
def test_two_applies_at_once_write_no_row_twice(lake: Lake, key: tuple[str, ...]) -> None:
    lake.tables, work = _rules(lake), RouteWork(lake, 11, key=key, regions=REGIONS[1:])

    for _ in range(4 if key else 2):
        work.go(4)
        lake.connector.capture()
        with ThreadPoolExecutor(2) as two:
            list(two.map(lambda _: apply(lake, lake.location), range(2)))
        lake.apply()
        _check(lake)
    assert lake.apply().tables == []


@pytest.mark.every_kind
def test_an_apply_that_goes_on_moves_rows_from_table_to_table(lake: Lake) -> None:
    lake.tables, work = _rules(lake), RouteWork(lake, 12, regions=REGIONS)
    lake.connector.capture()
    with RunningApply(lake) as running:
        running.reached()
        for _ in range(4):
            work.go(3, truncates=0.02)
            lake.connector.capture()
            running.reached()
            _check(lake)
        assert running.stop().failed == {}
    assert len(_entries(lake)) >= 4
    assert lake.apply().tables == []


@pytest.mark.long
@pytest.mark.every_kind
@pytest.mark.parametrize("key", [(), ("id",)], ids=["bag", "keyed"])
def test_take_overs_and_other_applies_beside_one_that_goes_on_change_nothing(lake: Lake, key: tuple[str, ...]) -> None:
    lake.tables, work = _rules(lake), RouteWork(lake, 13, key=key, regions=REGIONS)
    lake.connector.capture()
    stop, errors = threading.Event(), list[BaseException]()

    def apply_repeatedly() -> None:
        while not stop.wait(0.5):
            try:
                lake.apply()
            except TargetError as e:
                if "other writers" not in str(e):
                    errors.append(e)
            except BaseException as e:
                errors.append(e)

    beside = threading.Thread(target=apply_repeatedly)
    beside.start()
    try:
        for number in range(4):
            with RunningApply(lake, f"run {number}") as running:
                for _ in range(3):
                    work.go(3, truncates=0.02)
                    lake.connector.capture()
                    running.reached()
                work.go(2)
                lake.connector.capture()
                with RunningApply(lake, f"successor {number}") as successor:  # it takes over with a batch under way
                    # the other apply may have come to the newest batch before
                    wait_until(lambda one=successor: one.warm._rounds or one.error, "the successor's turn")  # type: ignore[misc]
                    successor.reached()
                    assert successor.stop().failed == {}
    finally:
        stop.set()
        beside.join()
    assert not errors, errors
    lake.apply()
    _check(lake)
    assert lake.apply().tables == []
