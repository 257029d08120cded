"""Tables that stand at different batches: what one needs is a part of what another one needs, and is read once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.targets.lake.backlog import reported_apply_state
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from tests.support.change_log.manifests import manifest
from tests.targets.lake.lake import Lake
from tests.targets.lake.trimmed import create, equal, put_rows

LAST = 12
TOPICS = 3


def _schema(table: int, version: int = 1) -> TableSchema:
    return TableSchema(
        id=TableId(namespace="s", name=f"t{table}"), columns=(Column(name="a", type="int64"),), key=("a",), version=version
    )  # fmt: skip


def _batch(number: int, tables: list[int]) -> Manifest:
    """Rows of some tables; the last table of them gets a new version, too."""
    files = [
        DataFile(
            topic=f"p.s.t{t}", schema_version=number, path=f"data/{number}/{t}", rows=number, bytes=100, crc32=0,
            first_seq=number, last_seq=number, counts={"c": number},
        )
        for t in tables
    ]  # fmt: skip
    change = [TableChange(type="ALTER", id=_schema(t).id, table=_schema(t, number)) for t in tables[-1:]]
    record = SchemaChangeRecord(
        seq=number, ddl="ALTER", database="s", position={}, ts_us=5, captured_us=5, changes=change
    )
    return manifest(
        number, files=files, schemas={f"p.s.t{t}": {str(number): _schema(t, number)} for t in tables},
        schema_changes=[record] if change else [],
    )  # fmt: skip


@pytest.fixture(scope="module")
def changelog(tmp_path_factory: pytest.TempPathFactory) -> ChangeLog:
    found = ChangeLog(str(tmp_path_factory.mktemp("log")))
    for n in range(1, LAST + 1):
        found.commit_manifest(_batch(n, [t for t in range(TOPICS) if n % (t + 2) == 0]))
    return found


class ManifestReads:
    """Counts the manifests that are read and are there."""

    def __init__(self, changelog: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[int] = Counter()
        read = changelog.find_manifest

        def count_and_read(connector: str, batch: int) -> Manifest | None:
            found = read(connector, batch)
            if found is not None:
                self.count[batch] += 1
            return found

        monkeypatch.setattr(changelog, "find_manifest", count_and_read)


def _list_groups(groups: list[BatchesByTopic], topic: str) -> list[Any]:
    return [
        (part.first, part.last, part.files, part.schemas, part.changes)
        for group in groups
        for part in group.list_parts(topic)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, LAST + 1), min_size=1, max_size=8), st.integers(1, 1000))
def test_each_table_gets_its_missing_batches_in_any_order_and_each_manifest_is_read_once(
    changelog: ChangeLog, markers: list[int], group_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reported_apply_state, "GROUP_BYTES", group_bytes)
        reads = ManifestReads(changelog, patch)
        backlog = Backlog(changelog, "c")
        found = {marker: backlog.list_later_batches(marker) for marker in markers}
        assert reads.count == Counter(range(min(markers) + 1, LAST + 1))
        for marker, groups in found.items():
            alone = reported_apply_state.group_batches(
                changelog, (one.batch_contents for one in changelog.read_manifests("c", after=marker)), {}
            )
            for topic in (f"p.s.t{t}" for t in range(TOPICS)):
                assert _list_groups(groups, topic) == _list_groups(alone, topic)
            for one in (groups, alone):
                assert (one[0].first if one else marker + 1) == marker + 1
                assert (one[-1].last if one else LAST) == LAST
            topics = [set[str]().union(*(g.topics for g in one)) for one in (groups, alone)]
            assert topics[0] == topics[1] == {t for t in topics[0] if any(t in g for g in groups)}


def test_batches_that_have_come_since_are_there_for_who_needs_them(tmp_path: Path) -> None:
    changelog = ChangeLog(str(tmp_path))
    for n in range(1, 4):
        changelog.commit_manifest(_batch(n, [0]))
    backlog = Backlog(changelog, "c")
    assert backlog.list_later_batches(1)[-1].last == 3
    changelog.commit_manifest(_batch(4, [0]))
    assert backlog.list_later_batches(2)[-1].last == 3
    assert backlog.left_since(2, 4)[-1].last == 4
    assert [part.last for group in backlog.list_later_batches(0) for part in group.list_parts("p.s.t0")] == [1, 2, 3, 4]
    backlog.discard_batches()
    changelog.commit_manifest(_batch(5, [0]))
    assert backlog.list_later_batches(3)[-1].last == 5


@pytest.mark.parametrize("gap", [1, 40])
def test_a_gap_before_what_is_read_is_damage(tmp_path: Path, gap: int) -> None:
    changelog = ChangeLog(str(tmp_path))
    for n in (1, 2, gap + 3):
        changelog.commit_manifest(_batch(n, [0]))
    backlog = Backlog(changelog, "c")
    assert backlog.list_later_batches(gap + 2)[0].first == gap + 3
    for _ in range(2):
        with pytest.raises(
            ChangeLogDamaged, match=f"batch 3 of connector c is missing, although batch {gap + 3} exists"
        ):
            backlog.list_later_batches(0)
    assert backlog.list_later_batches(gap + 2)[0].first == gap + 3


def test_a_part_of_some_batches_knows_only_topics_that_are_in_it(changelog: ChangeLog) -> None:
    whole = BatchesByTopic(changelog, [one.batch_contents for one in changelog.read_manifests("c")])
    part = whole.select_later(LAST - 1)  # batch 12, which all of the three have
    assert (part.first, part.last, part.topics) == (LAST, LAST, {f"p.s.t{t}" for t in range(TOPICS)})
    later = whole.select_later(LAST)
    assert (later.topics, later.find_table("p.s.t0"), later.find_schema("p.s.t0"), later.merge_parts("p.s.t0")) == (
        set(),
        None,
        None,
        None,
    )
    assert "p.s.t0" in whole
    assert whole.select_later(3).select_later(1).first == 4
    assert [p.last for p in whole.select_later(3).list_parts("p.s.t2")] == [4, 8, 12]


def test_a_new_table_reads_what_has_come_since_the_last_apply_however_long_the_log_is(memory: Lake) -> None:
    create(memory, "a")
    for n in range(1, 8):
        put_rows(memory, "a", n)
    memory.apply()
    before = memory.connector.changelog.find_last_batch("test")
    create(memory, "b")
    put_rows(memory, "b", 1)
    reads = list[int]()
    read = ChangeLog.find_manifest

    def count_and_read(self: ChangeLog, connector: str, batch: int) -> Manifest | None:
        reads.append(batch)
        return read(self, connector, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangeLog, "find_manifest", count_and_read)
        memory.apply()
    assert min(reads) >= before, reads
    equal(memory, "a", "b")
