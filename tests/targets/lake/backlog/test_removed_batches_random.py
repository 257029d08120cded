"""Random histories, and batches that are removed at random moments: a target that says it has succeeded equals the source, whatever it has lost, and whenever it began."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.signals import snapshot
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_whatever_is_removed_whenever_a_table_equals_the_source_or_says_why_not(memory: Lake, seed: int) -> None:
    r = random.Random(seed)
    memory.connector.properties |= {"batch.max.rows": 20}
    work, lakes, wrong, done = Workload(memory.connector.database), [memory], 0, 0
    for number in range(14):
        for _ in range(r.randrange(6)):
            work.step(r)
        if r.random() < 0.15 and work.tables:
            snapshot(memory.connector, r.choice(work.tables), id_=f"n{number}", replace=True)
        memory.connector.capture()
        if r.random() < 0.4 or number == 5:
            lakes.append(replace(memory, name=f"target{number}", reports=[]))
        if r.random() < 0.3:
            _lose_or_restore(r, lakes)
        for lake in lakes if number == 13 else r.sample(lakes, r.randrange(1, len(lakes) + 1)):
            failed = _applied_or_not(lake)
            wrong, done = wrong + len(failed), done + 1
            _equal_but(lake, failed)
        if r.random() < 0.7:
            Retention(memory.connector.changelog, "test", RetentionLimits(ms=0)).run()
    print(
        f"{done} applies, {wrong} tables that could not be built, first batch {memory.connector.changelog.find_first_batch('test')}"
    )
    assert memory.connector.changelog.find_first_batch("test") > 1


def _lose_or_restore(r: random.Random, lakes: list[Lake]) -> None:
    """A table is gone, or what it was some time ago; or a report is lost, or a whole target given up."""
    lake = r.choice(lakes)
    mine = [location for location in STORED if location.startswith(f"{lake.folder}/{lake.name}/")]
    match r.choice(["lose", "restore", "keep", "forget"]):
        case "lose" if mine:
            del STORED[r.choice(mine)]
        case "keep":
            BACKUPS.update({location: STORED[location] for location in mine})
        case "restore" if both := sorted(BACKUPS.keys() & {*mine}):
            location = r.choice(both)
            STORED[location] = BACKUPS[location]
        case "forget":
            ApplyReports(lake.connector.changelog.storage, "test").delete_report(lake.kind, lake.location)


BACKUPS: dict[str, Any] = {}


def _applied_or_not(lake: Lake) -> dict[str, str]:
    """Apply; return the tables that failed, each with its error, and check that the error says what to do."""
    try:
        lake.apply()
    except TargetError:
        report = ApplyReports(lake.connector.changelog.storage, "test").read(lake.kind, lake.location)
        assert report is not None
        for text in report["failed"].values():
            assert re.search("airflow cdc snapshot test .* --replace|to rebuild it from batch", text), text
            assert "removed" in text
        return dict(report["failed"])
    return {}


def _equal_but(lake: Lake, failed: dict[str, str]) -> None:
    for table, schema in lake.connector.database.read_consistent_view()[1].items():
        if f"p.{table}" in failed:
            continue
        rows = lake.connector.database.copy_rows(str(table))
        assert lake.rows(str(table), *schema.column_names) == sorted(rows, key=repr), (lake.name, table)
