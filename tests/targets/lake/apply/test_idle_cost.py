"""A look at the change log before Spark works: it costs what is new, not what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.operators.base.jvm_class_archive import little_work
from airflow_provider_cdc.targets.lake.apply.batch_applier import BatchApplier
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import nothing_new
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import view_of
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.rebuild.full_change_log import FullChangeLog
from tests.support.change_log.manifests import manifest

LAST = 30
LOCATION = "/lake/{table}"


@pytest.fixture
def changelog(tmp_path: Path) -> ChangeLog:
    found = ChangeLog(str(tmp_path / "log"))
    for n in range(1, LAST + 1):
        found.commit_manifest(manifest(n, changes=0))
    return found


@pytest.fixture
def manifest_accesses(changelog: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders of manifests that are listed, and manifests that are read."""
    found: list[str] = []
    for name in ("list", "read"):
        was = getattr(Storage, name)

        def noted(self: Storage, path: str, was: Callable[..., Any] = was, name: str = name) -> Any:
            if "/manifests" in path:
                found.append("list" if name == "list" else Path(path).stem.lstrip("0"))
            return was(self, path)

        monkeypatch.setattr(Storage, name, noted)
    return found


def _read_once(accesses: list[str], first: int) -> bool:
    """Check that manifests were read once, from a number to the end and a few after it, and that none was listed."""
    count = LAST + 1 - first
    return sorted(map(int, accesses)) == list(range(first, first + len(accesses))) and count < len(accesses) <= min(
        3 * count, count + 16
    )


def _report(last: int, folder: Path) -> dict[str, Any]:
    stands = {"p.shop.t": {"location": str(folder / "t"), "batch": last, "stamp": "", "bytes": 1}}
    return {
        "target": "delta", "location": LOCATION, "last_batch": last, "tables": [], "failed": {}, "lagging": {},
        "table_states": stands, "seconds": 0.5,
    }  # fmt: skip


def test_a_view_reads_the_batches_after_the_last_report_only(
    changelog: ChangeLog, manifest_accesses: list[str], tmp_path: Path
) -> None:
    view = view_of(changelog, "c", _report(LAST - 2, tmp_path), "")
    assert (view.start, view.last, [(g.first, g.last) for g in view.groups]) == (LAST - 2, LAST, [(LAST - 1, LAST)])
    assert _read_once(manifest_accesses, 28)
    manifest_accesses.clear()
    view = view_of(changelog, "c", _report(LAST, tmp_path), "")
    assert (view.start, view.last, view.groups, view.reported) == (LAST, LAST, [], True)
    assert manifest_accesses == ["30", "31"]


def test_a_view_without_a_report_begins_with_the_first_batch_that_there_is(
    changelog: ChangeLog, manifest_accesses: list[str]
) -> None:
    view = view_of(changelog, "c", {}, "")
    assert (view.start, view.last) == (0, LAST)
    assert "list" not in manifest_accesses
    for n in (1, 2):
        changelog.storage.delete(changelog.path_of("c", n))
    view = view_of(changelog, "c", {}, "")
    assert (view.start, view.last) == (2, LAST)
    assert view_of(changelog, "nobody", {}, "").last == 0


def test_a_view_of_a_log_whose_end_is_lost_says_where_it_ends(
    changelog: ChangeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    view = view_of(changelog, "c", _report(LAST + 3, tmp_path), "")
    assert (view.start, view.last, view.reported) == (0, LAST, False)
    assert f"ends with batch {LAST}, but ended with batch {LAST + 3} before" in caplog.text
    # the last one alone is gone, and others have come after it
    changelog.storage.delete(changelog.path_of("c", LAST - 1))
    view = view_of(changelog, "c", _report(LAST - 1, tmp_path), "")
    assert (view.start, view.last, view.reported) == (LAST - 1, LAST, True)
    with pytest.raises(ChangeLogDamaged, match="batch 29 of connector c is missing, although batch 30 exists"):
        view_of(changelog, "c", _report(LAST - 2, tmp_path), "")


def test_whether_anything_is_new_is_found_without_reading_a_manifest(
    changelog: ChangeLog, manifest_accesses: list[str], tmp_path: Path
) -> None:
    reports = ApplyReports(changelog.storage, "c")
    for last in (LAST, LAST - 1, LAST + 1):
        report = _report(last, tmp_path)
        report["table_states"]["p.shop.t"]["stamp"] = (
            "none"  # such a table is left to Spark, after the change log was looked at
        )
        reports.write(report)
        assert nothing_new(changelog, "c", "delta", LOCATION) is None
    assert manifest_accesses == []


def test_little_work_reads_what_is_to_be_applied_only(
    changelog: ChangeLog, manifest_accesses: list[str], tmp_path: Path
) -> None:
    assert little_work(changelog, "c", _report(LAST - 1, tmp_path))
    assert manifest_accesses == ["30", "31"]
    manifest_accesses.clear()
    assert little_work(changelog, "c", None)
    assert _read_once(manifest_accesses, 1)


def test_older_batches_are_read_where_a_table_needs_them_and_not_listed(
    changelog: ChangeLog, manifest_accesses: list[str]
) -> None:
    (group,) = Backlog(changelog, "c").left_since(27)
    assert (group.first, group.last) == (28, LAST)
    assert _read_once(manifest_accesses, 28)
    for n in range(1, 10):
        changelog.storage.delete(changelog.path_of("c", n))
    (group,) = Backlog(changelog, "c").list_all_batches()
    assert (group.first, group.last) == (10, LAST)
    assert Backlog(changelog, "nobody").list_all_batches() == []


def test_the_newest_batch_of_a_whole_log_is_found_from_the_last_one_that_was_read(
    changelog: ChangeLog, manifest_accesses: list[str]
) -> None:
    whole = FullChangeLog(changelog, "c", batch=20)
    assert (whole.last_batch, whole.find_newest_batch()) == (20, LAST)
    assert sorted(map(int, manifest_accesses)) == list(range(1, 21))


def test_a_table_that_another_run_has_brought_further_needs_no_list(
    changelog: ChangeLog, manifest_accesses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up = BatchApplier(changelog, "c", lambda location: SimpleNamespace(read_last_writer=lambda app: ""))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.apply.batch_applier.applied_batch", lambda *_, **__: LAST)
    assert catch_up.inspect_target(Owner("c", "p.shop.t"), "/lake/t")[1] == LAST
    assert manifest_accesses == [str(LAST)]
