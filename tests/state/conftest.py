"""The two kinds of database that the state tables are tested on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.state.models import LeaseRow
from airflow_provider_cdc.state.state_store import StateStore

Stores = Callable[..., StateStore]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a new state database, with its tables."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/state.db"
        _create(address)
        yield address
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.fixture
def postgres_url(postgres: Any) -> Iterator[str]:
    """Address of a new state database on PostgreSQL, with its tables."""
    with postgres.database("state") as name:
        _create(postgres.url(name))
        yield postgres.url(name)


@pytest.fixture
def stores(url: str) -> Iterator[Stores]:
    """Opens stores on the state database: ``stores(lease_ttl_s=1)``."""
    opened: list[StateStore] = []

    def open_one(**options: Any) -> StateStore:
        opened.append(StateStore(url, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(stores: Stores) -> StateStore:
    return stores()


class _HurriedEvent(threading.Event):
    """Time goes by a hundred times as fast for waits of the tests."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else timeout / 100)


@pytest.fixture
def renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases live as long as configured, and are renewed a hundred times as often: no machine is so busy that one runs out."""
    hurried = SimpleNamespace(Event=_HurriedEvent, Thread=threading.Thread)
    monkeypatch.setattr("airflow_provider_cdc.state.leases.threading", hurried)


def expires_ms(store: StateStore, connector: str) -> int:
    """Return the time at which a connector's lease ends by itself, in milliseconds of the database's clock."""
    with store.database.engine.connect() as c:
        found = c.scalar(sa.select(LeaseRow.expires_ms).where(LeaseRow.connector == connector))
    assert found is not None
    return int(found)


def _create(address: str) -> None:
    store = StateStore(address)
    store.create_tables()
    store.close()
