"""Leases to write: one run at a time, by the database's clock."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from airflow_provider_cdc.core.errors import LeaseHeld, LeaseLost
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.state.models import LeaseRow
from airflow_provider_cdc.state.state_database import _NOW_MS
from airflow_provider_cdc.state.state_store import StateStore
from tests.state.conftest import Stores, expires_ms
from tests.support.change_log.manifests import manifest
from tests.support.patience import LONGEST_S, wait_until

ROOT = Path(__file__).resolve().parents[2]


def _row(store: StateStore, connector: str = "c") -> sa.Row[tuple[str | None, int, int]]:
    with store.database.engine.connect() as c:
        return c.execute(
            sa.select(LeaseRow.owner, LeaseRow.epoch, LeaseRow.expires_ms).where(LeaseRow.connector == connector)
        ).one()


def _dead_run(store: StateStore, owner: str = "dead") -> Lease:
    """A lease whose run died without giving it back."""
    return store.leases.acquire("c", owner, 0)


def test_each_lease_has_a_higher_epoch(store: StateStore) -> None:
    epochs = []
    for _ in range(3):
        with store.acquire_lease("c", "me", wait_s=0) as lease:
            epochs.append(lease.epoch)
            assert _row(store).owner == "me"
    assert epochs == [1, 2, 3]
    assert _row(store) == (None, 3, 0)


def test_leases_of_different_connectors_do_not_meet(store: StateStore) -> None:
    with store.acquire_lease("c", "me", wait_s=0), store.acquire_lease("d", "me", wait_s=0) as other:
        assert other.epoch == 1


def test_a_held_lease_is_refused_with_holder_and_time(store: StateStore, stores: Stores) -> None:
    with store.acquire_lease("c", "worker-1:42", wait_s=0):
        with pytest.raises(LeaseHeld) as caught, stores().acquire_lease("c", "other", wait_s=0):
            pytest.fail("two runs at once")
        assert caught.value.message == "Connector c is being captured by worker-1:42."
        assert "its lease expires in" in (caught.value.remedy or "")
        assert _row(store)[:2] == ("worker-1:42", 1)


def test_the_same_owner_twice_is_two_runs(store: StateStore) -> None:
    """A retry of the same task has the same name; the run before it may still be alive."""
    with store.acquire_lease("c", "me", wait_s=0), pytest.raises(LeaseHeld), store.acquire_lease("c", "me", wait_s=0):
        pytest.fail("two runs at once")


def test_a_lease_is_given_back_when_the_run_fails(store: StateStore) -> None:
    with pytest.raises(KeyError), store.acquire_lease("c", "me", wait_s=0):
        raise KeyError
    with store.acquire_lease("c", "other", wait_s=0) as lease:
        assert lease.epoch == 2


def test_who_waits_gets_the_lease_when_it_is_given_back(store: StateStore, stores: Stores) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with store.acquire_lease("c", "first", wait_s=0):
            held.set()
            release.wait(LONGEST_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(LONGEST_S)
    threading.Timer(0.2, release.set).start()
    with stores().acquire_lease("c", "second", wait_s=20) as lease:
        assert release.is_set()
        assert lease.epoch == 2
    thread.join()


def test_the_lease_of_a_dead_run_ends_by_itself(stores: Stores) -> None:
    dead = _dead_run(stores(lease_ttl_s=0.5))
    began = time.monotonic()
    with stores().acquire_lease("c", "next", wait_s=20) as lease:
        assert lease.epoch == dead.epoch + 1
    assert 0.3 < time.monotonic() - began < 10


def test_the_clock_of_the_worker_does_not_matter(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is a day ahead must not take a lease away."""
    _dead_run(stores(lease_ttl_s=30))
    now = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now * 1e9))
    with pytest.raises(LeaseHeld), stores().acquire_lease("c", "other", wait_s=0):
        pytest.fail("two runs at once")


