"""Parts of offsets about single tables: a row for each, written when it changes, and every offset of the history whole again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import CommitConflict, LeaseLost
from airflow_provider_cdc.core.model.connector_offset import (
    IncrementalState,
    Offset,
    PendingTable,
    SnapshotState,
    TableScan,
)
from airflow_provider_cdc.core.spi.store_interfaces import Lease, StoredOffset
from airflow_provider_cdc.state.models import OffsetHistoryRow, OffsetRow, OffsetTableRow
from airflow_provider_cdc.state.offset_table_states import restore_document, split_document
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.manifests import manifest


@pytest.fixture
def lease(store: StateStore) -> Iterator[Lease]:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        yield lease


def waiting(tables: int) -> Offset:
    names = [f"shop.table_{n:04d}" for n in range(tables)]
    return Offset(position={"entry": 1}).with_snapshot(SnapshotState().add_pending(dict.fromkeys(names, False)))


def table_rows(store: StateStore) -> list[Any]:
    with store.database.engine.connect() as c:
        return list(c.execute(sa.select(OffsetTableRow.__table__).order_by(OffsetTableRow.id)).all())


def stored_bytes(store: StateStore) -> int:
    with store.database.engine.connect() as c:
        documents = [*c.scalars(sa.select(OffsetRow.offset)), *c.scalars(sa.select(OffsetHistoryRow.offset))]
    return max(len(json.dumps(document)) for document in documents)


@pytest.mark.parametrize("tables", [1, 1000])
def test_rows_of_offsets_have_the_same_size_with_one_table_and_with_a_thousand(
    store: StateStore, lease: Lease, tables: int
) -> None:
    offset = waiting(tables)
    stored = store.advance_offset(lease, store.load_offset("c"), offset)
    offset = offset.with_snapshot(offset.snapshot.record_read(list(offset.snapshot.pending), {"entry": 7}))
    stored = store.advance_offset(lease, stored, offset)
    offset = offset.with_incremental(
        IncrementalState().add_scans([TableScan(table=f"shop.{n}", request=5) for n in range(tables)])
    )
    store.advance_offset(lease, stored, offset)
    assert stored_bytes(store) < 100
    assert store.load_offset("c") == StoredOffset(offset, 3)


def test_a_commit_writes_the_rows_of_the_tables_that_have_changed(store: StateStore, lease: Lease) -> None:
    offset = waiting(1000)
    stored = store.advance_offset(lease, store.load_offset("c"), offset)
    assert len(table_rows(store)) == 1000
    for n in range(1, 11):
        offset = offset.with_snapshot(offset.snapshot.record_read([f"shop.table_{n:04d}"], {"entry": n}))
        stored = store.advance_offset(lease, stored, offset)
    assert len(table_rows(store)) == 1010
    stored = store.advance_offset(lease, stored, offset.advance_position({"entry": 99}))
    assert len(table_rows(store)) == 1010
    stored = store.advance_offset(lease, stored, Offset(position={"entry": 100}))
    assert {row.until_version is None for row in table_rows(store)} == {False}
    assert store.load_offset("c").offset == Offset(position={"entry": 100})


def test_a_rewind_has_the_tables_of_that_offset_again(store: StateStore, lease: Lease) -> None:
    first = waiting(3)
    half = first.with_snapshot(first.snapshot.record_read(["shop.table_0000"], {"entry": 5}))
    done = Offset(position={"entry": 9})
    stored = store.load_offset("c")
    for offset in (first, half, done):
        stored = store.advance_offset(lease, stored, offset)
    (record,) = store.offset_history("c", version=2)
    assert record.offset == half
    stored = store.replace_offset(
        lease, stored, done.restore_position(record.offset), "restored from version 2, by ada"
    )
    assert stored == store.load_offset("c")
    assert stored.offset is not None
    assert stored.offset.snapshot == half.snapshot
    stored = store.advance_offset(lease, stored, done)
    assert [r.offset for r in store.offset_history("c")] == [done, done.restore_position(half), done, half, first]


def test_what_is_refused_writes_no_table(store: StateStore, lease: Lease) -> None:
    store.advance_offset(lease, store.load_offset("c"), waiting(2))
    before = table_rows(store)
    with pytest.raises(CommitConflict):
        store.advance_offset(lease, StoredOffset(waiting(2), 7), waiting(5))
    with pytest.raises(LeaseLost):
        store.commit_batch(
            Lease("c", "me", lease.epoch - 1), store.load_offset("c"), manifest(offset_after=waiting(9)), "x"
        )
    assert table_rows(store) == before


def test_all_connectors_are_listed_with_their_tables(store: StateStore, lease: Lease) -> None:
    store.advance_offset(lease, store.load_offset("c"), waiting(2))
    with store.acquire_lease("d", "me", wait_s=0) as other:
        store.advance_offset(other, store.load_offset("d"), waiting(3))
    assert {r.connector: r.offset for r in store.list_connectors()} == {"c": waiting(2), "d": waiting(3)}
    store.delete_connector(lease)
    assert {row.connector for row in table_rows(store)} == {"d"}


names = st.sampled_from([f"s.{name}" for name in ("a", "A", "ä", "b", "c ", "c")])
positions = st.fixed_dictionaries({"entry": st.integers(0, 3)})
scans = st.builds(TableScan, table=names, request=st.integers(1, 2), rows=st.integers(0, 2))
offsets = st.builds(
    Offset,
    position=positions,
    snapshot=st.builds(
        SnapshotState,
        pending=st.dictionaries(names, st.builds(PendingTable, held=st.booleans())),
        read_at=st.dictionaries(names, positions),
    ),
    incremental=st.builds(IncrementalState, scans=st.lists(scans, max_size=5), paused=st.booleans()),
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(offsets, min_size=1, max_size=6))
def test_every_offset_comes_back_as_it_was_written_with_its_order(store: StateStore, history: list[Offset]) -> None:
    with store.acquire_lease("c", "me", wait_s=5) as lease:
        stored = store.load_offset("c")
        before = stored.version
        for offset in history:
            stored = store.advance_offset(lease, stored, offset)
            loaded = store.load_offset("c").offset
            assert loaded == offset
            assert list(loaded.snapshot.pending) == list(offset.snapshot.pending)
        assert [r.offset for r in store.offset_history("c", stored.version - before)] == history[::-1]


@given(offsets)
def test_a_document_is_split_and_joined_without_a_trace(offset: Offset) -> None:
    document = offset.to_document()
    assert Offset.model_validate(restore_document(*split_document(document))) == offset
    assert restore_document(document, []) == document
