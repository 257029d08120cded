"""Whatever ends an apply, and wherever: the next one makes the tables what they have to be, and no event counts twice."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from tests.support.connectors import memory_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.lake.lake import Child, Database, Lake, new_lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]


class RunEnded(BaseException):
    """No one catches it, as no one catches a kill."""


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


@pytest.fixture(scope="module")
def applied_lake(spark: SparkSession, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Tables with the first rows, which each test finds in the same place: there are kinds whose tables do not work anywhere else."""
    lake = new_lake(spark, tmp_path_factory.mktemp("applied"), kind)
    _first(lake.connector.database)
    lake.follow()
    lake.connector.store.close()
    _save(lake, "first")
    return lake


@pytest.fixture
def prepared_lake(lake: Lake, applied_lake: Lake) -> Lake:
    """The first rows are applied, the changes after them are captured into a copy of the change log that they were applied from."""
    db, folder = lake.connector.database, lake.folder / "copied"
    _first(db)
    folder.mkdir()
    shutil.copy(applied_lake.folder / "state.db", folder)
    shutil.copytree(applied_lake.connector.changelog.storage.root, folder / "changelog")
    connector = memory_connector(db, folder, topic_prefix="p")
    connector.database = db  # type: ignore[attr-defined]
    lake = replace(lake, folder=applied_lake.folder, connector=connector)
    _restore(lake, "first")
    assert lake.apply().tables == []  # they say themselves how far they are
    _then(lake.connector.database)
    lake.connector.capture()
    return lake


def _save(lake: Lake, name: str) -> None:
    """Keep the tables as they are now."""
    shutil.rmtree(lake.folder / "saved" / name, ignore_errors=True)
    shutil.copytree(lake.folder / lake.name, lake.folder / "saved" / name)


def _restore(lake: Lake, name: str) -> None:
    """Make the tables what they were; the last report knows nothing of it, so it goes."""
    shutil.rmtree(lake.folder / lake.name, ignore_errors=True)
    shutil.copytree(lake.folder / "saved" / name, lake.folder / lake.name)
    shutil.rmtree(Path(lake.connector.changelog.storage.root) / "test" / "applied", ignore_errors=True)


@pytest.fixture(scope="module")
def child_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[Child]]]:
    """Two processes with a Spark session each, started when they are asked for; who was killed is started again."""
    folder = tmp_path_factory.mktemp("children")
    started: list[Child] = []

    def two() -> list[Child]:
        while len(alive := [child for child in started if child.alive]) < 2:
            started.append(Child(folder / f"{len(started)}.log"))
        return alive

    yield two
    for child in started:
        child.close()


def _equal(lake: Lake) -> None:
    for table, schema in lake.connector.database.read_consistent_view()[1].items():
        rows = lake.connector.database.copy_rows(str(table))
        assert lake.rows(str(table), *schema.column_names) == sorted(rows, key=repr), table


class StoppedWrites:
    """Ends the work on each table before one of its writes, which is after the one before it. 0 only counts them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.names: dict[str, list[str]] = {}

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        names = self.names.setdefault(location, [])
        names.append(name)
        if self._number and len(names) >= self._number:
            raise RunEnded
        return write()


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_a_run_that_ends_between_any_two_writes_is_caught_up(prepared_lake: Lake, sampled: CaseSample) -> None:
    """Tables know nothing of each other: one run ends before the same write of all of them."""
    count = StoppedWrites(0)
    prepared_lake.hook = count
    prepared_lake.apply(threads=1)
    _equal(prepared_lake)
    assert {"_alter", "merge", "replace", "create"} <= {name for names in count.names.values() for name in names}
    ended = [n for n in range(1, max(map(len, count.names.values())) + 1) if sampled.of(n, every=2)]
    for number in ended:
        _restore(prepared_lake, "first")
        prepared_lake.hook = stopping = StoppedWrites(number)
        with pytest.raises(RunEnded):
            prepared_lake.apply(threads=1)
        assert len(stopping.names) == len(count.names), "all tables were begun"
        _save(prepared_lake, f"ended{number}")
    prepared_lake.hook = None
    # every other one is caught up as it is, the rest with more to come
    for number in ended[::2]:
        _restore(prepared_lake, f"ended{number}")
        prepared_lake.apply()
        _equal(prepared_lake)
    _last(prepared_lake.connector.database)
    prepared_lake.connector.capture()
    for number in ended[1::2]:
        _restore(prepared_lake, f"ended{number}")
        prepared_lake.apply()
        _equal(prepared_lake)


def test_two_killed_runs_in_a_row_with_columns_renamed_in_between(prepared_lake: Lake) -> None:
    prepared_lake.hook = _before_merge
    with pytest.raises(RunEnded):
        prepared_lake.apply(threads=1)
    _last(prepared_lake.connector.database)
    prepared_lake.connector.capture()
    prepared_lake.hook = _before_merge
    with pytest.raises(RunEnded):
        prepared_lake.apply(threads=1)
    prepared_lake.connector.database.rename_columns("s.keyed", d="f")
    prepared_lake.hook = None
    prepared_lake.follow()
    _equal(prepared_lake)


def _before_merge(location: str, name: str, write: Callable[[], Any]) -> Any:
    if name == "merge":
        raise RunEnded
    return write()


def _killed_when_columns_are_changed(lake: Lake) -> None:
    """Rows of two batches, of which the second one has a column more: the columns are changed, and then the run is killed."""
    db, names = lake.connector.database, list[str]()
    db.create_table("s.keyed", {"id": "int64!", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.keyed", {"id": i, "n": i})
    lake.follow()
    with db.transaction() as t:
        t.insert("s.keyed", {"id": 7, "n": 7})
        t.update("s.keyed", {"id": 1}, {"n": 11})
    lake.connector.capture()
    db.add_column("s.keyed", "c", "string")
    with db.transaction() as t:
        t.update("s.keyed", {"id": 2}, {"c": "new"})
    lake.connector.capture()

    def after_columns(location: str, name: str, write: Callable[[], Any]) -> Any:
        if name != "_alter":
            raise RunEnded
        names.append(name)
        return write()

    lake.hook = after_columns
    with pytest.raises(RunEnded):
        lake.apply(threads=1)
    assert names, "the columns were changed"
    lake.hook = None


@pytest.mark.every_kind
def test_another_key_after_a_killed_run_that_had_changed_the_columns(lake: Lake) -> None:
    """Such batches are applied one by one; the killed run had begun with two of those before it as one."""
    _killed_when_columns_are_changed(lake)
    lake.connector.database.change_key("s.keyed", "n")
    with lake.connector.database.transaction() as t:
        t.update("s.keyed", {"id": 2}, {"n": 20, "c": "moved"})
        t.insert("s.keyed", {"id": 2, "n": 2})
    lake.follow()
    _equal(lake)


@pytest.mark.every_kind
def test_smaller_groups_after_a_killed_run_that_had_changed_the_columns(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches that a run applies at once depend on where it begins to read, so the next run may part them elsewhere."""
    _killed_when_columns_are_changed(lake)
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.backlog.reported_apply_state.GROUP_BYTES", 1)
    lake.apply()
    _equal(lake)


