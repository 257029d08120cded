"""The two kinds of database that the state tables are tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.state.store import StateStore

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


def _create(address: str) -> None:
    store = StateStore(address)
    store.create_tables()
    store.close()
