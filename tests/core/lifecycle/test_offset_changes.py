"""Moving, forgetting and restoring an offset, and deleting a connector: what it would mean first, then the thing itself, and nothing
without a confirmation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import (
    ChangeLogDamaged,
    CommitConflict,
    ConfigError,
    LeaseHeld,
    PositionLost,
)
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair
from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetEffect
from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.position import MemoryPosition
from tests.core.lifecycle.steering import delete, open_steering, the_same
from tests.support.connectors import Connector, memory_connector
from tests.support.workloads.small_tables import KEYED, equal, insert, operations

# moving the offset


def test_going_forward_is_reported_as_a_loss_and_skips_exactly_that(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    for i in (5, 6, 7):
        insert(db, "shop.a", i)
    plan = lifecycle.plan_offset(MemoryPosition(8))
    assert (plan.effect, plan.now, plan.target, plan.problems) == (OffsetEffect.SKIP, "entry 6", "entry 8", ())
    assert "SKIPPED: the changes committed after entry 6, up to entry 8, are never captured." in plan.consequences[0]
    stored = lifecycle.apply_offset(plan, "test", "ada")
    assert stored.offset is not None
    assert (stored.offset.position, stored.offset.seq, stored.offset.batch) == ({"entry": 8}, 8, 3)
    newest, before = connector.store.offset_history("test", 2)
    assert newest.reason == "set to entry 8, by ada"
    assert before.offset.position == {"entry": 6}
    result = connector.capture()
    assert (result.batches, result.events, result.seq) == ([4], 1, 9)
    assert [row["id"] for row in connector.rows("shop.a")] == [1, 2, 3, 4, 7]


def test_going_back_is_reported_with_the_events_that_come_again(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    plan = lifecycle.plan_offset(MemoryPosition(4))
    assert plan.effect is OffsetEffect.REPEAT
    assert "REPEATED: the changes committed after entry 4, up to entry 6, are captured again" in plan.consequences[0]
    assert "at most 2 events, in the last 2 batches" in plan.consequences[1]
    lifecycle.apply_offset(plan, "test", "ada")
    result = connector.capture()
    assert operations(connector, result) == {"a": {"c": 2}}
    assert (result.batches, result.seq) == ([4], 10)
    the_same(connector, db, "shop.a", "shop.b")


def test_the_plan_of_an_unchanged_offset_changes_nothing(lifecycle: ConnectorLifecycle) -> None:
    plan = lifecycle.plan_offset(MemoryPosition(6))
    assert (plan.effect, plan.consequences) == (OffsetEffect.NOTHING, ("The connector is already at this position.",))


def test_a_place_that_cannot_be_read_is_a_problem_and_not_applied(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    before = connector.store.load_offset("test")
    db.purge_log(5)
    for target, words in ((3, "holds entries 5 to 6"), (9, "holds entries 5 to 6")):
        plan = lifecycle.plan_offset(MemoryPosition(target))
        assert words in plan.problems[0]
        with pytest.raises(ConfigError, match=f"cannot be moved to entry {target}") as caught:
            lifecycle.apply_offset(plan, "test", "ada")
        assert caught.value.safe == "Nothing was changed."
    assert connector.store.load_offset("test") == before


def test_going_back_over_a_changed_structure_is_refused(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    """Rows before the statement would be read with the structure after it."""
    db.add_column("shop.a", "later", "int32")
    insert(db, "shop.b", 9)
    db.create_table("shop.c", KEYED, key=("id",))
    insert(db, "shop.c", 1)
    connector.capture()
    over = lifecycle.plan_offset(MemoryPosition(5))
    assert "structure of shop.a was changed in between, at entry 7" in over.problems[0]
    assert "Go back no further than entry 7" in over.problems[0]
    assert lifecycle.plan_offset(MemoryPosition(7)).problems == ()
    db.add_column("shop.b", "later", "int32")
    connector.capture()
    assert "no further than entry 11" in lifecycle.plan_offset(MemoryPosition(5)).problems[0]
    assert lifecycle.plan_offset(MemoryPosition(7)).problems != ()


def test_going_back_over_a_new_table_is_allowed(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    """It has no rows before it was created."""
    db.create_table("shop.c", KEYED, key=("id",))
    db.add_column("shop.c", "later", "int32")
    insert(db, "shop.c", 1)
    connector.capture()
    plan = lifecycle.plan_offset(MemoryPosition(5))
    assert plan.problems == ()
    lifecycle.apply_offset(plan, "test", "ada")
    connector.capture()
    the_same(connector, db, "shop.a", "shop.b", "shop.c")


def test_a_connector_without_a_position_is_not_given_one(db: MemoryDatabase, tmp_path: Path) -> None:
    """Its structures are not known, and its tables were not read."""
    fresh = memory_connector(db, tmp_path / "fresh")
    with open_steering(fresh) as life:
        fresh.store.register_connector(ConnectorRegistration("test", "memory", "x"))
        plan = life.plan_offset(MemoryPosition(2))
        assert "has no position: its next run begins with a snapshot of all tables" in plan.problems[0]
        with pytest.raises(ConfigError):
            life.apply_offset(plan, "test", "ada")
    assert fresh.store.load_offset("test").offset is None


@pytest.mark.parametrize("confirmation", [None, "", "yes", "Test", "test "])
def test_nothing_is_changed_without_the_connectors_name(
    connector: Connector, lifecycle: ConnectorLifecycle, confirmation: str | None
) -> None:
    before = connector.store.load_offset("test")
    for do in (
        lambda: lifecycle.apply_offset(lifecycle.plan_offset(MemoryPosition(4)), confirmation, "ada"),
        lambda: lifecycle.reset_offset(confirmation, "ada"),
        lambda: lifecycle.delete(confirmation, "ann", with_changelog=True),
        lambda: lifecycle.repair_gap(GapRepair.SKIP, confirmation, "ada"),
    ):
        with pytest.raises(ConfigError, match="not confirmed") as caught:
            do()
        assert caught.value.remedy == "confirm the change with test"
    assert connector.store.load_offset("test") == before
    assert len(connector.changelog.list_batches("test")) == 3


def test_nothing_is_changed_while_a_run_is_alive(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    before, plan = connector.store.load_offset("test"), lifecycle.plan_offset(MemoryPosition(4))
    with connector.store.acquire_lease("test", "worker-1", wait_s=0):
        for do in (
            lambda: lifecycle.apply_offset(plan, "test", "ada"),
            lambda: lifecycle.reset_offset("test", "ada"),
            lambda: lifecycle.delete("test", "ann", with_changelog=True),
            lambda: lifecycle.repair_gap(GapRepair.SKIP, "test", "ada"),
        ):
            with pytest.raises(LeaseHeld, match="worker-1") as caught:
                do()
            assert "airflow cdc pause test" in (caught.value.remedy or "")
    assert connector.store.load_offset("test") == before
    assert len(connector.changelog.list_batches("test")) == 3


def test_a_plan_is_void_once_the_offset_has_moved(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    plan = lifecycle.plan_offset(MemoryPosition(4))
    insert(db, "shop.a", 5)
    connector.capture()
    with pytest.raises(CommitConflict, match="has moved since the plan was made"):
        lifecycle.apply_offset(plan, "test", "ada")
    equal(connector, db)


def test_a_batch_that_a_killed_run_left_comes_before_the_change(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next run would adopt it, and undo the change without a word."""
    insert(db, "shop.a", 5)
    with monkeypatch.context() as m:

        def die_at_once(*_: Any) -> None:
            raise KeyboardInterrupt

        m.setattr(type(connector.store), "commit_batch", die_at_once)
        with pytest.raises(KeyboardInterrupt):
            connector.capture()
    assert connector.changelog.list_batches("test") == [1, 2, 3, 4]
    plan = lifecycle.plan_offset(MemoryPosition(4))
    with pytest.raises(CommitConflict):
        lifecycle.apply_offset(plan, "test", "ada")
    again = lifecycle.plan_offset(MemoryPosition(4))
    assert again.now == "entry 7"
    lifecycle.apply_offset(again, "test", "ada")
    assert connector.capture().batches == [5]
    the_same(connector, db, "shop.a", "shop.b")


