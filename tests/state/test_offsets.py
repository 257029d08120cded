"""Offsets by compare-and-set, their history, batches and schema history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CommitConflict, StateError
from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState
from airflow_provider_cdc.core.spi.state_records import BatchRecord, ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import Lease, StoredOffset
from airflow_provider_cdc.state.models import OffsetHistoryRow, OffsetRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.manifests import manifest


@pytest.fixture
def lease(store: StateStore) -> Iterator[Lease]:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        yield lease


def _history(store: StateStore) -> list[Any]:
    h = OffsetHistoryRow
    with store.database.engine.connect() as c:
        return list(c.execute(sa.select(h.version, h.offset, h.epoch, h.reason).order_by(h.version)).all())


def test_a_connector_that_never_ran_has_no_offset(store: StateStore) -> None:
    assert store.load_offset("c") == StoredOffset(None, 0)
    assert store.list_batches("c") == []
    assert list(store.schema_history("c")) == []


def test_what_was_written_is_read_again(store: StateStore, lease: Lease) -> None:
    offset = Offset(
        position={"file": "binlog.000001", "pos": 2**40, "gtids": "0-1-5"},
        seq=2**62,
        batch=2**40,
        snapshot=SnapshotState(pending={"a.ö": PendingTable(held=True)}, read_at={"a.b": {"file": "x"}}),
        tables_filter='{"table.include.list": ["a,b"]}',
    )
    stored = store.advance_offset(lease, store.load_offset("c"), offset)
    assert stored == store.load_offset("c") == StoredOffset(offset, 1)


def test_a_commit_writes_offset_batch_and_schema_history_together(store: StateStore, lease: Lease) -> None:
    m = manifest(events=3, changes=2)
    stored = store.commit_batch(lease, store.load_offset("c"), m, "/log/c/manifests/1.json")
    assert stored == store.load_offset("c") == StoredOffset(m.offset_after, 1)
    assert list(store.schema_history("c")) == m.schema_changes
    (batch,) = store.list_batches("c")
    assert batch == BatchRecord(
        connector="c", batch=1, manifest="/log/c/manifests/1.json", first_seq=1, last_seq=5, events=3, bytes=100,
        topics={"p.shop.t": 3}, position={"entry": 1}, epoch=1, created_at=batch.created_at,
    )  # fmt: skip
    assert timedelta(0) <= datetime.now(UTC) - batch.created_at < timedelta(minutes=5)


def test_every_offset_is_kept_in_the_history_with_its_reason(store: StateStore, lease: Lease) -> None:
    first = store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 0}))
    second = store.commit_batch(lease, first, manifest(), "x")
    store.advance_offset(lease, second, Offset(position={"entry": 9}, seq=3, batch=1))
    assert _history(store) == [
        (1, {"position": {"entry": 0}}, 1, "nothing to capture"),
        (2, manifest().offset_after.to_document(), 1, "batch 1"),
        (3, {"position": {"entry": 9}, "seq": 3, "batch": 1}, 1, "nothing to capture"),
    ]


def test_schema_changes_come_back_in_the_order_they_were_made(store: StateStore, lease: Lease) -> None:
    stored = store.load_offset("c")
    for n in range(1, 13):
        stored = store.commit_batch(lease, stored, manifest(n, first=1 + (n - 1) * 3, events=1, changes=2), "x")
    seqs = [r.seq for r in store.schema_history("c")]
    assert seqs == sorted(seqs)
    assert len(seqs) == 24


def test_batches_come_newest_first_and_by_number(store: StateStore, lease: Lease) -> None:
    stored = store.load_offset("c")
    for n in range(1, 6):
        stored = store.commit_batch(lease, stored, manifest(n), "x")
    assert [b.batch for b in store.list_batches("c")] == [5, 4, 3, 2, 1]
    assert [b.batch for b in store.list_batches("c", limit=2)] == [5, 4]
    assert [b.batch for b in store.list_batches("c", batch=3)] == [3]
    assert store.list_batches("other") == []


def test_all_connectors_are_listed_with_their_holders(store: StateStore, lease: Lease) -> None:
    store.commit_batch(lease, store.load_offset("c"), manifest(), "x")
    with store.acquire_lease("b", "you", wait_s=0) as other:
        store.advance_offset(other, store.load_offset("b"), Offset(position={"entry": 4}))
    listed = [(o.connector, o.last_seq, o.last_batch, o.owner, o.lease_s > 0) for o in store.list_connectors()]
    assert listed == [("b", 0, 0, None, False), ("c", 3, 1, "me", True)]
    assert store.find_connector("b") == store.list_connectors()[0]


def test_what_a_connector_is_is_remembered(store: StateStore) -> None:
    assert store.find_registration("c") is None
    for properties in ({"a": 1}, {"a": 1}, {"a": 2}):
        store.register_connector(registration := ConnectorRegistration("c", "memory", "/log", properties=properties))
        assert store.find_registration("c") == registration


# compare-and-set


def test_a_stale_version_is_a_conflict_and_changes_nothing(store: StateStore, lease: Lease) -> None:
    stale = store.load_offset("c")
    there = store.commit_batch(lease, stale, manifest(), "x")
    for expected in (stale, StoredOffset(None, 2), StoredOffset(None, 7)):
        with pytest.raises(CommitConflict, match="moved by another process"):
            store.commit_batch(lease, expected, manifest(2, first=4), "y")
        with pytest.raises(CommitConflict):
            store.advance_offset(lease, expected, Offset(position={"entry": 99}))
    assert store.load_offset("c") == there
    assert [b.batch for b in store.list_batches("c")] == [1]
    assert len(list(store.schema_history("c"))) == 1
    assert len(_history(store)) == 1


def test_the_same_write_twice_is_one_write(store: StateStore, lease: Lease) -> None:
    """The answer to the first may have been lost."""
    before = store.load_offset("c")
    first = store.commit_batch(lease, before, manifest(), "x")
    assert store.commit_batch(lease, before, manifest(), "x") == first
    assert [b.batch for b in store.list_batches("c")] == [1]
    assert len(_history(store)) == 1


def test_a_write_that_fails_in_the_middle_leaves_nothing(store: StateStore, lease: Lease) -> None:
    """A batch of this number is there already, of another connector's mix-up: the offset must not move without it."""
    before = store.load_offset("c")
    one = store.commit_batch(lease, before, manifest(), "x")
    with pytest.raises(sa.exc.IntegrityError):
        store.commit_batch(lease, one, manifest(1, first=4), "x")
    assert store.load_offset("c") == one
    assert len(_history(store)) == 1
    assert len(list(store.schema_history("c"))) == 1


