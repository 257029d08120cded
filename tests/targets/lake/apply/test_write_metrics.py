"""Metrics that an apply reports of each table: the way of writing, rows, bytes, files, seconds, and the age of its events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.targets.lake.apply.apply_run_report import TableApplyResult
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark


class WatchedTable:
    """A table, and what each apply to it has left in its folder."""

    def __init__(self, lake: Lake, key: tuple[str, ...] = ("id",)) -> None:
        self.lake, self.folder = lake, Path(lake.path("s.t"))
        lake.connector.database.create_table("s.t", {"id": "int64!", "n": "int32"}, key=key)

    def apply(self, **options: Any) -> tuple[TableApplyResult, int, int]:
        """Capture and apply; return the result in the report, and the bytes and number of new files on the disk."""
        before = self._files()
        self.lake.connector.capture()
        (found,) = self.lake.apply(**options).tables
        new = {name: size for name, size in self._files().items() if name not in before}
        return found, sum(new.values()), len(new)

    def _files(self) -> dict[str, int]:
        files = [f for f in self.folder.rglob("*.parquet") if "_delta_log" not in f.parts]
        return {str(f): f.stat().st_size for f in files}


def _told(found: TableApplyResult) -> tuple[dict[str, int], int | None, int | None]:
    return found.ways, found.rows_written, found.rows_deleted


@pytest.mark.every_kind
def test_each_way_of_writing_reports_rows_bytes_and_files(lake: Lake) -> None:
    watched, database = WatchedTable(lake), lake.connector.database
    with database.transaction() as t:
        for n in range(5):
            t.insert("s.t", {"id": n, "n": n})
    found, size, files = watched.apply()
    assert (*_told(found)[:2], found.bytes_written, found.files_written) == ({"create": 1}, 5, size, files)
    for writes, way in (("commit", "commit"), ("merge", "merge")):
        with database.transaction() as t:
            t.insert("s.t", {"id": 10, "n": 1})
            t.insert("s.t", {"id": 11, "n": 1})
            t.update("s.t", {"id": 1}, {"n": 7})
            t.delete("s.t", {"id": 2})
            t.delete("s.t", {"id": 11})
        found, size, files = watched.apply(writes=writes)
        # in Iceberg, a delete of a merge may be that of a row that was written again
        assert _told(found) == ({way: 1}, 2, 1 if way == "commit" or lake.kind == "delta" else None)
        assert (found.bytes_written, found.files_written) == (size, files)
        with database.transaction() as t:
            t.delete("s.t", {"id": 10})
            t.insert("s.t", {"id": 2, "n": 2})
        watched.apply()
    database.truncate_table("s.t")
    with database.transaction() as t:
        t.insert("s.t", {"id": 9, "n": 9})
    found, size, files = watched.apply()
    assert (*_told(found)[:2], found.bytes_written, found.files_written) == ({"replace": 1}, 1, size, files)
    lake.check()


@pytest.mark.every_kind
def test_rows_of_a_table_without_a_key_are_reported_as_appended(lake: Lake) -> None:
    watched, database = WatchedTable(lake, ()), lake.connector.database
    for n in range(2):
        with database.transaction() as t:
            t.insert("s.t", {"id": 1, "n": n})
        found, size, files = watched.apply()
    assert (*_told(found)[:2], found.bytes_written, found.files_written) == ({"append": 1}, 1, size, files)


def test_a_table_reports_how_old_its_newest_event_was_when_it_came_in(lake: Lake) -> None:
    watched, database = WatchedTable(lake), lake.connector.database
    for age in (500, 100):
        database.clock = lambda age=age: int((time.time() - age) * 1e6)
        with database.transaction() as t:
            t.insert("s.t", {"id": age, "n": 0})
    began = time.time()
    found, _, _ = watched.apply()
    assert found.freshness_s is not None
    assert 100 <= found.freshness_s <= 101 + time.time() - began
    assert 0 < found.seconds <= time.time() - began


def test_the_report_has_all_of_it_for_pages_and_tasks(lake: Lake) -> None:
    watched = WatchedTable(lake)
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 0})
    found, size, files = watched.apply()
    report = ApplyReports(lake.connector.changelog.storage, lake.connector.name).read(lake.kind, lake.location)
    assert report is not None
    (table,) = report["tables"]
    assert (table["bytes_written"], table["files_written"], table["rows_written"]) == (size, files, 1)
    assert (table["freshness_s"], table["ways"]) == (found.freshness_s, {"create": 1})


def test_a_write_that_another_run_has_done_already_counts_for_nothing(lake: Lake) -> None:
    """A merge whose batch is in the table by then does nothing, and says so."""
    watched, database = WatchedTable(lake), lake.connector.database
    with database.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 0})
    watched.apply()
    with database.transaction() as t:
        t.insert("s.t", {"id": 2, "n": 0})
    lake.connector.capture()
    done: list[str] = []

    def other_is_faster(location: str, name: str, write: Any) -> Any:
        if name == "merge" and not done:
            done.append(name)
            lake.hook = None
            lake.apply(writes="merge")
        return write()

    lake.hook = other_is_faster
    job = lake.job(writes="merge")
    tables = job.run().tables
    assert done == ["merge"]
    (other,) = lake.reports[-1].tables
    assert _told(other)[:2] == ({"merge": 1}, 1)
    assert [_told(one)[:2] for one in tables] in ([], [({}, None)])
    lake.check()
