"""The retention of the change log: what is deleted and what stays, for any reader, and whenever the removal is killed."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.manifest_number_search import batch_name
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker, TruncationMarkers
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention import batch_retention
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.changelog.retention.retention_plan import RetentionPlan
from airflow_provider_cdc.changelog.retention.target_progress import needs_of
from airflow_provider_cdc.core.errors import BatchesRemoved, ChangeLogDamaged, ConfigError, StorageFull
from airflow_provider_cdc.core.model.batch_manifest import DataFile, SchemaChangeRecord
from airflow_provider_cdc.core.model.job_progress import JobProgress
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId
from tests.support.change_log.manifests import SCHEMA, manifest
from tests.support.patience import LONGEST_S

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)
WEEK = RetentionLimits()
AT_ONCE = RetentionLimits(ms=0)
HERE, THERE = ("delta", "/here/{table}"), ("iceberg", "/there/{table}")


def _fill(changelog: ChangeLog, batches: int, *, first: int = 1) -> ChangeLog:
    """Commit batches: ``n`` is of ``n`` hours after 1 March, and has a file of ``p.s.all`` and one of ``p.s.t<n>``."""
    for n in range(first, first + batches):
        files, topics = [], ("p.s.all", f"p.s.t{n}")
        for topic in topics:
            path = f"data/{batch_name(n)}/{topic}.parquet"
            changelog.storage.create(changelog.storage.join_path("c", path), b"x" * 50)
            files.append(
                DataFile(
                    topic=topic, schema_version=1, path=path, rows=1, bytes=50, crc32=1, first_seq=2 * n, last_seq=2 * n, counts={"c": 1},
                )
            )  # fmt: skip
        created = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=n)).isoformat()
        schemas = {topic: {"1": SCHEMA} for topic in topics}
        changelog.commit_manifest(manifest(n, first=2 * n, changes=0, files=files, schemas=schemas, created_at=created))
    return changelog


@pytest.fixture
def changelog(storage_address: tuple[str, dict[str, Any]]) -> ChangeLog:
    return _fill(ChangeLog(*storage_address), 10)


@pytest.fixture
def local_change_log(tmp_path: Path) -> ChangeLog:
    return _fill(ChangeLog(str(tmp_path / "log")), 10)


def _record_applied(changelog: ChangeLog, last: int, of: tuple[str, str] = HERE, **more: Any) -> None:
    report = {
        "target": of[0],
        "location": of[1],
        "last_batch": last,
        "tables": [],
        "failed": {},
        "lagging": {},
        "table_states": {},
        "seconds": 0.5,
    }
    ApplyReports(changelog.storage, "c").write({**report, **more})


def _run(changelog: ChangeLog, limits: RetentionLimits | None = AT_ONCE, now: datetime = NOW) -> RetentionPlan:
    """:param limits: ``None``: as ``maintain --now`` removes, with the limits that are the default"""
    return Retention(changelog, "c", limits or WEEK, at_once=limits is None, now=now).run()


def _files(changelog: ChangeLog) -> set[int]:
    """The batches that have a manifest or a file."""
    root = Path(changelog.storage.root) / "c"
    return {int(p.stem) for p in (root / "manifests").iterdir()} | {int(p.name) for p in (root / "data").iterdir()}


def _last_of(mark: TruncationMarker) -> dict[str, int]:
    """Topic → the last batch before the mark that had something of it."""
    assert mark.topics is not None
    return {topic: gone.last for topic, gone in mark.topics.items()}


def _are_intact(changelog: ChangeLog, batches: range) -> bool:
    """Check whether batches can be read, with all of their files."""
    found = list(changelog.read_manifests("c", after=batches.start - 1))
    for one in found:
        for file in one.files:
            changelog.open_file("c", file).close()
    return [one.batch for one in found] == list(batches)


# how long batches stay


def test_batches_go_when_all_targets_have_had_them_for_long_enough(changelog: ChangeLog) -> None:
    _record_applied(changelog, 4)
    assert _run(changelog, WEEK).removed_batches == 0
    _record_applied(changelog, 9)
    assert _run(changelog, WEEK, NOW + DAY).removed_batches == 0
    assert _run(changelog, WEEK, NOW + 7 * DAY - timedelta(seconds=1)).removed_batches == 0
    plan = _run(changelog, WEEK, NOW + 7 * DAY)
    assert (plan.first, plan.keep, plan.last, plan.removed_batches) == (1, 5, 10, 4)
    assert changelog.find_first_batch("c") == 5
    assert changelog.list_batches("c") == [5, 6, 7, 8, 9, 10]
    assert _are_intact(changelog, range(5, 11))
    assert _run(changelog, WEEK, NOW + 7 * DAY).removed_batches == 0
    assert _run(changelog, WEEK, NOW + 8 * DAY).keep == 10


def test_the_newest_batch_stays_for_the_next_capture(changelog: ChangeLog) -> None:
    _record_applied(changelog, 10)
    assert _run(changelog).keep == 10
    assert changelog.list_batches("c") == [10]
    assert changelog.ends_with("c", 10)
    _fill(changelog, 2, first=11)
    _record_applied(changelog, 12)
    assert _run(changelog).keep == 12
    assert changelog.list_batches("c") == [12]


def test_nothing_of_removed_batches_is_left(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)
    _run(local_change_log)
    assert _files(local_change_log) == {10}
    assert TruncationMarkers(local_change_log.storage, "c").list_numbers() == [10]


def test_what_a_plan_says_is_not_done(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)
    before = sorted(Path(local_change_log.storage.root).rglob("*"))
    assert Retention(local_change_log, "c", AT_ONCE, now=NOW).plan_removal().keep == 10
    assert sorted(Path(local_change_log.storage.root).rglob("*")) == before


def test_a_target_that_has_batches_no_more_needs_them_again(local_change_log: ChangeLog) -> None:
    """A table that was restored from a backup is behind; what it lacks stays, and for the whole time once it has it again."""
    _record_applied(local_change_log, 8)
    _run(local_change_log, WEEK)
    _record_applied(local_change_log, 8, lagging={"p.s.all": 3})
    assert _run(local_change_log, WEEK, NOW + 7 * DAY).keep == 1
    _record_applied(local_change_log, 10)
    assert _run(local_change_log, WEEK, NOW + 8 * DAY).keep == 1
    assert _run(local_change_log, WEEK, NOW + 15 * DAY).keep == 10


def test_few_notes_are_enough_to_know_for_how_long_batches_are_applied() -> None:
    """A batch a minute for three weeks, and a look every minute."""
    known, minute, week = batch_retention._RetentionNotes(), timedelta(minutes=1), 7 * 24 * 60
    for n in range(3 * week):
        now = NOW + n * minute
        batch_retention._note(known, now, n, WEEK.ms)
        aged = max((batch for at, batch in known.applied if now - at >= DAY * 7), default=0)
        assert len(known.applied) <= batch_retention.NOTES + 2
        assert n - week * (1 + 1 / batch_retention.NOTES) - 1 <= aged <= max(n - week, 0)


@pytest.mark.parametrize("document", [b"", b"[]", b'{"applied": [["x", 1]]}', b'{"applied": 7}', b"\xff"])
def test_notes_that_cannot_be_read_keep_batches_longer(local_change_log: ChangeLog, document: bytes) -> None:
    _record_applied(local_change_log, 9)
    _run(local_change_log, WEEK)
    local_change_log.storage.replace(local_change_log.storage.join_path("c", "retention.json"), document)
    assert _run(local_change_log, WEEK, NOW + 7 * DAY).removed_batches == 0
    assert _run(local_change_log, WEEK, NOW + 14 * DAY).keep == 10


def test_a_large_log_is_made_smaller_before_that(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 8)
    assert _run(local_change_log, RetentionLimits(bytes=1000)).removed_batches == 0
    assert _run(local_change_log, RetentionLimits(bytes=999)).keep == 2
    assert _run(local_change_log, RetentionLimits(bytes=650)).keep == 5
    _fill(local_change_log, 1, first=11)
    plan = _run(local_change_log, RetentionLimits(bytes=650))
    assert (plan.first, plan.keep) == (5, 6)
    assert "changelog.retention.bytes=650" in plan.why
    assert _run(local_change_log, RetentionLimits(bytes=0)).keep == 9  # batch 9 is not applied


def test_counted_bytes_are_those_of_the_batches_that_are_there(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)

    def load_counts() -> Any:
        return orjson.loads(
            local_change_log.storage.read(local_change_log.storage.join_path("c", "retention.json")) or b""
        )["counted"]

    _run(local_change_log, RetentionLimits(bytes=700))
    assert load_counts() == {"first": 4, "last": 10, "bytes": 700}
    local_change_log.open_truncation_markers("c").create_marker(
        TruncationMarker(6, None, why="of somebody else")
    )  # and it was killed then
    _run(local_change_log, RetentionLimits(bytes=700))
    assert load_counts() == {"first": 6, "last": 10, "bytes": 500}


@pytest.mark.parametrize("value", ["soon", None, -2, "-2", 1.5e300, [1]])
@pytest.mark.parametrize("name", ["changelog.retention.ms", "changelog.retention.bytes"])
def test_a_retention_that_is_no_number_removes_nothing(name: str, value: object) -> None:
    if value == 1.5e300:
        assert RetentionLimits.from_properties({name: value})  # for ever, as good as
        return
    with pytest.raises(ConfigError, match="must be a number of at least -1"):
        RetentionLimits.from_properties({name: value})


def test_the_retention_is_that_of_the_connectors_properties() -> None:
    assert (
        RetentionLimits.from_properties({}) == RetentionLimits(ms=7 * 24 * 3600 * 1000, bytes=-1) == RetentionLimits()
    )
    assert RetentionLimits.from_properties(
        {"changelog.retention.ms": "5000", "changelog.retention.bytes": 7}
    ) == RetentionLimits(5000, 7)


def test_batches_that_are_kept_for_ever_stay(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)
    assert _run(local_change_log, RetentionLimits(ms=-1)).keep == 1
    assert "forever" in _run(local_change_log, RetentionLimits(ms=-1)).format_lines("c")[0]
    assert _run(local_change_log, RetentionLimits(ms=-1, bytes=100)).keep == 10


def test_a_log_without_batches_has_nothing_to_remove(tmp_path: Path) -> None:
    empty = ChangeLog(str(tmp_path))
    assert Retention(empty, "c", AT_ONCE).run().format_lines("c") == ["The change log contains no batch."]


# whose batches stay


def test_without_a_target_nothing_goes(changelog: ChangeLog) -> None:
    plan = _run(changelog)
    assert plan.removed_batches == 0
    assert "no target is known" in plan.format_lines("c")[0]


@pytest.mark.parametrize(
    ("report", "keep"),
    [
        ({}, 9), ({"lagging": {"p.s.all": 3}}, 4), ({"lagging": {"p.s.all": 3, "p.s.t4": 2}}, 3), ({"failed": {"p.s.t4": "x"}}, 1),
        ({"failed": {"p.s.t4": "x"}, "table_states": {"p.s.t4": {"batch": 6}}}, 7),
        ({"failed": {"p.s.t4": "x"}, "table_states": {"p.s.t4": {"batch": -1}}}, 1),
        ({"failed": {"p.s.t4": "x"}, "lagging": {"p.s.t4": 5}}, 6),
        # no new events: it has everything
        ({"table_states": {"p.s.t4": {"batch": 4}}}, 9),
    ],
)  # fmt: skip
def test_what_tables_lack_stays(local_change_log: ChangeLog, report: dict[str, Any], keep: int) -> None:
    _record_applied(local_change_log, 10, THERE)
    _record_applied(local_change_log, 8, **report)
    assert _run(local_change_log).keep == keep
    assert _are_intact(local_change_log, range(keep, 11))


def test_a_target_that_is_about_to_begin_needs_everything(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)
    reports = ApplyReports(local_change_log.storage, "c")
    reports.register_target(*THERE)
    reports.register_target(*HERE)  # is known
    assert [(need.target, need.after) for need in needs_of(local_change_log.storage, "c")] == [
        ("iceberg", 0),
        ("delta", 10),
    ]
    assert _run(local_change_log).removed_batches == 0


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"target": "delta", "last_batch": "x"}'])
def test_a_report_that_cannot_be_read_keeps_everything(local_change_log: ChangeLog, data: bytes) -> None:
    _record_applied(local_change_log, 10)
    local_change_log.storage.replace(
        local_change_log.storage.join_path("c", "applied", "iceberg-0123456789ab.json"), data
    )
    plan = _run(local_change_log)
    assert plan.removed_batches == 0
    (text,) = [line for line in plan.format_lines("c") if "Held back" in line]
    assert "its report iceberg-0123456789ab.json cannot be read" in text


def test_a_silent_target_is_named_with_since_when_and_how_to_release_it(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 10)
    _record_applied(local_change_log, 3, THERE)
    plan = _run(local_change_log, RetentionLimits(ms=2 * 24 * 3600 * 1000))
    (hold,) = plan.holds
    assert (hold.need.location, hold.silent, hold.captured_at) == (THERE[1], True, "2026-03-01T04:00:00+00:00")
    (text,) = [line for line in plan.format_lines("c") if "Held back" in line]
    assert "iceberg at /there/{table} has not applied batch 4, captured at 2026-03-01T04:00:00+00:00" in text
    assert "airflow cdc forget-target c --target iceberg --location '/there/{table}' --confirm c" in text
    assert "its last apply was at 20" in text
    # one that is behind for a while only is no news
    assert [
        h.silent for h in Retention(local_change_log, "c", RetentionLimits(), now=NOW - 8 * DAY).plan_removal().holds
    ] == [False]


def test_a_target_that_is_forgotten_holds_nothing_back(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 9)
    _record_applied(local_change_log, 3, THERE)
    assert _run(local_change_log).keep == 4
    reports = ApplyReports(local_change_log.storage, "c")
    assert reports.delete_report(*THERE)
    assert not reports.delete_report(*THERE)
    assert _run(local_change_log).keep == 10


# what readers find


def test_a_reader_that_begins_with_what_was_removed_is_reported(changelog: ChangeLog) -> None:
    _record_applied(changelog, 5)
    found = changelog.find_manifest("c", 2)
    assert found is not None
    _run(changelog)
    for after, gone in ((0, "Batches 1 to 5 of connector c were"), (4, "Batch 5 of connector c was")):
        with pytest.raises(
            BatchesRemoved, match=f"{gone} removed .on 2026-03-10T12:00:00.*changelog.retention.ms=0"
        ) as caught:
            list(changelog.read_manifests("c", after=after))
        assert "begins with batch 6" in str(caught.value)
        assert re.search(r"`airflow cdc snapshot c [\w.]+ --replace`", caught.value.remedy or "")
    with pytest.raises(BatchesRemoved):
        list(changelog.read_manifests("c", after=1, until=3))
    with pytest.raises(BatchesRemoved, match="Batches 2 to 5"):
        changelog.open_file("c", found.files[0])
    assert [m.batch for m in changelog.read_manifests("c", after=5)] == [6, 7, 8, 9, 10]


def test_also_if_little_is_left_after_much_that_is_gone(local_change_log: ChangeLog) -> None:
    """A probe for what comes after a gap does not find it there."""
    _fill(local_change_log, 490, first=11)
    _record_applied(local_change_log, 500)
    _run(local_change_log)
    assert local_change_log.list_batches("c") == [500]
    for after in range(0, 499, 7):
        with pytest.raises(BatchesRemoved):
            list(local_change_log.read_manifests("c", after=after))
    assert [m.batch for m in local_change_log.read_manifests("c", after=499)] == [500]


def test_what_a_rule_of_the_store_has_removed_is_said_to_be_gone(changelog: ChangeLog) -> None:
    for n in range(1, 5):
        changelog.storage.delete(changelog.path_of("c", n))
    with pytest.raises(
        BatchesRemoved, match=r"Batches 1 to 4 .*not by the retention .*lifecycle rule.* now begins with batch 5"
    ):
        list(changelog.read_manifests("c"))
    assert changelog.find_first_batch("c") == 5
    assert _are_intact(changelog, range(5, 11))
    _record_applied(changelog, 5)
    assert _run(changelog).keep == 6
    mark = changelog.open_truncation_markers("c").read_newest()
    assert mark is not None
    assert (mark.first, mark.topics, mark.may_lack("p.s.t9")) == (6, None, True)


def test_also_if_it_has_removed_more_than_the_retention(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 2)
    _run(local_change_log)
    for n in range(3, 7):
        local_change_log.storage.delete(local_change_log.path_of("c", n))
    with pytest.raises(BatchesRemoved, match=r"Batches 3 to 6 .*not by the retention"):
        list(local_change_log.read_manifests("c", after=2))
    assert local_change_log.find_first_batch("c") == 7
    _record_applied(local_change_log, 7)
    assert _run(local_change_log).keep == 8
    assert _files(local_change_log) == {8, 9, 10}


def test_files_that_a_rule_of_the_store_has_removed_are_damage(local_change_log: ChangeLog) -> None:
    found = local_change_log.find_manifest("c", 2)
    assert found is not None
    local_change_log.storage.delete_folder(local_change_log.storage.join_path("c", "data", batch_name(2)))
    with pytest.raises(ChangeLogDamaged, match=r"is missing .if a lifecycle rule of the store has deleted it"):
        local_change_log.open_file("c", found.files[0])


def test_a_batch_that_is_missing_among_those_that_are_kept_is_damage(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 3)
    _run(local_change_log)
    local_change_log.storage.delete(local_change_log.path_of("c", 6))
    with pytest.raises(ChangeLogDamaged, match=r"batch 6 .* is missing"):
        list(local_change_log.read_manifests("c", after=3))
    with pytest.raises(ChangeLogDamaged, match=r"batch 6 .* is missing"):
        list(local_change_log.read_manifests("c", after=5))


def test_a_mark_says_which_topics_were_in_what_is_gone(changelog: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_retention, "STEP", 2)
    _record_applied(changelog, 3)
    _run(changelog)
    mark = changelog.open_truncation_markers("c").read_newest()
    assert mark is not None
    assert _last_of(mark) == {"p.s.all": 3, "p.s.t1": 1, "p.s.t2": 2, "p.s.t3": 3}
    _record_applied(changelog, 10)
    _run(changelog)
    mark = changelog.open_truncation_markers("c").read_newest()
    assert mark is not None
    assert (mark.first, _last_of(mark)) == (10, {"p.s.all": 9, **{f"p.s.t{n}": n for n in range(1, 10)}})
    assert mark.may_lack("p.s.t1")
    assert [mark.may_lack("p.s.t7", after) for after in (6, 7)] == [True, False]
    assert not mark.may_lack("p.s.t10")
    assert mark.topics is not None
    assert mark.topics["p.s.t1"].table == SCHEMA.id


def test_a_mark_says_which_tables_were_gone_by_then(local_change_log: ChangeLog) -> None:
    """A table is there if it is dropped and made again, or gives its name up and gets it back."""
    one, two, three, four = (TableId(namespace="s", name=f"t{n}", catalog="P") for n in range(1, 5))
    made = SCHEMA.model_copy(update={"id": two})
    changes = [
        TableChange(type="DROP", id=one), TableChange(type="DROP", id=two), TableChange(type="CREATE", id=two, table=made),
        TableChange(type="ALTER", id=four, previous_id=three, table=made),
    ]  # fmt: skip
    record = SchemaChangeRecord(seq=21, ddl="", database="s", position={}, ts_us=5, captured_us=5, changes=changes)
    local_change_log.commit_manifest(manifest(11, first=21, events=0, changes=0, schema_changes=[record]))
    _fill(local_change_log, 1, first=12)
    _record_applied(local_change_log, 12)
    _run(local_change_log)
    mark = local_change_log.open_truncation_markers("c").read_newest()
    assert mark is not None
    assert (mark.dropped, mark.renamed) == ({"P.s.t1"}, {"P.s.t3"})
    back = [
        TableChange(type="CREATE", id=one, table=made), TableChange(type="ALTER", id=three, previous_id=four, table=made),
    ]  # fmt: skip
    found = mark.include_batch(
        manifest(12, events=0, changes=0, schema_changes=[record.model_copy(update={"changes": back})])
    )
    assert (found.dropped, found.renamed) == (set(), {"P.s.t4"})


def test_a_log_says_how_it_begins(changelog: ChangeLog) -> None:
    assert changelog.read_truncation_marker("c") is None
    assert changelog.read_truncation_marker("nobody") is None
    assert [changelog.find_removal("c", n) for n in (1, 3, 11)] == [None, None, None]
    _record_applied(changelog, 3)
    _run(changelog)
    assert changelog.read_truncation_marker("c") == changelog.open_truncation_markers("c").read_newest()
    removed = changelog.find_removal("c", 3)
    assert removed is not None
    assert "Batch 3 of connector c was removed (on 2026-03-10" in removed.message
    assert [changelog.find_removal("c", n) for n in (4, 11)] == [None, None]
    for n in (4, 5):  # by someone else
        changelog.storage.delete(changelog.path_of("c", n))
    assert changelog.read_truncation_marker("c") == TruncationMarker(6)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"topics": 7, "at": "", "why": ""}'])
def test_a_mark_that_cannot_be_read_marks_all_the_same(local_change_log: ChangeLog, data: bytes) -> None:
    _record_applied(local_change_log, 3)
    _run(local_change_log)
    local_change_log.storage.replace(local_change_log.storage.join_path("c", "kept", f"{4:012d}.json"), data)
    assert local_change_log.find_first_batch("c") == 4
    mark = local_change_log.open_truncation_markers("c").read_newest()
    assert mark is not None
    assert mark.topics is None
    with pytest.raises(BatchesRemoved):
        list(local_change_log.read_manifests("c"))


def test_a_new_connector_of_the_same_name_begins_at_batch_1(changelog: ChangeLog) -> None:
    _record_applied(changelog, 8)
    _run(changelog)
    changelog.delete("c")
    _fill(changelog, 3)
    assert changelog.find_first_batch("c") == 1
    assert _are_intact(changelog, range(1, 4))


# at once


def test_on_demand_batches_go_as_soon_as_all_targets_have_them(changelog: ChangeLog) -> None:
    _record_applied(changelog, 4)
    _record_applied(changelog, 9, THERE)
    plan = Retention(changelog, "c", WEEK, at_once=True, now=NOW).plan_removal()
    assert (plan.first, plan.keep, plan.why) == (
        1,
        5,
        "because all targets had applied them and `airflow cdc maintain --now` was run",
    )
    assert _run(changelog, None).keep == 5
    assert changelog.list_batches("c") == [5, 6, 7, 8, 9, 10]
    assert _are_intact(changelog, range(5, 11))
    _record_applied(changelog, 10)
    _record_applied(changelog, 10, THERE)
    assert _run(changelog, None).keep == 10  # the next capture begins with it


@pytest.mark.parametrize("report", [{"lagging": {"p.s.all": 2}}, {"failed": {"p.s.t3": "no"}}])
def test_also_on_demand_batches_that_a_table_lacks_stay(local_change_log: ChangeLog, report: dict[str, Any]) -> None:
    _record_applied(local_change_log, 9, **report)
    plan = _run(local_change_log, None)
    assert plan.keep == 1 + min([*report.get("lagging", {}).values(), 0 if "failed" in report else 9])
    assert _are_intact(local_change_log, range(plan.keep, 11))


def test_also_on_demand_nothing_goes_without_a_target(local_change_log: ChangeLog) -> None:
    assert _run(local_change_log, None).removed_batches == 0
    assert _are_intact(local_change_log, range(1, 11))


def test_batches_that_are_kept_for_ever_stay_on_demand_too(local_change_log: ChangeLog) -> None:
    _record_applied(local_change_log, 9)
    with pytest.raises(ConfigError, match="keeps all batches"):
        Retention(local_change_log, "c", RetentionLimits(ms=-1), at_once=True).run()
    assert _are_intact(local_change_log, range(1, 11))


@pytest.mark.parametrize("job", ["Rebuild", "Verify"])
def test_batches_that_a_job_reads_again_stay_on_demand(local_change_log: ChangeLog, job: str) -> None:
    _record_applied(local_change_log, 9)
    board = local_change_log.open_progress_board("c")
    work = JobProgress(job, "delta at /lake", "tables", 1, 2, None, 0.5, None, "", time.time(), time.time())
    board.show_progress(work)
    with pytest.raises(ConfigError, match=f"still being read: {job}: 1 of 2 tables"):
        _run(local_change_log, None)
    assert _are_intact(local_change_log, range(1, 11))
    board.clear_progress(work)
    assert _run(local_change_log, None).keep == 10


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB, which the test fills."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def _fill_disk(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "others").open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk_is_freed_by_deleting_the_index_of_keys_first(full_disk: Path) -> None:
    changelog = _fill(ChangeLog(str(full_disk / "log")), 10)
    _record_applied(changelog, 9)
    keys = full_disk / "log" / "c" / "keys" / "1-10.keys"
    keys.parent.mkdir()
    keys.write_bytes(b"x" * 20_000)
    _fill_disk(full_disk)
    assert _run(changelog, WEEK).removed_batches == 0  # it cannot note when they were applied, and does not fail of it
    assert _run(changelog, None).keep == 10
    assert changelog.list_batches("c") == [10]
    assert _are_intact(changelog, range(10, 11))
    assert not keys.exists()


def test_a_disk_without_any_room_says_what_to_delete(full_disk: Path) -> None:
    changelog = _fill(ChangeLog(str(full_disk / "log")), 10)
    _record_applied(changelog, 9)
    _fill_disk(full_disk)
    with pytest.raises(StorageFull, match=r"No batch was removed\.\n  Repair: delete any other file of this disk"):
        _run(changelog, None)
    assert _are_intact(changelog, range(1, 11))
    (full_disk / "others").unlink()
    assert _run(changelog, None).keep == 10


# kills


class ProcessKilled(BaseException):
    """The end of a process."""


class DyingStorage(Storage):
    """Dies before, within or after the n-th thing that it does."""

    def __init__(self, url: str, at: int, when: str) -> None:
        super().__init__(url)
        self._at, self._when, self.steps = at, when, 0

    def _do(self, act: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        self.steps += 1
        if self.steps == self._at and self._when != "after":
            if self._when == "within":
                half()
            raise ProcessKilled
        result = act()
        if self.steps == self._at:
            raise ProcessKilled
        return result

    def create(self, path: str, data: bytes, *, scratch: str | None = None) -> None:
        self._do(lambda: super(DyingStorage, self).create(path, data, scratch=scratch))

    def replace(self, path: str, data: bytes) -> None:
        self._do(lambda: super(DyingStorage, self).replace(path, data))

    def delete(self, path: str) -> None:
        self._do(lambda: super(DyingStorage, self).delete(path))

    def delete_folder(self, path: str) -> None:
        def half() -> None:
            for file in sorted(Path(path).iterdir())[:1]:
                file.unlink()

        self._do(lambda: super(DyingStorage, self).delete_folder(path), half)


def _kill_removal(template: Path, folder: Path, limits: RetentionLimits | None, at: int, when: str) -> ChangeLog | None:
    """A removal that is killed; ``None`` if it has ended before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    mortal = ChangeLog(str(folder))
    mortal.storage = DyingStorage(str(folder), at, when)
    try:
        _run(mortal, limits)
    except ProcessKilled:
        return ChangeLog(str(folder))
    return None


