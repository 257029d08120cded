"""The first batch of a table on a change log whose first batches were removed; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.truncation_marker import RemovedTopic, TruncationMarker
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.changelog.reading.table_start_batch import TableStart, find_emptying_batch
from airflow_provider_cdc.core.errors import BatchesRemoved
from airflow_provider_cdc.core.model.batch_manifest import DataFile, SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState, view_of
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.verify.batches_after_reference import BatchesAfterReference, NotComparable
from tests.support.change_log.manifests import SCHEMA, manifest

TOPIC, OTHER = "p.shop.t", "p.shop.other"
FIRST, LAST = 5, 9


def _log(
    folder: Path, *emptied_in: int, topics: dict[str, RemovedTopic] | None = None, silent: bool = False
) -> ChangeLog:
    """Batches 5 to 9, each with something of the topic, unless it is silent.

    :param topics: of the mark; ``None``: no one knows them
    """
    changelog = ChangeLog(str(folder))
    for n in range(FIRST, LAST + 1):
        counts = {"t": 1, "c": 1} if n in emptied_in else {"c": 1}
        file = DataFile(
            topic=TOPIC, schema_version=1, path=f"data/{n:012d}/f.parquet", rows=sum(counts.values()), bytes=9, crc32=1, first_seq=2 * n,
            last_seq=2 * n + 1, counts=counts,
        )  # fmt: skip
        files = [] if silent and n not in emptied_in else [file]
        changelog.commit_manifest(
            manifest(n, first=2 * n, changes=0, files=files, schemas={TOPIC: {"1": SCHEMA}} if files else {})
        )
    changelog.open_truncation_markers("c").create_marker(TruncationMarker(FIRST, topics, why="as it was old"))
    return changelog


def _start(changelog: ChangeLog, at: int, *, new: bool) -> TableStart:
    view = BacklogState(LAST, LAST, [], True, {}, {})
    return Backlog(changelog, "c").resolve_start(TOPIC, at, view, new=new, where="/lake/t")


@pytest.mark.parametrize(
    ("last", "at", "new", "start"),
    [
        (None, 0, True, TableStart(4)), (None, 2, False, TableStart(4)), (3, 3, False, TableStart(4)), (3, 4, False, TableStart(4)), (3, 7, False, TableStart(7)),
        (3, 0, True, TableStart(6, lacks=True)), (3, 4, True, TableStart(4)), (3, 3, True, TableStart(4)), (4, 8, True, TableStart(8)),
    ],
)  # fmt: skip
def test_a_table_begins_where_it_lacks_nothing(
    tmp_path: Path, last: int | None, at: int, start: TableStart, *, new: bool
) -> None:
    topics = {OTHER: RemovedTopic(4, SCHEMA.id)} | ({} if last is None else {TOPIC: RemovedTopic(last, SCHEMA.id)})
    assert _start(_log(tmp_path, 5, 7, topics=topics), at, new=new) == start


@pytest.mark.parametrize(
    ("base", "at", "new", "messages"),
    [
        ((), 0, True, ["The table of p.shop.t cannot be built", "some of them contained changes", "airflow cdc snapshot c shop.t --replace", "run the apply again"]),
        ((), 2, False, ["is at batch 2 and cannot be continued", "move the table away", "but first run `airflow cdc snapshot c shop.t --replace"]),
        ((6,), 2, False, ["is at batch 2", "move the table away, and run the apply to rebuild it from batch 6 on"]),
    ],
)  # fmt: skip
def test_what_lacks_something_says_what_to_do(
    tmp_path: Path, base: tuple[int, ...], at: int, messages: list[str], *, new: bool
) -> None:
    changelog = _log(tmp_path, *base, topics={TOPIC: RemovedTopic(3, SCHEMA.id)})
    with pytest.raises(BatchesRemoved) as caught:
        _start(changelog, at, new=new)
    for text in (*messages, "batches of the change log before 5 were removed", "as it was old", "/lake/t (c/p.shop.t)"):
        assert text in str(caught.value)


def test_where_no_one_knows_what_is_gone_anything_may_be(tmp_path: Path) -> None:
    changelog = _log(tmp_path, 8)
    assert _start(changelog, 0, new=True) == TableStart(7, lacks=True)
    with pytest.raises(BatchesRemoved, match="it is not known whether any of them contained changes of the table"):
        _start(changelog, 3, new=False)


@given(st.sets(st.integers(FIRST, LAST)), st.integers(FIRST - 1, LAST + 1), st.integers(0, LAST))
def test_the_last_batch_counts_in_which_it_is_emptied(
    tmp_path_factory: pytest.TempPathFactory, where: set[int], until: int, after: int
) -> None:
    changelog = _log(tmp_path_factory.mktemp("log"), *where, topics={})
    whole = BatchesByTopic(changelog, [one.batch_contents for one in changelog.read_manifests("c", after=FIRST - 1)])
    groups = [whole.select_later(after)] if after < LAST else []
    assert find_emptying_batch(TOPIC, groups, until) == max((n for n in where if after < n <= until), default=0)
    assert find_emptying_batch(OTHER, groups) == 0


def test_a_log_that_is_whole_is_asked_for_everything(tmp_path: Path) -> None:
    changelog = ChangeLog(str(tmp_path))
    for n in range(1, 4):
        changelog.commit_manifest(manifest(n, first=3 * n))
    assert [_start(changelog, at, new=True) for at in (0, 2)] == [TableStart(0), TableStart(2)]


def test_without_a_report_topics_that_are_only_in_what_is_gone_are_known(tmp_path: Path) -> None:
    other = SCHEMA.id.model_copy(update={"name": "other"})
    changelog = _log(tmp_path, topics={OTHER: RemovedTopic(2, other), TOPIC: RemovedTopic(4, SCHEMA.id)})
    view = view_of(changelog, "c", {}, "")
    assert (view.start, view.last, view.known_topics) == (4, 9, {TOPIC, OTHER})
    assert (view.find_table(OTHER), view.is_gone_at_source(OTHER)) == (other, False)
    report: dict[str, Any] = {
        "last_batch": 7,
        "table_states": {TOPIC: {"location": "/t", "batch": 7}},
        "lagging": {},
        "failed": {},
        "rules": "",
    }
    assert view_of(changelog, "c", report, "").known_topics == {TOPIC}
    other_rules = view_of(changelog, "c", report, "others")
    assert other_rules.known_topics == {TOPIC, OTHER}
    assert other_rules.evidence == {"/t": (7, 7)}


@pytest.mark.parametrize("change", ["DROP", "RENAME", "BACK"])
@pytest.mark.parametrize("before", [True, False])
def test_a_table_that_the_source_has_no_more_is_known_to_be_gone(tmp_path: Path, change: str, *, before: bool) -> None:
    other = SCHEMA.id.model_copy(update={"name": "other"})
    new = SCHEMA.model_copy(update={"id": other.model_copy(update={"name": "new"})})
    changes = {
        "DROP": [TableChange(type="DROP", id=other)],
        "RENAME": [TableChange(type="ALTER", id=new.id, previous_id=other, table=new)],
        "BACK": [TableChange(type="DROP", id=other), TableChange(type="CREATE", id=other, table=new)],
    }[change]
    record = SchemaChangeRecord(seq=20, ddl="", database="shop", position={}, ts_us=5, captured_us=5, changes=changes)
    changelog = _log(tmp_path, topics={})
    done = manifest(LAST + 1, first=20, events=0, changes=0, schemas={}, schema_changes=[record])
    mark = TruncationMarker(FIRST, {OTHER: RemovedTopic(2, other)})
    if before:
        mark = mark.include_batch(done)
    else:
        changelog.commit_manifest(done)
    changelog.open_truncation_markers("c").delete_all()
    changelog.open_truncation_markers("c").create_marker(mark)
    assert view_of(changelog, "c", {}, "").is_gone_at_source(OTHER) == (change != "BACK")


def test_a_comparison_knows_what_a_table_lacks_of_batches_that_are_gone(tmp_path: Path) -> None:
    changelog = _log(tmp_path, topics={TOPIC: RemovedTopic(3, SCHEMA.id)}, silent=True)
    since = BatchesAfterReference(changelog, "c", LAST + 1, straddles=False)
    assert [since.has_missing_events(TOPIC, marker) for marker in (-1, 2, 3, 4, 8)] == [True, True, False, False, False]
    assert [since.has_missing_events(OTHER, marker) for marker in (-1, 2)] == [False, False]
    changelog.open_truncation_markers("c").delete_all()
    unknown = BatchesAfterReference(changelog, "c", LAST + 1, straddles=False)
    with pytest.raises(NotComparable, match="batch 4 of the change log no longer exists"):
        unknown.has_missing_events(TOPIC, 2)
