"""Old rows of the state tables go, and never one that a run, a rewind within the retention or an open signal needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.lifecycle.state_retention import prune_state, removed_text, retention_of
from airflow_provider_cdc.core.model.connector_offset import Offset, SnapshotState
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.state import pruning
from airflow_provider_cdc.state.models import BatchRow, NotificationRow, OffsetHistoryRow, OffsetTableRow, SignalRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.manifests import manifest

NOW = datetime(2031, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NOTHING = {"offset_history": 0, "batches": 0, "notifications": 0, "signals": 0}


@pytest.fixture
def lease(store: StateStore) -> Iterator[Lease]:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        yield lease


def age_rows(
    store: StateStore, row: Any, number: Any, values: dict[int, timedelta], column: str = "created_at"
) -> None:
    """Give rows an age."""
    with store.database.open_transaction() as c:
        for n, age in values.items():
            c.execute(sa.update(row).where(number == n).values({column: NOW - age}))


def days(days: int | None) -> StateRetention:
    keep = None if days is None else timedelta(days=days)
    return StateRetention(keep, keep, keep, keep)


def versions(store: StateStore) -> list[int]:
    return [r.version for r in reversed(store.offset_history("c", 1000))]


def test_offsets_within_the_retention_stay_with_the_one_that_was_in_force_when_it_began(
    store: StateStore, lease: Lease
) -> None:
    """Each has its tables as it had them."""
    names = [f"s.{n}" for n in range(10)]
    offset = Offset(position={"entry": 0}).with_snapshot(SnapshotState().add_pending(dict.fromkeys(names, False)))
    stored, written = store.load_offset("c"), []
    for n, name in enumerate(names):
        offset = offset.with_snapshot(offset.snapshot.record_read([name], {"entry": n}))
        stored = store.advance_offset(lease, stored, offset)
        written.append(offset)
    age_rows(store, OffsetHistoryRow, OffsetHistoryRow.version, {v: (11 - v) * DAY for v in range(1, 11)})
    assert store.prune_rows("c", days(3), NOW + timedelta(hours=1)) == NOTHING | {"offset_history": 7}
    assert versions(store) == [8, 9, 10]
    assert [r.offset for r in reversed(store.offset_history("c"))] == written[7:]
    assert store.load_offset("c") == stored
    with store.database.engine.connect() as c:
        assert c.scalar(sa.select(sa.func.count()).where(OffsetTableRow.until_version <= 8)) == 0
    assert store.prune_rows("c", days(3), NOW + timedelta(hours=1)) == NOTHING


def test_the_present_offset_and_the_newest_batch_stay_however_old_they_are(store: StateStore, lease: Lease) -> None:
    stored = store.load_offset("c")
    for n in range(1, 4):
        stored = store.commit_batch(lease, stored, manifest(n, first=1 + (n - 1) * 3), "x")
    assert store.prune_rows("c", days(1), NOW + 1000 * DAY) == NOTHING | {"offset_history": 2, "batches": 2}
    assert versions(store) == [3]
    assert [b.batch for b in store.list_batches("c")] == [3]
    assert store.load_offset("c") == stored
    store.commit_batch(lease, stored, manifest(4, first=10), "x")
    assert len(list(store.schema_history("c"))) == 4


def test_notifications_go_by_their_age(store: StateStore, lease: Lease) -> None:
    notifications = [Notification(aggregate_type="Initial Snapshot", type=str(n)) for n in range(6)]
    store.commit_batch(lease, store.load_offset("c"), manifest(notifications=notifications), "x")
    with store.database.engine.connect() as c:
        ids = c.scalars(sa.select(NotificationRow.id).order_by(NotificationRow.id)).all()
    age_rows(store, NotificationRow, NotificationRow.id, {id_: (5 - n) * DAY for n, id_ in enumerate(ids)})
    age_rows(store, BatchRow, BatchRow.batch, {1: 0 * DAY})
    assert store.prune_rows("c", days(2), NOW)["notifications"] == 3
    assert [n.notification.type for n in store.list_notifications("c")] == ["3", "4", "5"]


def test_signals_go_after_their_end_and_open_ones_stay(store: StateStore, lease: Lease) -> None:
    number = {state: store.send("c", SentSignal(state.value, "log", "{}", "airflow")) for state in SignalState}
    for state, n in number.items():
        store.set_signal_state("c", n, state, "said")
    with store.database.open_transaction() as c:
        c.execute(sa.update(SignalRow).values(received_at=NOW - 900 * DAY, running_at=NOW - 900 * DAY))
        c.execute(sa.update(SignalRow).where(SignalRow.ended_at.is_not(None)).values(ended_at=NOW - 3 * DAY))
    final = [state for state in SignalState if state.is_final]
    assert store.prune_rows("c", days(4), NOW) == NOTHING
    assert store.prune_rows("c", days(2), NOW) == NOTHING | {"signals": len(final)}
    assert {s.state for s in store.signals_of("c")} == {s for s in SignalState if not s.is_final}
    assert all(s.data == "{}" for s in store.signals_of("c"))
    after = store.send("c", SentSignal("new", "log"))
    assert after > max(number.values())  # numbers are never given out again


def test_the_oldest_ended_signals_go_if_all_are_too_large(store: StateStore, lease: Lease) -> None:
    """Signals that may be read once more lose their texts and keep their row."""
    for i in range(6):
        origin = f"kafka:signals:0:{i}@5" if i % 2 else None
        number = store.send("c", SentSignal(str(i), "log", "x" * 1000, "kafka", origin))
        if i != 1:
            store.set_signal_state("c", number, SignalState.DONE, "said")
    retention = StateRetention(None, None, None, None, 2500)
    assert store.prune_rows("c", retention, NOW) == NOTHING | {"signals": 3}
    found = {s.id: len(s.data or "") for s in store.signals_of("c")}
    assert found == {"1": 1000, "3": 0, "4": 1000, "5": 1000}
    assert store.prune_rows("c", retention, NOW) == NOTHING


@pytest.mark.parametrize("origin", ["kafka:signals:0:17@5", 'source:{"file": "x"}', "file:f:1"])
def test_a_signal_that_is_read_once_more_is_not_carried_out_twice(store: StateStore, lease: Lease, origin: str) -> None:
    """A rewind reads the signal table's rows in the log again, Kafka messages come again when the group's offset is lost."""
    sent = SentSignal("s", "execute-snapshot", '{"data-collections": ["s.t"]}', "source", origin)
    number = store.send("c", sent)
    store.set_signal_state("c", number, SignalState.DONE, "read 5 rows", {"tables": 1})
    with store.database.open_transaction() as c:
        c.execute(sa.update(SignalRow).values(ended_at=NOW - 500 * DAY))
    assert store.prune_rows("c", days(30), NOW) == NOTHING | {"signals": 1}
    (kept,) = store.signals_of("c")
    assert (kept.data, kept.message, kept.state) == (None, "", SignalState.DONE)
    assert store.send("c", sent) == number
    assert store.prune_rows("c", days(30), NOW) == NOTHING


def test_nothing_goes_without_a_limit_and_nothing_of_other_connectors(store: StateStore, lease: Lease) -> None:
    stored = store.load_offset("c")
    for n in range(1, 4):
        stored = store.commit_batch(lease, stored, manifest(n, first=1 + (n - 1) * 3), "x")
    assert store.prune_rows("c", days(None), NOW + 1000 * DAY) == NOTHING
    assert store.prune_rows("d", days(1), NOW + 1000 * DAY) == NOTHING
    assert len(store.list_batches("c")) == len(versions(store)) == 3


def test_more_rows_than_one_transaction_removes_all_go(
    store: StateStore, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_AT_ONCE", 3)
    stored = store.load_offset("c")
    for n in range(11):
        stored = store.advance_offset(lease, stored, Offset(position={"entry": n}))
    assert store.prune_rows("c", days(1), NOW + 1000 * DAY)["offset_history"] == 10
    assert versions(store) == [11]


def test_the_properties_say_how_long(store: StateStore, lease: Lease) -> None:
    month = timedelta(days=30)
    assert retention_of("c", {"table.include.list": "x", "no.such": 1}) == StateRetention(
        month, month, month, month, 100_000_000
    )
    named = {
        "state.retention.batches.ms": "86400000",
        "state.retention.signals.ms": -1,
        "state.retention.signals.bytes": -1,
    }
    assert retention_of("c", named) == StateRetention(month, DAY, month, None)
    for wrong in (0, 3_599_999, -2):
        with pytest.raises(ConfigError, match=r"state\.retention\.offset\.history\.ms: .* at least 3600000"):
            retention_of("c", {"state.retention.offset.history.ms": wrong})
    stored = store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1}))
    store.advance_offset(lease, stored, Offset(position={"entry": 2}))
    assert prune_state(store, "c", {}) == NOTHING
    removed = prune_state(store, "c", {}, now=datetime.now(UTC) + 31 * DAY)
    assert removed == NOTHING | {"offset_history": 1}
    assert removed_text(removed) == "rows removed: 1 of offset history."
