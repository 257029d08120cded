"""A log that no longer holds the position: the gap is reported, and repaired."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.errors import (
    CommitConflict,
    ConfigError,
    PrerequisiteError,
)
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair
from airflow_provider_cdc.core.model.connector_offset import IncrementalState, TableScan
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.signal_request_parser import parse_request
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.lifecycle.steering import delete, open_steering
from tests.support.connectors import Connector
from tests.support.workloads.small_tables import KEYED, equal, insert


@pytest.fixture
def log_gap(db: MemoryDatabase, connector: Connector) -> None:
    """Row 5 came and row 1 went, and the log has only row 6."""
    insert(db, "shop.a", 5)
    delete(db, "shop.a", 1)
    insert(db, "shop.a", 6)
    db.purge_log(8)


def test_there_is_no_gap_while_the_log_holds_the_position(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    assert lifecycle.find_gap() is None
    before = connector.store.load_offset("test")
    with pytest.raises(ConfigError, match="No gap: "):
        lifecycle.repair_gap(GapRepair.SKIP, "test", "ada")
    assert connector.store.load_offset("test") == before


@pytest.mark.usefixtures("log_gap")
def test_a_gap_is_reported_with_both_ends_and_its_time(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    found = lifecycle.find_gap()
    assert found is not None
    moved = connector.store.find_connector("test").moved_at.isoformat(timespec="seconds")
    assert str(found) == (
        f"Lost: all changes committed after entry 6 ({moved}) and before entry 8, the oldest position that can be read."
    )
    assert found.to_document() == {
        "connector": "test", "position": {"entry": 6}, "moved_at": moved, "oldest": {"entry": 8}, "comparable": True,
        "why": found.why,
    }  # fmt: skip


def test_a_log_that_was_reset_is_distinguished(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    del db.log[2:]
    found = lifecycle.find_gap()
    assert found is not None
    assert not found.comparable
    assert "the log was reset, or belongs to another server" in str(found)


@pytest.mark.usefixtures("log_gap")
def test_a_gap_repaired_by_a_snapshot_leaves_no_difference(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    done = lifecycle.repair_gap(GapRepair.SNAPSHOT, "test", "ada")
    assert (str(done.gap.position), done.signal) == ("entry 6", None)
    assert connector.store.offset_history("test", 1)[0].reason == "gap repaired by snapshot, from entry 6, by ada"
    connector.capture()
    equal(connector, db)


@pytest.mark.usefixtures("log_gap")
def test_a_snapshot_that_would_leave_the_gap_is_refused(connector: Connector) -> None:
    before = connector.store.load_offset("test")
    for properties, words in (
        ({"snapshot_mode": "no_data"}, "reads no rows"),
        ({"snapshot_include_collection_list": "shop.a"}, "leaves tables out"),
    ):
        with open_steering(connector, **properties) as life, pytest.raises(ConfigError, match=words):
            life.repair_gap(GapRepair.SNAPSHOT, "test", "ada")
    assert connector.store.load_offset("test") == before


@pytest.mark.usefixtures("log_gap")
def test_a_gap_that_is_skipped_goes_on_from_the_oldest_place(
    connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    lifecycle.repair_gap(GapRepair.SKIP, "test", "ada")
    result = connector.capture()
    assert (result.events, result.batches, result.seq) == (1, [4], 9)
    assert [row["id"] for row in connector.rows("shop.a")] == [1, 2, 3, 4, 6]
    assert lifecycle.find_gap() is None


@pytest.mark.usefixtures("log_gap")
def test_a_gap_is_repaired_beside_the_stream_from_the_oldest_place(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    done = lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    (signal,) = connector.store.list_signals("test", 0)
    assert signal.number == done.signal
    request = parse_request(Signal(1, signal.id, signal.type, signal.data))
    assert (request.collections, request.blocking, request.replace) == ((r"shop\.a", r"shop\.b"), False, True)  # type: ignore[union-attr]
    stored = connector.store.load_offset("test").offset
    assert stored is not None
    assert stored.position == {"entry": 8}
    connector.capture(run_for_s=3)
    assert connector.store.signals_of("test")[0].state == "done"
    equal(connector, db)


@pytest.mark.usefixtures("log_gap")
def test_a_repair_is_carried_out_whichever_channels_are_enabled(db: MemoryDatabase, connector: Connector) -> None:
    connector.properties["signal.enabled.channels"] = "source"
    with open_steering(connector) as life:
        life.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    connector.capture()
    (signal,) = connector.store.signals_of("test")
    assert (signal.channel, signal.sent_by, signal.state) == ("repair", "ada", "done")
    equal(connector, db)


@pytest.mark.usefixtures("log_gap")
def test_a_repair_does_not_wait_for_incremental_snapshots_that_are_paused(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    stored = connector.store.load_offset("test")
    paused = IncrementalState(scans=[TableScan(table="shop.a", request=1)], paused=True)
    assert stored.offset is not None
    with connector.store.acquire_lease("test", "somebody", wait_s=0) as lease:
        connector.store.replace_offset(lease, stored, stored.offset.model_copy(update={"incremental": paused}), "")
    lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    connector.capture()
    assert {s.type: s.state for s in connector.store.signals_of("test")} == {
        "execute-snapshot": "done", "resume-snapshot": "done"
    }  # fmt: skip
    equal(connector, db)


@pytest.mark.usefixtures("log_gap")
def test_a_table_without_a_key_cannot_be_repaired_beside_the_stream(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    db.create_table("shop.keyless", KEYED)
    before = connector.store.load_offset("test")
    with pytest.raises(PrerequisiteError, match=r"or with a nullable key: shop\.keyless has no key"):
        lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    assert connector.store.load_offset("test") == before
    assert connector.store.list_signals("test", 0) == []


@pytest.mark.usefixtures("log_gap")
def test_a_repair_that_dies_before_the_offset_moves_sends_its_signal_once(
    connector: Connector, lifecycle: ConnectorLifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(type(connector.store), "replace_offset", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    assert lifecycle.find_gap() is not None
    done = lifecycle.repair_gap(GapRepair.INCREMENTAL, "test", "ada")
    assert [s.number for s in connector.store.list_signals("test", 0)] == [done.signal]


@pytest.mark.usefixtures("log_gap")
def test_the_plan_of_a_repair_says_what_it_reads_and_changes_nothing(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    before = connector.store.load_offset("test")
    plans = {how: lifecycle.plan_repair(how) for how in GapRepair}
    assert {how: (plan.tables, plan.whole, plan.problems) for how, plan in plans.items()} == {
        GapRepair.SNAPSHOT: (("shop.a", "shop.b"), (), ()), GapRepair.INCREMENTAL: (("shop.a", "shop.b"), (), ()), GapRepair.SKIP: ((), (), ())
    }  # fmt: skip
    assert {plan.version for plan in plans.values()} == {before.version}
    db.add_column("shop.b", "more", "int32")
    db.create_table("shop.keyless", KEYED)
    db.create_table("shop.loose", {"id": "int64"}, key=("id",))
    plan = lifecycle.plan_repair(GapRepair.INCREMENTAL)
    assert (plan.tables, plan.whole) == (("shop.a", "shop.b", "shop.keyless", "shop.loose"), ("shop.b",))
    uncut = "or with a nullable key: shop.keyless has no key, shop.loose: id is nullable. Remedy: repair the gap with a snapshot"
    assert uncut in plan.problems[0]
    with open_steering(connector, snapshot_mode="no_data") as other:
        assert "reads no rows" in other.plan_repair(GapRepair.SNAPSHOT).problems[0]
    assert (connector.store.load_offset("test"), connector.store.list_signals("test", 0)) == (before, [])


@pytest.mark.usefixtures("log_gap")
def test_a_repair_is_carried_out_only_as_planned(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    planned = lifecycle.plan_repair(GapRepair.SKIP).version
    with pytest.raises(CommitConflict, match="has moved since the plan was made"):
        lifecycle.repair_gap(GapRepair.SKIP, "test", "ada", version=planned - 1)
    assert connector.store.load_offset("test").version == planned
    lifecycle.repair_gap(GapRepair.SKIP, "test", "ada", version=planned)
    with pytest.raises(ConfigError, match="No gap: "):
        lifecycle.plan_repair(GapRepair.SKIP)