@pytest.mark.parametrize("when", ["before", "within", "after"])
@pytest.mark.parametrize("limits", [AT_ONCE, RetentionLimits(ms=-1, bytes=0), None])
def test_a_removal_may_be_killed_at_any_moment(
    local_change_log: ChangeLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    limits: RetentionLimits | None,
) -> None:
    monkeypatch.setattr(batch_retention, "STEP", 3)
    _record_applied(local_change_log, 1)
    _run(local_change_log)  # there is a mark already
    _record_applied(local_change_log, 7)
    _record_applied(local_change_log, 9, THERE)
    template, at = Path(local_change_log.storage.root), 0
    while found := _kill_removal(template, tmp_path / "copy", limits, at := at + 1, when):
        first = found.find_first_batch("c")
        assert 2 <= first <= 8
        assert _are_intact(found, range(first, 11)), at
        for after in range(first - 1):
            _read_or_told(found, after)
        found.find_last_batch("c", after=first)
        assert not Retention(found, "c", RetentionLimits(), now=NOW).plan_removal().removed_batches
        # another run continues, and it may be another release with another retention, or the same
        if at % 2:
            assert Retention(found, "c", RetentionLimits(), now=NOW).run().removed_batches == 0
            assert set(found.list_batches("c")) >= set(range(8, 11))
            assert TruncationMarkers(found.storage, "c").list_numbers() == [first]
            assert _files(found) == set(range(first, 11))
        _run(found, limits)
        assert _files(found) == {8, 9, 10}
        assert _are_intact(found, range(8, 11))
        mark = found.open_truncation_markers("c").read_newest()
        assert mark is not None
        assert _last_of(mark) == {"p.s.all": 7, **{f"p.s.t{n}": n for n in range(1, 8)}}
        assert TruncationMarkers(found.storage, "c").list_numbers() == [8]
    assert at > 15 - (limits is None)  # nothing is noted then