def test_a_living_run_renews_its_lease(stores: Stores, renewed_often: None) -> None:
    store, other = stores(lease_ttl_s=60), stores()
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        first = _row(store).expires_ms
        end = time.monotonic() + LONGEST_S
        while _row(store).expires_ms <= first + 1000:  # lives longer than without renewal
            assert time.monotonic() < end
            with pytest.raises(LeaseHeld), other.acquire_lease("c", "other", wait_s=0):
                pytest.fail("two runs at once")
            time.sleep(0.05)
        store.confirm_lease(lease)


# after another run has taken over


def _taken_over(stores: Stores) -> tuple[StateStore, Lease, Lease]:
    store = stores(lease_ttl_s=0.2)
    old = _dead_run(store, "old")
    return store, old, stores(lease_ttl_s=30).leases.acquire("c", "new", 20)


def test_a_run_that_was_taken_over_can_write_nothing(stores: Stores) -> None:
    store, old, new = _taken_over(stores)
    there = store.advance_offset(new, store.load_offset("c"), Offset(position={"entry": 1}))
    for write in (
        lambda: store.confirm_lease(old),
        lambda: store.advance_offset(old, there, Offset(position={"entry": 2})),
        lambda: store.commit_batch(old, there, manifest(), "path"),
    ):
        with pytest.raises(LeaseLost, match="taken over by new") as caught:
            write()
        assert caught.value.where == "lease epoch 1, now 2"
    assert store.load_offset("c") == there
    assert store.list_batches("c") == []
    assert list(store.schema_history("c")) == []


def test_a_run_that_was_taken_over_does_not_give_the_others_lease_back(stores: Stores) -> None:
    store, old, new = _taken_over(stores)
    before = _row(store)
    store.leases.release(old)
    assert _row(store) == before
    store.confirm_lease(new)


def test_a_run_that_was_taken_over_does_not_renew_the_others_lease(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    store, old, _new = _taken_over(stores)
    before = _row(store)
    with caplog.at_level(logging.WARNING):
        store.leases.keep_alive(old, threading.Event())  # returns by itself
    assert "The lease of c was taken over" in caplog.text
    assert _row(store) == before


def test_a_lease_that_has_run_out_and_that_no_one_took_is_still_good(stores: Stores) -> None:
    """A pause longer than the lease is harmless as long as no one else came."""
    store = stores(lease_ttl_s=0.1)
    lease = _dead_run(store)
    with store.database.engine.connect() as c:
        while c.scalar(store.database.now_ms) <= _row(store).expires_ms:
            time.sleep(0.02)
            c.rollback()
    store.confirm_lease(lease)
    assert store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1})).version == 1


def test_a_connector_without_a_lease_row_is_lost(store: StateStore) -> None:
    with pytest.raises(LeaseLost, match="taken over by another process"):
        store.confirm_lease(Lease("never", "me", 1))


# several processes

WORK = """
import sys
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.core.model.connector_offset import Offset
store = StateStore(sys.argv[1], lease_ttl_s=10)
for _ in range(int(sys.argv[3])):
    with store.acquire_lease("c", sys.argv[2], wait_s=100) as lease:
        there = store.load_offset("c")
        store.advance_offset(lease, there, Offset(position={"by": sys.argv[2]}, seq=(there.offset.seq if there.offset else 0) + 1))
"""


def test_many_processes_at_once_write_one_after_the_other(store: StateStore, url: str) -> None:
    """Each reads, adds one and writes; a write lost or repeated would show in the sum."""
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK, url, f"w{i}", "3"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for i in range(3)
    ]
    errors = [w.communicate(timeout=LONGEST_S)[1] for w in workers]
    assert [w.returncode for w in workers] == [0, 0, 0], errors
    there = store.load_offset("c")
    assert there.offset is not None
    assert (there.version, there.offset.seq) == (9, 9)
    assert _row(store).epoch == 9
    with store.database.engine.connect() as c:
        history = c.execute(sa.text('SELECT "offset", epoch FROM cdc_offset_history ORDER BY version')).all()
    offsets = [json.loads(o) if isinstance(o, str) else o for o, _ in history]
    assert [o["seq"] for o in offsets] == list(range(1, 10))
    assert [e for _, e in history] == list(range(1, 10))


