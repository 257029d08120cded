"""Whatever ends an apply to tables with modes, and wherever: the next one makes them what they would have been, and no event counts twice."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.lake.lake import Child, Lake, Row

pytestmark = [pytest.mark.spark, pytest.mark.crash]
MODES = ("log", "soft_delete", "history")
RULES = TableRules.parse(
    [
        *({"tables": rf"s\.{mode}", "mode": mode} for mode in MODES),
        {"tables": r"s\.shard\d", "location": "", "shard": {"shard": "{table}"}},
    ]
)
TABLES = (*MODES, "shard1", "shard2")


class RunEnded(BaseException):
    """No one catches it, as no one catches a kill."""


@pytest.fixture
def prepared_lake(lake: Lake) -> Lake:
    """Tables that are applied, and two batches after them: changes of rows, keys and columns, and a truncate."""
    shards = f"{lake.folder}/{lake.name}/s/shards"
    lake.tables = TableRules(r.model_copy(update={"location": shards}) if r.shard else r for r in RULES.rules)
    db = lake.connector.database
    for name in TABLES:
        db.create_table(f"s.{name}", {"id": "int64!", "n": "int32"}, key=("id",))
        with db.transaction() as t:
            for i in range(5):
                t.insert(f"s.{name}", {"id": i, "n": i})
    lake.follow()
    _save(lake)
    for name in TABLES:
        with db.transaction() as t:
            t.update(f"s.{name}", {"id": 1}, {"n": 9})
            t.delete(f"s.{name}", {"id": 2})
            t.insert(f"s.{name}", {"id": 2, "n": 7})
    lake.connector.capture()
    for name in TABLES:
        db.add_column(f"s.{name}", "c", "int32", 5)
        with db.transaction() as t:
            t.update(f"s.{name}", {"id": 3}, {"id": 8, "c": 6})
            t.delete(f"s.{name}", {"id": 1})
    db.truncate_table("s.soft_delete")
    db.truncate_table("s.history")
    lake.connector.capture()
    return lake


def _save(lake: Lake) -> None:
    shutil.copytree(lake.folder / lake.name, lake.folder / "saved")


def _restore(lake: Lake) -> None:
    """Make the tables what they were; the last report knows nothing of it, so it goes."""
    shutil.rmtree(lake.folder / lake.name)
    shutil.copytree(lake.folder / "saved", lake.folder / lake.name)
    shutil.rmtree(Path(lake.connector.changelog.storage.root) / "test" / "applied", ignore_errors=True)


def _read_all(lake: Lake) -> dict[str, list[Row]]:
    return {name: lake.rows(f"s.{name}") for name in (*MODES, "shards")}


class StoppedWrites:
    """Ends the work on each table before one of its writes; 0 only counts them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.names: dict[str, list[str]] = {}

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        names = self.names.setdefault(location, [])
        names.append(name)
        if self._number and len(names) >= self._number:
            raise RunEnded
        return write()


def test_a_run_that_ends_between_any_two_writes_is_caught_up(prepared_lake: Lake, sampled: CaseSample) -> None:
    prepared_lake.hook = count = StoppedWrites(0)
    prepared_lake.apply(threads=1)
    expected = _read_all(prepared_lake)
    assert {"upsert_arrays", "merge"} <= {name for names in count.names.values() for name in names}
    ops = sorted(row["_op"] for row in expected["log"])
    assert ops == sorted("rrrrr" + "udc" + "dcd")
    for number in range(1, max(map(len, count.names.values())) + 1):
        if not sampled.of(number, every=3):
            continue
        _restore(prepared_lake)
        prepared_lake.hook = StoppedWrites(number)
        with pytest.raises(RunEnded):
            prepared_lake.apply(threads=1)
        prepared_lake.hook = None
        prepared_lake.apply()
        assert _read_all(prepared_lake) == expected, number


@pytest.mark.long
def test_a_run_that_looked_at_the_table_before_another_one_changed_it_adds_nothing(prepared_lake: Lake) -> None:
    """The other run applies the first of two batches between this one's look at the marker and its first write to each table."""
    prepared_lake.apply()
    expected = _read_all(prepared_lake)
    _restore(prepared_lake)
    changelog, overtaken = prepared_lake.connector.changelog, set[str]()
    topics = {prepared_lake.path(f"s.{name}"): f"p.s.{name}" for name in MODES}

    def apply_meanwhile(location: str, name: str, write: Callable[[], Any]) -> Any:
        if location not in overtaken and location in topics:
            overtaken.add(location)
            batches = BatchesByTopic(changelog, [one.batch_contents for one in changelog.read_manifests("test")][:-1])
            replace(prepared_lake, hook=None).job()._catch_up.apply_batches(
                prepared_lake.owner(topics[location]), location, [batches], []
            )
        return write()

    prepared_lake.hook = apply_meanwhile
    prepared_lake.apply(threads=1)
    assert overtaken == set(topics)
    assert _read_all(prepared_lake) == expected


@pytest.mark.long
def test_after_kill_9_the_next_run_makes_the_tables_what_they_would_have_been(
    prepared_lake: Lake, child: Callable[[], Child]
) -> None:
    prepared_lake.apply()
    expected = _read_all(prepared_lake)
    _restore(prepared_lake)
    killed = child()
    killed.begin(prepared_lake, "during", 3)
    assert killed.answer() == ""
    assert killed.wait() == -signal.SIGKILL, killed.said()
    prepared_lake.apply()
    assert _read_all(prepared_lake) == expected
