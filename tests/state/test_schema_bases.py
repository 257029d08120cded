"""The base of a schema history: a start reads it and what came since; every change stays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import LeaseLost
from airflow_provider_cdc.core.model.schema_history import SchemaHistory, StoredSchemas
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.state.models import SchemaHistoryRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.manifests import SCHEMA, manifest


@pytest.fixture
def lease(store: StateStore) -> Iterator[Lease]:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        yield lease


def commit(store: StateStore, lease: Lease, batches: int) -> None:
    stored = store.load_offset(lease.connector)
    for _ in range(batches):
        offset = stored.offset
        batch, first = (1, 1) if offset is None else (offset.batch + 1, offset.seq + 1)
        m = manifest(batch, first=first, events=0, changes=2, connector=lease.connector)
        stored = store.commit_batch(lease, stored, m, "x")


def compact(store: StateStore, lease: Lease) -> StoredSchemas:
    stored = store.load_schemas(lease.connector)
    store.compact_schemas(lease, SchemaHistory.from_stored(stored).build_base(), stored.upto)
    return store.load_schemas(lease.connector)


def test_after_a_base_was_made_only_what_came_since_is_read(store: StateStore, lease: Lease) -> None:
    assert store.load_schemas("c") == StoredSchemas([], [], 0)
    commit(store, lease, 20)
    assert [r.seq for r in store.load_schemas("c").changes] == list(range(1, 41))
    compacted = compact(store, lease)
    assert (len(compacted.base), compacted.changes) == (1, [])
    commit(store, lease, 2)
    assert [r.seq for r in store.load_schemas("c").changes] == [41, 42, 43, 44]
    assert [r.seq for r in compact(store, lease).changes] == []
    assert SchemaHistory.from_stored(store.load_schemas("c")).find_schema(SCHEMA.id) == SCHEMA
    assert [r.seq for r in store.schema_history("c")] == list(range(1, 45))  # a move of the offset looks at all of them


def test_what_charts_show_is_read_without_what_was_recorded_before(store: StateStore, lease: Lease) -> None:
    now = datetime.now(UTC)
    commit(store, lease, 5)
    with store.database.engine.begin() as c:
        ids = list(c.scalars(sa.select(SchemaHistoryRow.id).order_by(SchemaHistoryRow.id)))
        c.execute(
            sa.update(SchemaHistoryRow)
            .where(SchemaHistoryRow.id.in_(ids[:6]))
            .values(created_at=now - timedelta(days=8))
        )
    assert [r.seq for r in store.schema_changes_since("c", now - timedelta(days=7), 99)] == [7, 8, 9, 10]
    assert [r.seq for r in store.schema_changes_since("c", now - timedelta(days=9), 3)] == [8, 9, 10]
    assert store.schema_changes_since("d", now - timedelta(days=9), 99) == []


def test_each_connector_has_its_own(store: StateStore, lease: Lease) -> None:
    commit(store, lease, 2)
    with store.acquire_lease("d", "me", wait_s=0) as other:
        commit(store, other, 3)
        compact(store, other)
    compact(store, lease)
    commit(store, lease, 1)
    assert [(len(s.base), len(s.changes)) for s in map(store.load_schemas, ("c", "d"))] == [(1, 2), (1, 0)]
    store.delete_connector(lease)
    assert store.load_schemas("c") == StoredSchemas([], [], 0)
    assert len(store.load_schemas("d").base) == 1


def test_only_the_run_that_holds_the_lease_makes_a_base(store: StateStore, lease: Lease) -> None:
    commit(store, lease, 2)
    before = compact(store, lease)
    with pytest.raises(LeaseLost):
        store.compact_schemas(Lease("c", "old", lease.epoch - 1), [], 0)
    assert store.load_schemas("c") == before
