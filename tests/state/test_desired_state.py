"""Desired states of connectors, ends of runs, offsets changed by hand, and forgetting a connector."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CommitConflict, LeaseLost
from airflow_provider_cdc.core.model.connector_offset import Offset, SnapshotState
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.model.notifications import ACTION, ROW, Notification
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState, StoredOffset
from airflow_provider_cdc.state.models import Base
from airflow_provider_cdc.state.state_store import StateStore
from tests.state.conftest import Stores
from tests.support.change_log.manifests import manifest
from tests.support.patience import LONGEST_S


def test_a_connector_is_wanted_to_run_until_someone_says_otherwise(store: StateStore) -> None:
    assert store.load_control("c") == ConnectorControl()
    paused = store.set_control("c", DesiredState.PAUSED, "ada", "upgrade")
    assert (paused.desired_state, paused.by, paused.reason) == (DesiredState.PAUSED, "ada", "upgrade")
    assert paused.changed_at is not None
    again = store.set_control("c", DesiredState.PAUSED, "bob")
    assert (again.changed_at, again.by, again.reason) == (paused.changed_at, "bob", "")
    resumed = store.set_control("c", DesiredState.RUNNING, "ada")
    assert resumed.changed_at is not None
    assert resumed.changed_at > paused.changed_at
    assert store.load_control("d") == ConnectorControl()


def test_restarts_are_counted_and_leave_what_is_wanted(store: StateStore) -> None:
    store.set_control("c", DesiredState.PAUSED, "ada")
    assert [store.request_restart("c", "bob", "new password").restarts for _ in range(2)] == [1, 2]
    control = store.load_control("c")
    assert (control.desired_state, control.by, control.reason) == (DesiredState.PAUSED, "bob", "new password")


def test_wishes_of_many_at_once_for_a_new_connector_are_all_heard(stores: Stores) -> None:
    barrier = threading.Barrier(4)

    def request_restart() -> None:
        mine = stores()
        barrier.wait(LONGEST_S)
        mine.request_restart("c", "somebody")

    threads = [threading.Thread(target=request_restart) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert stores().load_control("c").restarts == 4


def test_how_the_last_run_ended_is_kept_with_the_last_error(store: StateStore) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1}))
    store.record_run_end("c", "the log is gone\n  Repair: …")
    failed = store.find_connector("c")
    assert failed.last_error == "the log is gone\n  Repair: …"
    assert failed.last_error_at == failed.run_ended_at
    store.record_run_end("c", None)
    ended = store.find_connector("c")
    assert ended.last_error_at == failed.last_error_at
    assert ended.run_ended_at > failed.run_ended_at
    assert ended.control.desired_state is DesiredState.RUNNING


def test_a_run_that_did_not_give_its_lease_back_is_distinguished(store: StateStore, stores: Stores) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1}))
        alive = store.find_connector("c")
        assert (alive.owner, alive.dead_owner, alive.died_at) == ("me", None, None)
        assert alive.owner_since is not None
    gone = store.find_connector("c")
    assert (gone.owner, gone.owner_since, gone.dead_owner) == (None, None, None)
    stores(lease_ttl_s=0.1).leases.acquire("c", "killed", 0)
    time.sleep(0.3)
    dead = store.find_connector("c")
    assert (dead.owner, dead.dead_owner) == (None, "killed")
    assert dead.died_at > alive.owner_since


# offsets changed by hand


def test_an_offset_that_is_replaced_stays_in_the_history_with_the_reason(store: StateStore) -> None:
    before, after = Offset(position={"entry": 5}, seq=7, batch=2), Offset(position={"entry": 2}, seq=7, batch=2)
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        there = store.advance_offset(lease, store.load_offset("c"), before)
        stored = store.replace_offset(lease, there, after, "set to entry 2, by ada " + "!" * 300)
    assert stored == store.load_offset("c") == StoredOffset(after, 2)
    new, old = store.offset_history("c")
    assert (new.version, new.offset) == (2, after)
    assert new.reason.startswith("set to entry 2, by ada !!")
    assert (old.version, old.offset, old.reason) == (1, before, "nothing to capture")
    assert store.offset_history("c", 1) == [new]
    assert store.offset_history("c", version=1) == [old]
    assert store.offset_history("d") == []


def test_an_offset_is_replaced_only_by_who_knows_it_and_holds_the_lease(stores: Stores) -> None:
    store = stores(lease_ttl_s=0.1)
    old = store.leases.acquire("c", "old", 0)
    there = store.advance_offset(old, store.load_offset("c"), Offset(position={"entry": 1}))
    new = stores(lease_ttl_s=30).leases.acquire("c", "new", 20)
    with pytest.raises(LeaseLost):
        store.replace_offset(old, there, Offset(), "x")
    with pytest.raises(CommitConflict):
        store.replace_offset(new, StoredOffset(None, 7), Offset(), "x")
    assert store.load_offset("c") == there
    assert len(store.offset_history("c")) == 1


# forgetting


def _fill(store: StateStore, connector: str) -> None:
    store.register_connector(ConnectorRegistration(connector, "memory", "/x"))
    store.send(connector, SentSignal("1", "log"))
    store.record_run_end(connector, None)
    with store.acquire_lease(connector, "me", wait_s=0) as lease:
        notifications = [Notification(aggregate_type="Initial Snapshot", type="STARTED")]
        after = Offset(position={"entry": 1}, seq=3, batch=1, snapshot=SnapshotState(read_at={"shop.t": {"entry": 1}}))
        m = manifest(connector=connector, notifications=notifications, offset_after=after)
        store.commit_batch(lease, store.load_offset(connector), m, "x")
        stored = store.load_schemas(connector)
        store.compact_schemas(lease, SchemaHistory.from_stored(stored).build_base(), stored.upto)
    store.targets.record_begin(connector, "delta", "/lake/{table}", "dag.apply.-1")
    series = {"": MetricSeries(gauges={"run.LastRunFailed": 0.0})}
    store.metrics.add_measurements(MetricSamples(connector, "capture", {}, datetime.now(UTC), series, ended=True))


def _counts(store: StateStore, connector: str) -> dict[str, int]:
    with store.database.engine.connect() as c:
        return {
            t.name: c.scalar(sa.select(sa.func.count()).select_from(t).where(t.c.connector == connector)) or 0
            for t in Base.metadata.sorted_tables
        }


def test_forgetting_a_connector_leaves_nothing_of_it_and_everything_of_the_others(store: StateStore) -> None:
    _fill(store, "c")
    _fill(store, "d")
    full = _counts(store, "d")
    assert min(full.values()) == 1
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.delete_connector(lease)
    assert _counts(store, "c") == dict.fromkeys(full, 0) | {"cdc_lease": 1}
    assert _counts(store, "d") == full
    assert store.find_connector("c") is None


def test_the_records_of_peoples_actions_outlive_a_connector(store: StateStore) -> None:
    """A deletion removed the records of all actions on the connector, too."""
    kinds = (ACTION, ROW, "Initial Snapshot")
    for kind in kinds:
        store.add_notification("c", Notification(aggregate_type=kind, type="COMPLETED"))
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        store.delete_connector(lease)
    assert sorted(one.notification.aggregate_type for one in store.list_notifications("c")) == [ACTION, ROW]
    assert store.find_connector("c") is None


def test_a_run_that_was_frozen_can_write_nothing_for_a_new_connector_of_the_same_name(stores: Stores) -> None:
    store = stores(lease_ttl_s=0.1)
    frozen = store.leases.acquire("c", "frozen", 0)
    with stores().acquire_lease("c", "deleting", wait_s=20) as lease:
        store.delete_connector(lease)
    with stores().acquire_lease("c", "new", wait_s=20), pytest.raises(LeaseLost):
        store.advance_offset(frozen, store.load_offset("c"), Offset(position={"entry": 1}))


def test_a_connector_is_forgotten_only_under_its_lease(stores: Stores) -> None:
    store = stores(lease_ttl_s=0.1)
    _fill(store, "c")
    old = store.leases.acquire("c", "old", 20)
    stores(lease_ttl_s=30).leases.acquire("c", "new", 20)
    full = _counts(store, "c")
    with pytest.raises(LeaseLost):
        store.delete_connector(old)
    assert _counts(store, "c") == full


def test_every_table_is_kept_by_connector() -> None:
    """Otherwise forgetting one would miss it."""
    assert [t.name for t in Base.metadata.sorted_tables if "connector" not in t.c] == []
