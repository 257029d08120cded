"""Two runs on the same tables: whenever the other one is faster, an apply begins again with what there is, and says nothing of a table that was never wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake
from tests.targets.lake.points import WRITES

LOOKS = (
    "exists", "read_owner", "read_rule", "read_variants", "read_markers", "read_schema_version", "read_column_types", "read_rows",
    "pin_table_state", "count_file_bytes", "can_evolve",
)  # fmt: skip
STEPS = 12


class OvertakingRun:
    """Has another run do everything before a table's call with some number, counted over all tables. 0 only counts."""

    def __init__(self, number: int, other: Callable[[], Any]) -> None:
        self._number, self._other = number, other
        self.calls = 0
        self.before = ""

    def __call__(self, location: str, name: str, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self._number:
            self.before = f"{name} of {location}"
            self._other()
        return call()


def _work(lake: Lake, work: Workload, r: Random) -> None:
    for _ in range(STEPS):
        work.step(r)
    lake.connector.capture()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
def test_whenever_another_run_is_faster_the_tables_end_equal(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, sampled: CaseSample, seed: int
) -> None:
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.apply.batch_applier.time.sleep", lambda _: None)
    monkeypatch.setattr("tests.targets.lake.points.WRITES", (*WRITES, *LOOKS))
    work, r = Workload(memory.connector.database, ddl=0.3, sparse=("note",)), Random(seed)  # type: ignore[attr-defined]
    _work(memory, work, r)
    memory.apply()
    _work(memory, work, r)
    before = dict(STORED)
    memory.hook = counted = OvertakingRun(0, lambda: None)
    memory.apply(threads=1)
    _equal(memory)
    for number in range(1, counted.calls + 1):
        if not sampled.of(number, every=25):
            continue
        STORED.clear()
        STORED.update(before)
        memory.hook = overtaken = OvertakingRun(number, replace(memory, hook=None).apply)
        memory.apply(threads=1)
        _equal(memory, f"overtaken before call {number}, {overtaken.before}")


class LosingExecutors:
    """Has all that Spark has set aside be gone before some write, as if executors were lost.

    :param times: how often
    """

    def __init__(self, lake: Lake, times: int) -> None:
        self._spark, self.left = lake.spark, times

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        aside = self._spark.sparkContext._jsc.getPersistentRDDs()  # type: ignore[attr-defined]
        if self.left and len(aside):
            self.left -= 1
            for rows in list(aside.values()):
                rows.unpersist(True)
        return write()


@pytest.mark.spark
@pytest.mark.parametrize(("times", "fails"), [(2, False), (1000, True)])
def test_rows_that_are_lost_with_executors_are_made_again(memory: Lake, times: int, fails: bool) -> None:
    database = memory.connector.database  # type: ignore[attr-defined]
    database.create_table("s.t", {"id": "int64!", "note": "string"}, key=("id",), sparse=("note",))
    with database.transaction() as t:
        for key in range(4):
            t.insert("s.t", {"id": key, "note": f"note {key}"})
    memory.follow()
    with database.transaction() as t:
        for key in range(4):  # a value that the event does not have moves to another key
            t.update("s.t", {"id": key}, {"id": key + 10})
    memory.connector.capture()
    memory.hook = losing = LosingExecutors(memory, times)
    if fails:
        with pytest.raises(TargetError, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
            memory.apply(writes="merge")
        memory.hook = None
    memory.apply(writes="merge")
    assert losing.left < times
    _equal(memory)


def _equal(lake: Lake, what: str = "") -> None:
    for topic, replayed in lake.replayed().items():
        assert lake.rows(str(replayed.schema.id), *replayed.schema.column_names) == replayed.all(), f"{topic}: {what}"
