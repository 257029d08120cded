"""The last applied batch, which only the table itself knows: copies, backups, dropped tables and change logs that end too early."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.errors import ChangeLogDamaged, TargetError
from airflow_provider_cdc.targets.lake.apply.up_to_date_check import nothing_new
from airflow_provider_cdc.targets.lake.jobs import apply_changes
from dev import paths
from tests.targets.lake.lake import Lake, spark_environment

pytestmark = pytest.mark.spark
ORDERS = {"id": "int64!", "n": "int32"}


def _filled(lake: Lake, batches: int = 3) -> None:
    """A table that every batch changes, and one that only the first does."""
    db = lake.connector.database
    for name in ("orders", "quiet"):
        db.create_table(f"s.{name}", ORDERS, key=("id",))
    with db.transaction() as t:
        t.insert("s.quiet", {"id": 1})
    for _ in range(batches):
        _more(lake)
        lake.follow()


def _more(lake: Lake) -> None:
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": len(lake.connector.database.copy_rows("s.orders"))})


def _report(lake: Lake) -> dict[str, Any]:
    found = ApplyReports(lake.connector.changelog.storage, "test").read(lake.kind, lake.location)
    assert found is not None
    return found


def _copy(lake: Lake) -> Callable[[], None]:
    """A backup of the table; gives it back when called."""
    shutil.copytree(lake.path("s.orders"), lake.folder / "backup")

    def back() -> None:
        shutil.rmtree(lake.path("s.orders"))
        shutil.copytree(lake.folder / "backup", lake.path("s.orders"))

    return back


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("more", [False, True])
def test_a_table_restored_from_a_backup_is_caught_up(lake: Lake, more: bool) -> None:
    _filled(lake, 1)
    back = _copy(lake)
    for _ in range(2):
        _more(lake)
        lake.follow()
    back()
    if more:
        _more(lake)
        lake.connector.capture()
    report = lake.apply()
    lake.check()
    assert (report.tables[0].first_batch, report.tables[-1].last_batch) == (2, 4 if more else 3)


@pytest.mark.every_kind
def test_a_table_that_was_dropped_is_built_again_though_nothing_is_new(lake: Lake) -> None:
    _filled(lake, 2)
    shutil.rmtree(lake.path("s.quiet"))
    lake.apply()
    lake.check()
    assert lake.apply().tables == []


def test_a_table_that_the_source_has_dropped_too_stays_away(lake: Lake) -> None:
    _filled(lake, 1)
    lake.connector.database.drop_table("s.quiet")
    lake.follow()
    assert Path(lake.path("s.quiet")).exists()
    shutil.rmtree(lake.path("s.quiet"))
    for _ in range(2):
        lake.apply()
        assert not Path(lake.path("s.quiet")).exists()
    _more(lake)
    lake.follow()
    lake.connector.database.create_table("s.quiet", ORDERS, key=("id",))
    lake.follow()
    lake.check()


def test_a_change_log_that_ends_before_a_table_is_an_error(lake: Lake) -> None:
    _filled(lake, 3)
    manifests = Path(lake.connector.changelog.storage.root) / "test" / "manifests"
    lost = sorted(manifests.iterdir())[-2:]
    kept = {path: path.read_bytes() for path in lost}
    for path in lost:
        path.unlink()
    rows = lake.rows("s.orders")
    with pytest.raises(
        TargetError, match=r"1 of 2 tables[\s\S]*is at batch 3.*ends with batch 1[\s\S]*restore the change log"
    ):
        lake.apply()
    for path in manifests.iterdir():
        path.unlink()
    with pytest.raises(TargetError, match=r"2 of 2 tables[\s\S]*it has no batch[\s\S]*restore the other change log"):
        lake.apply()
    assert lake.rows("s.orders") == rows
    lost[0].write_bytes(kept[lost[0]])
    lost[1].write_bytes(kept[lost[1]])
    lake.apply()  # all that the tables have not seen is there
    (Path(lake.path("s.orders"))).rename(lake.folder / "gone")
    with pytest.raises(TargetError, match="cannot be built: batches of the change log before 2 were removed"):
        lake.apply()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["shorter", "other rows", "missing", "garbage"])
def test_a_file_that_is_not_what_its_manifest_says_is_not_applied(lake: Lake, damage: str) -> None:
    _filled(lake, 1)
    _more(lake)
    lake.connector.capture()
    (file,) = (Path(lake.connector.changelog.storage.root) / "test" / "data" / f"{2:012d}").iterdir()
    if damage == "shorter":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "other rows":
        manifest = Path(lake.connector.changelog.storage.root) / "test" / "manifests" / f"{2:012d}.json"
        manifest.write_text(manifest.read_text().replace('"rows":1', '"rows":2'))
    elif damage == "garbage":
        file.write_bytes(b"x" * file.stat().st_size)
    else:
        file.unlink()
    rows, at = lake.rows("s.orders"), lake.version("s.orders")
    with pytest.raises(TargetError, match=rf"A file of the change log [\s\S]*{2:012d}/"):
        lake.apply()
    assert (lake.rows("s.orders"), lake.version("s.orders")) == (rows, at)


def test_checksums_are_compared_on_request(lake: Lake) -> None:
    _filled(lake, 1)
    _more(lake)
    lake.connector.capture()
    (file,) = (Path(lake.connector.changelog.storage.root) / "test" / "data" / f"{2:012d}").iterdir()
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    manifest = lake.connector.changelog.find_manifest("test", 2)
    assert manifest is not None
    with pytest.raises(ChangeLogDamaged, match="has the checksum"):
        lake.connector.changelog.check_file("test", manifest.files[0], crc=True)
    with pytest.raises(TargetError, match="has the checksum"):
        lake.apply(check_crc=True)


def test_two_locations_have_a_report_each(lake: Lake) -> None:
    _filled(lake, 1)
    second = replace(lake, name="second")
    second.apply()
    _more(lake)
    lake.follow()
    assert (_report(lake)["last_batch"], _report(second)["last_batch"]) == (2, 1)
    second.apply()
    second.check()


# -- with nothing new -------------------------------------------------------------------------------------------------


def _nothing(lake: Lake) -> bool:
    return nothing_new(lake.connector.changelog, "test", lake.kind, lake.location) is not None


@pytest.mark.every_kind
def test_whether_there_is_anything_to_do_is_known_without_spark(lake: Lake) -> None:
    assert not _nothing(lake)
    _filled(lake, 2)
    assert _nothing(lake)
    back = _copy(lake)
    _more(lake)
    lake.connector.capture()
    assert not _nothing(lake)
    lake.apply()
    assert _nothing(lake)
    back()
    assert not _nothing(lake)
    lake.apply()
    assert _nothing(lake)
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('team' = 'shop')", "s.orders")
    assert not _nothing(lake)  # someone has written: whether it matters Spark finds out
    lake.apply()
    assert _nothing(lake)
    shutil.rmtree(lake.path("s.quiet"))
    assert not _nothing(lake)


@pytest.mark.every_kind
def test_a_table_that_failed_is_something_to_do(lake: Lake) -> None:
    _filled(lake, 1)
    log = lake.log("s.orders")
    log.rename(log.with_name("hidden"))
    _more(lake)
    with pytest.raises(TargetError):
        lake.follow()
    assert not _nothing(lake)
    log.with_name("hidden").rename(log)
    lake.apply()
    lake.check()
    assert _nothing(lake)


def test_the_job_ends_at_once_when_nothing_is_new(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _filled(lake, 1)
    where = [
        "--changelog",
        lake.connector.changelog.storage.root,
        "--connector",
        "test",
        "--location",
        lake.location,
        "--target",
        lake.kind,
    ]

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(apply_changes, "open_spark_session", started)
    assert apply_changes.main(where) == 0
    assert "every table of test is at batch 1" in capsys.readouterr().out
    assert _report(lake)["tables"] == []
    with pytest.raises(AssertionError):
        apply_changes.main([*where, "--adopt", "p.s.orders"])


def test_looking_needs_no_spark() -> None:
    code = "import sys, airflow_provider_cdc.targets.lake.apply.up_to_date_check; sys.exit(any(m.startswith(('pyspark', 'py4j')) for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, env=spark_environment()).returncode == 0


def test_each_batch_is_looked_at_once_for_all_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    db = lake.connector.database
    for i in range(4):
        db.create_table(f"s.t{i}", ORDERS, key=("id",))
    looks: list[int] = []
    look = BatchesByTopic.__init__

    def counted(self: Any, changelog: Any, manifests: Any, *more: Any) -> None:
        looks.extend(m.batch for m in manifests)
        look(self, changelog, manifests, *more)

    monkeypatch.setattr(BatchesByTopic, "__init__", counted)
    lake.follow()
    with db.transaction() as t:
        for i in range(4):
            t.insert(f"s.t{i}", {"id": 1})
    lake.follow()
    lake.check()
    assert looks == [1, 2]


def test_what_cannot_be_looked_at_without_spark_is_left_to_it(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    _filled(lake, 1)
    reports = ApplyReports(lake.connector.changelog.storage, "test")
    report = _report(lake)
    report["table_states"]["p.s.orders"]["location"] = "nosuchstore://lake/orders"
    reports.write(report)
    with caplog.at_level(logging.INFO):
        assert not _nothing(lake)
    assert "cannot be inspected without Spark" in caplog.text
