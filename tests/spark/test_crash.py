"""Whatever ends an apply, and wherever: the next one makes the tables what they have to be, and no event counts twice."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.pending import Batches
from spark_jobs.targets.base import Conflict, Owner
from spark_jobs.targets.delta import DeltaTarget
from tests.spark.lake import Database, Lake, run_child
from tests.spark.points import Points
from tests.support.patience import LONGEST_S

pytestmark = [pytest.mark.spark, pytest.mark.crash]


class Ended(BaseException):
    """Nobody catches it, as nobody catches a kill."""


def _first(db: Database) -> None:
    """Rows that are applied before the crash."""
    for name, key in (("keyed", ("id",)), ("rewritten", ("id",)), ("bag", ())):
        db.create_table(f"s.{name}", {"id": "int64!", "n": "int32", "a": "string"}, key=key)
        with db.transaction() as t:
            for i in range(6):
                t.insert(f"s.{name}", {"id": i % 4 if name == "bag" else i, "n": i, "a": f"a{i}"})


def _then(db: Database) -> None:
    """Changes of rows and columns: what is applied when the crash comes."""
    for name in ("keyed", "rewritten", "bag"):
        with db.transaction() as t:
            t.insert(f"s.{name}", {"id": 7, "n": 1})
            t.insert(f"s.{name}", {"id": 7 if name == "bag" else 8, "n": 1})
            t.update(f"s.{name}", {"id": 1}, {"a": "changed"})
            t.delete(f"s.{name}", {"id": 2})
    db.rename_columns("s.keyed", a="b")
    db.add_column("s.keyed", "c", "int64", 5)
    db.change_column("s.keyed", "n", "int64", int)
    db.drop_column("s.rewritten", "n")
    db.add_column("s.rewritten", "n", "string", "x")
    db.create_table("s.new", {"id": "int64!"}, key=("id",))
    with db.transaction() as t:
        t.update("s.keyed", {"id": 3}, {"b": "later", "c": None})
        t.insert("s.new", {"id": 1})


def _last(db: Database) -> None:
    """More of both after the crash: the name that the columns were on their way to is not the last one."""
    db.rename_columns("s.keyed", b="d", c="e")
    with db.transaction() as t:
        for name in ("keyed", "rewritten", "bag"):
            t.update(f"s.{name}", {"id": 7}, {"n": 9 if name != "rewritten" else "nine"})


@pytest.fixture
def prepared(lake: Lake) -> Lake:
    _first(lake.connector.database)
    lake.follow()
    _then(lake.connector.database)
    lake.connector.capture()
    return lake


def _copy(lake: Lake, name: str) -> Lake:
    """The same tables in another place."""
    shutil.copytree(lake.folder / lake.name, lake.folder / name)
    return replace(lake, name=name)


def _equal(lake: Lake) -> None:
    for table, schema in lake.connector.database.view()[1].items():
        rows = lake.connector.database.rows(str(table))
        assert lake.rows(str(table), *schema.names) == sorted(rows, key=repr), table


class Stopping:
    """Ends the run before one of its writes, which is after the one before it. 0 only counts them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.names: list[str] = []

    def __call__(self, name: str, write: Callable[[], Any]) -> Any:
        self.names.append(name)
        if self._number and len(self.names) >= self._number:
            raise Ended
        return write()


def test_a_run_that_ends_between_any_two_writes_is_caught_up(prepared: Lake) -> None:
    count = Stopping(0)
    whole = _copy(prepared, "whole")
    whole.target = Points.at(DeltaTarget, count)
    whole.apply(threads=1)
    assert {"_alter", "merge", "replace", "create"} <= set(count.names)
    ended = []
    for number in range(1, len(count.names) + 1):
        broken = _copy(prepared, f"broken{number}")
        broken.target = Points.at(DeltaTarget, Stopping(number))
        with pytest.raises(Ended):
            broken.apply(threads=1)
        ended.append(replace(broken, target=None))
    # every other one is caught up as it is, the rest with more to come
    for broken in (whole, *ended[::2]):
        replace(broken, target=None).apply()
        _equal(broken)
    _last(prepared.connector.database)
    prepared.connector.capture()
    for broken in ended[1::2]:
        broken.apply()
        _equal(broken)