def _read_or_told(changelog: ChangeLog, after: int) -> None:
    """Check that a reader finds every batch whole, or an error that says which are gone."""
    try:
        found = list(changelog.read_manifests("c", after=after))
        for one in found:
            for file in one.files:
                changelog.open_file("c", file).close()
    except BatchesRemoved:
        return
    assert [one.batch for one in found] == list(range(after + 1, 11))


def test_the_first_removal_may_be_killed_before_there_is_a_mark(local_change_log: ChangeLog, tmp_path: Path) -> None:
    _record_applied(local_change_log, 3)
    template, at = Path(local_change_log.storage.root), 0
    while found := _kill_removal(template, tmp_path / "copy", AT_ONCE, at := at + 1, "before"):
        assert _are_intact(found, range(found.find_first_batch("c"), 11))
        _run(found)
        assert _files(found) == set(range(4, 11))
        mark = found.open_truncation_markers("c").read_newest()
        assert mark is not None
        assert _last_of(mark) == {"p.s.all": 3, "p.s.t1": 1, "p.s.t2": 2, "p.s.t3": 3}
    assert at > 8


def test_several_removals_at_once_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_retention, "STEP", 2)
    for n in range(12):
        changelog = _fill(ChangeLog(str(tmp_path / str(n))), 10)
        _record_applied(changelog, 8)
        barrier, errors = threading.Barrier(3), []

        def remove(
            limits: RetentionLimits, changelog: ChangeLog = changelog, barrier: Any = barrier, errors: Any = errors
        ) -> None:
            own = ChangeLog(changelog.storage.root)
            barrier.wait(LONGEST_S)
            try:
                _run(own, limits)
            except Exception as e:
                errors.append(e)

        threads = [
            threading.Thread(target=remove, args=(limits,)) for limits in (AT_ONCE, AT_ONCE, RetentionLimits(bytes=400))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        _run(changelog)
        assert _files(changelog) == {9, 10}
        mark = changelog.open_truncation_markers("c").read_newest()
        assert mark is not None
        assert mark.topics is None or _last_of(mark) == {"p.s.all": 8, **{f"p.s.t{n}": n for n in range(1, 9)}}
