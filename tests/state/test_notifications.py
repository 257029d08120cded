"""Notifications are as durable as what they tell of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_cdc.core.errors import CommitConflict
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.notifications import INITIAL, Notification, NotificationType
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.manifests import manifest


def make_notification(n: int) -> Notification:
    data = {"connector_name": "c", "scanned_collection": f"shop.t{n}"}
    return Notification(
        id=f"id-{n}",
        aggregate_type=INITIAL,
        type=NotificationType.IN_PROGRESS,
        additional_data=data,
        ts_ms=1700000000123,
    )


def test_notifications_are_kept_with_the_batch_they_came_with(store: StateStore) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        stored = store.commit_batch(
            lease, store.load_offset("c"), manifest(notifications=[make_notification(1), make_notification(2)]), "x"
        )
        store.advance_offset(lease, stored, Offset(position={"entry": 9}, seq=3, batch=1), [make_notification(3)])
    found = store.list_notifications("c")
    assert [(n.notification.id, n.batch) for n in found] == [("id-1", 1), ("id-2", 1), ("id-3", None)]
    first = found[0]
    assert first.number < found[1].number < found[2].number
    assert first.notification == make_notification(1)
    assert first.created_at == datetime.fromtimestamp(1700000000.123, UTC)
    assert store.list_notifications("other") == []


def test_the_newest_ones_are_shown_or_those_after_a_number_always_oldest_first(store: StateStore) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.commit_batch(
            lease, store.load_offset("c"), manifest(notifications=[make_notification(n) for n in range(6)]), "x"
        )
    numbers = [n.number for n in store.list_notifications("c")]
    assert [n.number for n in store.list_notifications("c", limit=2)] == numbers[-2:]
    assert [n.number for n in store.list_notifications("c", after=numbers[1], limit=2)] == numbers[2:4]
    assert store.list_notifications("c", after=numbers[-1]) == []


def test_a_commit_that_fails_keeps_no_notification(store: StateStore) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        stale = store.load_offset("c")
        store.advance_offset(lease, stale, Offset(position={"entry": 1}))
        with pytest.raises(CommitConflict):
            store.commit_batch(lease, stale, manifest(notifications=[make_notification(1)]), "x")
        with pytest.raises(CommitConflict):
            store.advance_offset(lease, stale, Offset(position={"entry": 2}), [make_notification(2)])
    assert store.list_notifications("c") == []


def test_the_same_commit_twice_keeps_its_notifications_once(store: StateStore) -> None:
    """The answer to the first may have been lost."""
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        before, batch = store.load_offset("c"), manifest(notifications=[make_notification(1)])
        assert store.commit_batch(lease, before, batch, "x") == store.commit_batch(lease, before, batch, "x")
    assert [n.notification.id for n in store.list_notifications("c")] == ["id-1"]
