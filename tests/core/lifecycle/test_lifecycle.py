"""Steering a connector: what it would mean first, then the thing itself, and nothing without a confirmation."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.capture.run import Run
from airflow_provider_cdc.core.errors import (
    ChangeLogDamaged,
    CommitConflict,
    ConfigError,
    ConnectorHalted,
    LeaseHeld,
    PositionLost,
    PrerequisiteError,
)
from airflow_provider_cdc.core.lifecycle.lifecycle import Lifecycle
from airflow_provider_cdc.core.lifecycle.log_gap import Repair
from airflow_provider_cdc.core.lifecycle.offset_plan import Effect
from airflow_provider_cdc.core.lifecycle.status import RunState
from airflow_provider_cdc.core.model.offset import IncrementalState, Offset, PendingTable, Scan, SnapshotState
from airflow_provider_cdc.core.model.signal import SentSignal, Signal, SignalState
from airflow_provider_cdc.core.signals.requests import parse
from airflow_provider_cdc.core.spi.interfaces import DesiredState
from airflow_provider_cdc.core.spi.records import Registration
from airflow_provider_cdc.runtime import open_lifecycle
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.position import MemoryPosition
from tests.support.connectors import Connector, memory_connector
from tests.support.shop import KEYED, equal, insert, operations


@pytest.fixture
def connector(db: MemoryDatabase, tmp_path: Path) -> Iterator[Connector]:
    """A connector that has captured four rows, and then two more in a batch each: entry 6, seq 8, batch 3."""
    connector = memory_connector(db, tmp_path)
    connector.capture()
    for i in (3, 4):
        insert(db, "shop.a", i)
        connector.capture()
    yield connector
    connector.store.close()


@contextlib.contextmanager
def steering(connector: Connector, **properties: Any) -> Iterator[Lifecycle]:
    with open_lifecycle(connector.definition(**properties), connector.state_url) as lifecycle:
        yield lifecycle


@pytest.fixture
def life(connector: Connector) -> Iterator[Lifecycle]:
    with steering(connector) as lifecycle:
        yield lifecycle


def delete(db: MemoryDatabase, table: str, *ids: int) -> None:
    with db.transaction() as t:
        for i in ids:
            t.delete(table, {"id": i})


def merged(connector: Connector, table: str) -> list[dict[str, Any]]:
    """Rows of a table as a target has them that keeps the last event of each key: events may come twice."""
    rows: dict[int, dict[str, Any] | None] = {}
    for manifest in connector.changelog.manifests("test"):
        files = [connector.changelog.open("test", f) for f in manifest.files if f.topic == f"test.{table}"]
        events = [event for file in files for event in pq.read_table(file).to_pylist()]
        for event in sorted(events, key=lambda e: e["seq"]):
            if event["op"] == "t":
                rows.clear()
            else:
                rows[event["key"]["id"]] = event["after"]
    return sorted((row for row in rows.values() if row is not None), key=repr)


def the_same(connector: Connector, db: MemoryDatabase, *tables: str) -> None:
    for table in tables:
        assert merged(connector, table) == sorted(db.rows(table), key=repr), table


# how it stands


def test_states_follow_what_runs_and_people_do(connector: Connector, life: Lifecycle) -> None:
    assert life.status().state is RunState.UNASSIGNED
    with connector.store.lease("test", "worker-1", wait_s=0):
        running = life.status()
        assert (running.state, running.owner) == (RunState.RUNNING, "worker-1")
        assert running.since is not None
        life.pause("ada", "upgrade")
        ending = life.status()
        assert (ending.state, ending.wanted, ending.asked_by, ending.reason) == ("running", "paused", "ada", "upgrade")
    connector.store.ended("test", None)
    paused = life.status()
    assert paused.state is RunState.PAUSED
    assert paused.since == paused.run_ended_at
    life.stop("ada")
    assert life.status().state is RunState.STOPPED
    life.resume("ada")
    assert life.status().state is RunState.UNASSIGNED
    connector.store.ended("test", "the log is gone")
    failed = life.status()
    assert (failed.state, failed.last_error, failed.since) == (RunState.FAILED, "the log is gone", failed.run_ended_at)
    connector.store.ended("test", None)
    again = life.status()
    assert (again.state, again.last_error, again.last_error_at) == ("unassigned", "the log is gone", failed.since)


def test_a_run_that_was_killed_is_a_failure(connector: Connector, life: Lifecycle) -> None:
    connector.store.leases._ttl_ms = 50
    connector.store.leases.acquire("test", "worker-1", 0)
    while (status := life.status()).owner is not None:
        pass
    assert status.state is RunState.FAILED
    assert status.last_error is not None
    assert "worker-1 did not give its lease back" in status.last_error


def test_a_status_tells_what_is_captured_and_what_is_under_way(connector: Connector, life: Lifecycle) -> None:
    number = connector.store.send("test", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    done = connector.store.send("test", SentSignal("old", "log"))
    connector.store.set_signal_state("test", done, SignalState.DONE)
    connector.store.set_signal_state("test", number, SignalState.RUNNING, progress={"tables": 2, "left": 1})
    status = life.status()
    assert (status.position, status.seq, status.batch, status.source) == ({"entry": 6}, 8, 3, "memory")
    assert [s.number for s in status.signals] == [number]
    document = json.loads(json.dumps(status.document()))
    assert document["state"] == "unassigned"
    assert document["signals"][0]["progress"] == {"tables": 2, "left": 1}
    assert document["moved_at"].endswith("+00:00")


def test_a_restart_is_asked_for_and_what_is_wanted_stays(connector: Connector, life: Lifecycle) -> None:
    life.pause("ada")
    assert life.restart("bob").restarts == 1
    assert connector.store.control("test").wanted is DesiredState.PAUSED


def test_a_connector_that_never_ran_is_not_steered(connector: Connector) -> None:
    unknown = Lifecycle("tset", connector.store)
    for ask in (unknown.status, lambda: unknown.pause("ada"), lambda: unknown.delete("tset")):
        with pytest.raises(ConfigError, match="No connector 'tset' has run yet"):
            ask()
    assert connector.store.control("tset").since is None


# moving the offset


def test_going_forward_is_told_as_a_loss_and_skips_exactly_that(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    for i in (5, 6, 7):
        insert(db, "shop.a", i)
    plan = life.plan_offset(MemoryPosition(8))
    assert (plan.effect, plan.now, plan.target, plan.problems) == (Effect.SKIP, "entry 6", "entry 8", ())
    assert (
        "SKIPPED: everything that was committed after entry 6 up to entry 8 is captured never." in plan.consequences[0]
    )
    stored = life.apply_offset(plan, "test", "ada")
    assert stored.offset is not None
    assert (stored.offset.position, stored.offset.seq, stored.offset.batch) == ({"entry": 8}, 8, 3)
    newest, before = connector.store.offset_history("test", 2)
    assert newest.reason == "set to entry 8, by ada"
    assert before.offset.position == {"entry": 6}
    result = connector.capture()
    assert (result.batches, result.events, result.seq) == ([4], 1, 9)
    assert [row["id"] for row in connector.rows("shop.a")] == [1, 2, 3, 4, 7]


def test_going_back_is_told_with_the_events_that_come_again(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    plan = life.plan_offset(MemoryPosition(4))
    assert plan.effect is Effect.REPEAT
    assert (
        "REPEATED: everything that was committed after entry 4 up to entry 6 is captured once more"
        in plan.consequences[0]
    )
    assert "at most 2 events, of the last 2 batches" in plan.consequences[1]
    life.apply_offset(plan, "test", "ada")
    result = connector.capture()
    assert operations(connector, result) == {"a": {"c": 2}}
    assert (result.batches, result.seq) == ([4], 10)
    the_same(connector, db, "shop.a", "shop.b")


def test_staying_is_told_to_change_nothing(life: Lifecycle) -> None:
    plan = life.plan_offset(MemoryPosition(6))
    assert (plan.effect, plan.consequences) == (Effect.NOTHING, ("The connector stands there.",))


def test_a_place_that_cannot_be_read_is_a_problem_and_not_applied(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    before = connector.store.load("test")
    db.purge(5)
    for target, words in ((3, "holds entries 5 to 6"), (9, "holds entries 5 to 6")):
        plan = life.plan_offset(MemoryPosition(target))
        assert words in plan.problems[0]
        with pytest.raises(ConfigError, match=f"cannot be moved to entry {target}") as caught:
            life.apply_offset(plan, "test", "ada")
        assert caught.value.safe == "Nothing was changed."
    assert connector.store.load("test") == before


def test_going_back_over_a_changed_structure_is_refused(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    """Rows before the statement would be read with the structure after it."""
    db.add_column("shop.a", "later", "int32")
    insert(db, "shop.b", 9)
    db.create_table("shop.c", KEYED, key=("id",))
    insert(db, "shop.c", 1)
    connector.capture()
    over = life.plan_offset(MemoryPosition(5))
    assert "structure of shop.a was changed in between, at entry 7" in over.problems[0]
    assert "Go back no further than entry 7" in over.problems[0]
    assert life.plan_offset(MemoryPosition(7)).problems == ()
    db.add_column("shop.b", "later", "int32")
    connector.capture()
    assert "no further than entry 11" in life.plan_offset(MemoryPosition(5)).problems[0]
    assert life.plan_offset(MemoryPosition(7)).problems != ()


def test_going_back_over_a_new_table_is_allowed(db: MemoryDatabase, connector: Connector, life: Lifecycle) -> None:
    """It has no rows before it was created."""
    db.create_table("shop.c", KEYED, key=("id",))
    db.add_column("shop.c", "later", "int32")
    insert(db, "shop.c", 1)
    connector.capture()
    plan = life.plan_offset(MemoryPosition(5))
    assert plan.problems == ()
    life.apply_offset(plan, "test", "ada")
    connector.capture()
    the_same(connector, db, "shop.a", "shop.b", "shop.c")


def test_a_connector_without_a_position_is_not_given_one(db: MemoryDatabase, tmp_path: Path) -> None:
    """Its structures are not known, and its tables were not read."""
    fresh = memory_connector(db, tmp_path / "fresh")
    with steering(fresh) as life:
        fresh.store.register(Registration("test", "memory", "x"))
        plan = life.plan_offset(MemoryPosition(2))
        assert "has no position: its next run reads all tables first" in plan.problems[0]
        with pytest.raises(ConfigError):
            life.apply_offset(plan, "test", "ada")
    assert fresh.store.load("test").offset is None


@pytest.mark.parametrize("confirmation", [None, "", "yes", "Test", "test "])
def test_nothing_is_changed_without_the_connectors_name(
    connector: Connector, life: Lifecycle, confirmation: str | None
) -> None:
    before = connector.store.load("test")
    for do in (
        lambda: life.apply_offset(life.plan_offset(MemoryPosition(4)), confirmation, "ada"),
        lambda: life.reset(confirmation, "ada"),
        lambda: life.delete(confirmation, with_changelog=True),
        lambda: life.repair(Repair.SKIP, confirmation, "ada"),
    ):
        with pytest.raises(ConfigError, match="not confirmed") as caught:
            do()
        assert caught.value.remedy == "confirm it with test"
    assert connector.store.load("test") == before
    assert len(connector.changelog.batches("test")) == 3


def test_nothing_is_changed_while_a_run_is_alive(connector: Connector, life: Lifecycle) -> None:
    before, plan = connector.store.load("test"), life.plan_offset(MemoryPosition(4))
    with connector.store.lease("test", "worker-1", wait_s=0):
        for do in (
            lambda: life.apply_offset(plan, "test", "ada"),
            lambda: life.reset("test", "ada"),
            lambda: life.delete("test", with_changelog=True),
            lambda: life.repair(Repair.SKIP, "test", "ada"),
        ):
            with pytest.raises(LeaseHeld, match="worker-1") as caught:
                do()
            assert "airflow cdc pause test" in (caught.value.remedy or "")
    assert connector.store.load("test") == before
    assert len(connector.changelog.batches("test")) == 3


def test_a_plan_is_void_once_the_offset_has_moved(db: MemoryDatabase, connector: Connector, life: Lifecycle) -> None:
    plan = life.plan_offset(MemoryPosition(4))
    insert(db, "shop.a", 5)
    connector.capture()
    with pytest.raises(CommitConflict, match="has moved since the plan was made"):
        life.apply_offset(plan, "test", "ada")
    equal(connector, db)


def test_a_batch_that_a_killed_run_left_comes_before_the_change(
    db: MemoryDatabase, connector: Connector, life: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next run would adopt it, and undo the change without a word."""
    insert(db, "shop.a", 5)
    with monkeypatch.context() as m:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        m.setattr(type(connector.store), "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            connector.capture()
    assert connector.changelog.batches("test") == [1, 2, 3, 4]
    plan = life.plan_offset(MemoryPosition(4))
    with pytest.raises(CommitConflict):
        life.apply_offset(plan, "test", "ada")
    again = life.plan_offset(MemoryPosition(4))
    assert again.now == "entry 7"
    life.apply_offset(again, "test", "ada")
    assert connector.capture().batches == [5]
    the_same(connector, db, "shop.a", "shop.b")


# forgetting it, and going back


def test_after_a_reset_all_tables_are_read_again_into_the_same_change_log(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    delete(db, "shop.a", 1)
    db.purge()
    with pytest.raises(PositionLost):
        connector.capture()
    plan = life.plan_offset(None)
    assert (plan.effect, plan.now, plan.target) == (Effect.SNAPSHOT, "entry 6", "none")
    stored = life.apply_offset(plan, "test", "ada")
    assert stored.offset == Offset(seq=8, batch=3)
    result = connector.capture()
    assert operations(connector, result) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    assert result.batches == [4]
    equal(connector, db)


def test_snapshots_that_a_reset_forgets_end_as_failed(connector: Connector, life: Lifecycle) -> None:
    number = connector.store.send("test", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    connector.store.set_signal_state("test", number, SignalState.RUNNING)
    state = SnapshotState(pending={"shop.a": PendingTable(request=number, select="SELECT 1")})
    with connector.store.lease("test", "me", wait_s=0) as lease:
        stored = connector.store.load("test")
        assert stored.offset is not None
        offset = stored.offset.model_copy(update={"snapshot": state, "signal": number})
        connector.store.advance(lease, stored, offset)
    plan = life.plan_offset(None)
    assert f"signals [{number}] end as failed" in plan.consequences[-1]
    after = life.apply_offset(plan, "test", "ada")
    assert after.offset == Offset(seq=8, batch=3, signal=number)
    (signal,) = connector.store.signals_of("test")
    assert (signal.state, signal.message) == (
        "failed",
        "The offset was changed (reset) by ada; send the signal again.",
    )


def test_an_offset_that_was_forgotten_can_be_restored(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    (before,) = connector.store.offset_history("test", 1)
    life.reset("test", "ada")
    plan = life.plan_restore(before.version)
    assert (plan.effect, plan.now, plan.target) == (Effect.NOTHING, "none", "entry 6")
    life.apply_offset(plan, "test", "ada")
    assert connector.store.load("test").offset == before.offset
    assert connector.store.offset_history("test", 1)[0].reason == f"restored from version {before.version}, by ada"
    insert(db, "shop.a", 5)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_restoring_an_older_offset_repeats_what_came_after_it_under_new_numbers(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    oldest = connector.store.offset_history("test", 10)[-1]
    plan = life.plan_restore(oldest.version)
    assert (plan.effect, plan.now, plan.target) == (Effect.REPEAT, "entry 6", "entry 4")
    life.apply_offset(plan, "test", "ada")
    result = connector.capture()
    assert (result.batches, result.seq) == ([4], 10)
    the_same(connector, db, "shop.a", "shop.b")


def test_a_table_that_a_statement_has_rewritten_is_still_to_be_read_after_a_restore(
    connector: Connector, life: Lifecycle
) -> None:
    """A signal has asked for it too; that request is void."""
    with connector.store.lease("test", "me", wait_s=0) as lease:
        stored = connector.store.load("test")
        assert stored.offset is not None
        due = SnapshotState().pend({"shop.a": True, "shop.b": True}, request=7).pend({"shop.a": True})
        stored = connector.store.advance(lease, stored, stored.offset.snapshots(due))
        connector.store.advance(lease, stored, stored.offset.forgotten())
    restored = life.plan_restore(stored.version).offset.snapshot
    assert restored.pending == {"shop.a": PendingTable(held=True)}


def test_a_version_that_there_never_was_cannot_be_restored(life: Lifecycle) -> None:
    with pytest.raises(ConfigError, match="no offset of version 99") as caught:
        life.plan_restore(99)
    assert caught.value.remedy == "airflow cdc offset history test"


# deleting


def test_a_deleted_connector_is_gone_and_its_change_log_stays(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    life.delete("test")
    assert connector.store.connectors() == []
    assert connector.changelog.batches("test") == [1, 2, 3]
    insert(db, "shop.a", 5)
    result = connector.capture()  # the change log says where it stood
    assert result.batches == [4]
    equal(connector, db)


def test_with_its_change_log_it_begins_anew(db: MemoryDatabase, connector: Connector, life: Lifecycle) -> None:
    life.delete("test", with_changelog=True)
    assert connector.changelog.connectors() == []
    result = connector.capture()
    assert (result.batches, result.seq) == ([1], 8)


def test_a_deletion_that_fails_in_the_middle_can_be_made_again(
    connector: Connector, life: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(type(connector.store), "forget", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            life.delete("test", with_changelog=True)
    with pytest.raises(ChangeLogDamaged):
        connector.capture()
    life.delete("test", with_changelog=True)
    assert connector.capture().batches == [1]


# gaps


@pytest.fixture
def gap(db: MemoryDatabase, connector: Connector) -> None:
    """Row 5 came and row 1 went, and the log has only row 6."""
    insert(db, "shop.a", 5)
    delete(db, "shop.a", 1)
    insert(db, "shop.a", 6)
    db.purge(8)


def test_there_is_no_gap_while_the_log_holds_the_position(connector: Connector, life: Lifecycle) -> None:
    assert life.gap() is None
    before = connector.store.load("test")
    with pytest.raises(ConfigError, match="There is no gap"):
        life.repair(Repair.SKIP, "test", "ada")
    assert connector.store.load("test") == before


@pytest.mark.usefixtures("gap")
def test_a_gap_is_told_with_both_ends_and_its_time(connector: Connector, life: Lifecycle) -> None:
    found = life.gap()
    assert found is not None
    moved = connector.store.connector("test").moved_at.isoformat(timespec="seconds")
    assert str(found) == (
        f"Lost: everything that was committed after entry 6 ({moved}) and before entry 8, the oldest position that can be read."
    )
    assert found.document() == {
        "connector": "test", "position": {"entry": 6}, "moved_at": moved, "oldest": {"entry": 8}, "comparable": True,
        "why": found.why,
    }  # fmt: skip


def test_a_log_that_was_reset_is_told_apart(db: MemoryDatabase, connector: Connector, life: Lifecycle) -> None:
    del db.log[2:]
    found = life.gap()
    assert found is not None
    assert not found.comparable
    assert "the log was reset, or belongs to another server" in str(found)


@pytest.mark.usefixtures("gap")
def test_a_gap_repaired_by_a_snapshot_leaves_no_difference(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    done = life.repair(Repair.SNAPSHOT, "test", "ada")
    assert (str(done.gap.position), done.signal) == ("entry 6", None)
    assert connector.store.offset_history("test", 1)[0].reason == "gap repaired by snapshot, from entry 6, by ada"
    connector.capture()
    equal(connector, db)


@pytest.mark.usefixtures("gap")
def test_a_snapshot_that_would_leave_the_gap_is_refused(connector: Connector) -> None:
    before = connector.store.load("test")
    for properties, words in (
        ({"snapshot_mode": "no_data"}, "would read no rows"),
        ({"snapshot_include_collection_list": "shop.a"}, "leaves tables out"),
    ):
        with steering(connector, **properties) as life, pytest.raises(ConfigError, match=words):
            life.repair(Repair.SNAPSHOT, "test", "ada")
    assert connector.store.load("test") == before


@pytest.mark.usefixtures("gap")
def test_a_gap_that_is_skipped_goes_on_from_the_oldest_place(connector: Connector, life: Lifecycle) -> None:
    life.repair(Repair.SKIP, "test", "ada")
    result = connector.capture()
    assert (result.events, result.batches, result.seq) == (1, [4], 9)
    assert [row["id"] for row in connector.rows("shop.a")] == [1, 2, 3, 4, 6]
    assert life.gap() is None


@pytest.mark.usefixtures("gap")
def test_a_gap_is_repaired_beside_the_stream_from_the_oldest_place(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    done = life.repair(Repair.INCREMENTAL, "test", "ada")
    (signal,) = connector.store.signals("test", 0)
    assert signal.number == done.signal
    request = parse(Signal(1, signal.id, signal.type, signal.data))
    assert (request.collections, request.blocking, request.replace) == ((r"shop\.a", r"shop\.b"), False, True)  # type: ignore[union-attr]
    stored = connector.store.load("test").offset
    assert stored is not None
    assert stored.position == {"entry": 8}
    connector.capture(run_for_s=3)
    assert connector.store.signals_of("test")[0].state == "done"
    equal(connector, db)


@pytest.mark.usefixtures("gap")
def test_a_repair_is_carried_out_whichever_channels_are_enabled(db: MemoryDatabase, connector: Connector) -> None:
    connector.properties["signal.enabled.channels"] = "source"
    with steering(connector) as life:
        life.repair(Repair.INCREMENTAL, "test", "ada")
    connector.capture()
    (signal,) = connector.store.signals_of("test")
    assert (signal.channel, signal.sent_by, signal.state) == ("repair", "ada", "done")
    equal(connector, db)


@pytest.mark.usefixtures("gap")
def test_a_repair_does_not_wait_for_incremental_snapshots_that_are_paused(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    stored = connector.store.load("test")
    paused = IncrementalState(scans=[Scan(table="shop.a", request=1)], paused=True)
    assert stored.offset is not None
    with connector.store.lease("test", "somebody", wait_s=0) as lease:
        connector.store.replace_offset(lease, stored, stored.offset.model_copy(update={"incremental": paused}), "")
    life.repair(Repair.INCREMENTAL, "test", "ada")
    connector.capture()
    assert {s.type: s.state for s in connector.store.signals_of("test")} == {
        "execute-snapshot": "done", "resume-snapshot": "done"
    }  # fmt: skip
    equal(connector, db)


@pytest.mark.usefixtures("gap")
def test_a_table_without_a_key_cannot_be_repaired_beside_the_stream(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    db.create_table("shop.keyless", KEYED)
    before = connector.store.load("test")
    with pytest.raises(PrerequisiteError, match=r"without a key cannot be read in chunks: shop\.keyless"):
        life.repair(Repair.INCREMENTAL, "test", "ada")
    assert connector.store.load("test") == before
    assert connector.store.signals("test", 0) == []


@pytest.mark.usefixtures("gap")
def test_a_repair_that_dies_before_the_offset_moves_sends_its_signal_once(
    connector: Connector, life: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(type(connector.store), "replace_offset", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            life.repair(Repair.INCREMENTAL, "test", "ada")
    assert life.gap() is not None
    done = life.repair(Repair.INCREMENTAL, "test", "ada")
    assert [s.number for s in connector.store.signals("test", 0)] == [done.signal]


# with a run that is alive


def test_a_run_that_is_alive_ends_within_seconds_of_a_pause_and_nothing_runs_until_resume(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    ended: list[float] = []
    run = threading.Thread(target=lambda: (connector.capture(run_for_s=60), ended.append(time.monotonic())))
    run.start()
    while life.status().state is not RunState.RUNNING:
        time.sleep(0.05)
    insert(db, "shop.a", 5)
    asked = time.monotonic()
    life.pause("ada", "upgrade")
    run.join()
    assert ended[0] - asked < 30, "it was to run for a minute"
    assert life.status().state is RunState.PAUSED
    with pytest.raises(ConnectorHalted, match="ada"):
        connector.capture()
    insert(db, "shop.a", 6)
    life.resume("ada")
    connector.capture()
    equal(connector, db)


def test_a_restart_that_is_asked_for_while_a_run_begins_ends_it(
    connector: Connector, life: Lifecycle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has its lease, so that people see it running, and has not looked yet at what they want."""
    begin = Run.__init__

    def asked(run: Run, *args: Any) -> None:
        life.restart("ada")
        begin(run, *args)

    monkeypatch.setattr(Run, "__init__", asked)
    connector.capture(run_for_s=3)
    assert "The connector is to be restarted by ada: ending." in caplog.text


def test_a_run_that_is_alive_ends_when_a_restart_is_asked_for(connector: Connector, life: Lifecycle) -> None:
    run = threading.Thread(target=lambda: connector.capture(run_for_s=60))
    run.start()
    while life.status().state is not RunState.RUNNING:
        time.sleep(0.05)
    life.restart("ada")
    run.join(50)  # it was to run for a minute
    assert not run.is_alive()
    assert connector.capture().events == 0