# the database itself


def test_missing_tables_are_an_error_with_the_command_that_makes_them(store: StateStore) -> None:
    store.check_tables()
    with store.database.engine.begin() as c:
        OffsetRow.__table__.drop(c)  # type: ignore[attr-defined]
    with pytest.raises(StateError, match=r"The state tables are missing: cdc_offset\.") as caught:
        store.check_tables()
    assert caught.value.remedy is not None
    assert "airflow cdc state migrate" in caught.value.remedy
    assert "cdc-secret" not in str(caught.value)


def test_tables_can_be_made_twice(store: StateStore, lease: Lease) -> None:
    store.commit_batch(lease, store.load_offset("c"), manifest(), "x")
    store.create_tables()
    assert [b.batch for b in store.list_batches("c")] == [1]


def test_tables_can_be_in_a_schema_of_their_own(postgres: Any, postgres_url: str) -> None:
    postgres.sql("CREATE SCHEMA apart", database=postgres_url.rpartition("/")[2])
    store = StateStore(postgres_url, schema="apart")
    with pytest.raises(StateError, match="missing"):
        store.check_tables()
    store.create_tables()
    store.check_tables()
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.commit_batch(lease, store.load_offset("c"), manifest(), "x")
    store.close()
    plain = StateStore(postgres_url)
    assert plain.load_offset("c") == StoredOffset(None, 0)
    plain.close()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "oracle://u:hunter2@h/x", "nosuch://u:hunter2@h", "postgresql+nodriver://u:hunter2@h/x"]
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StateError, match="cannot be used") as caught:
        StateStore(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "postgresql+psycopg://" in (caught.value.remedy or "")
