"""A database that goes away at the wrong moment: before the answer, for a while, or for good."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CommitConflict, CommitStateUnknown, LeaseHeld, StateUnavailable
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.spi.store_interfaces import StoredOffset
from airflow_provider_cdc.state.models import OffsetHistoryRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.state.conftest import expires_ms
from tests.support.change_log.manifests import manifest
from tests.support.patience import wait_until
from tests.support.servers.lossy_proxy import Proxy


@pytest.fixture
def proxy(postgres: Any) -> Iterator[Proxy]:
    with Proxy(postgres.host, postgres.port) as proxy:
        yield proxy


def _proxied_url(proxy: Proxy, postgres: Any, url: str) -> str:
    return url.replace(f":{postgres.port}/", f":{proxy.port}/") + "?sslmode=disable&gssencmode=disable"


@pytest.fixture
def store(proxy: Proxy, postgres: Any, postgres_url: str) -> Iterator[StateStore]:
    """A store whose renewals of leases come too late to meet what the proxy does."""
    store = StateStore(_proxied_url(proxy, postgres, postgres_url), lease_ttl_s=30)
    yield store
    store.close()


def _next_commit(proxy: Proxy) -> None:
    """Lose the answer to the next COMMIT, once."""
    once = iter([True])
    proxy.lose = lambda data: b"COMMIT" in data and next(once, False)


def _versions(store: StateStore) -> list[int]:
    with store.database.engine.connect() as c:
        return list(c.scalars(sa.select(OffsetHistoryRow.version).order_by(OffsetHistoryRow.version)))


def test_a_commit_whose_answer_was_lost_is_recognised(store: StateStore, proxy: Proxy) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        stored = store.load_offset("c")
        for n in (1, 2):  # the first inserts the row, the second changes it
            _next_commit(proxy)
            stored = store.commit_batch(lease, stored, m := manifest(n, first=3 * n - 2), "x")
            assert proxy.lost == n
            assert stored == store.load_offset("c") == StoredOffset(m.offset_after, n)
    assert [b.batch for b in store.list_batches("c")] == [2, 1]
    assert [r.seq for r in store.schema_history("c")] == [1, 4]
    assert _versions(store) == [1, 2]


def test_a_database_that_is_lost_with_the_answer_to_a_commit_leaves_it_open_what_is_durable(
    proxy: Proxy, postgres: Any, postgres_url: str
) -> None:
    store, other = StateStore(_proxied_url(proxy, postgres, postgres_url), patience_s=1), StateStore(postgres_url)

    def lose_commit(data: bytes) -> bool:
        if b"COMMIT" in data:
            proxy.refuse()
        return b"COMMIT" in data

    with store.acquire_lease("c", "me", wait_s=0) as lease:
        before = store.load_offset("c")
        proxy.lose = lose_commit
        with pytest.raises(CommitStateUnknown, match="The offset of c may have moved or not") as caught:
            store.commit_batch(lease, before, m := manifest(), "x")
    assert "cdc:***@127.0.0.1" in (caught.value.where or "")
    assert "run the capture again" in (caught.value.remedy or "")
    assert other.load_offset("c") == StoredOffset(m.offset_after, 1), "this time it was durable"
    store.close()
    other.close()


def test_a_database_that_is_lost_before_the_commit_is_known_to_have_kept_nothing(
    proxy: Proxy, postgres: Any, postgres_url: str
) -> None:
    store, other = StateStore(_proxied_url(proxy, postgres, postgres_url), patience_s=1), StateStore(postgres_url)

    def lose_insert(data: bytes) -> bool:
        if b"INSERT INTO cdc_batch" in data:
            proxy.refuse()
        return b"INSERT INTO cdc_batch" in data

    with store.acquire_lease("c", "me", wait_s=0) as lease:
        before = store.load_offset("c")
        proxy.lose = lose_insert
        with pytest.raises(StateUnavailable, match="cannot be reached"):
            store.commit_batch(lease, before, manifest(), "x")
    assert other.load_offset("c") == before
    store.close()
    other.close()


def test_an_advance_whose_answer_was_lost_is_recognised(store: StateStore, proxy: Proxy) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        _next_commit(proxy)
        stored = store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1}))
    assert proxy.lost == 1
    assert stored == store.load_offset("c")
    assert _versions(store) == [1]


def test_a_commit_that_was_lost_before_it_arrived_is_made_again(store: StateStore, postgres: Any, proxy: Proxy) -> None:
    """The server process is killed while the transaction is open."""
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        before = store.load_offset("c")
        once = iter([True])

        def kill(data: bytes) -> bool:
            if b"INSERT INTO cdc_batch" in data and next(once, False):
                postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%'")
            return False

        proxy.lose = kill
        stored = store.commit_batch(lease, before, manifest(), "x")
    assert next(once, None) is None
    assert stored == store.load_offset("c")
    assert [b.batch for b in store.list_batches("c")] == [1]
    assert _versions(store) == [1]


def test_someone_elses_write_is_not_taken_for_a_lost_answer(store: StateStore, proxy: Proxy) -> None:
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        before = store.load_offset("c")
        store.advance_offset(lease, before, Offset(position={"entry": 7}))
        with pytest.raises(CommitConflict):
            store.advance_offset(lease, before, Offset(position={"entry": 8}))


def test_a_lease_whose_answer_was_lost_ends_by_itself(proxy: Proxy, postgres: Any, postgres_url: str) -> None:
    """No one knows that it was got; it is held until its time is over, and then taken again."""
    store = StateStore(_proxied_url(proxy, postgres, postgres_url), lease_ttl_s=1)
    _next_commit(proxy)
    with store.acquire_lease("c", "me", wait_s=20) as lease:
        store.confirm_lease(lease)
    assert (proxy.lost, lease.epoch) == (1, 2)
    store.close()


def test_a_renewal_whose_connection_is_lost_is_made_again(
    proxy: Proxy, postgres: Any, postgres_url: str, renewed_often: None
) -> None:
    store, other = StateStore(_proxied_url(proxy, postgres, postgres_url), lease_ttl_s=60), StateStore(postgres_url)
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        _next_commit(proxy)
        wait_until(lambda: proxy.lost, "the answer to a renewal is lost")
        before = expires_ms(other, "c")
        wait_until(lambda: expires_ms(other, "c") > before + 1000, "it is renewed again")
        with pytest.raises(LeaseHeld), other.acquire_lease("c", "other", wait_s=0):
            pytest.fail("two runs at once")
        store.confirm_lease(lease)
    assert proxy.lost == 1
    store.close()
    other.close()


# unreachable


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.check_tables(),
        lambda s: s.load_offset("c"),
        lambda s: list(s.schema_history("c")),
        lambda s: s.leases.acquire("c", "me", 0),
    ],
    ids=["verify", "load", "schema history", "lease"],
)
def test_a_database_that_is_away_for_a_while_is_waited_for(
    ask: Callable[[StateStore], Any], postgres: Any, postgres_url: str
) -> None:
    with Proxy(postgres.host, postgres.port, listen=False) as proxy:
        store = StateStore(_proxied_url(proxy, postgres, postgres_url), patience_s=60)
        began = time.monotonic()
        threading.Timer(0.5, proxy.listen).start()
        ask(store)
        assert time.monotonic() - began > 0.4
        store.close()


def test_a_database_that_stays_away_is_an_error_for_the_person_on_call(postgres: Any, postgres_url: str) -> None:
    with Proxy(postgres.host, postgres.port, listen=False) as proxy:
        url = _proxied_url(proxy, postgres, postgres_url)
        store = StateStore(url, patience_s=0.5)
        began = time.monotonic()
        with pytest.raises(StateUnavailable, match="cannot be reached") as caught:
            store.load_offset("c")
        assert 0.4 < time.monotonic() - began < 15
        assert f"cdc:***@127.0.0.1:{proxy.port}/" in (caught.value.where or "")
        assert caught.value.safe
        assert caught.value.remedy
        store.close()


def test_a_locked_sqlite_database_is_waited_for(tmp_path: Path) -> None:
    store = StateStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.5, lambda: other.execute("ROLLBACK")).start()
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        assert store.advance_offset(lease, store.load_offset("c"), Offset(position={"entry": 1})).version == 1
    store.close()
    other.close()