def test_two_killed_runs_in_a_row_with_columns_renamed_in_between(prepared: Lake) -> None:
    prepared.target = Points.at(DeltaTarget, _StopBefore("merge"))
    with pytest.raises(Ended):
        prepared.apply(threads=1)
    _last(prepared.connector.database)
    prepared.connector.capture()
    prepared.target = Points.at(DeltaTarget, _StopBefore("merge"))
    with pytest.raises(Ended):
        prepared.apply(threads=1)
    prepared.connector.database.rename_columns("s.keyed", d="f")
    prepared.target = None
    prepared.follow()
    _equal(prepared)


class _StopBefore:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, name: str, write: Callable[[], Any]) -> Any:
        if name == self._name:
            raise Ended
        return write()


def test_a_run_that_looked_at_the_table_before_another_one_changed_it_adds_nothing(prepared: Lake) -> None:
    """The other run comes in between this one's look at the marker and its first write to each table."""
    _last(prepared.connector.database)
    meanwhile: set[str] = set()

    def overtaken(name: str, write: Callable[[], Any]) -> Any:
        if not meanwhile:
            meanwhile.add(name)
            prepared.connector.capture()
            replace(prepared, target=None).apply()
        return write()

    prepared.target = Points.at(DeltaTarget, overtaken)
    for number, table in enumerate(("bag", "keyed", "new", "rewritten")):
        meanwhile.clear()
        batches = Batches(prepared.connector.changelog, list(prepared.connector.changelog.manifests("test")))
        owner, where = Owner("test", f"p.s.{table}"), prepared.path(f"s.{table}")
        prepared.job()._group(owner, where, [batches], [])
        assert meanwhile
        _equal(prepared)
        prepared.connector.database.truncate("s.new")
        with prepared.connector.database.transaction() as t:
            for name in ("bag", "keyed", "new", "rewritten"):
                t.insert(f"s.{name}", {"id": 50 + number})
        prepared.connector.database.add_column("s.bag", f"z{number}", "int32")
        prepared.connector.capture()


def test_other_writers_that_never_stop_are_an_error(prepared: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.apply_changes.time.sleep", lambda _: None)

    def busy(name: str, write: Callable[[], Any]) -> Any:
        raise Conflict("again")

    prepared.target = Points.at(DeltaTarget, busy)
    with pytest.raises(Exception, match="changed by other writers 6 times"):
        prepared.apply()
    prepared.target = None
    prepared.apply()
    _equal(prepared)


@pytest.mark.slow
def test_after_kill_9_the_next_run_makes_the_tables_equal(prepared: Lake) -> None:
    children = []
    for number, point in enumerate(("during 5", "after 6")):
        killed = _copy(prepared, f"killed{number}")
        where = (prepared.connector.changelog.storage.root, "test", killed.location)
        children.append((killed, run_child(*where, *point.split())))
    for _, child in children:
        assert child.stdout is not None
        assert any(line == "ready\n" for line in child.stdout)
    for killed, child in children:
        _, errors = child.communicate("go\n", timeout=LONGEST_S)
        assert child.returncode == -signal.SIGKILL, errors[-3000:]
        killed.apply()
        _equal(killed)


@pytest.mark.slow
def test_two_processes_at_once_give_the_same_tables(prepared: Lake) -> None:
    where = (prepared.connector.changelog.storage.root, "test", prepared.location)
    children = [run_child(*where) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert any(line == "ready\n" for line in child.stdout)
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=LONGEST_S)
        assert child.returncode == 0, errors[-3000:]
    _equal(prepared)
    at = {name: prepared.version(f"s.{name}") for name in ("keyed", "bag", "rewritten", "new")}
    prepared.apply()
    assert at == {name: prepared.version(f"s.{name}") for name in at}
