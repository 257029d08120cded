"""Batches are removed while an apply reads them, and the removal is killed: no table gets a part of its rows without a word, and nothing is left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.core.errors import CdcError
from tests.changelog.retention.test_batch_retention import DyingStorage, ProcessKilled
from tests.support.signals import snapshot
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]
COLUMNS = {"id": "int64!", "n": "int32"}
READS = ("read", "exists", "list", "open_input", "replace", "names_after")


class NthCall:
    """A watch on all storages: it calls something once, at the n-th call of a method in ``READS``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
        self.count, self._at, self._act, self._busy = 0, at, act, False
        for name in READS:
            monkeypatch.setattr(Storage, name, self._watched(getattr(Storage, name)))

    def _watched(self, method: Any) -> Any:
        def count_and_act(*args: Any, **options: Any) -> Any:
            if not self._busy:
                self.count += 1
                if self.count == self._at:
                    self._busy = True
                    try:
                        self._act()
                    finally:
                        self._busy = False
            return method(*args, **options)

        return count_and_act


def _fill_tables(lake: Lake) -> None:
    """``s.a`` can be built from batch 5 on, ``s.b`` from batch 1, ``s.c`` from its last batch."""
    db = lake.connector.database  # type: ignore[attr-defined]
    for name in ("a", "b"):
        db.create_table(f"s.{name}", COLUMNS, key=("id",))
    for i in range(3):
        for name in ("a", "b"):
            with db.transaction() as t:
                t.insert(f"s.{name}", {"id": i, "n": i})
        lake.connector.capture()
    snapshot(lake.connector, "s.a", replace=True)
    lake.connector.capture()
    db.create_table("s.c", COLUMNS, key=("id",))
    with db.transaction() as t:
        for name in ("a", "c"):
            t.insert(f"s.{name}", {"id": 9, "n": 9})
    lake.connector.capture()


def _equal(lake: Lake, *names: str) -> None:
    for name in names:
        rows = lake.connector.database.copy_rows(f"s.{name}")  # type: ignore[attr-defined]
        assert lake.rows(f"s.{name}", *COLUMNS) == sorted(rows, key=repr), name


def _removal(log: ChangeLog, keep: int, at: int, when: str) -> None:
    """A removal that knew nothing of the target when it decided what goes; and is killed."""
    mortal = ChangeLog(log.storage.root)
    mortal.storage = DyingStorage(log.storage.root, at, when)
    with contextlib.suppress(ProcessKilled):
        Retention(mortal, "test", RetentionLimits(ms=0))._remove(keep, "as a test wanted it")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("moment", range(1, 60))
def test_a_removal_beside_an_apply_that_begins_is_killed_at_any_moment(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    _fill_tables(memory)
    changelog, last = memory.connector.changelog, memory.connector.changelog.find_last_batch("test")
    base = next(m.batch for m in changelog.read_manifests("test") if any("t" in file.counts for file in m.files))
    keep = base if moment % 2 else last
    kill, when = 1 + moment * 7 % 14, ("before", "within", "after")[moment % 3]
    with monkeypatch.context() as patch:
        nth_call = NthCall(patch, moment, lambda: _removal(changelog, keep, kill, when))
        try:
            failed = memory.apply().failed
        except CdcError:
            report = ApplyReports(changelog.storage, "test").read(memory.kind, memory.location)
            failed = (
                report["failed"] if report is not None and report["failed"] else {"p.s.a": "", "p.s.b": "", "p.s.c": ""}
            )
    assert nth_call.count >= moment  # it took place
    _equal(memory, *({"a", "b", "c"} - {topic[-1] for topic in failed}))
    first = changelog.find_first_batch("test")
    for number in range(2):  # what is left of the removal is finished beside; what is needed is not removed
        try:
            assert memory.apply().failed == {}
            failed = {}
        except CdcError:
            report = ApplyReports(changelog.storage, "test").read(memory.kind, memory.location)
            assert report is not None
            failed = report["failed"]
            assert all("--replace" in text for text in failed.values()), failed
        expected = {"a", "b", "c"} - {topic[-1] for topic in failed}
        assert "c" in expected
        assert "a" in expected or first > base
        _equal(memory, *expected)
        if number == 0:
            Retention(changelog, "test", RetentionLimits(ms=-1)).run()
            assert changelog.find_first_batch("test") == first
            assert changelog.open_truncation_markers("test").list_numbers() in ([], [first])
    left = {int(p.name) for p in (Path(changelog.storage.root) / "test" / "data").iterdir()}
    assert left == set(changelog.list_batches("test")) == set(range(first, last + 1))
    snapshot(memory.connector, "s.a", "s.b", id_="again", replace=True)
    memory.connector.capture()
    memory.apply()
    _equal(memory, "a", "b", "c")