def test_a_run_that_looked_at_the_table_before_another_one_changed_it_adds_nothing(prepared_lake: Lake) -> None:
    """The other run, which knows of more batches, comes in between this one's look at the marker and its first write to each table."""
    db, changelog = prepared_lake.connector.database, prepared_lake.connector.changelog
    topics = {prepared_lake.path(f"s.{name}"): f"p.s.{name}" for name in ("bag", "keyed", "new", "rewritten")}
    overtaken: set[str] = set()

    def more() -> None:
        _last(db)
        db.truncate_table("s.new")
        with db.transaction() as t:
            for name in ("bag", "keyed", "new", "rewritten"):
                t.insert(f"s.{name}", {"id": 50})
        db.add_column("s.bag", "z", "int32")
        prepared_lake.connector.capture()

    def meanwhile(location: str, name: str, write: Callable[[], Any]) -> Any:
        if not overtaken:
            more()
        if location not in overtaken:
            overtaken.add(location)
            batches = BatchesByTopic(changelog, [one.batch_contents for one in changelog.read_manifests("test")])
            replace(prepared_lake, hook=None).job()._catch_up.apply_batches(
                prepared_lake.owner(topics[location]), location, [batches], []
            )
        return write()

    prepared_lake.hook = meanwhile
    prepared_lake.apply(threads=1)
    assert overtaken == set(topics)
    _equal(prepared_lake)


def test_other_writers_that_never_stop_are_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.apply.batch_applier.time.sleep", lambda _: None)
    db = lake.connector.database
    db.create_table("s.keyed", {"id": "int64!"}, key=("id",))
    lake.follow()

    def busy(location: str, name: str, write: Callable[[], Any]) -> Any:
        raise WriteConflict("again")

    with db.transaction() as t:
        t.insert("s.keyed", {"id": 1})
    lake.hook = busy
    with pytest.raises(TargetError, match=r"changed the table of .* 6 times .*Last conflict: again"):
        lake.follow()
    lake.hook = None
    lake.apply()
    _equal(lake)


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_at_once_give_the_same_tables(
    prepared_lake: Lake, child_processes: Callable[[], list[Child]]
) -> None:
    for child in child_processes():
        child.begin(prepared_lake)
    for child in child_processes():
        assert child.answer() == "done", child.said()
    _equal(prepared_lake)
    at = {name: prepared_lake.version(f"s.{name}") for name in ("keyed", "bag", "rewritten", "new")}
    prepared_lake.apply()
    assert at == {name: prepared_lake.version(f"s.{name}") for name in at}


@pytest.mark.slow
def test_after_kill_9_the_next_run_makes_the_tables_equal(
    prepared_lake: Lake, child_processes: Callable[[], list[Child]]
) -> None:
    for point in (("during", 3), ("after", 4)):
        _restore(prepared_lake, "first")
        child = child_processes()[0]
        child.begin(prepared_lake, *point)
        assert child.answer() == ""
        assert child.wait() == -signal.SIGKILL, child.said()
        prepared_lake.apply()
        _equal(prepared_lake)
