"""Reports that are written again and again: each is read as it was written, and costs by the tables that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports import apply_report_store, apply_report_writer
from airflow_provider_cdc.changelog.reports.apply_report_changes import find_changes, merge_changes
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.apply_report_writer import ApplyReportWriter

LOCATION = "/lake/{table}"


def _table(topic: str, last: int) -> dict[str, Any]:
    return {
        "topic": topic, "location": f"/lake/{topic}", "first_batch": 1, "last_batch": last, "rows": {"c": last},
        "position": {"pos": last}, "seconds": 0.5,
    }  # fmt: skip


def _report(states: dict[str, int], tables: dict[str, int] | None = None, **more: Any) -> Any:
    entries = {topic: {"location": f"/lake/{topic}", "batch": batch, "stamp": ""} for topic, batch in states.items()}
    done = [_table(topic, last) for topic, last in sorted((tables or {}).items())]
    known = {"target": "delta", "location": LOCATION, "last_batch": 3, "failed": {}, "lagging": {}, "seconds": 0.5}
    return {**known, "tables": done, "table_states": entries, **more}


def _read(storage: Storage) -> Any:
    report: Any = ApplyReports(storage, "shop").read("delta", LOCATION)
    return {name: value for name, value in report.items() if name != "at"}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each file that is written."""
    sizes: list[int] = []
    replace = Storage.replace

    def counted(self: Storage, path: str, data: bytes) -> None:
        sizes.append(len(data))
        replace(self, path, data)

    monkeypatch.setattr(Storage, "replace", counted)
    return sizes


def test_a_round_writes_the_entries_of_the_tables_that_it_changed(storage: Storage, written: list[int]) -> None:
    states, rounds = {f"p.s.t{number:05d}": 1 for number in range(2_000)}, 300
    writer = ApplyReportWriter(ApplyReports(storage, "shop"))
    writer.write(_report(states))
    whole = sum(written)
    written.clear()
    for number in range(rounds):
        states[f"p.s.t{number:05d}"] = number + 2
        writer.write(_report(states, {"p.s.t00007": number + 1}, last_batch=number + 4))
    assert sum(written) / rounds < whole / 15
    assert len(written) <= rounds * 1.05
    assert _read(storage) == _report(states, {"p.s.t00007": rounds}, last_batch=rounds + 3)


def test_a_single_report_and_one_of_few_tables_are_one_file(storage: Storage, written: list[int]) -> None:
    many = {f"p.s.t{number}": 1 for number in range(apply_report_writer.MANY)}
    ApplyReportWriter(ApplyReports(storage, "shop")).write(_report(many))
    writer = ApplyReportWriter(ApplyReports(storage, "shop"))
    for batch in (1, 2, 3):
        writer.write(_report({"p.s.t": batch}))
    assert len(written) == 4
    assert _read(storage) == _report({"p.s.t": 3})


def test_bases_that_no_report_needs_are_deleted(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_report_writer, "MANY", 2)
    reports = ApplyReports(storage, "shop")
    other = ApplyReportWriter(ApplyReports(storage, "shop"))
    for batch in (1, 2):
        other.write(_report({"a": batch, "b": batch}))
    writer = ApplyReportWriter(reports)
    for batch in range(1, 20):
        writer.write(_report({"a": batch, "b": batch}))
    folder = tmp_path / "shop" / "applied"
    assert len(list(folder.iterdir())) == 3  # that of the other job may be in use
    other.write(_report({"a": 7, "b": 2}))
    assert _read(storage) == _report({"a": 7, "b": 2})
    monkeypatch.setattr(apply_report_store, "LEFT_S", -1.0)
    writer.write(_report({"a": 1, "b": 1}))
    writer.write(_report({"a": 2, "b": 2}))
    writer.write(_report({"a": 2}))  # few tables
    assert [path.suffix for path in folder.iterdir()] == [".json"]
    assert _read(storage) == _report({"a": 2})
    writer.write(_report({"a": 1, "b": 1}))
    assert reports.delete_report("delta", LOCATION)
    assert list(folder.iterdir()) == []


def test_a_report_whose_base_is_replaced_while_it_is_read_is_read_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_report_writer, "MANY", 2)
    writer = ApplyReportWriter(ApplyReports(storage, "shop"))
    for batch in range(1, 4):
        writer.write(_report({"a": batch, "b": batch}))
    read, times = Storage.read, []

    def late(self: Storage, path: str) -> bytes | None:
        data = read(self, path)
        if path.endswith(".json") and not times:
            times.append(path)
            for batch in range(4, 8):
                writer.write(_report({"a": batch, "b": batch}))
        return data

    monkeypatch.setattr(Storage, "read", late)
    assert _read(storage)["table_states"]["a"]["batch"] == 7


def test_a_report_without_its_base_cannot_be_read(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(apply_report_writer, "MANY", 2)
    writer, reports = ApplyReportWriter(ApplyReports(storage, "shop")), ApplyReports(storage, "shop")
    for batch in (1, 2):
        writer.write(_report({"a": batch, "b": batch}))
    (base,) = (tmp_path / "shop" / "applied").glob("*.base")
    base.unlink()
    assert reports.read("delta", LOCATION) is None
    assert f"its base {base.name} is missing" in caplog.text
    assert len(reports.list_unreadable()) == 1


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_ENTRIES = st.dictionaries(_NAMES, st.integers(1, 3), max_size=4)
_FIELDS = st.fixed_dictionaries(
    {}, optional={"owner": st.sampled_from(["x", "y"]), "terminal": st.lists(_NAMES, max_size=1)}
)
_REPORTS = st.builds(lambda states, tables, more: _report(states, tables, **more), _ENTRIES, _ENTRIES, _FIELDS)


@given(_REPORTS, _REPORTS)
def test_a_base_and_its_changes_are_the_report(base: Any, report: Any) -> None:
    assert merge_changes(base, find_changes(base, report)) == report


@given(st.lists(_REPORTS, min_size=1, max_size=8))
def test_each_report_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, reports: list[Any]) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("reports")))
    writer = ApplyReportWriter(ApplyReports(storage, "shop"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply_report_writer, "MANY", 1)
        for report in reports:
            writer.write(report)
            assert _read(storage) == report