# forgetting it, and going back


def test_after_a_reset_all_tables_are_read_again_into_the_same_change_log(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    delete(db, "shop.a", 1)
    db.purge_log()
    with pytest.raises(PositionLost):
        connector.capture()
    plan = lifecycle.plan_offset(None)
    assert (plan.effect, plan.now, plan.target) == (OffsetEffect.SNAPSHOT, "entry 6", "none")
    stored = lifecycle.apply_offset(plan, "test", "ada")
    assert stored.offset.in_log("") == Offset(seq=8, batch=3)
    result = connector.capture()
    assert operations(connector, result) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    assert result.batches == [4]
    equal(connector, db)


def test_snapshots_that_a_reset_forgets_end_as_failed(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    number = connector.store.send("test", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    connector.store.set_signal_state("test", number, SignalState.RUNNING)
    state = SnapshotState(pending={"shop.a": PendingTable(request=number, select="SELECT 1")})
    with connector.store.acquire_lease("test", "me", wait_s=0) as lease:
        stored = connector.store.load_offset("test")
        assert stored.offset is not None
        offset = stored.offset.model_copy(update={"snapshot": state, "signal": number})
        connector.store.advance_offset(lease, stored, offset)
    plan = lifecycle.plan_offset(None)
    assert f"signals [{number}] end as failed" in plan.consequences[-1]
    after = lifecycle.apply_offset(plan, "test", "ada")
    assert after.offset.in_log("") == Offset(seq=8, batch=3, signal=number)
    (signal,) = connector.store.signals_of("test")
    assert (signal.state, signal.message) == (
        "failed",
        "ada changed the offset (reset); send the signal again.",
    )


def test_an_offset_that_was_forgotten_can_be_restored(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    (before,) = connector.store.offset_history("test", 1)
    lifecycle.reset_offset("test", "ada")
    plan = lifecycle.plan_restore(before.version)
    assert (plan.effect, plan.now, plan.target) == (OffsetEffect.NOTHING, "none", "entry 6")
    lifecycle.apply_offset(plan, "test", "ada")
    assert connector.store.load_offset("test").offset == before.offset
    assert connector.store.offset_history("test", 1)[0].reason == f"restored from version {before.version}, by ada"
    insert(db, "shop.a", 5)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_restoring_an_older_offset_repeats_what_came_after_it_under_new_numbers(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    oldest = connector.store.offset_history("test", 10)[-1]
    plan = lifecycle.plan_restore(oldest.version)
    assert (plan.effect, plan.now, plan.target) == (OffsetEffect.REPEAT, "entry 6", "entry 4")
    lifecycle.apply_offset(plan, "test", "ada")
    result = connector.capture()
    assert (result.batches, result.seq) == ([4], 10)
    the_same(connector, db, "shop.a", "shop.b")


def test_a_table_that_a_statement_has_rewritten_is_still_to_be_read_after_a_restore(
    connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    """A signal has asked for it too; that request is void."""
    with connector.store.acquire_lease("test", "me", wait_s=0) as lease:
        stored = connector.store.load_offset("test")
        assert stored.offset is not None
        due = SnapshotState().add_pending({"shop.a": True, "shop.b": True}, request=7).add_pending({"shop.a": True})
        stored = connector.store.advance_offset(lease, stored, stored.offset.with_snapshot(due))
        connector.store.advance_offset(lease, stored, stored.offset.clear_position())
    restored = lifecycle.plan_restore(stored.version).offset.snapshot
    assert restored.pending == {"shop.a": PendingTable(held=True)}


def test_a_version_that_there_never_was_cannot_be_restored(lifecycle: ConnectorLifecycle) -> None:
    with pytest.raises(ConfigError, match="no offset of version 99") as caught:
        lifecycle.plan_restore(99)
    assert caught.value.remedy == "airflow cdc offset history test"


# deleting


def test_a_deleted_connector_is_gone_and_its_change_log_stays(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    lifecycle.delete("test", "ann")
    assert connector.store.list_connectors() == []
    assert connector.changelog.list_batches("test") == [1, 2, 3]
    insert(db, "shop.a", 5)
    result = connector.capture()  # the change log says where it stood
    assert result.batches == [4]
    equal(connector, db)


def test_a_deletion_is_recorded(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    lifecycle.delete("test", "ann", with_changelog=True)
    (record,) = connector.store.list_notifications("test")
    assert record.notification.additional_data == {
        "connector_name": "test", "by": "ann", "action": "delete", "what": "with its change log",
    }  # fmt: skip


def test_with_its_change_log_it_begins_again(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    lifecycle.delete("test", "ann", with_changelog=True)
    assert connector.changelog.list_connectors() == []
    result = connector.capture()
    assert (result.batches, result.seq) == ([1], 8)


def test_a_deletion_that_fails_in_the_middle_can_be_made_again(
    connector: Connector, lifecycle: ConnectorLifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(type(connector.store), "delete_connector", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lifecycle.delete("test", "ann", with_changelog=True)
    with pytest.raises(ChangeLogDamaged):
        connector.capture()
    lifecycle.delete("test", "ann", with_changelog=True)
    assert connector.capture().batches == [1]
