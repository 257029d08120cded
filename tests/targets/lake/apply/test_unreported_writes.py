"""Writes that an apply has committed and could not report: the next one reports them, and no asset event of a table gets lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.errors import StorageUnavailable, TargetError
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport, TableApplyResult
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import nothing_new
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED, MemoryTableState
from airflow_provider_cdc.targets.lake.schema.column_origins import ColumnOriginRecorder
from tests.targets.lake.jobs.test_continuous_apply import RunningApply, wait_until
from tests.targets.lake.lake import Lake
from tests.targets.lake.placement.test_routes import _rules as route_rules
from tests.targets.lake.write.test_modes_crash import RunEnded, StoppedWrites

pytestmark = pytest.mark.spark
Told = dict[str, tuple[dict[str, int], int, int]]


def _told(found: list[TableApplyResult]) -> Told:
    """Table → events, first and last batch."""
    return {one.name or one.topic: (one.rows, one.first_batch, one.last_batch) for one in found}


def _filled(lake: Lake, *, moved: bool = False) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    if not moved:
        for name in ("s.a", "s.b"):
            db.create_table(name, {"id": "int64!", "region": "string", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for name in ("s.a", "s.b"):
            t.update(name, {"id": 1}, {"n": 2}) if moved else t.insert(name, {"id": 1, "region": "eu", "n": 1})
    lake.connector.capture()


class RefusingStorage:
    """A storage that refuses to write what is below a folder; all else is as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
        replace, self.refuses = Storage.replace, True

        def refused(storage: Storage, path: str, data: bytes) -> None:
            if self.refuses and f"/{folder}/" in path:
                raise StorageUnavailable("The change log's storage refused a request.", where=path)
            replace(storage, path, data)

        monkeypatch.setattr(Storage, "replace", refused)