def test_first_leases_of_a_connector_at_the_same_moment_are_one(stores: Stores) -> None:
    """The row does not exist yet: of several that insert it, one wins."""
    for n in range(5):
        barrier, actual, held = threading.Barrier(4), [], []

        def take_lease(
            store: StateStore,
            n: int = n,
            barrier: threading.Barrier = barrier,
            got: list[Lease] = actual,
            held: list[LeaseHeld] = held,
        ) -> None:
            barrier.wait(LONGEST_S)
            try:
                got.append(store.leases.acquire(f"c{n}", "someone", 0))
            except LeaseHeld as e:
                held.append(e)

        threads = [threading.Thread(target=take_lease, args=(stores(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(actual), len(held)) == (1, 3)
        assert actual[0].epoch == 1


def test_a_run_that_is_frozen_within_a_transaction_does_not_lock_the_others_out(postgres_url: str) -> None:
    frozen, other = StateStore(postgres_url, lease_ttl_s=1), StateStore(postgres_url, lease_ttl_s=1)
    try:
        lease = _dead_run(frozen)
        transaction = frozen.database.open_transaction()
        connection = transaction.__enter__()
        frozen.leases.lock_lease(connection, lease)  # the row is locked, and nothing follows
        began = time.monotonic()
        with other.acquire_lease("c", "other", wait_s=20) as taken:
            assert taken.epoch == lease.epoch + 1
        assert time.monotonic() - began < 15
        with pytest.raises(DBAPIError) as woken:
            connection.execute(sa.text("SELECT 1"))
        assert woken.value.connection_invalidated
        with pytest.raises(LeaseLost):
            frozen.confirm_lease(lease)
    finally:
        other.close()
        frozen.close()


def test_a_renewal_goes_on_whatever_error_it_meets(
    postgres: Any, postgres_url: str, renewed_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is away for a moment, as in an upgrade: no error of the connection, and no reason to let the lease run out."""
    name = postgres_url.rpartition("/")[2]
    store, other = StateStore(postgres_url, lease_ttl_s=60), StateStore(postgres_url)
    with store.acquire_lease("shop", "first", wait_s=0):
        postgres.sql("ALTER TABLE cdc_lease RENAME TO cdc_lease_away", database=name)
        wait_until(lambda: "could not be renewed, trying again" in caplog.text, "a renewal has failed")
        postgres.sql("ALTER TABLE cdc_lease_away RENAME TO cdc_lease", database=name)
        before = expires_ms(store, "shop")
        wait_until(lambda: expires_ms(store, "shop") > before, "it is renewed again")
        with pytest.raises(LeaseHeld), other.acquire_lease("shop", "second", wait_s=0):
            pass
    store.close()
    other.close()


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_leases_do_not_stand_still_when_local_time_goes_back(kind: str, request: pytest.FixtureRequest) -> None:
    """At 06:00 UTC of the first day, 02:00 becomes 01:00; every local time in between is there twice."""
    server, night = request.getfixturevalue(kind), 1_700_028_000
    server.sql(
        "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9876, 'N')",
        "INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Test/Autumn', 9876)",
        "INSERT INTO mysql.time_zone_transition_type VALUES (9876, 0, -14400, 1, 'SUM'), (9876, 1, -18000, 0, 'WIN')",
        f"INSERT INTO mysql.time_zone_transition VALUES (9876, {night - 86400 * 90}, 0), (9876, {night}, 1)",
    )
    try:
        for moment in (night - 1800, night + 1800, night + 5400):
            (now,) = server.sql(
                "SET time_zone = 'Test/Autumn'", f"SET timestamp = {moment}", f"SELECT {_NOW_MS['mysql']}"
            )
            assert now == (moment * 1000,)
    finally:
        server.sql(*(f"DELETE FROM mysql.{table} WHERE Time_zone_id = 9876" for table in
                     ("time_zone", "time_zone_name", "time_zone_transition_type", "time_zone_transition")))  # fmt: skip