@pytest.mark.parametrize("first", [True, False])
def test_what_a_storage_did_not_take_the_report_of_is_in_the_next_report(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    _filled(memory)
    if not first:
        memory.apply()
        _filled(memory, moved=True)
    # an apply whose target cannot be made known does nothing
    ApplyReports(memory.connector.changelog.storage, "test").register_target(memory.kind, memory.location)
    broken = RefusingStorage(monkeypatch, "applied")
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            memory.apply()
    broken.refuses = False
    last, rows = (1, {"r": 1}) if first else (2, {"u": 1})
    report = memory.apply()
    assert _told(report.unreported) == dict.fromkeys(("p.s.a", "p.s.b"), (rows, last, last))
    assert report.tables == []
    assert {one.location for one in report.unreported} == {memory.path("s.a"), memory.path("s.b")}
    assert all(one.position for one in report.unreported)
    assert memory.apply().unreported == []
    changelog = memory.connector.changelog
    stored = ApplyReports(changelog.storage, "test")
    stored.write({**(stored.read(memory.kind, memory.location) or {}), "unreported": [{"topic": "p.s.a"}]})
    found = nothing_new(changelog, "test", memory.kind, memory.location)
    assert found is None or found["unreported"] == []


@pytest.mark.parametrize("error", [StorageUnavailable("gone"), RuntimeError("no storage says so")])
def test_no_event_is_lost_if_the_origins_of_columns_cannot_be_written(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _filled(memory)

    def fails(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("airflow_provider_cdc.targets.lake.schema.column_origins.ColumnOrigins.write", fails)
        if isinstance(error, RuntimeError):
            with pytest.raises(RuntimeError):
                memory.apply()
        else:
            assert len(memory.apply().tables) == 2
    report = memory.apply()
    reported = dict.fromkeys(("p.s.a", "p.s.b"), ({"r": 1}, 1, 1))
    assert _told(report.unreported) == (reported if isinstance(error, RuntimeError) else {})


def test_after_a_run_killed_between_two_tables_the_next_one_reports_the_first(memory: Lake) -> None:
    memory.tables = route_rules(memory)
    db = memory.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "region": "string", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for i, region in enumerate(("eu", "us")):
            t.insert("s.t", {"id": i, "region": region, "n": i})
    memory.follow()
    with db.transaction() as t:
        t.insert("s.t", {"id": 2, "region": "us", "n": 5})
        t.insert("s.t", {"id": 3, "region": "asia", "n": 5})
    memory.connector.capture()

    class Last(StoppedWrites):
        """Ends before the write of the last table."""

        def __call__(self, location: str, name: str, write: Any) -> Any:
            if len(self.names) == 1 and location not in self.names:
                raise RunEnded
            return super().__call__(location, name, write)

    memory.hook = Last(0)
    with pytest.raises(RunEnded):
        memory.apply(threads=1)
    memory.hook = None
    (done,) = (at for at, found in STORED.items() if 2 in found.markers.values())  # type: ignore[union-attr]
    report = memory.apply()
    assert _told(report.unreported) == {f"p.s.t → {done}": ({"c": 2}, 2, 2)}
    assert len(report.tables) == 1
    assert memory.apply().unreported == []


def test_a_table_that_fails_after_some_commits_is_reported_once(memory: Lake) -> None:
    db = memory.connector.database  # type: ignore[attr-defined]
    db.create_table("s.a", {"id": "int64!", "n": "int32"}, key=("id",))
    memory.tables = type(memory.tables).parse([{"tables": r"s\.a", "mode": "log"}])
    memory.follow()
    for i in range(3):
        with db.transaction() as t:
            t.insert("s.a", {"id": i, "n": i})
        memory.connector.capture()

    def second(location: str, name: str, write: Any) -> Any:
        writes.append(name)
        if len(writes) == 2:
            raise TargetError("The disk is full.")
        return write()

    writes: list[str] = []
    memory.hook = second
    with pytest.raises(TargetError, match="disk is full"):
        memory.apply()
    memory.hook = None
    stored = ApplyReports(memory.connector.changelog.storage, "test").read(memory.kind, memory.location)
    assert stored is not None
    assert [(one["first_batch"], one["last_batch"]) for one in stored["tables"]] == [(2, 2)]
    report = memory.apply()
    assert report.unreported == []
    assert [(one.first_batch, one.last_batch) for one in report.tables] == [(3, 3), (4, 4)]


def test_an_apply_that_goes_on_reports_what_the_one_before_it_could_not(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(memory)
    with RunningApply(memory, "first") as running:
        running.reached()
        with monkeypatch.context() as patched:
            patched.setattr(ColumnOriginRecorder, "write_lineage", _raise)
            _filled(memory, moved=True)
            wait_until(lambda: running.error, "its end")
    assert isinstance(running.error, RuntimeError)
    with RunningApply(memory, "second") as running:
        running.reached()
        _filled(memory, moved=True)
        running.reached()
        report: ApplyRunReport = running.stop()
    assert _told(report.unreported) == dict.fromkeys(("p.s.a", "p.s.b"), ({"u": 1}, 2, 2))
    assert _told(report.tables)["p.s.a"][0] == {"u": 1}
    word = running.turns.find_turn("second")
    assert word is not None
    assert {one["topic"] for one in word["report"]["unreported"]} == {"p.s.a", "p.s.b"}


def _raise(*_: Any) -> None:
    raise RuntimeError("no storage says so")


def test_what_others_bring_into_a_table_again_and_again_is_reported_as_a_whole(memory: Lake) -> None:
    """Nothing says who they are: they take no turns, and their markers name no writer of a batch."""
    _filled(memory)
    with RunningApply(memory, "first") as running:
        running.reached()
        for n in (2, 3):
            with memory.connector.database.transaction() as t:  # type: ignore[attr-defined]
                t.update("s.a", {"id": 1}, {"n": n + 10})
            there = STORED[memory.path("s.a")]
            assert isinstance(there, MemoryTableState)
            STORED[memory.path("s.a")] = replace(there, markers=dict.fromkeys(there.markers, n), writers={})
            memory.connector.capture()
            running.reached()
        report = running.stop()
    assert _told(report.unreported) == {"p.s.a": ({"u": 2}, 2, 3)}


def test_unreported_work_of_a_run_stays_in_later_reports_until_it_is_reported(
    memory: Lake,
) -> None:
    def earlier(report: ApplyRunReport) -> dict[str, Told]:
        return {
            one["owner"]: {t["topic"]: (t["rows"], t["first_batch"], t["last_batch"]) for t in one["tables"]}
            for one in report.earlier
        }

    _filled(memory)
    first_told, second_told = (dict.fromkeys(("p.s.a", "p.s.b"), ({kind: 1}, n, n)) for kind, n in (("r", 1), ("u", 2)))
    with RunningApply(memory, "first") as running:
        running.reached()
        running.stop()
    _filled(memory, moved=True)
    with RunningApply(memory, "second") as running:
        running.reached()
        assert earlier(running.stop()) == {"first": first_told}
    running.turns.record_announcement("first")
    assert earlier(memory.apply()) == {"second": second_told}
    found = nothing_new(memory.connector.changelog, "test", memory.kind, memory.location)
    assert found is None or found["owner"] == ""
    running.turns.record_announcement("second")
    _filled(memory, moved=True)
    assert earlier(memory.job().run("third")) == {}
    assert earlier(memory.apply()) == {"third": dict.fromkeys(("p.s.a", "p.s.b"), ({"u": 1}, 3, 3))}
    assert earlier(memory.apply()) == {"third": dict.fromkeys(("p.s.a", "p.s.b"), ({"u": 1}, 3, 3))}
    running.turns.record_announcement("third")
    assert earlier(memory.apply()) == {}
